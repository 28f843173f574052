"""Stated (verbalized) confidence, for models without log-probabilities.

A model is asked to end its response with a line such as ``Confidence: 85%``.
:func:`ask_for_confidence` adds that to a prompt, and :func:`read_stated_confidence`
takes the line out of the response, so that its number is not taken for the answer. It
is no probability of tokens: only a calibration can say what it is worth.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from langchain_reasc.answers import ending_of, without_reasoning
from langchain_reasc.models.contract import RECEIVED_TOKENS, VERBALIZED_CONFIDENCE
from langchain_reasc.models.usage import counted_tokens, reported_usage

_INSTRUCTION: Final = (
    "End your response with a line of its own that says how likely it is, from 0% to "
    "100%, that your answer is right, in this form:\nConfidence: 85%\nWrite that line "
    "in this form whatever the language or format of your answer."
)
_BESIDE_CALLS: Final = " When you call tools, write it in your text before the calls; it then says how right they are."

_OPENING: Final = "*_`\"'([{"
_BETWEEN: Final = "|•·–—-"
_MARKS: Final = f" \t\r\xa0~>#{_OPENING}{_BETWEEN}"
# may stand before a statement in a line that says something else first
_ENDS: Final = ".!?;,:。>)]}$"
_LEADING: Final = re.compile(
    r"(?:\b(?:my|the|overall|final|stated|answer|estimated)\s+){1,2}\Z", re.IGNORECASE
)
# not followed by a quotation mark: "confidence": 0.9 is a field of somebody's JSON
_LABEL: Final = re.compile(
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
_MAX_WORDS: Final = 4  # of a statement that names no number ("Confidence: very high")


class _Statement(NamedTuple):
    """A statement in a line.

    Attributes:
        start: where it begins.
        label: its label, as "Confidence:".
        value: the number after the label; None if something else is said.
        rest: what stands behind the number, if that is nothing but marks and tags, as
            of an ``<answer>`` around it.
    """

    start: int
    label: re.Match[str]
    value: re.Match[str] | None
    rest: re.Match[str] | None

    @property
    def tags(self) -> str:
        return self.rest["tags"] if self.rest else ""


def instruction(*, tools: bool) -> str:
    """Return the instruction to a model; with tools, also where the line stands beside
    calls.
    """
    return _INSTRUCTION + (_BESIDE_CALLS if tools else "")


def ask_for_confidence(
    messages: Sequence[BaseMessage], *, tools: bool
) -> list[BaseMessage]:
    """Return a prompt that asks for the line as well, also beside calls where the model
    may call ``tools``.

    The instruction is added to the first system message, because providers take one
    only, or else put in front.
    """
    line = instruction(tools=tools)
    for index, message in enumerate(messages):
        if message.type == "system" or getattr(message, "role", None) in (
            "system",
            "developer",
        ):
            content = message.content
            if isinstance(content, str):
                added: Any = f"{content}\n\n{line}" if content else line
            else:
                if content:
                    added = [*content, {"type": "text", "text": f"\n\n{line}"}]
                else:
                    added = line
            return [
                *messages[:index],
                message.model_copy(update={"content": added}),
                *messages[index + 1 :],
            ]
    return [SystemMessage(line), *messages]


def read_stated_confidence(message: AIMessage) -> AIMessage:
    """Return a response to such a prompt without the line, its number in the metadata
    ``verbalized_confidence``.

    That is None if the response states none: no line, no number in it, one that is no
    share of the whole, one in its reasoning only, or one that was cut off.
    """
    cut_off = ending_of(message) == "cut off"
    content: Any = message.content
    confidence = None
    if isinstance(content, str):
        confidence = _confidence_outside_reasoning(content, cut_off=cut_off)
        content = without_statement(content)
    else:
        blocks = content
        content = []
        for index, block in enumerate(blocks):
            text = _text(block)
            if text and (rest := without_statement(text)) != text:
                confidence = _confidence_outside_reasoning(
                    text, cut_off=cut_off and index == len(blocks) - 1
                )
                # providers refuse empty blocks when they are sent back
                if not rest.strip():
                    continue
                block = rest if isinstance(block, str) else {**block, "text": rest}
            content.append(block)
    metadata = {**message.response_metadata, VERBALIZED_CONFIDENCE: confidence}
    if content != message.content and reported_usage(message) is None:
        # which are paid for, whatever is left of the text
        metadata[RECEIVED_TOKENS] = counted_tokens(message)
    return message.model_copy(
        update={"content": content, "response_metadata": metadata}
    )


def without_statement(text: str) -> str:
    """Return a text without its lines that state a confidence, and without a statement
    at the end of its last line.
    """
    lines = text.rstrip().split("\n")
    unstated = [
        rest for line in lines if (rest := _without_leading_statement(line)) is not None
    ]
    while unstated and not unstated[-1].strip():
        unstated.pop()
    if unstated and (statement := _trailing_statement(unstated[-1])):
        unstated[-1] = unstated[-1][: statement.start] + statement.tags
    return text if unstated == lines else "\n".join(unstated).rstrip()


def stated_confidence(text: str) -> float | None:
    """Return the last confidence that a text states, 0 to 1; None if that is no number,
    or there is none.
    """
    lines = text.rstrip().split("\n")
    statement = _trailing_statement(lines[-1]) or next(
        filter(None, map(_leading_statement, reversed(lines))), None
    )
    return _as_share(statement.value) if statement and statement.value else None


def _text(block: Any) -> str | None:
    if isinstance(block, dict) and block.get("type") == "text":
        block = block.get("text")
    return block if isinstance(block, str) else None


def _confidence_outside_reasoning(text: str, *, cut_off: bool) -> float | None:
    """The confidence stated in a text outside its reasoning."""
    spoken = without_reasoning(text)
    if spoken is not None and cut_off:  # of "Confidence: 8" the rest may be missing
        spoken = spoken.rpartition("\n")[0]
    return None if spoken is None else stated_confidence(spoken)


def _without_leading_statement(line: str) -> str | None:
    """What a line says besides a statement that it begins with; None if that is
    nothing.
    """
    statement = _leading_statement(line)
    if statement is None:
        return line
    if statement.value:
        after = _NEXT_SENTENCE.match(line, statement.value.end())
    else:
        after = None
    return line[after.end() :] if after else statement.tags or None


def _leading_statement(line: str) -> _Statement | None:
    """The statement that a line begins with."""
    label = _LABEL.search(line)
    statement = _statement(line, label) if label else None
    if label is None or statement is None or statement.start:
        return None
    if label["colon"]:
        if statement.value or len(line[label.end() :].split()) <= _MAX_WORDS:
            return statement
        return None
    return statement if statement.rest else None


def _trailing_statement(line: str) -> _Statement | None:
    """The statement at the end of a line that says something else first."""
    *_, label = (None, *_LABEL.finditer(line))
    statement = _statement(line, label) if label else None
    if label is None or statement is None or not statement.start or not statement.rest:
        return None
    as_asked = label[0].startswith("Confidence") and not label["more"]
    marked = not set(_OPENING + _BETWEEN).isdisjoint(
        line[statement.start : label.start()]
    )
    if as_asked or marked or line[statement.start - 1] in _ENDS:
        return statement
    return None


def _statement(line: str, label: re.Match[str]) -> _Statement:
    before = line[: label.start()]
    if leading := _LEADING.search(before, max(0, len(before) - 40)):
        before = before[: leading.start()]
    # What is marked up before it keeps its marks: of "**42** - **Confidence:** 85%" the
    # first two stars.
    if before.strip(_MARKS):
        text_before = before.rstrip(_OPENING).rstrip().rstrip(_BETWEEN).rstrip()
    else:
        text_before = ""
    value = _VALUE.match(line, label.end())
    return _Statement(
        len(text_before),
        label,
        value,
        _REST.match(line, value.end()) if value else None,
    )


def _as_share(value: re.Match[str]) -> float | None:
    """A number as a share of the whole: 85%, 85, 0.85, 85/100 and 8.5/10 are 0.85; of a
    range its middle.
    """
    numbers = [_as_float(value[name]) for name in ("low", "high") if value[name]]
    # A bare number is a share up to 1, and of a hundred above.
    whole = float(value["most"] or (100 if value["percent"] or max(numbers) > 1 else 1))
    if whole and min(numbers) >= 0 and max(numbers) <= whole:
        return sum(numbers) / len(numbers) / whole
    return None


def _as_float(text: str) -> float:
    """A number with a decimal point or comma; in 1,000 the comma is none."""
    whole, comma, rest = text.replace("−", "-").partition(",")
    thousands = comma and len(rest) == 3 and whole.strip("+-0")
    return float(
        f"{whole}{rest}" if thousands else f"{whole}{'.' if comma else ''}{rest}"
    )
