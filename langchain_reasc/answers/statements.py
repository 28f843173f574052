"""Find what a text marks or states as its answer: a box, ``<answer>``, ``####``, a
field, "the answer is ...".
"""

import re
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
    last = None
    for statement in (
        _last_box(text, cut_off),
        _last_tag(text),
        _behind_hashes(text, cut_off),
        _last_field(text, cut_off),
        _last_cued(text, question, cut_off),
    ):
        if statement and (last is None or statement.start > last.start):
            last = statement
    return last


# Marks

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s?")
# "\boxed 5" and "\boxed B" have no braces.
_BARE_IN_BOX: Final = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])")
_LONGEST_BOX: Final = 2000
_MOST_BOXES: Final = 20
# "\boxed{1} and \boxed{2}" is one answer.
_BETWEEN_BOXES: Final = re.compile(
    r"[$\s]*(?:,|;|and|or|\\text\{ ?(?:and|or) ?\})+[\s$]*"
)
_BRACE: Final = re.compile(r"\\[{}]|[{}]")
_TAG: Final = re.compile(
    r"<answer>(?P<inside>(?:(?!<answer>).){0,600}?)</answer>", re.IGNORECASE | re.DOTALL
)
# "#### $1,000"
_NUMBER_FIRST: Final = re.compile(r"[\s*$€£¥\\({\[-]*[-−–+]?[\d.½¼¾]")
_LONGEST_OBJECT: Final = 20_000
_FIELDS: Final = ("answer", "final_answer")


def boxed_content(text: str, *, cut_off: bool = False) -> str | None:
    """Return the content of the last ``\\boxed{...}``, or of several that are joined,
    or None.
    """
    box = _last_box(text, cut_off)
    if box is None:
        return None
    return box.span


def _last_box(text: str, cut_off: bool) -> Statement | None:
    """Return the content of the last box, or of several that are joined by commas,
    "and" or "or".
    """
    box = _box_before(text, len(text), cut_off)
    if box is None:
        return None
    start, _, span = box
    for _ in range(_MOST_BOXES):
        box = _box_before(text, start, cut_off)
        if box is None:
            break
        between = _BETWEEN_BOXES.fullmatch(text[box[1] : start][:30])
        if between is None:
            break
        start, _, inside = box
        joint = " or " if "or" in between[0] else ", "
        span = inside + joint + span
    if not span.strip():
        return None
    return Statement(start, span)


def _box_before(text: str, end: int, cut_off: bool) -> tuple[int, int, str] | None:
    """Return start, end and content of the last box before a place, if its braces are
    balanced.

    A box without braces has no visible end, so it does not count in a text that was cut
    off.
    """
    start = max(text.rfind("\\boxed", 0, end), text.rfind("\\fbox", 0, end))
    command = _BOX.match(text, max(start, 0))
    if command is None:
        return None
    inside = command.end()
    if text[inside : inside + 1] != "{":
        bare = _BARE_IN_BOX.match(text, inside)
        if bare is None or cut_off:
            return None
        return start, bare.end(), bare[0]
    depth = 0
    for brace in _BRACE.finditer(text, inside, inside + _LONGEST_BOX):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return start, brace.end(), text[inside + 1 : brace.start()]
    return None


def _last_tag(text: str) -> Statement | None:
    start = max(text.rfind("<answer>"), text.rfind("<ANSWER>"), text.rfind("<Answer>"))
    if start < 0:
        return None
    match = _TAG.match(text, start)
    if match is None or not match["inside"].strip():
        return None
    return Statement(start, match["inside"].strip())


def _behind_hashes(text: str, cut_off: bool) -> Statement | None:
    """Return what stands on the last line that begins with ``####``: a number, or the
    end of the text.
    """
    start = text.rfind("####")
    if start < 0 or (start and text[start - 1] != "\n"):
        return None
    line, newline, _ = text[start + 4 : start + 400].partition("\n")
    if cut_off and not newline:
        return None
    is_last = start + 4 + len(line) + len(newline) >= len(text.rstrip())
    is_short = 0 < line.count(" ") < SHORT
    # "#### Step 2" is a heading, unless it is the last line.
    if not _NUMBER_FIRST.match(line) and not (is_last and is_short):
        return None
    return Statement(start, without_citations(line.strip()))


