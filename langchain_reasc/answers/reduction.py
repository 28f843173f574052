"""Reduce a statement or a concluding sentence to its answer: 42 in "that makes 42
apples, because ...".

Explanations, calculations and what the question says are left out. What is understood
as a whole is never cut.
"""

import re
from functools import cache
from itertools import islice
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.dates import find_date
from langchain_reasc.answers.forms import form_of, list_parts
from langchain_reasc.answers.languages import word_set
from langchain_reasc.answers.notation import plain_text, without_markup
from langchain_reasc.answers.prose import is_block, without_citations
from langchain_reasc.answers.sentences import (
    answering_part,
    has_question_subject,
    tells_more,
    without_closing_words,
)

_LONGEST: Final = 400
_TRIED: Final = 3
# **bold**, `code`, $\boxed{...}$
_PIECE: Final = re.compile(
    r"\*\*(?P<bold>[^*\n]{1,200}?)\*\*|(?<![`\w])`(?P<code>[^`\n]{1,200})`(?!`)|\$\\boxed\{(?P<box>[^$]*)\}\$"
)
PLAIN: Final = re.compile(
    r"[A-Za-z\d]{1,300}|[-+$]?\d(?:[\d.,:/-]{0,300}\d)?%?", re.ASCII
)
"""A word or a number, of which nothing can be left out."""
_WHOLLY_QUOTED: Final = re.compile(r"\"[^\"]+\"|“[^”]+”")
# "equal to 5", "exactly 5", "= 5"
_OPENING: Final = re.compile(
    r"(?:that |equal to |exactly |simply |just |therefore,? |then,? |=\s?)+",
    re.IGNORECASE,
)


def reduced(statement: str, question: str) -> str:
    """Return the part of a statement that is the answer."""
    text = statement.strip()[:_LONGEST]
    if PLAIN.fullmatch(text):
        return text
    text = without_citations(text)
    # A list, code or a quotation is an answer as a whole.
    if is_block(text) or _WHOLLY_QUOTED.fullmatch(text):
        return text
    piece = only_piece(text)
    if piece:
        return reduced(without_head(piece, question), question)
    text = without_closing_words(_without_explanation(text).strip(" *_"))
    opening = _OPENING.match(text)
    if opening:
        text = text[opening.end() :]
    if not form_of(text).is_value:
        text = _APPOSITION.sub("", answering_part(_without_aside(text), question))
    text = _without_calculation(text)
    if form_of(text).is_value:
        return text
    return _value_within(_first_value(text), question)


def only_piece(text: str) -> str | None:
    """Return the one bold or code piece of a text, unless it is a head such as
    ``**Answer:**``.
    """
    if "*" not in text and "`" not in text and "boxed" not in text:
        return None
    pieces = []
    for match in _PIECE.finditer(text):
        piece = match[match.lastgroup or 0]
        if not piece.rstrip().endswith(":"):
            pieces.append(piece)
    if len(pieces) == 1:
        return pieces[0]
    return None


# Heads: "Version: 2.4"

_HEAD: Final = re.compile(
    r"(?P<head>[^\W\d_][\w '()/-]{0,40}?)\s?(?::\s|：)\s*(?P<rest>\S.*)", re.DOTALL
)
_HEADS: Final = word_set(
    "answer final label result status class category classification sentiment output "
    "value solution prediction verdict move length width height area volume price cost "
    "weight distance time date year name speed profit decision version release "
    "conclusion response so hence therefore thus choice option total sum sorted "
    "correct the ans"
)
_PHRASES: Final = frozenset(("route it to", "in short", "in total", "in summary"))


def without_head(text: str, question: str) -> str:
    """Return a text without a head that names what it is: ``2.4`` in "Version: 2.4" if
    the question has the word.
    """
    match = _HEAD.fullmatch(without_markup(text))
    if match is None:
        return text
    head = match["head"].casefold()
    folded_question = question.casefold()
    if head in _PHRASES:
        return match["rest"]
    for word in head.split():
        # The beginning of a word is enough: "Weight" answers "How much does it weigh?".
        in_question = re.search(rf"\b{re.escape(word[:5])}", folded_question)
        if word not in _HEADS and not in_question:
            return text
    return match["rest"]


# Explanations

_TALK: Final = re.compile(
    r"""\s[—–-]\s(?=[a-zA-Z])
      | ;\s
      | ,\s(?:which|who|whose|where|while|although|though|whereas|so|and\ so|not|i\.e\.|or\ about|since|as|because|
             rounded|meaning|making|located|known|launched|followed|with|but|at|(?-i:[a-z]{3,}ing))\s(?=\S)
      | \s(?:and\ not|because|since)\s
      | (?<=\w{3}\s\w{3}):\s(?=[a-z])""",
    re.VERBOSE | re.IGNORECASE,
)
# "Oslo is the city that has ..." ends behind "city".
_RELATIVE: Final = re.compile(
    r"\b(?:is|was|are|were)\s(?:an?|the)\s[^,]{2,60}?(?P<clause>\sthat\s(?:is|was|are|were|has|had)\s)"
)
_STARTS_WITH_VERDICT: Final = re.compile(r"(?:yes|no),\s", re.IGNORECASE)
# "x = 1;", "f(a=1)", "a >= b", "x -> y"
_LOOKS_LIKE_CODE: Final = re.compile(r"[{};]\s*\Z|\w\([^)]*[;=]|[<>=!]=|=>|->")


