"""Find what a message votes for, and where the answer is in its text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage

from langchain_reasc.answers.calls import UNKNOWN_TOOL, ToolVotes
from langchain_reasc.answers.endings import (
    ending_of,
    is_refusal,
    says_nothing,
    without_reasoning,
)
from langchain_reasc.answers.extractors import Extractor
from langchain_reasc.answers.json_values import last_value
from langchain_reasc.answers.objects import REFUSED_OBJECT, ObjectVotes
from langchain_reasc.answers.schemas import Schemas

CUT_OFF = "cut off before an explicit answer"
EMPTY = "an empty response"
FILTERED = "stopped by a content filter"
INVALID_CALLS = "invalid tool calls"
NO_ANSWER = "no answer was found in it"
REFUSAL = "a refusal"
TOO_SLOW = "its answer was not found in time"
"""Why a response has no vote if finding its answer took too long."""
UNENDED = "its reasoning never ended"
ADVICE: Final[Mapping[str, str]] = {
    NO_ANSWER: "answer='text' compares whole texts, answer='spam,ham' (or a list) looks for labels, or let the prompt "
    "ask for \\boxed{}",
    **dict.fromkeys((CUT_OFF, UNENDED), "max_tokens=... allows longer responses"),
}
"""What helps if no response has a vote, by why that is."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The vote of a response.

    Attributes:
        answer: the normalized answer; None if the response casts no vote.
        cut_off: whether the response was cut off. It may vote, but is never accepted
            alone.
        why_none: a short phrase that says why the response casts no vote, or None if it
            votes.
        kind: the coarse class of the answer, which is voted on first: the tools that
            are called, or None.
        fields: name -> value as canonical JSON, of an object that is voted on by field.
        calls: whether the vote is for tool calls.
        instead: if there is no vote, the calls that were refused, to recognise them
            when they come again; ``""`` for an empty response.
    """

    answer: str | None
    cut_off: bool = False
    why_none: str | None = None
    kind: str | None = None
    fields: Mapping[str, str] | None = None
    calls: bool = False
    instead: str | None = field(default=None, compare=False)


_EVERY_CALL = ToolVotes()


def vote_of(
    message: AIMessage,
    extract: Extractor,
    tools: ToolVotes = _EVERY_CALL,
    schemas: Schemas | None = None,
    *,
    question: str = "",
) -> Vote:
    """Return the vote of a response.

    Args:
        message: the response.
        extract: finds its answer.
        tools: how calls of tools are compared.
        schemas: those of :func:`schemas_of`; None if the tools are unknown.
        question: the text of the question.
    """
    try:
        vote = _vote_of(message, extract, tools, schemas, question)
    except TimeoutError:
        return Vote(None, why_none=TOO_SLOW)
    if vote.answer is not None or not says_nothing(message):
        return vote
    if vote.why_none == NO_ANSWER:
        vote = replace(vote, why_none=EMPTY)
    return replace(vote, instead="")


def _vote_of(
    message: AIMessage,
    extract: Extractor,
    tools: ToolVotes,
    schemas: Schemas | None,
    question: str,
) -> Vote:
    ending = ending_of(message)
    cut_off = ending == "cut off"
    if extract.reads_message:
        return _vote(extract(message), cut_off)
    if ending == "refused" or is_refusal(message):
        return Vote(None, why_none=REFUSAL)
    if ending == "filtered":
        return Vote(None, why_none=FILTERED)
    is_malformed = ending == "malformed call" or bool(message.invalid_tool_calls)
    has_calls = is_malformed or bool(message.tool_calls)
    # A function or "json:FIELD" may find its answer beside calls.
    if extract.over_tool_calls or not has_calls:
        text = without_reasoning(_spoken_text(message))
        vote = _vote_of_text(text, extract, question, cut_off)
        if vote.answer is not None or not has_calls:
            return vote
    if is_malformed:
        invalid = [(call["name"], call["args"]) for call in message.invalid_tool_calls]
        instead = str(invalid) if invalid and not cut_off else None
        return Vote(None, cut_off, INVALID_CALLS, instead=instead)
    return _vote_of_calls(message, extract, tools, schemas, cut_off)


def question_text(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the last human message, or of the last message if there is
    none.
    """
    for message in reversed(messages):
        if message.type == "human":
            return str(message.text)
    return str(messages[-1].text) if messages else ""


