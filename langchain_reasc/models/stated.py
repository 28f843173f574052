"""Stated (verbalized) confidence, for models without log-probabilities.

A model is asked to end its response with a line such as ``Confidence: 85%``.
:func:`ask_for_confidence` adds that to a prompt, and :func:`read_stated_confidence`
takes the line out of the response, so that its number is not taken for the answer. The
number is not a probability of tokens: only a calibration can say what it is worth.
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
_BESIDE_CALLS: Final = (
    " When you call tools, write it in your text before the calls; it then says how "
    "right they are."
)

_OPENING: Final = "*_`\"'([{"
_BETWEEN: Final = "|•·–—-"
_MARKS: Final = f" \t\r\xa0~>#{_OPENING}{_BETWEEN}"
# One of these ends what a line says before its statement.
_ENDS: Final = ".!?;,:。>)]}$"
_LEADING: Final = re.compile(
    r"(?:\b(?:my|the|overall|final|stated|answer|estimated)\s+){1,2}\Z", re.IGNORECASE
)
# A quotation mark may not follow: "confidence": 0.9 is a field of somebody's JSON.
_LABEL: Final = re.compile(
    r"confidence(?P<more>\s+(?:level|score|rating))?"
    r"(?:\s*\([^()\n]{0,40}\)|\s+(?:in|that)\b[^\n:：=]{1,40}?)?"
    r"[\s*_`]*+(?:(?P<colon>[:：=])|\bis\b)[\s*_`\"'(\[{]*+",
    re.IGNORECASE,
)
_NUMBER: Final = r"[-+−]?\d++(?:[.,]\d++)?"
_PER_CENT: Final = r"\s*(?:\\?[%％٪]|per\s?cent\b)"
_VALUE: Final = re.compile(
    r"(?:(?:about|around|approximately|approx\.?|roughly|at\s+least|between|over"
    rf"|[~≈<>≤≥])\s*)?(?P<low>{_NUMBER})"
    rf"(?:(?:{_PER_CENT})?\s*(?:[-–—~]|to\b|and\b)\s*(?P<high>{_NUMBER}))?"
    rf"(?:(?P<percent>{_PER_CENT})|\s*(?:/|out\s+of)\s*(?P<most>\d++))?(?!\w|[.,]\d)",
    re.IGNORECASE,
)
_REST: Final = re.compile(r"[\s*_`~|).!。]*+(?P<tags>(?:</\w++>\s*+)*)\Z")
_NEXT_SENTENCE: Final = re.compile(r"[*_`)\]\s]*+[.;!。][*_`\s]*+(?=\w)")
_MAX_WORDS: Final = 4  # of a statement without a number


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
    if tools:
        return _INSTRUCTION + _BESIDE_CALLS
    return _INSTRUCTION


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
        role = getattr(message, "role", message.type)
        if message.type != "system" and role not in ("system", "developer"):
            continue
        content: Any = line
        if message.content and isinstance(message.content, str):
            content = f"{message.content}\n\n{line}"
        elif message.content:
            content = [*message.content, {"type": "text", "text": f"\n\n{line}"}]
        # The user's messages stay as they are.
        prompt = list(messages)
        prompt[index] = message.model_copy(update={"content": content})
        return prompt
    return [SystemMessage(line), *messages]


def read_stated_confidence(message: AIMessage) -> AIMessage:
    """Return a response to such a prompt without the line, its number in the metadata
    ``verbalized_confidence``.

    The number is None if the line is missing, was cut off, stands in the reasoning
    only, or has no number that can be a share of the whole.
    """
    cut_off = ending_of(message) == "cut off"
    content: Any = message.content
    confidence = None
    if isinstance(content, str):
        confidence = _confidence_outside_reasoning(content, cut_off=cut_off)
        content = without_statement(content)
    else:
        content = []
        for index, block in enumerate(message.content, start=1):
            text = _text(block)
            rest = without_statement(text)
            if rest != text:
                is_last = index == len(message.content)
                confidence = _confidence_outside_reasoning(
                    text, cut_off=cut_off and is_last
                )
                # Providers refuse empty blocks when they are sent back.
                if not rest.strip():
                    continue
                block = rest if isinstance(block, str) else {**block, "text": rest}
            content.append(block)
    metadata = {**message.response_metadata, VERBALIZED_CONFIDENCE: confidence}
    if content != message.content and reported_usage(message) is None:
        # The line is paid for, too.
        metadata[RECEIVED_TOKENS] = counted_tokens(message)
    return message.model_copy(
        update={"content": content, "response_metadata": metadata}
    )


def without_statement(text: str) -> str:
    """Return a text without its lines that state a confidence, and without a statement
    at the end of its last line.
    """
    lines = text.rstrip().split("\n")
    unstated = []
    for line in lines:
        rest = _without_leading_statement(line)
        if rest is not None:
            unstated.append(rest)
    # A blank line stands before the statement, as a rule.
    while unstated and not unstated[-1].strip():
        unstated.pop()
    statement = _trailing_statement(unstated[-1]) if unstated else None
    if statement:
        unstated[-1] = unstated[-1][: statement.start] + statement.tags
    if unstated == lines:
        return text
    return "\n".join(unstated).rstrip()


def stated_confidence(text: str) -> float | None:
    """Return the last confidence that a text states, 0 to 1; None if that is not a
    number, or there is none.
    """
    lines = text.rstrip().split("\n")
    statement = _trailing_statement(lines[-1]) or next(
        filter(None, map(_leading_statement, reversed(lines))), None
    )
    if statement is None or statement.value is None:
        return None
    return _as_share(statement.value)


def _text(block: Any) -> str:
    if isinstance(block, dict) and block.get("type") == "text":
        block = block.get("text")
    return block if isinstance(block, str) else ""


def _confidence_outside_reasoning(text: str, *, cut_off: bool) -> float | None:
    """The confidence stated in a text outside its reasoning."""
    spoken = without_reasoning(text)
    if spoken is None:
        return None
    # "Confidence: 8" may be the beginning of "Confidence: 85%".
    if cut_off:
        spoken = spoken.rpartition("\n")[0]
    return stated_confidence(spoken)


def _without_leading_statement(line: str) -> str | None:
    """The rest of a line that begins with a statement; None if nothing is left."""
    statement = _leading_statement(line)
    if statement is None:
        return line
    if statement.value:
        after = _NEXT_SENTENCE.match(line, statement.value.end())
        if after:
            return line[after.end() :]
    return statement.tags or None


def _leading_statement(line: str) -> _Statement | None:
    """The statement that a line begins with."""
    label = _LABEL.search(line)
    if label is None:
        return None
    statement = _statement(line, label)
    if statement.start:
        return None
    if not label["colon"]:
        return statement if statement.rest else None
    # "Confidence: very high" is a statement, a whole sentence after a colon is not.
    if statement.value or len(line[label.end() :].split()) <= _MAX_WORDS:
        return statement
    return None


def _trailing_statement(line: str) -> _Statement | None:
    """The statement at the end of a line that says something else first."""
    labels = list(_LABEL.finditer(line))
    if not labels:
        return None
    label = labels[-1]
    statement = _statement(line, label)
    if not statement.start or not statement.rest:
        return None
    as_asked = label[0].startswith("Confidence") and not label["more"]
    marks = set(line[statement.start : label.start()])
    is_marked = not marks.isdisjoint(_OPENING + _BETWEEN)
    if as_asked or is_marked or line[statement.start - 1] in _ENDS:
        return statement
    return None


def _statement(line: str, label: re.Match[str]) -> _Statement:
    before = line[: label.start()]
    leading = _LEADING.search(before, max(0, len(before) - 40))
    if leading:
        before = before[: leading.start()]
    start = 0
    # The text before keeps its own marks: of "**42** - **Confidence:** 85%" the first
    # four stars.
    if before.strip(_MARKS):
        start = len(before.rstrip(_OPENING).rstrip().rstrip(_BETWEEN).rstrip())
    value = _VALUE.match(line, label.end())
    rest = _REST.match(line, value.end()) if value else None
    return _Statement(start, label, value, rest)


def _as_share(value: re.Match[str]) -> float | None:
    """A number as a share of the whole: 85%, 85, 0.85, 85/100 and 8.5/10 are 0.85; of a
    range its middle.
    """
    numbers = [_as_float(value[name]) for name in ("low", "high") if value[name]]
    if value["most"]:
        whole = float(value["most"])
    # A bare number is a share up to 1, and of a hundred above.
    elif value["percent"] or max(numbers) > 1:
        whole = 100.0
    else:
        whole = 1.0
    if whole and min(numbers) >= 0 and max(numbers) <= whole:
        return sum(numbers) / len(numbers) / whole
    return None


def _as_float(text: str) -> float:
    """A number with a decimal point or comma."""
    whole, comma, rest = text.replace("−", "-").partition(",")
    if not comma:
        return float(whole)
    # "1,000" is a thousand, "0,850" is not.
    if len(rest) == 3 and whole.strip("+-0"):
        return float(whole + rest)
    return float(f"{whole}.{rest}")
