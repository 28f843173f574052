"""What is answered in a sentence: of "about 42 apples (see step 3), because ..." the 42."""

import re

from langchain_reasc.answers.marks import in_plain_marks
from langchain_reasc.answers.normalize import without_unit
from langchain_reasc.answers.numbers import QUANTITY

__all__ = ["told"]

_WORDS = 6
"""Words up to which a statement without a number is an answer ("The answer is New York")."""

_FRAME = " \t\n*_`\"'“”:.!"
_LETTER = re.compile(r"\(([A-J])\)(?=\W|\Z)|([A-J])(?=[).:]\s|\Z)")
_UNCLOSED = re.compile(r"\s\([^()]*\Z")  # an aside that the sentence's end cut through: (see p. 3)
_ASIDE = re.compile(r"\s\([^()]*\)[\s.!*]*\Z")
_CLAUSE = re.compile(
    r"\s*[,;:–—-]?\s(?:because|since|which\s(?!is\b|equals|gives|makes|comes|leaves)|who|whose|where|while|although|though|"
    r"given|compared|whereas|after\s|as\s|if\s|for\s\d)"
    r"|[,;]\s(?:so|and\sthe|and\sso|but|not|i\.?e\.?|or\sabout|or\sapprox|approx|rounded)\b|\sand\snot\s|\s—\s|\s–\s",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"(?:that\s+is|about|approximately|approx\.?|around|roughly|exactly|only|just|simply|equal\sto|a\stotal\sof|"
    r"≈|~|=|\\approx)\s*",
    re.IGNORECASE,
)
_BELOW_ZERO = re.compile(r"\A(?:negative|minus|-)\s+(?=[\d.$])", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"(?:not|wrong|incorrect|correct|right|obvious|clear|unclear|unknown|simple|easy|yours|below|above|as\sfollows|found|"
    r"given|let|let's|first|to\s(?:find|solve|get)|we\s|step|here|since|because|start|in\sorder|i\sneed)\b",
    re.IGNORECASE,
)
_NO_ANSWER_IN_WORDS = re.compile(
    r"(?:(?:the|an?)\s(?:sum|product|number|total|difference|result|value|amount|same|following|one|prime|positive|negative|"
    r"fraction|integer|whole|decimal)|based|derived|calculated|obtained|shown|what|how|it|this|that|there|in\s(?:the|a)|by|"
    r"also|still|always|likely)\b",
    re.IGNORECASE,
)
_SEVERAL_EQUATIONS = re.compile(r"=.*(?:,|;|\bor\b|\band\b).*=")
_MONTH = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b", re.IGNORECASE
)
_FORMULA = re.compile(r"\\[a-z]|[\^_|<>]|\d[a-z]\b|[-+*/]\s?[a-z]\b", re.IGNORECASE)
_TWO_WORDS = re.compile(r"(?<!\\)\b[^\W\d_]{2,}\s+[^\W\d_]{2,}")
_LED_BY = re.compile(r"[a-z ]*\s(?:for|in|of|per|with|at|on|from|left)\b", re.IGNORECASE)
_DOTTED_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![.\d])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,9}),(?=\d{1,9}(?![\d,]))")


def told(said: str, *, comma_decimal: bool = False) -> str | None:
    """The answer in a statement: its number without the unit and the talk around it, its letter, or its few words.

    Args:
        said: what stands behind "the answer is", up to the end of the sentence.
        comma_decimal: whether its language writes 3,5 for three and a half.

    Returns:
        None where it tells no answer ("The answer is found as follows").
    """
    text = _UNCLOSED.sub("", in_plain_marks(said)).replace("**", "").replace("__", "").strip(_FRAME)
    if not text or _NO_ANSWER.match(text):
        return None
    if letter := _LETTER.match(text):
        return letter[1] or letter[2]
    text = _without_talk(text)
    if comma_decimal:
        text = _DOTTED_GROUPS.sub(lambda number: number[0].replace(".", ""), text)
        text = _DECIMAL_COMMA.sub(r"\1.", text)
    if "=" in text and not _SEVERAL_EQUATIONS.search(text):
        text = text.rpartition("=")[2].strip() or text
    text = text.strip("$ ")
    bare = without_unit(text)
    return bare if bare != text or _MONTH.search(text) else _among_words(text)


def _among_words(text: str) -> str | None:
    quantities = list(QUANTITY.finditer(text))
    few_words = len(text.split()) <= _WORDS
    if not quantities:
        return text if few_words and not _NO_ANSWER_IN_WORDS.match(text) else None
    first = quantities[0]
    if len(quantities) == 1:
        is_formula = _FORMULA.search(text) and not _TWO_WORDS.search(text)
        return text if is_formula else first[0]
    if first.start() <= 1 and _LED_BY.match(text, first.end()):  # $35 for 7 notebooks
        return first[0]
    return text if few_words else quantities[-1][0]


def _without_talk(text: str) -> str:
    for cut in (_ASIDE, _CLAUSE):
        if (found := cut.search(text)) and text[: found.start()].strip():
            text = text[: found.start()].strip()
    while hedge := _HEDGE.match(text):
        text = text[hedge.end() :]
    return _BELOW_ZERO.sub("-", text).strip(" ,;:*_`")