def _without_explanation(text: str) -> str:
    if (
        form_of(text).is_value
        or _STARTS_WITH_VERDICT.match(text)
        or _LOOKS_LIKE_CODE.search(text)
    ):
        return text
    relative = _RELATIVE.search(text)
    if relative:
        text = text[: relative.start("clause")]
    reasons = languages.words_pattern(languages.words("reason"))
    for pattern in (reasons, _TALK):
        match = pattern.search(text, 1)
        if match and text[: match.start()].strip(" ,"):
            text = text[: match.start()].rstrip(" ,;")
    return text


def _without_aside(text: str) -> str:
    """Leave out a remark in parentheses at the end of a sentence; in a short text it
    may tell two answers apart.
    """
    before = _ASIDE_AT_END.sub("", text)
    if before.count(" ") > 2:
        return before
    return text


# ", a city of two million people" explains a name.
_APPOSITION: Final = re.compile(
    r",\s(?:an?|the|one)\s(?:\w+\s){1,3}(?:of|in|on|with|that|which|who)\s.*",
    re.IGNORECASE | re.DOTALL,
)


# Calculations and values

# "17 × 6 "
_ARITHMETIC: Final = re.compile(r"[\s\d.,$€£%+\-*/×·÷()^e]*\d[\s\d.,$€£%+\-*/×·÷()^]*")
_PAUSE: Final = re.compile(r"[,:]\s")
_ASIDE_AT_END: Final = re.compile(r"\s\([^()]*[^\W\d_]{3}[^()]*\)[\s.!]*\Z")
_ASIDE: Final = re.compile(r"\s\([^()]*\)")
# "x = 2, y = 3" is not a chain as "17 × 6 = 100 + 2 = 102" is.
_NOT_A_CHAIN: Final = re.compile(r"[,;≤≥<>]|\b(?:and|or)\b")


def _without_calculation(text: str) -> str:
    """Return what a calculation comes to: 102 of "17 × 6 = 102"."""
    left, equals, right = text.rpartition("=")
    if not equals or not right.strip(" $") or _LOOKS_LIKE_CODE.search(text):
        return text
    # "The total is 17 × 6" on the left is "17 × 6".
    left = _verb().split(left)[-1]
    is_chain = "=" in left and not _NOT_A_CHAIN.search(text)
    if is_chain or _ARITHMETIC.fullmatch(plain_text(left)):
        return right.strip(" $")
    return text


def _first_value(text: str) -> str:
    """Return the value before a comma or colon, if no other value follows: 1986 of
    "1986, after a long dispute".
    """
    for match in islice(_PAUSE.finditer(text), _TRIED):
        before = text[: match.start()]
        after = text[match.end() :]
        form = form_of(before)
        is_value = form.kind == "value" and form.key not in ("yes", "no")
        # "3, 5 and 7" is a list, and keeps its parts.
        if is_value and " " in after and not form_of(list_parts(after)[0]).is_value:
            return before
    return text


_ASKS_NUMBER: Final = re.compile(
    r"""\bhow\s(?!do\b|does\b|did\b|is\b|are\b|can\b|should\b)\w+ | \bwhen\b
      | \bwhat\s(?:is|are|was)\s(?:the\s)?(?:\w+\s){0,2}(?:total|sum|number|price|cost|age|time|year|date|percent|
        probability|area|volume|length|distance|speed|value|amount|profit|change|average|mass|weight|height|temperature|
        difference|product|perimeter|ratio|rate|share|fraction|result)
      | \b(?:calculate|compute|find|solve|evaluate|determine|percentage)\b
      | \bwie\s?(?:viel|lang|hoch|alt|weit|schwer|schnell|teuer) | \bwann\b | \bcombien | \bquand\b | \bcuánt | \bcuándo
      | \bquant[oaie] | \bquando\b | \bhoeveel | \bile\b | \bсколько | \bкогда | \bkaç\b
      | \bhur\s(?:många|mycket|lång|stor)
      | 多少|几|何|幾|いくつ|いくら|몇|얼마|كم|कितन""",
    re.VERBOSE | re.IGNORECASE,
)
# "about 5", "at least 5"
_HEDGED: Final = re.compile(
    r"\b(?:about|approximately|approx|around|roughly|nearly|almost|least|most|than|over|under|up to|between|not|no)\b"
    r"\W*\Z|[≈~]\s?\Z",
    re.IGNORECASE,
)
_SUBORDINATE: Final = re.compile(
    r",\s|\s(?:of|in|for|from|with|among|after|before|without|than|by|until|per|given|because|since|while|to|and)\s",
    re.IGNORECASE,
)
_VERBS: Final = (
    "has|have|had|gets?|got|needs?|needed|costs?|pays?|paid|earns?|earned|saves?|saved|makes?|made|takes?|took|lasts?|lasted|"
    "weighs?|weighed|travels?|travelled|runs?|ran|walks?|walked|drives?|drove|reads?|sells?|sold|flies|flew|leaves?|arrives?|"
    "arrived|closes?|closed|opens?|opened|starts?|started|ends?|ended|began|requires?|required|contains?|holds?|uses?|used|"
    "spends?|spent|gives?|gave|receives?|received|fills?|filled|comes?|came|totals?|produces?|produced|buys?|bought|owes?|"
    "owed|means?|works?|measures?|freezes?|boils?|rises?|rose|falls?|fell|grows?|grew|drops?|dropped|increases?|increased|"
    "decreases?|decreased|passes|passed|stays?|reaches|reached|will|can|must|should|beträgt|kostet|macht|dauert|haben|hat"
)