def _vote(answer: str | None, cut_off: bool, why_none: str = NO_ANSWER) -> Vote:
    if answer is not None:
        return Vote(answer, cut_off)
    return Vote(None, cut_off, CUT_OFF if cut_off else why_none)


def _vote_of_text(
    text: str | None, extract: Extractor, question: str, cut_off: bool
) -> Vote:
    if text is None:
        return _vote(None, cut_off, UNENDED)
    vote = _vote(extract(text, question=question, cut_off=cut_off), cut_off)
    if vote.answer is not None:
        return _by_field(vote, extract.objects)
    # All texts vote, unless the schema of the call refuses them.
    if not extract.texts_vote:
        is_refused = bool(text.strip()) and not cut_off
    elif extract.objects:
        is_refused = last_value(text, cut_off=cut_off) is not None
    else:
        return vote
    if is_refused:
        return Vote(None, cut_off, REFUSED_OBJECT)
    return vote


def _vote_of_calls(
    message: AIMessage,
    extract: Extractor,
    tools: ToolVotes,
    schemas: Schemas | None,
    cut_off: bool,
) -> Vote:
    calls = message.tool_calls
    # LangChain completes half a call's JSON, whose last argument may be half of one.
    if cut_off:
        return Vote(None, cut_off, CUT_OFF)
    received = tools.received(calls, schemas)
    if isinstance(received, str):
        refused: list[Any] = list(calls)
        # Calls of an unknown tool are the same with any arguments.
        if received == UNKNOWN_TOOL:
            refused = [{**call, "args": {}} for call in calls]
        return Vote(None, why_none=received, instead=tools.answer(refused))
    objects = extract.objects
    if objects is None or objects.in_calls(calls) is None:
        answer = tools.answer(received)
        if not answer:
            return Vote(None, why_none=INVALID_CALLS)
        return Vote(answer, kind=tools.kind(calls), calls=True)
    # Structured output by function calling. The extractor's own schema decides.
    arguments = calls[0]["args"] if objects.schema else received[0]["args"]
    answer = objects.answer(arguments)
    if answer is None:
        return Vote(None, why_none=REFUSED_OBJECT, instead=tools.answer(calls))
    kind = None if objects.name else tools.kind(calls)
    return _by_field(Vote(answer, kind=kind, calls=True), objects)


def _by_field(vote: Vote, objects: ObjectVotes | None) -> Vote:
    if objects is None or not objects.by_field:
        return vote
    return replace(vote, fields=objects.fields(str(vote.answer)))


def _spoken_text(message: AIMessage) -> str:
    """Return the text of the message, without commentary blocks."""
    if isinstance(message.content, list):
        spoken = [
            block
            for block in message.content
            if not (isinstance(block, dict) and block.get("phase") == "commentary")
        ]
        if len(spoken) < len(message.content):
            message = AIMessage(spoken)
    return str(message.text)


# The place of the answer

Place = tuple[int, int]
"""A range of characters, half-open."""

_TRIED: Final = 8
"""The most places that are tried, from the end of the response. Each place asks the
extractor again.
"""
_LONGEST: Final = 100
"""The most characters of an answer that is also searched in another spelling."""
_TAIL: Final = 4000
"""The most characters from the beginning of the last step to the end of the answer."""
_OTHER = str.maketrans(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "1234567890bcdefghijklmnopqrstuvwxyzaBCDEFGHIJKLMNOPQRSTUVWXYZA",
)
_RUN = re.compile(r"[^\W_]+")
# "1,000" is found as "1 000", and "\frac{3}{4}" by its 3 and 4.
_BETWEEN = r"(?:\\[a-zA-Z]+|[\W_]){0,6}"
# A sentence, a line, or a tag such as "</think>" ends.
_STEP_END = re.compile(
    r"[.!?][\"'”)*_\]$]*\s+(?=[^\s\da-z])|[。！？]\s*|\n\s*|</?[\w:]{1,20}>\s*"
)


