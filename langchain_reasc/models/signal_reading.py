"""Token signals of a response: recorded by our backends, or computed from a provider's
log-probabilities.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from langchain_core.messages import AIMessage, BaseMessage, ToolCall

from langchain_reasc.answers import Places
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.method.token_signals import (
    SIGNALS,
    VERBALIZED,
    signals_from_alternatives,
)
from langchain_reasc.models.contract import (
    LOGPROBS_REFUSED,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
    VERBALIZED_CONFIDENCE,
)
from langchain_reasc.models.payloads import (
    Token,
    TokenLogprobs,
    bytes_of_tokens,
    check_logprobs,
    read_tokens,
)
from langchain_reasc.models.token_text import (
    lengths_in,
    recorded_pieces,
    spans_of,
    tokens_of_calls,
)

Signals = dict[str, npt.NDArray[np.floating[Any]]]
_BYTES_OF_TOKEN = 4  # where the provider does not give its text
_REQUEST = "ask the model for them (ChatOpenAI: logprobs=True, top_logprobs=20)"
_NOT_STATED = (
    "the response states no confidence, although it was asked for a line such as "
    "'Confidence: 85%' (one that is held to a schema or a grammar, or only calls "
    "tools, has no room for it)"
)


class Provenance(TypedDict):
    """What a signal is made of: k alternatives per token, a vocabulary of V; None if
    unknown.
    """

    top_k: int | None
    vocabulary_size: int | None


@dataclass(frozen=True, slots=True)
class SignalReading:
    """The token signals of a response, and what they are made of.

    Attributes:
        signals: name -> shape (T,); ``verbalized``, which no token has, shape (1,).
        k: name -> alternatives per token behind a signal that depends on their number,
            if known. Over the whole vocabulary that is V.
        vocabulary_size: V, if a backend knows it.
        withheld: name -> why a signal that such responses can carry is not here.
        notices: what was odd and what was done about it.
        spans: which of the tokens spell the answer, and which the last step; none
            unless they were asked for.
    """

    signals: Signals
    k: Mapping[str, int] = field(default_factory=dict)
    vocabulary_size: int | None = None
    withheld: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    spans: Spans = field(default_factory=Spans)

    def score(self, measure: Measure) -> float:
        """Return S(y), the response's score by a measure.

        Raises:
            LogprobsUnavailable: the response carries no such signal, or it was
                withheld, or has no span that the score is of; the message says why.
            ConfidenceError: the signal is empty or not finite.
        """
        reason = self.withheld.get(measure.signal)
        if reason:
            raise LogprobsUnavailable(f"no {measure.signal!r} signal: {reason}")
        return measure(self.signals, self.spans)

    def provenance(self, signal: str) -> Provenance:
        """Return ``top_k`` and ``vocabulary_size`` as a calibration made of this signal
        records them.
        """
        return {"top_k": self.k.get(signal), "vocabulary_size": self.vocabulary_size}


_Read = tuple[SignalReading, list[bytes] | None, npt.NDArray[np.intp]]


def read_signals(
    message: BaseMessage, *, of_calls: bool = False, places: Places | None = None
) -> SignalReading:
    """Return the token signals of a response, with what they are made of and what was
    odd.

    Reads ``response_metadata["token_signals"]`` if a backend recorded them; otherwise
    what the provider returned, which gives ``token_logprob`` and, if alternatives came
    with the tokens, ``top_k`` and ``neg_entropy`` over them. A response that was asked
    to state its confidence carries ``verbalized`` beside them, shape (1,).

    Args:
        message: the response.
        of_calls: whether it votes for its tool calls. Then only the tokens of their
            names and arguments are read, if they can be told from the others; else all,
            as of any other response.
        places: where its text has the answer and the last step, for a score over their
            tokens; None looks for none.

    Raises:
        LogprobsUnavailable: none were returned, or they cannot be what they claim, and
            no confidence was stated. Never a zero instead.
    """
    if VERBALIZED_CONFIDENCE not in message.response_metadata:
        return _read_tokens(message, of_calls=of_calls, places=places)
    stated = message.response_metadata[VERBALIZED_CONFIDENCE]
    is_stated = (
        isinstance(stated, int | float)
        and not isinstance(stated, bool)
        and 0 <= stated <= 1
    )
    try:
        reading = _read_tokens(message, of_calls=of_calls, places=places)
    except LogprobsUnavailable as error:
        if not is_stated:
            raise LogprobsUnavailable(f"{_NOT_STATED}; and {error}") from None
        # A stated confidence does not need the signals of tokens.
        reading = SignalReading({}, withheld=dict.fromkeys(SIGNALS, str(error)))
    if not is_stated:
        return replace(reading, withheld={**reading.withheld, VERBALIZED: _NOT_STATED})
    return replace(
        reading, signals={**reading.signals, VERBALIZED: np.array([float(stated)])}
    )


def token_logprobs_of(message: BaseMessage) -> TokenLogprobs:
    """Return the log-probabilities of a response's tokens and of their alternatives,
    from any provider's payload.

    Raises:
        LogprobsUnavailable: none were returned, or they cannot be what they claim.
    """
    return _checked_logprobs(read_tokens(message.response_metadata), message)


def count_tokens(metadata: Mapping[str, Any]) -> int:
    """Return the number of tokens that a response's signals or log-probabilities are
    of; 0 if there are none.
    """
    return listed_tokens(metadata)[0]


def listed_tokens(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Return that number, and how many bytes of the response these tokens spell.

    Signals are recorded for every token of a response. A provider may leave out those
    of reasoning and of calls.
    """
    recorded = metadata.get(TOKEN_SIGNALS)
    if isinstance(recorded, Mapping) and recorded:
        # They are of all tokens, so no byte is left to count.
        return int(np.size(next(iter(recorded.values())))), sys.maxsize
    try:
        tokens = read_tokens(metadata)
    except LogprobsUnavailable:
        return 0, 0
    sizes = [token.size for token in tokens if token.size is not None]
    return len(tokens), sum(sizes) + _BYTES_OF_TOKEN * (len(tokens) - len(sizes))


