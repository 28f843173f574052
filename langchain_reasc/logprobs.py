"""From a response to its token signals: what our own backends record, or a provider's ``logprobs``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from langchain_core.messages import BaseMessage

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.token_signals import signals_from_alternatives

__all__ = ["token_signals_of"]

Signals = dict[str, npt.NDArray[np.floating[Any]]]
_FLOOR: Final = -50.0  # servers write -9999.0 for "too unlikely to report"; e^-50 says the same and can be averaged
_REQUEST: Final = "ask the model for them (ChatOpenAI: logprobs=True, top_logprobs=20)"


def token_signals_of(message: BaseMessage) -> Signals:
    """The token signals of a response, name -> shape (T,).

    Reads ``response_metadata["token_signals"]`` where a backend recorded them; otherwise the provider's
    ``response_metadata["logprobs"]`` in the shape of OpenAI's chat API, which gives ``token_logprob`` and, where
    alternatives were returned for every token, ``top_k`` and ``neg_entropy`` over the number all tokens have.

    Raises:
        LogprobsUnavailable: none were returned, or they cannot be what they claim. Never a zero instead.
    """
    metadata = message.response_metadata
    if recorded := metadata.get("token_signals"):
        return {name: np.asarray(values, dtype=np.float32) for name, values in recorded.items()}
    payload = metadata.get("logprobs")
    content = payload.get("content") if isinstance(payload, Mapping) else None
    if not content:
        raise LogprobsUnavailable(f"the response carries no token logprobs; {_REQUEST}")
    chosen = _values([token.get("logprob") for token in content])
    ranked = [_values([entry.get("logprob") for entry in token.get("top_logprobs") or ()]) for token in content]
    common = min(map(len, ranked))  # some servers return k + 1 where the chosen token is not among the k
    alternatives = np.array([np.sort(row)[::-1][:common] for row in ranked])
    if len(chosen) > 1 and not chosen.any() and not alternatives.any():
        raise LogprobsUnavailable(
            "every token logprob is exactly 0.0, which no model returns; speculative decoding on the server does this: "
            "switch it off, or count votes with on_missing_confidence='count'"
        )
    names = ("top_k", "token_logprob", "neg_entropy") if common else ("token_logprob",)
    return signals_from_alternatives(chosen, alternatives, signals=names)


def _values(row: Sequence[float | None]) -> npt.NDArray[np.float64]:
    values = np.array([np.nan if value is None else value for value in row], dtype=np.float64)
    if np.isnan(values).any() or (values > 1e-3).any():
        bad = next(value for value in row if value is None or not value <= 1e-3)
        raise LogprobsUnavailable(f"the server returned {bad!r} as a log-probability, which is none")
    return np.maximum(values, _FLOOR)
