"""From a response to its token signals: what our own backends record, or a provider's log-probabilities."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
from langchain_core.messages import AIMessage, BaseMessage, ToolCall

from langchain_reasc.answers import Places
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED, signals_from_alternatives
from langchain_reasc.models.contract import (
    LOGPROBS_REFUSED,
    TOKEN_SIGNALS,
    TOKEN_SIGNALS_INFO,
    VERBALIZED_CONFIDENCE,
)
from langchain_reasc.models.logprobs.checks import TokenLogprobs, checked
from langchain_reasc.models.logprobs.deciding import Mask, deciding_tokens, spelled_by
from langchain_reasc.models.logprobs.shapes import Token, tokens_of
from langchain_reasc.models.logprobs.spans import spans_of

__all__ = ["Provenance", "SignalReading", "count_tokens", "read_signals", "token_logprobs_of", "token_signals_of"]

Signals = dict[str, npt.NDArray[np.floating[Any]]]
_REQUEST = "ask the model for them (ChatOpenAI: logprobs=True, top_logprobs=20)"
_NOT_STATED = (
    "the response states no confidence, although it was asked for a line such as 'Confidence: 85%' (one that is held "
    "to a schema or a grammar, or only calls tools, has no room for it)"
)


class Provenance(TypedDict):
    """What a signal is made of: k alternatives per token, a vocabulary of V; None where it is not known."""

    top_k: int | None
    vocabulary_size: int | None


@dataclass(frozen=True, slots=True)
class SignalReading:
    """The token signals of a response, and what they are made of.

    Attributes:
        signals: name -> shape (T,); ``verbalized``, which no token has, shape (1,).
        k: name -> alternatives per token behind a signal that depends on their number, where it is known. Over the
            whole vocabulary that is V.
        vocabulary_size: V, where a backend knows it.
        withheld: name -> why a signal that such responses can carry is not here.
        notices: what was odd and what was done about it.
        spans: which of the tokens spell the answer, and which the last step; none where nobody asked for them.
    """

    signals: Signals
    k: Mapping[str, int] = field(default_factory=dict)
    vocabulary_size: int | None = None
    withheld: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    spans: Spans = field(default_factory=Spans)

    def score(self, measure: Measure) -> float:
        """S(y), the response's score by a measure.

        Raises:
            LogprobsUnavailable: the response carries no such signal, or it was withheld, or has no span that the score
                is of; the message says why.
            ConfidenceError: the signal is empty or not finite.
        """
        if why := self.withheld.get(measure.signal):
            raise LogprobsUnavailable(f"no {measure.signal!r} signal: {why}")
        return measure(self.signals, self.spans)

    def within(self, tokens: Mask | None) -> "SignalReading":
        """The same of some of the tokens, which are then both spans; of all, where these cannot be told.

        Args:
            tokens: shape (T,), true for those to keep; None where they cannot be told.
        """
        if tokens is None or not tokens.any() or any(values.shape != tokens.shape for values in self.signals.values()):
            return self
        every = (0, int(np.count_nonzero(tokens)))
        kept = {name: values[tokens] for name, values in self.signals.items()}
        return replace(self, signals=kept, spans=Spans(answer_span=every, last_step=every))

    def provenance(self, signal: str) -> Provenance:
        """``top_k`` and ``vocabulary_size`` as a calibration made of this signal records them."""
        return {"top_k": self.k.get(signal), "vocabulary_size": self.vocabulary_size}


def token_signals_of(message: BaseMessage) -> Signals:
    """The token signals of a response, name -> shape (T,); see :func:`read_signals`.

    Raises:
        LogprobsUnavailable: none were returned, or they cannot be what they claim. Never a zero instead.
    """
    return read_signals(message).signals


def read_signals(message: BaseMessage, *, of_calls: bool = False, places: Places | None = None) -> SignalReading:
    """The token signals of a response, with what they are made of and what was odd.

    Reads ``response_metadata["token_signals"]`` where a backend recorded them; otherwise what the provider returned,
    which gives ``token_logprob`` and, where alternatives came with the tokens, ``top_k`` and ``neg_entropy`` over them.
    A response that was asked to state its confidence carries ``verbalized`` beside them, shape (1,).

    Args:
        message: the response.
        of_calls: whether it votes for its tool calls. Then only the tokens of their names and arguments are read, where
            they can be told from the others (:mod:`.deciding`); else all, as of any other response.
        places: where its text has the answer and the last step, for a score over their tokens; None looks for none.

    Raises:
        LogprobsUnavailable: none were returned, or they cannot be what they claim, and no confidence was stated. Never
            a zero instead.
    """
    if VERBALIZED_CONFIDENCE not in message.response_metadata:
        return _read_tokens(message, of_calls=of_calls, places=places)
    stated = _number(message.response_metadata[VERBALIZED_CONFIDENCE])
    try:
        reading = _read_tokens(message, of_calls=of_calls, places=places)
    except LogprobsUnavailable as error:
        if stated is None:
            raise LogprobsUnavailable(f"{_NOT_STATED}; and {error}") from None
        reading = SignalReading({}, withheld=dict.fromkeys(SIGNALS, str(error)))
    if stated is None:
        return replace(reading, withheld={**reading.withheld, VERBALIZED: _NOT_STATED})
    return replace(reading, signals={**reading.signals, VERBALIZED: np.array([stated])})


def _read_tokens(message: BaseMessage, *, of_calls: bool, places: Places | None) -> SignalReading:
    calls = message.tool_calls if of_calls and isinstance(message, AIMessage) else []
    if recorded := message.response_metadata.get(TOKEN_SIGNALS):
        reading = _recorded(recorded, message.response_metadata.get(TOKEN_SIGNALS_INFO))
        spelled = spelled_by(message.response_metadata) if calls or places else None
        return _told(reading, spelled, calls, places) if spelled else reading
    tokens = tokens_of(message.response_metadata)
    found = _checked(tokens, message)
    names = [name for name in ("top_k", "token_logprob", "neg_entropy") if name not in found.withheld]
    signals = signals_from_alternatives(found.chosen, found.alternatives, signals=names)
    known = () if _may_be_one_more(found) else ("top_k", "neg_entropy")
    k: dict[str, int] = {name: found.k for name in known if name in signals}
    reading = SignalReading(signals, k=k, withheld=found.withheld, notices=found.notices)
    spelled = _spelled(tokens) if calls or places else None
    return _told(reading, spelled, calls, places, kept=found.places) if spelled else reading


def _told(
    reading: SignalReading,
    spelled: Sequence[bytes],
    calls: Sequence[ToolCall],
    places: Places | None,
    kept: npt.NDArray[np.intp] | None = None,
) -> SignalReading:
    """A reading with what its tokens' text tells: those of the calls alone, or where the spans are.

    Args:
        reading: the signals of all tokens.
        spelled: what each token spells.
        calls: the calls that the response votes for.
        places: where its text has the answer and the last step.
        kept: which tokens carry a signal, where not all do.
    """
    if calls:
        mask = deciding_tokens(spelled, calls)
        return reading.within(mask if mask is None or kept is None else mask[kept])
    if places is None or (kept is None and any(values.shape != (len(spelled),) for values in reading.signals.values())):
        return reading
    return replace(reading, spans=spans_of(spelled, places, kept))


def _spelled(tokens: Sequence[Token]) -> list[bytes] | None:
    """What each of the provider's tokens spells; None where it does not say."""
    spelled = [token.spelled for token in tokens if token.spelled is not None]
    return spelled if len(spelled) == len(tokens) else None