class Places(NamedTuple):
    """Half-open ranges of characters in a response.

    Attributes:
        text: the text of the response.
        answer: the range that spells the answer; None if it cannot be found, or if
            there is no answer.
        last_step: the range from the beginning of the line or sentence before the
            answer's own, up to the answer. If there is no such line, it begins with the
            answer's own line; if the text is only the answer, it is the answer. If the
            answer's range is unknown, it is the last two lines or sentences.
    """

    text: str
    answer: Place | None
    last_step: Place | None


def places_of(
    message: AIMessage, extract: Extractor, vote: Vote, *, question: str = ""
) -> Places:
    """Find the range of a response's text that spells its answer.

    An extractor returns an answer without its place, and any function can be an
    extractor. So the place is found by experiment: replace the letters and digits at a
    place that spells the answer, and ask the extractor again. If it finds something
    else, it read this place. The extractor is usually asked twice, and at most nine
    times. An answer that the text does not contain has no place (tool calls, a sum, the
    result of a :func:`message_extractor`).
    """
    text = _spoken_text(message)
    answer = None
    if vote.answer is not None and not vote.calls and not extract.reads_message:
        answer = _place_of_answer(text, extract, question, vote.cut_off)
    return Places(text, answer, _last_step(text, answer))


def _place_of_answer(
    text: str, extract: Extractor, question: str, cut_off: bool
) -> Place | None:
    span = _span_in(text, extract, question, cut_off)
    spelled = span and span.strip(" .,;:")
    # The answer of an object is canonical, not as it is written.
    if extract.objects:
        spoken = without_reasoning(text) or ""
        value = last_value(spoken, cut_off=cut_off)
        spelled = value and spoken[value.start : value.end]
    if not spelled:
        return None
    for begin, end in islice(_spellings(spelled, text), _TRIED):
        altered = "".join(map(_other, text[begin:end]))
        altered = text[:begin] + altered + text[end:]
        # If the extractor finds something else now, it read this place.
        if _span_in(altered, extract, question, cut_off) != span:
            return begin, end
    return None


def _span_in(text: str, extract: Extractor, question: str, cut_off: bool) -> str | None:
    spoken = without_reasoning(text)
    if spoken is None:
        return None
    try:
        return extract.raw(spoken, question=question, cut_off=cut_off)
    except Exception:  # a user's function may raise over a text that no model wrote
        return None


def _other(character: str) -> str:
    """Return another character of the same kind for a letter or digit; return other
    characters unchanged.
    """
    translated = character.translate(_OTHER)
    # Letters of other scripts are not in the table.
    if translated == character and character.isalnum():
        return "x"
    return translated


def _spellings(answer: str, text: str) -> Iterator[Place]:
    """Yield places that spell an answer, last first: exactly, or else with other marks
    between its parts.
    """
    position = len(text)
    exact = False
    while (position := text.rfind(answer, 0, position + len(answer) - 1)) >= 0:
        if _stands_alone(text, position, position + len(answer)):
            exact = True
            yield position, position + len(answer)
    runs = _RUN.findall(answer)
    if exact or not runs or len(answer) > _LONGEST:
        return
    pattern = _BETWEEN.join(map(re.escape, runs))
    for match in reversed(list(re.finditer(pattern, text))):
        if _stands_alone(text, *match.span()):
            yield match.span()


def _stands_alone(text: str, begin: int, end: int) -> bool:
    """Return whether a range is a whole number or word, not part of a longer one."""
    if begin and _is_joined(text[begin - 1], text[begin]):
        return False
    return not _is_joined(text[end - 1], text[end : end + 1])


def _is_joined(before: str, after: str) -> bool:
    """Return whether two characters are both digits, or both letters of a script with
    upper and lower case.
    """
    if before.isdigit() and after.isdigit():
        return True
    has_case = before.swapcase() != before and after.swapcase() != after
    return has_case and before.isalpha() and after.isalpha()


def _last_step(text: str, answer: Place | None) -> Place | None:
    end = answer[0] if answer else len(text)
    start = max(end - _TAIL, 0)
    last_start = None
    for step_end in _STEP_END.finditer(text, start, end):
        # A line of marks such as "---" is not a step.
        if _RUN.search(text, start, step_end.start()):
            last_start = start
        start = step_end.end()
    if last_start is not None:
        return last_start, end
    if _RUN.search(text, start, end):
        return start, end
    # The answer is the whole text.
    return answer