def _last_field(text: str, cut_off: bool) -> Statement | None:
    for name in _FIELDS:
        start = text.rfind(f'"{name}"')
        if start < 0:
            continue
        tail = text[-_LONGEST_OBJECT:]
        value = field_of_last_object(tail, name, cut_off=cut_off)
        if value:
            return Statement(start, value)
    return None


# "The answer is ..."

_REACH: Final = 600
"""Characters after a cue that must contain the whole answer."""
_MOST_CUES: Final = 20
_MARKUP: Final = r"[\s*_`>]"
_HEADING: Final = re.compile(rf"(?:{_MARKUP}|:)*\n\s*|\s*\|\s*\n\s*\|[-: |]+\n\s*\|\s*")
# "## Final" in front of "answer"
_IS_HEADING: Final = re.compile(
    r"[\s#*_>\W]*(?:(?:the|final|correct|my|your|short)\s+)*", re.IGNORECASE
)
_LONGEST_HEAD: Final = 60
# "Answer 42"
_NUMBER_NEXT: Final = re.compile(r"\s[*_]{0,2}[-$€£]?\d")
# "Oslo is the correct" in front of "answer"
_TURNED_ROUND: Final = re.compile(
    r"(?:\A|[.!?:;,]\s|\n)(?:so |hence |thus )?([^.!?;,\n]{1,60}?)\s+is\s+(?:the|my)\s+(?:\w+\s+)?\Z",
    re.IGNORECASE,
)
# "What is the answer?" and "That is the answer." state nothing.
_ASKED: Final = re.compile(r"(?:what|which|who|that|it|this|here|not)\b", re.IGNORECASE)
# "The answer is obtained by adding both" states nothing.
_PROCESS: Final = re.compile(
    r"(?:to (?:find|solve|get|calculate|determine|answer|compute)|we |let |let's|first|in order|step|here|based|"
    r"obtained|found|given|as follows|not (?:sure|clear|given)|unclear|below|above|correct\b|wrong|incorrect|"
    r"right\b(?= if| when)|obvious|simple|easy|yours|since|because|start|i need|derived|calculated|shown|what |how )",
    re.IGNORECASE,
)


def _last_cued(text: str, question: str, cut_off: bool) -> Statement | None:
    """Return the last statement after "the answer is" or a similar cue."""
    for start, word in _cues(text):
        behind = text[start + len(word) : start + len(word) + _REACH]
        statement = _statement_behind(text, start, behind, cut_off)
        if statement is None:
            continue
        span = reduced(statement, question)
        if span and not _PROCESS.match(span):
            return Statement(start, _with_points(span, word))
    return None


def _statement_behind(text: str, start: int, behind: str, cut_off: bool) -> str | None:
    heading = _HEADING.match(behind)
    if heading:
        earliest = max(0, start - _LONGEST_HEAD)
        line_start = text.rfind("\n", earliest, start) + 1
        if _IS_HEADING.fullmatch(text, line_start or earliest, start):
            return _below_heading(behind[heading.end() :], cut_off)
    link = _link().match(behind)
    if link:
        rest = behind[link.end() :]
        if "\n" in link[0]:
            return _below_heading(rest, cut_off)
        return _rest_of_sentence(rest, cut_off)
    if _NUMBER_NEXT.match(behind):
        return _rest_of_sentence(behind, cut_off)
    # The verb stands before the noun: "Damit ist die Antwort Berlin."
    if behind.startswith(" ") and _inverted().search(text, max(0, start - 60), start):
        return _rest_of_sentence(behind, cut_off)
    # "Berlin is the answer."
    before = _TURNED_ROUND.search(text[max(start - 120, 0) : start])
    if before is None or _ASKED.match(before[1]):
        return None
    return before[1]


