"""The running confidence of a response that is streamed, from the log-probabilities in its chunks."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.cutting import ConfidenceCut, RunningConfidence
from langchain_reasc.models.chunks import all_text, metadata_of
from langchain_reasc.models.payloads import FLOOR, Token, read_tokens

__all__ = ["StreamedConfidence"]

_SPELLED: Final = 0.9  # of the text that has come: less, and tokens came without log-probabilities
_ROUNDING: Final = 1e-3
_MOST: Final = 1.02  # the sum of the probabilities at one position


class StreamedConfidence:
    """Tells when a response that is streamed is to be cut.

    It goes by the chunks as they come, and gives up for the rest of a response whose log-probabilities cannot be
    trusted: where text comes without them, as from servers that send them with the last chunk or drop them while they
    parse reasoning; where one cannot be what it claims; and where a token is likelier than the likeliest, or several in
    a chunk have the same alternatives, as under speculative decoding. Such a response is not cut.

    Args:
        cut: when a sample is cut.
    """

    def __init__(self, cut: ConfidenceCut) -> None:
        self._cut, self._running = cut, RunningConfidence(cut)
        self._text = self._spelled = 0  # bytes
        self._trusted = True

    def falls_below(self, chunk: ChatGenerationChunk) -> bool:
        """Take a chunk; return whether the response is to be cut by now."""
        if not self._trusted:
            return False
        try:
            tokens = read_tokens(metadata_of(chunk))
            self._check(tokens, all_text(chunk))
            return self._running.falls_below([self._value(token.logprob, token.alternatives) for token in tokens])
        except LogprobsUnavailable:
            self._trusted = False
            return False

    def _check(self, tokens: Sequence[Token], text: str) -> None:
        self._text += len(text.encode(errors="replace"))
        self._spelled += sum(token.size or 0 for token in tokens)
        if self._spelled < _SPELLED * self._text:
            raise LogprobsUnavailable("text came without log-probabilities")
        alternatives = [token.alternatives for token in tokens if token.alternatives]
        if len(alternatives) > 1 and len(set(alternatives)) < len(alternatives):
            raise LogprobsUnavailable("several tokens came with the same alternatives")

    def _value(self, chosen: Any, alternatives: Sequence[Any]) -> float:
        """The signal of a token, of as many alternatives as the threshold was made of; arrays would take 100 µs."""
        cut = self._cut
        if not all(isinstance(one, float | int) and one <= _ROUNDING for one in (chosen, *alternatives)):
            raise LogprobsUnavailable("a token has a log-probability that is none")
        ranked: list[float] = sorted((max(one, FLOOR) for one in alternatives), reverse=True)
        if chosen <= FLOOR or sum(map(math.exp, ranked)) > _MOST or (ranked and chosen > ranked[0] + _ROUNDING):
            raise LogprobsUnavailable("a token has a log-probability that it cannot have")
        if cut.signal == "token_logprob":
            return min(float(chosen), 0.0)
        ranked = ranked[: cut.top_k]
        if len(ranked) < (cut.top_k or 1) or cut.signal not in ("top_k", "neg_entropy"):
            raise LogprobsUnavailable("there are fewer alternatives than the threshold is made of")
        if cut.signal == "top_k":
            return -fmean(ranked)
        total = math.log(sum(map(math.exp, ranked)))
        return sum(math.exp(one - total) * (one - total) for one in ranked)