def token_lengths(message: BaseMessage) -> list[int] | None:
    """Return how many characters of the message's text each generated token spells;
    their sum is the text's length.

    A token that spells nothing of the text has 0: one of the reasoning before it, an
    end token, a stop string. So has the rest of a character that is split over several
    tokens: it counts for the one in which it begins.

    Returns:
        As many numbers as tokens were generated; None if the provider or backend does
        not say what they spell, or they do not spell the text. If only some tokens
        carry a signal there are more numbers than values.
    """
    metadata = message.response_metadata
    try:
        if metadata.get(TOKEN_SIGNALS):
            pieces = recorded_pieces(metadata)
        else:
            pieces = bytes_of_tokens(read_tokens(metadata))
    except LogprobsUnavailable:
        return None
    if not pieces:
        return None
    return lengths_in(str(message.text), pieces)


def _read_tokens(
    message: BaseMessage, *, of_calls: bool, places: Places | None
) -> SignalReading:
    """The signals of all tokens, with the spans of the answer; or of the tokens of the
    calls alone.
    """
    calls: list[ToolCall] = []
    if of_calls and isinstance(message, AIMessage):
        calls = message.tool_calls
    if message.response_metadata.get(TOKEN_SIGNALS):
        reader = _read_recorded
    else:
        reader = _compute_from_logprobs
    reading, pieces, token_indices = reader(message, spelled=bool(calls or places))
    # Values of some tokens only cannot be matched to the text.
    shapes = {values.shape for values in reading.signals.values()}
    if not pieces or not shapes <= {token_indices.shape}:
        return reading
    if calls:
        in_calls = tokens_of_calls(pieces, calls)
        # In a format that is not understood, all tokens stand for the calls.
        if in_calls is None or not in_calls[token_indices].any():
            return reading
        mask = in_calls[token_indices]
        whole_span = (0, int(np.count_nonzero(mask)))
        signals = {name: values[mask] for name, values in reading.signals.items()}
        return replace(reading, signals=signals, spans=Spans(whole_span, whole_span))
    if places:
        return replace(reading, spans=spans_of(pieces, places, token_indices))
    return reading