def _cues(text: str) -> list[tuple[int, str]]:
    """Return the places and the words that name an answer, last first."""
    cues = []
    for offset in (max(0, len(text) - TAIL), 0):
        small = lowered(text[offset:])
        for word in languages.words("answer"):
            start = len(small)
            # A text may repeat a word without end.
            for _ in range(_MOST_CUES):
                start = small.rfind(word, 0, start)
                if start < 0:
                    break
                is_within_word = start > 0 and small[start - 1].isalnum()
                if not is_within_word or is_unspaced(word[0]):
                    cues.append((offset + start, word))
        # The beginning of a long text is only searched if its end has no cue.
        if cues:
            break
    return sorted(cues, reverse=True)[:_MOST_CUES]


@cache
def _link() -> re.Pattern[str]:
    """Return a pattern of what links a cue and its answer: " is", " to question 2: "."""
    spaced, unspaced = languages.word_patterns(languages.words("copula"))
    nouns = languages.either((*languages.words("choice"), *languages.words("correct")))
    return re.compile(
        rf"""(?:(?:s|et|en)?(?!\w)|(?=[\u3040-\u9fff\uac00-\ud7a3]))
        (?:,?\ (?:to|for|of)\ [\w'\ ]{{1,50}}?|,?\ (?:{nouns}|here|therefore|then|i\ get),?)*
        {_MARKUP}*
        (?: \b(?:seems?\ to\ be|appears?\ to\ be|{spaced})(?![^\W_])
          | (?:{unspaced}) | [:=：] | [-–—]>?(?=\s) | (?<=[:.])(?=\s))
        (?:[*_`]{{1,3}}(?=[\s:：]|\Z)|[\s:：=>]|therefore\s|then\s)*""",
        re.VERBOSE | re.IGNORECASE,
    )


@cache
def _inverted() -> re.Pattern[str]:
    """Return a pattern of a verb before the noun: "ist die richtige" Antwort."""
    words = [word for word in languages.words("copula") if len(word) > 2]
    copulas = languages.either(words)
    return re.compile(rf"\b(?:{copulas})\s(?:\w{{1,4}}\s)?(?:\w+\s)?\Z", re.IGNORECASE)


def _below_heading(text: str, cut_off: bool) -> str | None:
    """Return the paragraph below a heading, if it is short, a list or code."""
    paragraph, blank_line, _ = text.strip().partition("\n\n")
    if cut_off and not blank_line and not text.endswith("\n"):
        return None
    # Code may have blank lines.
    if paragraph.startswith("```") and paragraph.count("```") < 2:
        start = text.find("```")
        end = text.find("```", start + 3)
        if end < 0:
            return None
        return text[start : end + 3]
    if is_block(paragraph):
        return paragraph
    first_line = paragraph.partition("\n")[0].strip(" |")
    if first_line.count(" ") < SHORT:
        return first_line
    return None


def _rest_of_sentence(rest: str, cut_off: bool) -> str | None:
    """Return the rest of a sentence after its verb, or None for a question or a
    sentence that was cut off.
    """
    end, mark = sentence_end(rest)
    sentence = rest[:end]
    if mark.startswith(("?", "？")):
        return None
    if mark == "\n":
        # "The answer is as follows:" only opens the lines below it.
        if sentence.rstrip().endswith((":", "：")):
            return None
        return sentence
    # At the end of the text, "3." may go on as "3.5".
    if cut_off and not (mark and end + len(mark) < len(rest)):
        return None
    return sentence


# Decimal commas

# "1.234.567"
_DOTTED_GROUPS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![.\d])")
# "3,5"
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
        if language.decimal_comma:
            cues.update(language.answer)
        else:
            other_cues.update(language.answer)
    return frozenset(cues - other_cues)


def lowered(text: str) -> str:
    """Return the text in lower case with every character at its old index."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