def _value_within(part: str, question: str) -> str:
    """Return the value in a sentence that could not be reduced to it, if the question
    asks for one, or is not known.
    """
    if form_of(part).is_value:
        return part
    if question and not _ASKS_NUMBER.search(question):
        return part
    if question and tells_more(part, question):
        return part
    date = find_date(part)
    if date:
        return date
    # What is short or begins with a number is not a sentence around a number.
    if part.count(" ") < 2 or QUANTITY.match(part):
        return part
    verbs = list(_verb().finditer(part))
    if not (verbs or has_question_subject(part, question)):
        return part
    for verb in reversed(verbs[-_TRIED:]):
        behind_verb = part[verb.end() :]
        if form_of(behind_verb).is_value:
            return behind_verb
    plain = _ASIDE.sub("", plain_text(part))
    plain = plain.rpartition("=")[2] or plain
    first = QUANTITY.search(plain)
    # "about 5 km" would lose its "about".
    if first is None or _HEDGED.search(plain[: first.start()]):
        return part
    # "3 of the 5 students": the number of the main clause counts.
    subordinate = _SUBORDINATE.search(plain, first.end())
    if subordinate:
        plain = plain[: subordinate.start()]
    return last_quantity(plain) or part


@cache
def _verb() -> re.Pattern[str]:
    copulas = languages.either(
        word for word in languages.words("copula") if len(word) > 1 and word.isalpha()
    )
    return re.compile(rf"(?:^|\s)(?:{_VERBS}|{copulas})\s", re.IGNORECASE)


# The last number

# A date, a time, a ratio, "3 1/2", "12 000", "1,234.5" or "3e8", with "$", "%" or "pm"
QUANTITY: Final = re.compile(
    r"""(?<![\w.^{\\])(?:[-–+]\s?(?=[$€£¥₹\d.]))?(?:[$€£¥₹]\s?|\b(?:USD|EUR|GBP)\s)?[-–]?
        (?: \d{4}-\d\d-\d\d | \d{1,2}:\d\d(?::\d\d)? | \d+\s?:\s?\d+ | \d+\s\d+/\d+
          | \d{1,3}(?:[ '’]\d{3})+(?!\d)(?:[.,]\d+)?
          | (?:\d[\d,.]*\d|\d|\.\d+)(?:[eE][-+]?\d+|\^-?\d+|/\d+)? )
        (?:\s?[ap]\.?m\b\.?|\s?[%°€£$]\w?|\s(?:thousand|million|billion|trillion)\b)?""",
    re.VERBOSE | re.IGNORECASE,
)
# " apples", "-year", " km/h"
_BEHIND_NUMBER: Final = re.compile(
    r"[-\s]?[^\W\d_]+(?:/[^\W\d_]+|\^\d)?(?:\s[^\W\d_]+){0,2}"
)


def last_quantity(sentence: str) -> str | None:
    """Return the last number of a sentence, with its unit or noun."""
    plain = plain_text(_ASIDE.sub("", sentence))
    quantities = list(QUANTITY.finditer(plain))
    if not quantities:
        return None
    last = quantities[-1]
    number = last[0].rstrip(".,")
    behind = _BEHIND_NUMBER.match(plain, last.end())
    if behind is None or number != last[0]:
        return number
    words = behind[0].split(" ")
    for count in range(len(words), 0, -1):
        with_unit = number + " ".join(words[:count])
        form = form_of(with_unit)
        if form.kind == "value" and form.weaker:
            return with_unit
    return number


def last_number_in(text: str) -> str | None:
    """Return the last number of a text of any length, with its unit."""
    size = 600
    while size < len(text):
        tail = text[-size:]
        # The beginning of a long number is farther in front.
        begins_within_number = " " not in tail and tail[0].isdigit()
        if not begins_within_number:
            number = last_quantity(tail.partition(" ")[2] or tail)
            if number:
                return number
        size *= 4
    return last_quantity(text)