def token_logprobs_of(message: BaseMessage) -> TokenLogprobs:
    """The log-probabilities of a response's tokens and of their alternatives, from any provider's payload.

    Raises:
        LogprobsUnavailable: none were returned, or they cannot be what they claim.
    """
    return _checked(tokens_of(message.response_metadata), message)


def _checked(tokens: Sequence[Token], message: BaseMessage) -> TokenLogprobs:
    if not tokens:
        raise LogprobsUnavailable(_why_none(message))
    return checked(tokens, text=str(message.text))


def count_tokens(metadata: Mapping[str, Any]) -> int:
    """Tokens that a response's signals or log-probabilities tell of; 0 where there are none."""
    recorded = metadata.get(TOKEN_SIGNALS)
    if isinstance(recorded, Mapping) and recorded:
        return int(np.size(next(iter(recorded.values()))))
    with suppress(LogprobsUnavailable):
        return len(tokens_of(metadata))
    return 0


def _recorded(recorded: Any, info: Any) -> SignalReading:
    known = info if isinstance(info, Mapping) else {}
    try:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is reported where it is scored
            signals: Signals = {str(name): np.asarray(values, dtype=np.float32) for name, values in recorded.items()}
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise LogprobsUnavailable(f"the recorded token_signals are no lists of numbers: {error}") from None
    vocabulary = _count(known.get("vocabulary_size"))
    k = {"top_k": _count(known.get("top_k")), "neg_entropy": vocabulary}
    return SignalReading(
        signals, {name: n for name, n in k.items() if n is not None and name in signals}, vocabulary_size=vocabulary
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _number(value: Any) -> float | None:
    """A stated confidence, where it is one."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and 0 <= value <= 1 else None


def _may_be_one_more(found: TokenLogprobs) -> bool:
    """Whether every token is the least likely of its alternatives, as of k + 1 where it is not among the k.

    Only an answer of a token or two can look like that.
    """
    return found.k > 1 and bool((found.chosen <= found.alternatives[:, -1]).all())


def _why_none(message: BaseMessage) -> str:
    if refused := message.response_metadata.get(LOGPROBS_REFUSED):
        return f"the model's server refuses logprobs: {refused}"
    if isinstance(message, AIMessage):
        usage: Mapping[str, Any] = message.usage_metadata or {}
        thought = (usage.get("output_token_details") or {}).get("reasoning")
        if thought and not message.text:
            return (
                f"the model spent {thought} tokens on reasoning, for which it returned no log-probabilities, and "
                "answered nothing; allow it more tokens"
            )
        if message.tool_calls and not message.text:
            return (
                f"the response is a tool call, and no log-probabilities came for it; where that is possible, {_REQUEST}"
            )
    return f"the response carries no token logprobs; {_REQUEST}"
