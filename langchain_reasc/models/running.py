"""The running confidence of a response that is streamed, from the log-probabilities in its chunks."""

from collections.abc import Sequence

from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.exceptions import ConfidenceError, LogprobsUnavailable
from langchain_reasc.method.cutting import ConfidenceCut, RunningConfidence
from langchain_reasc.method.token_signals import signals_from_alternatives
from langchain_reasc.models.chunks import all_text, metadata_of
from langchain_reasc.models.payloads import Token, check_logprobs, read_tokens

__all__ = ["StreamedConfidence"]

_SPELLED = 0.9  # of the text that has come: less, and tokens came without log-probabilities


class StreamedConfidence:
    """Tells when a response that is streamed is to be cut.

    It goes by the chunks as they come, and gives up for the rest of a response whose log-probabilities cannot be
    trusted: where text comes without them, as from servers that send them with the last chunk or drop them while they
    parse reasoning; where one cannot be what it claims; and where a token of several in a chunk is likelier than the
    likeliest, or has the alternatives of another, as under speculative decoding. Such a response is not cut.

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
            return bool(tokens) and self._running.falls_below(self._values(tokens))
        except (LogprobsUnavailable, ConfidenceError):
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

    def _values(self, tokens: Sequence[Token]) -> list[float]:
        """The signal of these tokens, made of as many alternatives as the threshold was."""
        found, cut = check_logprobs(tokens), self._cut
        if len(found.chosen) < len(tokens) or cut.signal in found.withheld:
            raise LogprobsUnavailable("a token has no log-probability that can be believed")
        alternatives = found.alternatives
        if cut.signal != "token_logprob" and cut.top_k is not None:
            alternatives = alternatives[:, : cut.top_k]
            if alternatives.shape[1] < cut.top_k:
                raise LogprobsUnavailable("a token has fewer alternatives than the threshold is made of")
        if len(tokens) > 1 and alternatives.size and (found.chosen > found.alternatives[:, 0] + 1e-3).any():
            raise LogprobsUnavailable("a token is likelier than the likeliest")
        signals = signals_from_alternatives(found.chosen, alternatives, signals=[cut.signal])
        return [float(value) for value in signals[cut.signal]]
