"""Log-probabilities of drawn tokens and of the likeliest ones, in the shape of OpenAI's chat API."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["LogprobWriter", "TokenLogprobs"]

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

_IMPOSSIBLE: Final = -9999.0  # what OpenAI's API says of a token that cannot come; JSON has no infinity


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at T generated tokens, in nats, of the model's raw distribution.

    Attributes:
        tokens: shape (T,), the drawn tokens.
        logprobs: shape (T,), the log-probabilities of the drawn tokens.
        top_tokens: shape (T, k), the k likeliest tokens, from the likeliest down.
        top_logprobs: shape (T, k), the log-probabilities of the likeliest tokens.
    """

    tokens: Integers
    logprobs: Floats
    top_tokens: Integers
    top_logprobs: Floats

    def at(self, places: Sequence[int]) -> "TokenLogprobs":
        """The log-probabilities of some of the tokens, copied."""
        return TokenLogprobs(
            self.tokens[places], self.logprobs[places], self.top_tokens[places], self.top_logprobs[places]
        )


class LogprobWriter:
    """Writes log-probabilities as the entries of OpenAI's ``logprobs.content``. The model must be open."""

    def __init__(self, model: NativeModel) -> None:
        self._spelled = cache(partial(_spelled, model))

    def entries(self, found: TokenLogprobs) -> list[dict[str, Any]]:
        """One entry per token: ``token``, ``bytes``, ``logprob`` and ``top_logprobs``.

        ``bytes`` are exact; ``token`` is their text, with U+FFFD where a token holds a part of a character. Control
        tokens are spelled out, as in ``<|im_end|>``.
        """
        drawn = self._entries(found.tokens, found.logprobs)
        for entry, tokens, logprobs in zip(drawn, found.top_tokens, found.top_logprobs, strict=True):
            entry["top_logprobs"] = self._entries(tokens, np.maximum(logprobs, _IMPOSSIBLE))
        return drawn

    def _entries(self, tokens: Integers, logprobs: Floats) -> list[dict[str, Any]]:
        spelled = map(self._spelled, tokens.tolist())
        return [
            {"token": text, "bytes": [*raw], "logprob": logprob}
            for (text, raw), logprob in zip(spelled, logprobs.tolist(), strict=True)
        ]


def _spelled(model: NativeModel, token: int) -> tuple[str, bytes]:
    """A token's text and its bytes; empty where the model has no vocabulary."""
    raw = model.written(token) if model.has_tokenizer else b""
    return raw.decode("utf-8", "replace"), raw
