"""What a response votes for: a property of the whole message, not of its text alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.answers.ending import ending_of, is_refusal
from langchain_reasc.answers.extraction import Extractor
from langchain_reasc.answers.json_objects import last_object
from langchain_reasc.answers.objects import REFUSED_OBJECT
from langchain_reasc.answers.reasoning import without_reasoning
from langchain_reasc.answers.tool_calls import Schemas, ToolVotes

__all__ = ["Vote", "spoken_text", "vote_of"]

CUT_OFF = "cut off before an explicit answer"
FILTERED = "stopped by a content filter"
INVALID_CALLS = "invalid tool calls"
NO_ANSWER = "no answer was found in it"
REFUSAL = "a refusal"
TOO_SLOW = "its answer was not found in time"
UNENDED = "its reasoning never ended"


@dataclass(frozen=True, slots=True)
class Vote:
    """What a response votes for.

    Attributes:
        answer: the normalized answer; None when it casts no vote.
        cut_off: whether the response was cut off before its end. It may then vote, but not be accepted alone.
        why_none: why it casts no vote, for a notice: one of a few phrases; None where it does.
        kind: the coarse class of the answer, on which responses vote first: which tools are called. None where none is.
        fields: of an object that is voted on by field, name -> value as canonical JSON.
        calls: whether it is a vote for calls of tools.
    """

    answer: str | None
    cut_off: bool = False
    why_none: str | None = None
    kind: str | None = None
    fields: Mapping[str, str] | None = None
    calls: bool = False


_EVERY_CALL = ToolVotes()


def vote_of(
    message: AIMessage, extract: Extractor, tools: ToolVotes = _EVERY_CALL, schemas: Schemas | None = None
) -> Vote:
    """The vote of a response, by the rules of :mod:`langchain_reasc.answers`.

    Args:
        message: the response.
        extract: finds the answer in it.
        tools: how calls are compared.
        schemas: tool -> schema of its arguments, as :func:`schemas_of` gives it; None where the tools are not known.
    """
    try:
        return _vote_of(message, extract, tools, schemas)
    except TimeoutError:
        return Vote(None, why_none=TOO_SLOW)


def _vote_of(message: AIMessage, extract: Extractor, tools: ToolVotes, schemas: Schemas | None) -> Vote:
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
    text = without_reasoning(spoken_text(message))
    if text is not None and (extract.over_tool_calls or not calls):
        vote = _vote_of_text(text, extract, cut_off)
        if vote.answer is not None or not calls:
            return vote
    if malformed:
        return Vote(None, cut_off, INVALID_CALLS)
    if calls:
        return _vote_of_calls(message, extract, tools, schemas, cut_off)
    return Vote(None, cut_off, CUT_OFF if cut_off else UNENDED)


def _vote(answer: str | None, cut_off: bool) -> Vote:
    if answer is not None:
        return Vote(answer, cut_off)
    return Vote(None, cut_off, CUT_OFF if cut_off else NO_ANSWER)


def _vote_of_text(text: str, extract: Extractor, cut_off: bool) -> Vote:
    vote = _vote(extract.from_cut_off(text) if cut_off else extract(text), cut_off)
    if vote.answer is None and not extract.texts_vote and text.strip() and not cut_off:
        return replace(vote, why_none=REFUSED_OBJECT)
    if extract.objects is None:
        return vote
    if vote.answer is None and last_object(text, cut_off=cut_off) is not None:
        return replace(vote, why_none=REFUSED_OBJECT)
    return _by_field(vote, extract)


def _vote_of_calls(
    message: AIMessage, extract: Extractor, tools: ToolVotes, schemas: Schemas | None, cut_off: bool
) -> Vote:
    calls = [{"name": call["name"], "args": call["args"]} for call in message.tool_calls]
    if cut_off:  # LangChain completes half a call's JSON, so that its last argument may be half of one
        return Vote(None, cut_off, CUT_OFF)
    if why := tools.refused(calls, schemas):
        return Vote(None, why_none=why)
    if extract.objects and extract.objects.in_calls(message.tool_calls) is not None:
        kind = None if extract.objects.name else tools.kind(calls)
        return _vote_of_object(tools.read(calls[0], schemas), extract, kind)
    answer = tools.answer(calls, schemas)
    if answer is None:
        return Vote(None, why_none=INVALID_CALLS)
    return Vote(answer, kind=tools.kind(calls), calls=True)


def _vote_of_object(value: Mapping[str, Any], extract: Extractor, kind: str | None) -> Vote:
    """The vote of structured output by function calling."""
    assert extract.objects is not None
    answer = extract.objects.answer(value)
    if answer is None:
        return Vote(None, why_none=REFUSED_OBJECT)
    return _by_field(Vote(answer, kind=kind, calls=True), extract)


def _by_field(vote: Vote, extract: Extractor) -> Vote:
    if vote.answer is None or extract.objects is None or not extract.objects.by_field:
        return vote
    return replace(vote, fields=extract.objects.fields(vote.answer))


def spoken_text(message: AIMessage) -> str:
    """The text of the message, without what it says on the way to its answer."""
    if isinstance(message.content, list) and any(map(_is_commentary, message.content)):
        said = [block for block in message.content if not _is_commentary(block)]
        return str(AIMessage(said).text)
    return str(message.text)


def _is_commentary(block: object) -> bool:
    return isinstance(block, dict) and block.get("phase") == "commentary"
