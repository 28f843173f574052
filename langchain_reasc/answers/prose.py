"""Cut a text into paragraphs and sentences, and tell an answer from the talk around it."""

import re
from functools import cache
from typing import Final, NamedTuple

from langchain_reasc.answers import languages
from langchain_reasc.answers.forms import (
    BULLET,
    form_of,
    is_code,
    is_sql,
)

SHORT: Final = 10
"""The most words of a line that is an answer as a whole."""
TAIL: Final = 4000
"""Characters at the end of a text in which its conclusion is looked for."""


class Paragraph(NamedTuple):
    """A paragraph, and where it begins in its text."""

    start: int
    text: str


# Sentences

# A closing tag ends a sentence without a mark.
_END: Final = re.compile(r"(?P<mark>[.!?][\"')*_`\]$”]*(?=\s|\Z)|[。！？]|\n|(?=</))")
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|Capt|Rev|Hon|vs|etc|approx|ca|pp?|e\.g|i\.e|cf|[A-Z])|\b[ap]\.m|\b[A-Z]\.[A-Z])\Z"
)
# The full stop in "**Dr. No** is a film." is within a piece.
_QUOTED: Final = re.compile(r"\s*(?:\*\*[^*\n]+\*\*|`[^`\n]+`|\$[^$\n]+\$)")
_NEXT_WORD: Final = re.compile(r"\s*([^\W\d_]+)")


def sentence_end(text: str) -> tuple[int, str]:
    """Return where the first sentence of a text ends, and the mark there; the mark is
    empty at the end of the text.
    """
    quoted = _QUOTED.match(text)
    start = quoted.end() - 1 if quoted else 0
    for match in _END.finditer(text, start):
        if not match["mark"].startswith(".") or not _goes_on(text, match):
            return match.start(), match["mark"]
    return len(text), ""


def _goes_on(text: str, full_stop: re.Match[str]) -> bool:
    """Return whether a sentence goes on behind a full stop: that of an abbreviation, of
    an ordinal, of a step.
    """
    before = text[max(0, full_stop.start() - 12) : full_stop.start()]
    last_word = before.rpartition(" ")[2].casefold()
    # "The train leaves at 5 p.m. It is late."
    is_time = before.endswith(("a.m", "p.m"))
    is_abbreviated = _ABBREVIATION.search(before) or last_word in languages.MONTHS
    if is_abbreviated and not is_time and full_stop.end() < len(text.rstrip()):
        return True
    following = _NEXT_WORD.match(text, full_stop.end())
    if following is None:
        return False
    word = following[1]
    # "Am 5. Mai"
    is_date = before[-1:].isdigit() and word.casefold() in languages.MONTHS
    return is_date or word[0].islower()


def sentences(text: str) -> list[str]:
    """Cut a paragraph into sentences."""
    cut = []
    while text:
        end, mark = sentence_end(text)
        sentence = text[: end + len(mark)].strip()
        if sentence:
            cut.append(sentence)
        text = text[end + max(len(mark), 1) :]
    return cut


# Blocks: lists, code, objects

# "1. 3 + 4 = 7", "2. Total: 7" and "3. We add both." are steps, "1. Oslo" is not.
_STEP: Final = re.compile(r"=|[^\W\d]\*{0,2}:\s|[a-z\d]\.\Z")


def is_block(text: str) -> bool:
    """Return whether a text is a list, code, or an object, which is an answer as a
    whole.
    """
    stripped = text.strip()
    if stripped.startswith("```") or is_code(stripped) or is_sql(stripped):
        return True
    if len(_list_items(stripped)) > 1:
        return True
    return (
        stripped[:1] in ("{", "[")
        and stripped[-1:] in ("}", "]")
        and form_of(stripped).kind in ("value", "list")
    )


def last_step(text: str) -> str | None:
    """Return the last line of a list that is a reasoning of several steps, and not an
    answer of several parts.
    """
    text = text.strip()
    first_line, _, rest = text.partition("\n")
    items = _list_items(rest if first_line.endswith(":") else text)
    if len(items) < 2:
        return None
    for item in items:
        if len(item.split()) > SHORT or _STEP.search(item):
            return items[-1]
    return None


def _list_items(text: str) -> list[str]:
    lines = [line for line in text.split("\n") if line.strip()]
    if not all(map(BULLET.match, lines)):
        return []
    return [BULLET.sub("", line, count=1) for line in lines]


# Talk: courtesies, remarks, citations

# "Confidence: 90%", "Note: ...", "I am 90% sure", "[1]: https://...", "---",
# "(rounded)", "Does that make sense?"
_REMARK: Final = re.compile(
    r"""[\s*_(>\#\[-]*(?:
        (?: (?:my\ )?confidence|certainty|probability[^\n:]{0,40}|reason(?:ing)?|explanation|rationale|justification
          | note|n\.?b|p\.?s|hint|remark|check|verification|double-check|sources?|references?|hinweis|nota|disclaimer
          | summary|tips?|key\ takeaways?|remember|(?:this|that)\ response )\b\s*(?:score|level)?\s*[:.*=\d]
      | (?:confidence|i\ am|i'm)\ [^\n]{0,40}(?:\d+\s?/\s?\d+|%|sure|certain|confident)
      | (?:i\ hope|hope\ (?:this|that)|thanks|keep\ (?:practic|going)|please\ note|this\ response\ was)\b
      | \^?\d+\]:?\s\S
      | [=_*-]*\Z )
      | \s*-{3,}
      | \s*\([^()]*\)[\s.!]*\Z
      | [^?\n]{0,80}\b(?:make\ sense|anything\ else|shall\ i|want\ me|would\ you\ like|any\ questions)\b
        [^?\n]{0,80}\?""",
    re.VERBOSE | re.IGNORECASE,
)
_FAREWELL: Final = re.compile(
    r"\W{0,9}(?:(?:i )?hope (?:this|that|it)|let me know|feel free)", re.IGNORECASE
)
# "Oslo [1]", "Oslo【3†source】"
_CITATIONS: Final = re.compile(
    r"""(?: (?:(?<=\w\w)|(?<=[.!?"')\]])|(?<=\S)\s)\s*\[\^?[1-9]\d{0,2}(?:[,–-]\s?(?:p\.\s?)?\d{1,3})*\]
          | \s*【[^】]*】 )+(?=[\s.,;]|\Z)""",
    re.VERBOSE,
)
# "Oslo (source: an atlas)", "Oslo (90% sure)"
_SOURCE: Final = re.compile(
    r"""(?<=\S)\s*[(\[](?:sources?|see|ref|cf|quelle|siehe|confidence|certainty|probability|i\ am|i'm
        |(?:about\ )?\d+\ ?%\ (?:sure|confident|certain))\b[^()\[\]]*(?:\[\d+\])?[)\]]""",
    re.VERBOSE | re.IGNORECASE,
)
_LONGEST_SPAN: Final = 1000


