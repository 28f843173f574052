"""What a response votes for: a property of the whole message, not of its text alone."""

from dataclasses import dataclass

from langchain_core.messages import AIMessage

from langchain_reasc.answers.ending import ending_of, is_refusal
from langchain_reasc.answers.extractors import Extractor
from langchain_reasc.answers.reasoning import without_reasoning
from langchain_reasc.answers.tool_calls import calls_answer

__all__ = ["Vote", "vote_of"]

CUT_OFF = "cut off before an explicit answer"
FILTERED = "stopped by a content filter"
INVALID_CALLS = "invalid tool calls"
NO_ANSWER = "no answer was found in it"
REFUSAL = "a refusal"
UNENDED = "its reasoning never ended"


@dataclass(frozen=True, slots=True)
class Vote:
    """What a response votes for.

    Attributes:
        answer: the normalized answer; None when it casts no vote.
        cut_off: whether the response was cut off before its end. It may then vote, but not be accepted alone.
        why_none: why it casts no vote, for a notice: one of a few phrases; None where it does.
        of_calls: whether the answer is its tool calls.
    """

    answer: str | None
    cut_off: bool = False
    why_none: str | None = None
    of_calls: bool = False


def vote_of(message: AIMessage, extract: Extractor) -> Vote:
    """The vote of a response, by the rules of :mod:`langchain_reasc.answers`.

    Args:
        message: the response.
        extract: finds the answer in it.
    """
    ending = ending_of(message)
    cut_off = ending == "cut off"
    if extract.reads_message:
        return _vote(extract(message), cut_off)
    if ending == "refused" or is_refusal(message):
        return Vote(None, why_none=REFUSAL)
    if ending == "filtered":
        return Vote(None, why_none=FILTERED)
    malformed = ending == "malformed call" or bool(message.invalid_tool_calls)
    calls = malformed or bool(message.tool_calls)
    text = without_reasoning(_spoken(message))
    if text is not None and (extract.over_tool_calls or not calls):
        vote = _vote(extract.from_cut_off(text) if cut_off else extract(text), cut_off)
        if vote.answer is not None or not calls:
            return vote
    if calls:
        return Vote(None, cut_off, INVALID_CALLS) if malformed else _vote_of_calls(message, cut_off)
    return Vote(None, cut_off, CUT_OFF if cut_off else UNENDED)


def _vote(answer: str | None, cut_off: bool) -> Vote:
    if answer is not None:
        return Vote(answer, cut_off)
    return Vote(None, cut_off, CUT_OFF if cut_off else NO_ANSWER)


def _vote_of_calls(message: AIMessage, cut_off: bool) -> Vote:
    if cut_off:  # LangChain completes half a call's JSON, so that its last argument may be half of one
        return Vote(None, cut_off, CUT_OFF)
    answer = calls_answer([{"name": call["name"], "args": call["args"]} for call in message.tool_calls])
    return Vote(answer, why_none=INVALID_CALLS if answer is None else None, of_calls=answer is not None)


def _spoken(message: AIMessage) -> str:
    """The text of the message, without what it says on the way to its answer."""
    if isinstance(message.content, list) and any(map(_is_commentary, message.content)):
        said = [block for block in message.content if not _is_commentary(block)]
        return str(AIMessage(said).text)
    return str(message.text)


def _is_commentary(block: object) -> bool:
    return isinstance(block, dict) and block.get("phase") == "commentary"