def _read_recorded(message: BaseMessage, *, spelled: bool) -> _Read:
    """The signals that a backend computed itself, for all tokens, and what each token
    spells.
    """
    metadata = message.response_metadata
    info = metadata.get(TOKEN_SIGNALS_INFO)
    try:
        # What does not fit a float32 becomes infinite, which the score reports.
        with np.errstate(over="ignore"):
            signals: Signals = {
                str(name): np.asarray(values, dtype=np.float32)
                for name, values in metadata[TOKEN_SIGNALS].items()
            }
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise LogprobsUnavailable(
            f"the recorded token_signals are not lists of numbers: {error}"
        ) from None
    top_k = _size(info, "top_k")
    vocabulary_size = _size(info, "vocabulary_size")
    k = {}
    if top_k is not None and "top_k" in signals:
        k["top_k"] = top_k
    if vocabulary_size is not None and "neg_entropy" in signals:
        k["neg_entropy"] = vocabulary_size
    reading = SignalReading(signals, k, vocabulary_size=vocabulary_size)
    pieces = recorded_pieces(metadata) if spelled else None
    return reading, pieces, np.arange(len(pieces or ()))


def _size(info: Any, name: str) -> int | None:
    if not isinstance(info, Mapping):
        return None
    value = info.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def _compute_from_logprobs(message: BaseMessage, *, spelled: bool) -> _Read:
    """The signals that a provider's log-probabilities give, what each token spells, and
    the tokens that have one.
    """
    tokens = read_tokens(message.response_metadata)
    checked = _checked_logprobs(tokens, message)
    names = ("top_k", "token_logprob", "neg_entropy")
    signals = signals_from_alternatives(
        checked.chosen,
        checked.alternatives,
        signals=[name for name in names if name not in checked.withheld],
    )
    # If each token is the least likely of its alternatives, these may be k + 1: k and
    # the token, which is not among them. Only an answer of a token or two can look like
    # that.
    may_be_more = (
        checked.k > 1 and (checked.chosen <= checked.alternatives[:, -1]).all()
    )
    k: dict[str, int] = {}
    if not may_be_more:
        k = {name: checked.k for name in signals if name != "token_logprob"}
    reading = SignalReading(
        signals, k=k, withheld=checked.withheld, notices=checked.notices
    )
    return reading, bytes_of_tokens(tokens) if spelled else None, checked.places


def _checked_logprobs(tokens: Sequence[Token], message: BaseMessage) -> TokenLogprobs:
    if not tokens:
        raise LogprobsUnavailable(_missing_reason(message))
    return check_logprobs(tokens, text=str(message.text))


def _missing_reason(message: BaseMessage) -> str:
    refused = message.response_metadata.get(LOGPROBS_REFUSED)
    if refused:
        return f"the model's server refuses logprobs: {refused}"
    if isinstance(message, AIMessage) and not message.text:
        usage: Mapping[str, Any] = message.usage_metadata or {}
        thought = (usage.get("output_token_details") or {}).get("reasoning")
        if thought:
            return (
                f"the model spent {thought} tokens on reasoning, for which it returned "
                "no log-probabilities, and answered nothing; allow it more tokens"
            )
        if message.tool_calls:
            return (
                "the response is a tool call, and no log-probabilities came for it; "
                f"if that is possible, {_REQUEST}"
            )
    return f"the response carries no token logprobs; {_REQUEST}"
