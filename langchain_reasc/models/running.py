"""The running confidence of a response that is streamed, from the log-probabilities in its chunks."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.cutting import ConfidenceCut, RunningConfidence
from langchain_reasc.models.chunks import metadata_of
from langchain_reasc.models.payloads import FLOOR, Token, read_tokens
from langchain_reasc.models.usage import written

__all__ = ["StreamedConfidence"]

_SPELLED: Final = 0.9  # of the text that has come: less, and tokens came without log-probabilities
_ROUNDING: Final = 1e-3
_SAME: Final = 0.01  # of a token's own log-probability and the one it has among the alternatives
_MOST: Final = 1.02  # the sum of the probabilities at one position


class StreamedConfidence:
    """Tells when a response that is streamed is to be cut.

    It goes by the chunks as they come, and gives up for the rest of a response whose log-probabilities cannot be
    trusted: where text comes without them, as from servers that send them with the last chunk or drop them while they
    parse reasoning; where one cannot be what it claims; and where a token does not belong among its alternatives, or
    several in a chunk have the same ones, as under speculative decoding. Such a response is not cut.

    Args:
        cut: when a sample is cut.

    Attributes:
        untrusted: why the log-probabilities cannot be trusted; None while they can.
    """

    untrusted: str | None = None

    def __init__(self, cut: ConfidenceCut) -> None:
        self._cut, self._running = cut, RunningConfidence(cut)
        self._text = self._spelled = 0  # bytes

    def falls_below(self, chunk: ChatGenerationChunk) -> bool:
        """Take a chunk; return whether the response is to be cut by now."""
        if self.untrusted:
            return False
        try:
            tokens = read_tokens(metadata_of(chunk))
            self._check(tokens, written(chunk.message))
            return self._running.falls_below([self._value(token.logprob, token.alternatives) for token in tokens])
        except LogprobsUnavailable as error:
            self.untrusted = str(error)
            return False

    def _check(self, tokens: Sequence[Token], text: str) -> None:
        self._text += len(text.encode(errors="replace"))
        self._spelled += sum(token.size or 0 for token in tokens)
        if self._spelled < _SPELLED * self._text:
            raise LogprobsUnavailable("text comes before its log-probabilities, or without them")
        alternatives = [token.alternatives for token in tokens if token.alternatives]
        if len(alternatives) > 1 and len(set(alternatives)) < len(alternatives):
            raise LogprobsUnavailable("several tokens came with the same alternatives")

    def _value(self, chosen: Any, alternatives: Sequence[Any]) -> float:
        """The signal of a token, of as many alternatives as the threshold was made of; arrays would take 100 µs."""
        cut, ranked = self._cut, _ranked(chosen, alternatives)
        if cut.signal == "token_logprob":
            return min(float(chosen), 0.0)
        ranked = ranked[: cut.top_k]
        if len(ranked) < (cut.top_k or 1) or cut.signal not in ("top_k", "neg_entropy"):
            raise LogprobsUnavailable("there are fewer alternatives than the threshold is made of")
        if cut.signal == "top_k":
            return -fmean(ranked)
        total = math.log(sum(map(math.exp, ranked)))
        return sum(math.exp(one - total) * (one - total) for one in ranked)


def _ranked(chosen: Any, alternatives: Sequence[Any]) -> list[float]:
    """Return the log-probabilities of the alternatives, the likeliest first, where they and the token's own can be."""
    if not all(isinstance(one, float | int) and one <= _ROUNDING for one in (chosen, *alternatives)):
        raise LogprobsUnavailable("a token has a log-probability that is none")
    ranked: list[float] = sorted((max(one, FLOOR) for one in alternatives), reverse=True)
    if chosen <= FLOOR or sum(map(math.exp, ranked)) > _MOST:
        raise LogprobsUnavailable("a token has a log-probability that it cannot have")
    if ranked and chosen > ranked[-1] + _SAME and not any(abs(chosen - one) <= _SAME for one in ranked):
        raise LogprobsUnavailable("a token is likelier than alternatives that it is not among")
    return ranked