def paragraphs(text: str) -> list[Paragraph]:
    """Return the paragraphs at the end of a text, without courtesies and remarks at the
    beginning and the end.
    """
    offset = max(0, len(text) - TAIL)
    pieces = _fenced(text[offset:]) or _pieces(text[offset:])
    for index, piece in enumerate(pieces):
        # Nothing counts behind "Let me know if ...".
        if index and _FAREWELL.match(piece.text):
            pieces = pieces[:index]
            break
    while len(pieces) > 1 and _is_talk(pieces[-1].text):
        pieces.pop()
    while len(pieces) > 1 and _is_talk(pieces[0].text):
        pieces.pop(0)
    if pieces:
        start, last = pieces.pop()
        pieces.append(Paragraph(start, _without_last_talk(last)))
    return [Paragraph(offset + start, piece) for start, piece in pieces]


def _pieces(text: str) -> list[Paragraph]:
    pieces = []
    start = 0
    for piece in text.split("\n\n"):
        stripped = piece.strip()
        if stripped:
            pieces.append(Paragraph(start + piece.index(stripped[0]), stripped))
        start += len(piece) + 2
    return pieces


def _fenced(text: str) -> list[Paragraph]:
    """Return what stands before the last code in a fence, and the code, if nothing but
    talk follows.
    """
    end = text.rfind("```")
    start = text.rfind("```", 0, max(end, 0))
    if end < 0 or start < 0 or not _is_talk(text[end + 3 :]):
        return []
    code = Paragraph(start, text[start : end + 3])
    if _is_talk(text[:start]):
        return [code]
    return [Paragraph(0, text[:start].strip()), code]


def _is_talk(text: str) -> bool:
    """Return whether a text consists of courtesies and remarks."""
    beginning = text[:_LONGEST_SPAN].strip()
    return (
        not beginning
        or _REMARK.match(beginning) is not None
        or _courtesy().match(beginning) is not None
    )


@cache
def _courtesy() -> re.Pattern[str]:
    return re.compile(
        rf"\W{{0,9}}(?:{languages.words_pattern(languages.words('courtesy')).pattern})",
        re.IGNORECASE,
    )


def _without_last_talk(paragraph: str) -> str:
    lines = paragraph.split("\n")
    while len(lines) > 1 and _is_talk(lines[-1]):
        lines.pop()
    if len(lines) > 1 or len(lines[0]) > _LONGEST_SPAN:
        return "\n".join(lines)
    parts = sentences(lines[0])
    while len(parts) > 1 and _is_talk(parts[-1]):
        parts.pop()
    while len(parts) > 1 and _is_talk(parts[0]):
        parts.pop(0)
    return " ".join(parts)


def without_citations(span: str) -> str:
    """Return a span without citations, sources and statements of confidence behind it."""
    if len(span) > _LONGEST_SPAN or not {"[", "(", "【"}.intersection(span):
        return span
    before = ""
    while span != before:
        before = span
        span = _SOURCE.sub("", _CITATIONS.sub("", span)).rstrip()
    return span


# Texts that state nothing

# Behind a letter, a comma or a dash the sentence may go on.
_ENDS_OPEN: Final = re.compile(r"(?:[^\W\d]|[,;:(—–-])\Z")
_ENDS_IN_THE_MIDDLE: Final = re.compile(
    r"\s(?:in|of|the|a|an|to|by|and|with|for|from|is|are|was|that|or|at|on)\Z",
    re.IGNORECASE,
)


def declines(paragraph: str) -> bool:
    """Return whether a paragraph asks back, or says in the first person that it cannot
    answer.
    """
    if paragraph.endswith(("?", "？", "؟")):
        return True
    return _cannot().search(paragraph[:_LONGEST_SPAN].replace("’", "'")) is not None


@cache
def _cannot() -> re.Pattern[str]:
    words = languages.words_pattern(languages.words("cannot")).pattern
    return re.compile(
        rf"(?:\A|[.!?:;,]\s|\b(?:but|so|and|aber)\s)(?:unfortunately,?\s)?\W{{0,3}}(?:{words})",
        re.IGNORECASE,
    )


def breaks_off(paragraph: str) -> bool:
    """Return whether a paragraph ends in the middle of a sentence."""
    last_line = paragraph[paragraph.rfind("\n") + 1 :]
    words = 0
    for sentence in sentences(last_line[-_LONGEST_SPAN:]):
        words = sentence.count(" ") + 1
    # A short answer may end with a preposition.
    if words > 5 and _ENDS_IN_THE_MIDDLE.search(last_line):
        return True
    return words > SHORT and _ENDS_OPEN.search(last_line) is not None
