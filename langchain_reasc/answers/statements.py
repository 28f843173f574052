"""Find what a text marks or states as its answer: a box, ``<answer>``, ``####``, a
field, "the answer is ...".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.json_values import field_of_last_object
from langchain_reasc.answers.languages import is_unspaced
from langchain_reasc.answers.prose import (
    SHORT,
    TAIL,
    is_block,
    sentence_end,
    without_citations,
)
from langchain_reasc.answers.reduction import reduced


@dataclass(frozen=True, slots=True)
class Statement:
    """A span that a text marks or states, or concludes with.

    Attributes:
        start: where the statement begins in the text.
        span: the span.
        is_whole: whether it is surely an answer as a whole.
    """

    start: int
    span: str
    is_whole: bool = True


def last_statement(
    text: str, question: str = "", *, cut_off: bool = False
) -> Statement | None:
    """Return the last span that a text marks or states, or None.

    Args:
        text: a response, without its reasoning.
        question: the question, whose words are left out of a sentence that repeats
            them.
        cut_off: whether the response was cut off. An unfinished last statement then
            does not count.
    """
    statements = [
        *(
            _last_box(text, cut_off),
            _last_tag(text),
            _behind_hashes(text, cut_off),
            _field(text, cut_off),
        ),
        next(_stated(text, question, cut_off), None),
    ]
    whole = [statement for statement in statements if statement]
    return max(whole, key=lambda statement: statement.start, default=None)


# Marks

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s?")
_BARE_IN_BOX: Final = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])")
_LONGEST_BOX: Final = 2000
_MOST_BOXES: Final = 20
_BETWEEN_BOXES: Final = re.compile(
    r"[$\s]*(?:,|;|and|or|\\text\{ ?(?:and|or) ?\})+[\s$]*"
)
_BRACE: Final = re.compile(r"\\[{}]|[{}]")
_TAG: Final = re.compile(
    r"<answer>(?P<inside>(?:(?!<answer>).){0,600}?)</answer>", re.IGNORECASE | re.DOTALL
)
_NUMBER_FIRST: Final = re.compile(r"[\s*$€£¥\\({\[-]*[-−–+]?[\d.½¼¾]")
_LONGEST_OBJECT: Final = 20_000
_FIELDS: Final = ("answer", "final_answer")


def boxed_content(text: str, *, cut_off: bool = False) -> str | None:
    """Return the content of the last ``\\boxed{...}``, or of several that are joined,
    or None.
    """
    box = _last_box(text, cut_off)
    return box.span if box else None


def _last_box(text: str, cut_off: bool) -> Statement | None:
    """Return the content of the last box, or of several that are joined by commas,
    "and" or "or".
    """
    box = _box_at(text, _box_before(text, len(text)), cut_off)
    if box is None:
        return None
    start, _, span = box
    for _ in range(_MOST_BOXES):
        box = _box_at(text, _box_before(text, start), cut_off)
        if box is None or not (
            between := _BETWEEN_BOXES.fullmatch(text[box[1] : start][:30])
        ):
            break
        start, _, inside = box
        span = inside + (" or " if "or" in between[0] else ", ") + span
    return Statement(start, span) if span.strip() else None


def _box_before(text: str, end: int) -> int:
    return max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))


def _box_at(text: str, opening: int, cut_off: bool) -> tuple[int, int, str] | None:
    """Return start, end and content of a box with balanced braces.

    A box without braces has no visible end, so it does not count in a text that was cut
    off.
    """
    command = _BOX.match(text, opening) if opening >= 0 else None
    if command is None:
        return None
    inside = command.end()
    if text[inside : inside + 1] != "{":
        bare = None if cut_off else _BARE_IN_BOX.match(text, inside)
        return (opening, bare.end(), bare[0]) if bare else None
    depth = 0
    for brace in _BRACE.finditer(text, inside, inside + _LONGEST_BOX):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return opening, brace.end(), text[inside + 1 : brace.start()]
    return None


def _last_tag(text: str) -> Statement | None:
    start = max(text.rfind("<answer>"), text.rfind("<ANSWER>"), text.rfind("<Answer>"))
    match = _TAG.match(text, start) if start >= 0 else None
    if match and match["inside"].strip():
        return Statement(start, match["inside"].strip())
    return None


def _behind_hashes(text: str, cut_off: bool) -> Statement | None:
    """Return what stands on the last line that begins with ``####``: a number, or the
    end of the text.
    """
    start = text.rfind("####")
    if start < 0 or (start and text[start - 1] != "\n"):
        return None
    line, newline, _ = text[start + 4 : start + 400].partition("\n")
    is_last = (
        start + 4 + len(line) + len(newline) >= len(text.rstrip())
        and 0 < line.count(" ") < SHORT
    )
    if not (_NUMBER_FIRST.match(line) or is_last) or (cut_off and not newline):
        return None
    return Statement(start, without_citations(line.strip()))


def _field(text: str, cut_off: bool) -> Statement | None:
    tail = text[-_LONGEST_OBJECT:]
    for name in _FIELDS:
        start = text.rfind(f'"{name}"')
        if start >= 0:
            value = field_of_last_object(tail, name, cut_off=cut_off)
        else:
            value = None
        if value:
            return Statement(start, value)
    return None


# "The answer is ..."

_REACH: Final = 600
"""Characters after a cue that must contain the whole answer."""
_MOST_CUES: Final = 20
_MARKUP: Final = r"[\s*_`>]"
_HEADING: Final = re.compile(rf"(?:{_MARKUP}|:)*\n\s*|\s*\|\s*\n\s*\|[-: |]+\n\s*\|\s*")
_IS_HEADING: Final = re.compile(
    r"[\s#*_>\W]*(?:(?:the|final|correct|my|your|short)\s+)*", re.IGNORECASE
)
_LONGEST_HEAD: Final = 60
_NUMBER_NEXT: Final = re.compile(r"\s[*_]{0,2}[-$€£]?\d")
_TURNED_ROUND: Final = re.compile(
    r"(?:\A|[.!?:;,]\s|\n)(?:so |hence |thus )?([^.!?;,\n]{1,60}?)\s+is\s+(?:the|my)\s+(?:\w+\s+)?\Z",
    re.IGNORECASE,
)
_ASKED: Final = re.compile(r"(?:what|which|who|that|it|this|here|not)\b", re.IGNORECASE)
_PROCESS: Final = re.compile(
    r"(?:to (?:find|solve|get|calculate|determine|answer|compute)|we |let |let's|first|in order|step|here|based|"
    r"obtained|found|given|as follows|not (?:sure|clear|given)|unclear|below|above|correct\b|wrong|incorrect|"
    r"right\b(?= if| when)|obvious|simple|easy|yours|since|because|start|i need|derived|calculated|shown|what |how )",
    re.IGNORECASE,
)


def _stated(text: str, question: str, cut_off: bool) -> Iterator[Statement]:
    """Yield the statements after "the answer is" and similar cues, last first."""
    for start, word in _cues(text):
        behind = text[start + len(word) : start + len(word) + _REACH]
        statement = _statement_behind(text, start, behind, cut_off)
        if statement is None:
            continue
        span = reduced(statement, question)
        if span and not _PROCESS.match(span):
            yield Statement(start, _with_points(span, word))


def _statement_behind(text: str, start: int, behind: str, cut_off: bool) -> str | None:
    heading = _HEADING.match(behind)
    line_start = text.rfind("\n", max(0, start - _LONGEST_HEAD), start) + 1
    if heading and _IS_HEADING.fullmatch(
        text, line_start or max(0, start - _LONGEST_HEAD), start
    ):
        return _below_heading(behind[heading.end() :], cut_off)
    if link := _link().match(behind):
        return _rest_of_sentence(
            behind[link.end() :], below="\n" in link[0], cut_off=cut_off
        )
    if _NUMBER_NEXT.match(behind):
        return _rest_of_sentence(behind, below=False, cut_off=cut_off)
    if behind.startswith(" ") and _inverted().search(text, max(0, start - 60), start):
        return _rest_of_sentence(behind, below=False, cut_off=cut_off)
    before = _TURNED_ROUND.search(text[max(start - 120, 0) : start])
    return before[1] if before and not _ASKED.match(before[1]) else None


def _cues(text: str) -> list[tuple[int, str]]:
    """Return the places and the words that name an answer, last first."""
    for offset in (max(0, len(text) - TAIL), 0):
        small = lowered(text[offset:])
        cues = [(offset + start, word) for start, word in _places(small)]
        if cues:
            break
    return sorted(cues, reverse=True)[:_MOST_CUES]


def _places(small: str) -> Iterator[tuple[int, str]]:
    for word in languages.words("answer"):
        start = len(small)
        for _ in range(_MOST_CUES):
            start = small.rfind(word, 0, start)
            if start < 0:
                break
            if start == 0 or is_unspaced(word[0]) or not small[start - 1].isalnum():
                yield start, word


@cache
def _link() -> re.Pattern[str]:
    copulas = languages.words("copula")
    spaced = "|".join(re.escape(word) for word in copulas if not is_unspaced(word[0]))
    unspaced = "|".join(re.escape(word) for word in copulas if is_unspaced(word[0]))
    nouns = "|".join(
        map(re.escape, (*languages.words("choice"), *languages.words("correct")))
    )
    return re.compile(
        rf"""(?:(?:s|et|en)?(?!\w)|(?=[\u3040-\u9fff\uac00-\ud7a3]))
        (?:,?\ (?:to|for|of)\ [\w'\ ]{{1,50}}?|,?\ (?:{nouns}|here|therefore|then|i\ get),?)*
        {_MARKUP}*
        (?: (?:seems?\ to\ be|appears?\ to\ be|{spaced})(?![^\W_])
          | (?:{unspaced}) | [:=：] | [-–—]>?(?=\s) | (?<=[:.])(?=\s))
        (?:[*_`]{{1,3}}(?=[\s:：]|\Z)|[\s:：=>]|therefore\s|then\s)*""",
        re.VERBOSE | re.IGNORECASE,
    )


@cache
def _inverted() -> re.Pattern[str]:
    copulas = "|".join(
        re.escape(word) for word in languages.words("copula") if len(word) > 2
    )
    return re.compile(rf"\b(?:{copulas})\s(?:\w{{1,4}}\s)?(?:\w+\s)?\Z", re.IGNORECASE)


def _below_heading(text: str, cut_off: bool) -> str | None:
    """Return the paragraph below a heading, if it is short, a list or code."""
    paragraph, blank_line, _ = text.strip().partition("\n\n")
    if cut_off and not blank_line and not text.endswith("\n"):
        return None
    if paragraph.startswith("```") and paragraph.count("```") < 2:
        end = text.find("```", text.find("```") + 3)
        return text[text.find("```") : end + 3] if end > 0 else None
    if is_block(paragraph):
        return paragraph
    first_line = paragraph.partition("\n")[0].strip(" |")
    return first_line if first_line.count(" ") < SHORT else None


def _rest_of_sentence(rest: str, *, below: bool, cut_off: bool) -> str | None:
    """Return the rest of a sentence after its verb, or None for a question or a
    sentence that was cut off.
    """
    if below:
        return _below_heading(rest, cut_off)
    end, mark = sentence_end(rest)
    is_ended = mark == "\n" or (mark != "" and end + len(mark) < len(rest))
    if mark.startswith(("?", "？")) or (cut_off and not is_ended):
        return None
    is_opening_line = mark == "\n" and rest[:end].rstrip().endswith((":", "："))
    return None if is_opening_line else rest[:end]


# Decimal commas

_DOTTED_GROUPS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![.\d])")
_DECIMAL_COMMA: Final = re.compile(r"(?<![\d.,])(\d{1,9}),(?=\d{1,9}(?![\d,]))")


def _with_points(span: str, cue: str) -> str:
    """Write the decimal commas of a language that has them as points."""
    if cue not in _cues_of_decimal_commas():
        return span
    span = _DOTTED_GROUPS.sub(lambda number: number[0].replace(".", ""), span)
    return _DECIMAL_COMMA.sub(r"\1.", span)


@cache
def _cues_of_decimal_commas() -> frozenset[str]:
    cues: set[str] = set()
    other_cues: set[str] = set()
    for language in languages.LANGUAGES:
        (cues if language.decimal_comma else other_cues).update(language.answer)
    return frozenset(cues - other_cues)


def lowered(text: str) -> str:
    """Return the text in lower case with every character at its old index."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
