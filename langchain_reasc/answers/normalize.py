"""One spelling per answer: ``1,000``, ``1000.0`` and ``$1000`` cast their votes together."""

import re
import unicodedata

from langchain_reasc.answers.marks import in_plain_marks
from langchain_reasc.answers.numbers import read_quantity
from langchain_reasc.answers.tool_calls import canonical_calls

__all__ = ["equivalent", "normalize", "without_unit"]

_LONGEST = 1000
"""Characters up to which an answer's spelling is looked into; a longer one is a text."""

_SIGNS_OF_KIND = re.compile(r"[$€£¥₹₩₽%]|^(?:usd|eur|gbp|chf)\s(?=[\d.-])", re.IGNORECASE)
_UNKNOWN = re.compile(r"[a-z](?:\([a-z]\))?\s?=\s?(?=[^=\s])")  # x = 5, f(x) = 2x
_LETTER = re.compile(r"\(([a-z])\)|\[([a-z])\]")
_WORD = re.compile(r"(?<!\\)\b[^\W\d_]{2,}")
_COMMAND = re.compile(r"\\(?:begin|end)\{\w+\}|\\[a-zA-Z]+")
_GAP = re.compile(
    r"(?<=,) (?!\d{3}(?!\d))"  # 2, 300 are two numbers, 2,300 is one
    r"|(?<=[^\w,]) | (?=[^\w\\])|(?<=\d) (?=[a-z\\])"
)
_MATH = re.compile(r"[-+*/^=<>|]|\\[a-z]|^[(\[{].*[)\]}]$")
_BRACED_POWER = re.compile(r"\^\{(\w)\}")
_UNIT = re.compile(
    r"(?P<number>.*?\d(?:\s?(?:thousand|million|billion|trillion))?)\s?(?P<unit>(?!(?:[ap]\.?m|and|or|to|of|in|x|times|plus|minus|than|is)\b)"
    r"[^\W\d_]+\.?(?:[ /][^\W\d_]+\.?){0,3}(?:\^-?\d)?)",
    re.IGNORECASE,
)


def normalize(answer: str) -> str:
    """The canonical form of an answer: numbers plainly written, signs of currency and formats dropped, text casefolded.

    ``"$1,000.0"`` gives ``"1000"``, ``"1/2"`` and ``"\\frac{1}{2}"`` give ``"0.5"``, ``"x = 5"`` gives ``"5"``,
    ``"(1, 2)"`` ``"(1,2)"``, ``" Blue. "`` ``"blue"``. Tool calls keep their letters as they are. Normalizing twice
    changes nothing. It takes time in proportion to the length.
    """
    if calls := canonical_calls(answer):
        return calls
    text, before = " ".join(_encodable(answer).split()), ""
    if len(text) > _LONGEST:
        return text.casefold()
    while text != before:  # what surrounded a mark may form another
        text, before = _cleaned(text), text
    return text


def equivalent(one: str | None, other: str | None) -> bool:
    """Whether two answers are the same once normalized; no answer equals nothing."""
    return one is not None and other is not None and normalize(one) == normalize(other)


def without_unit(answer: str) -> str:
    """The number of an answer that is one with a unit, such as ``12 square meters``; any other answer as it is."""
    text = " ".join(_SIGNS_OF_KIND.sub("", in_plain_marks(answer[:_LONGEST])).split()).strip(" .*")
    if read_quantity(text) is not None or not (match := _UNIT.fullmatch(text)):
        return answer
    return match["number"] if read_quantity(match["number"]) is not None else answer


def _cleaned(text: str) -> str:
    text = in_plain_marks(text).casefold()
    text = _SIGNS_OF_KIND.sub("", text)
    text = " ".join(text.split()).rstrip(".").strip("*`_\"' ")
    if unknown := _UNKNOWN.match(text):
        text = text[unknown.end() :]
    if letter := _LETTER.fullmatch(text):
        text = letter[1] or letter[2]
    number = read_quantity(text)
    return _expression(text) if number is None else number


def _expression(text: str) -> str:
    """Without the spaces that say nothing, where the text is a formula, a tuple or a list."""
    if '"' in text or not (_MATH.search(text) or "," in text) or _WORD.search(_COMMAND.sub(" ", text)):
        return text
    return _BRACED_POWER.sub(r"^\1", _GAP.sub("", text))


def _encodable(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))
