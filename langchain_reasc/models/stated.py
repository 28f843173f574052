"""Stated (verbalised) confidence: what a model says of itself, where its tokens tell nothing.

A model is asked to end its response with a line such as ``Confidence: 85%``. :func:`asking` adds that to a prompt, and
:func:`heard` takes the line out of the response, so that nobody takes its number for the answer. It is no probability
of tokens: what it is worth, only a calibration can say.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from langchain_reasc.answers import ending_of, without_reasoning
from langchain_reasc.models.contract import RECEIVED_TOKENS, VERBALIZED_CONFIDENCE
from langchain_reasc.models.usage import counted_tokens, reported_usage

__all__ = ["asking", "heard", "instruction", "stated_confidence", "without_statement"]

_INSTRUCTION: Final = (
    "End your response with a line of its own that says how likely it is, from 0% to 100%, that your answer is right, "
    "in this form:\nConfidence: 85%\nWrite that line in this form whatever the language or format of your answer."
)
_BESIDE_CALLS: Final = " When you call tools, write it in your text before the calls; it then says how right they are."

_OPENING: Final = "*_`\"'([{"
_BETWEEN: Final = "|•·–—-"
_MARKS: Final = f" \t\r\xa0~>#{_OPENING}{_BETWEEN}"
_ENDS: Final = ".!?;,:。>)]}$"  # may stand before a statement in a line that says something else first
_LEADING: Final = re.compile(r"(?:\b(?:my|the|overall|final|stated|answer|estimated)\s+){1,2}\Z", re.IGNORECASE)
_LABEL: Final = re.compile(  # not followed by a quotation mark: "confidence": 0.9 is a field of somebody's JSON
    r"confidence(?P<more>\s+(?:level|score|rating))?(?:\s*\([^()\n]{0,40}\)|\s+(?:in|that)\b[^\n:：=]{1,40}?)?"
    r"[\s*_`]*+(?:(?P<colon>[:：=])|\bis\b)[\s*_`\"'(\[{]*+",
    re.IGNORECASE,
)
_NUMBER: Final = r"[-+−]?\d++(?:[.,]\d++)?"
_PER_CENT: Final = r"\s*(?:\\?[%％٪]|per\s?cent\b)"
_VALUE: Final = re.compile(
    rf"(?:(?:about|around|approximately|approx\.?|roughly|at\s+least|between|over|[~≈<>≤≥])\s*)?(?P<low>{_NUMBER})"
    rf"(?:(?:{_PER_CENT})?\s*(?:[-–—~]|to\b|and\b)\s*(?P<high>{_NUMBER}))?"
    rf"(?:(?P<percent>{_PER_CENT})|\s*(?:/|out\s+of)\s*(?P<most>\d++))?(?!\w|[.,]\d)",
    re.IGNORECASE,
)
_REST: Final = re.compile(r"[\s*_`~|).!。]*+(?P<tags>(?:</\w++>\s*+)*)\Z")
_NEXT_SENTENCE: Final = re.compile(r"[*_`)\]\s]*+[.;!。][*_`\s]*+(?=\w)")
_WORDS: Final = 4  # up to which what is said instead of a number is a statement too ("Confidence: very high")


class _Statement(NamedTuple):
    """A statement in a line: where it begins, and where what it says does."""

    start: int
    said: int


def instruction(*, tools: bool) -> str:
    """What a model is told; with tools, also where the line stands beside calls."""
    return _INSTRUCTION + (_BESIDE_CALLS if tools else "")


def asking(messages: Sequence[BaseMessage], *, tools: bool) -> list[BaseMessage]:
    """A prompt that asks for the line as well.

    Args:
        messages: the prompt. Where it has a system message, that is added to, because providers take one only; else
            one is put in front.
        tools: whether the model may call tools.
    """
    said = instruction(tools=tools)
    at = next((at for at, message in enumerate(messages) if _is_system(message)), None)
    if at is None:
        return [SystemMessage(said), *messages]
    content = messages[at].content
    text = isinstance(content, str)
    added: Any = f"{content}\n\n{said}" if text else [*content, {"type": "text", "text": f"\n\n{said}"}]
    if not content:
        added = said
    return [*messages[:at], messages[at].model_copy(update={"content": added}), *messages[at + 1 :]]


def heard(message: AIMessage) -> AIMessage:
    """A response to such a prompt without the line, its number in ``response_metadata["verbalized_confidence"]``.

    That is None where the response states none: no line, no number in it, one that is no share of the whole, one in
    its reasoning only, or one that was cut off.
    """
    cut_off = ending_of(message) == "cut off"
    content, found = message.content, None
    if isinstance(content, str):
        found, content = _number_of(content, cut_off=cut_off), without_statement(content)
    else:
        blocks: list[Any] = []
        for at, block in enumerate(content):
            text = _text(block)
            if text is None:
                blocks.append(block)
                continue
            last = at == len(content) - 1
            kept = without_statement(text)
            if kept != text:
                found = _number_of(text, cut_off=cut_off and last)
            if kept.strip() or kept == text:  # providers refuse empty blocks when they are sent back
                blocks.append(kept if isinstance(block, str) else {**block, "text": kept})
        content = blocks
    metadata = {**message.response_metadata, VERBALIZED_CONFIDENCE: found}
    if content != message.content and reported_usage(message) is None:
        metadata[RECEIVED_TOKENS] = counted_tokens(message)  # which are paid for, whatever is left of the text
    return message.model_copy(update={"content": content, "response_metadata": metadata})


def without_statement(text: str) -> str:
    """A text without its lines that state a confidence, and without one at the end of its last line."""
    lines = text.rstrip().split("\n")
    kept = [rest for line in lines if (rest := _rest_of(line)) is not None]
    while kept and not kept[-1].strip():
        kept.pop()
    if kept and (found := _at_end(kept[-1])):
        kept[-1] = kept[-1][: found.start] + _tags(kept[-1], found)
    return text if kept == lines else "\n".join(kept).rstrip()


def stated_confidence(text: str) -> float | None:
    """The last confidence that a text states, 0 to 1; None where that is no number, or there is none."""
    lines = text.rstrip().split("\n")
    if found := _at_end(lines[-1]):
        return _share(lines[-1][found.said :])
    return next((_share(line[found.said :]) for line in reversed(lines) if (found := _in_front(line))), None)


def _number_of(text: str, *, cut_off: bool) -> float | None:
    spoken = without_reasoning(text)
    if spoken is not None and cut_off:  # of "Confidence: 8" the rest may be missing
        spoken = spoken.rpartition("\n")[0]
    return None if spoken is None else stated_confidence(spoken)


def _rest_of(line: str) -> str | None:
    """What a line says besides a statement that it begins with; None where that is nothing."""
    found = _in_front(line)
    if found is None:
        return line
    value = _VALUE.match(line, found.said)
    after = _NEXT_SENTENCE.match(line, value.end()) if value else None
    return line[after.end() :] if after else _tags(line, found) or None


def _tags(line: str, found: _Statement) -> str:
    """The tags that close behind a statement, as that of an ``<answer>`` around it."""
    value = _VALUE.match(line, found.said)
    rest = _REST.match(line, value.end()) if value else None
    return rest["tags"] if rest else ""


def _in_front(line: str) -> _Statement | None:
    """The statement that a line begins with."""
    label = _LABEL.search(line)
    if label is None or (found := _statement(line, label)).start:
        return None
    value = _VALUE.match(line, found.said)
    if label["colon"]:
        return found if value or len(line[found.said :].split()) <= _WORDS else None
    return found if value and _REST.match(line, value.end()) else None


def _at_end(line: str) -> _Statement | None:
    """The statement at the end of a line that says something else first."""
    labels = list(_LABEL.finditer(line))
    if not labels or not (found := _statement(line, labels[-1])).start:
        return None
    value = _VALUE.match(line, found.said)
    between = line[found.start : labels[-1].start()]
    as_asked = labels[-1][0].startswith("Confidence") and not labels[-1]["more"]
    apart = line[found.start - 1] in _ENDS or as_asked or not set(_OPENING + _BETWEEN).isdisjoint(between)
    return found if apart and value and _REST.match(line, value.end()) else None


def _statement(line: str, label: re.Match[str]) -> _Statement:
    before = line[: label.start()]
    if leading := _LEADING.search(before, max(0, len(before) - 40)):
        before = before[: leading.start()]
    if not before.strip(_MARKS):
        return _Statement(0, label.end())
    # What is marked up before it keeps its marks: of "**42** - **Confidence:** 85%" the first two stars.
    return _Statement(len(before.rstrip(_OPENING).rstrip().rstrip(_BETWEEN).rstrip()), label.end())


def _share(said: str) -> float | None:
    """A number as a share of the whole: 85%, 85, 0.85, 85/100 and 8.5/10 are 0.85; of a range its middle."""
    value = _VALUE.match(said)
    if value is None:
        return None
    numbers = [_number(value[name]) for name in ("low", "high") if value[name]]
    number = sum(numbers) / len(numbers)
    whole = float(value["most"]) if value["most"] else 100.0 if value["percent"] else None
    if whole is None:  # a bare number is a share up to 1, and of a hundred above
        whole = 1.0 if max(numbers) <= 1 else 100.0
    return number / whole if whole and min(numbers) >= 0 and max(numbers) <= whole else None


def _number(text: str) -> float:
    """A number with a decimal point or comma; in 1,000 the comma is none."""
    whole, comma, rest = text.replace("−", "-").partition(",")
    thousands = comma and len(rest) == 3 and whole.strip("+-0")
    return float(f"{whole}{rest}" if thousands else f"{whole}{'.' if comma else ''}{rest}")


def _is_system(message: BaseMessage) -> bool:
    return message.type == "system" or getattr(message, "role", None) in ("system", "developer")


def _text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None
