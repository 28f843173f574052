"""The canonical form of an answer: what has to be equal if two answers are the same.

A whole span is a quantity, a date or time, a range or bound, a list, set or tuple of
forms, yes or no, an equation ``name = form``, JSON, or else a text. A span is reduced
only if all of it was understood; the rest is compared as text, so that a missing rule
splits a vote, and never joins two.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final, Literal

from langchain_reasc.answers import languages, units
from langchain_reasc.answers.dates import read_date, read_time
from langchain_reasc.answers.json_values import canonical
from langchain_reasc.answers.languages import is_unspaced, word_set
from langchain_reasc.answers.notation import plain_text, without_markup
from langchain_reasc.answers.numbers import read_number, spelled

LONGEST: Final = 1000
"""The most characters of an answer that is read. A longer answer is compared as a text.
"""
_MOST_PARTS: Final = 60
_LONG_NUMBER: Final = 18

Kind = Literal["value", "list", "mathematics", "code", "text"]


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer is compared by.

    Attributes:
        written: the answer as it is shown and stored. Its own form has the same key.
        key: equal for answers that are the same.
        weaker: the keys of answers that say the same and leave something out: ``5`` of
            ``5 km``, the simplest last. Such an answer joins the only stronger one that
            the responses to its question name.
    """

    written: str
    key: str
    weaker: tuple[str, ...] = ()
    kind: Kind = "value"

    @property
    def is_value(self) -> bool:
        """Whether all of it was understood as something else than words."""
        return self.kind in ("value", "code", "mathematics")


@lru_cache(maxsize=8192)
def form_of(answer: str) -> Form:
    """Return the form of an answer."""
    # Most answers are a plain number.
    if answer.isascii() and answer.isdecimal() and len(answer) < _LONG_NUMBER:
        number = str(int(answer))
        return Form(number, number)
    if len(answer) > LONGEST:
        key = " ".join(answer.casefold().split())
        return Form(answer, key, kind="text")
    text = without_markup(answer)
    form = _json(text) or _bullets(text)
    if form:
        return form
    if is_sql(text):
        return _as_sql(text)
    if is_code(text):
        return Form(text, text.rstrip(), kind="code")
    line = " ".join(plain_text(text).split())
    if not line:
        return Form("", "")
    return _form_of_line(_without_outer_marks(line))


def written(answer: str) -> str:
    """Return an answer as it is shown and stored: ``41`` for ``**41**``."""
    return form_of(answer).written


def equivalent(answer: str | None, other: str | None) -> bool:
    """Return whether two answers alone are the same, where one may leave out the unit
    of the other.
    """
    if answer is None or other is None:
        return False
    first = form_of(answer)
    second = form_of(other)
    return (
        first.key == second.key
        or first.key in second.weaker
        or second.key in first.weaker
    )


def _form_of_line(line: str) -> Form:
    readers = _READERS
    # A word has no parts. One letter alone is an operator.
    if line.isalpha() and line != "π":
        readers = (_yes_or_no, _quantity)
    for reader in readers:
        form = reader(line)
        if form:
            return form
    return _as_text(line)


# Marks around an answer

EMOJI: Final = re.compile(
    "[\U0001f000-\U0001faff\u2600-\u26ff\u2705\u2714\u2728\u2764\ufe0f]+"
)
# The "!" of "5!" is a factorial, that of "Paris!" is a mark.
_FINAL_MARKS: Final = re.compile(r"[\s.。।,;:،…]+\Z|(?<=[^\W\d_]{2})[!！]+\Z|[?？]+\Z")
_FIRST_MARKS: Final = re.compile(r"\A[\s:;,。]+")
_ERA_FIRST: Final = re.compile(r"(AD|BC|BCE|CE) (\d+)")


def _without_outer_marks(line: str) -> str:
    before = ""
    while line != before:
        before = line
        line = _ERA_FIRST.sub(r"\2 \1", line)  # AD 79
        line = without_markup(EMOJI.sub("", line))
        line = _FIRST_MARKS.sub("", _FINAL_MARKS.sub("", line))
    return line


# JSON, and lines with bullets

BULLET: Final = re.compile(r"\s*(?:[-*•–]|\(?\d{1,2}[.)]|[a-z]\))\s+(?=\S)")


def _json(text: str) -> Form | None:
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_nested = any(isinstance(item, dict | list) for item in value)
    if isinstance(value, dict) or is_nested or not value:
        key = canonical(value)
        return Form(key, key)
    items = [item if isinstance(item, str) else json.dumps(item) for item in value]
    return _listed(text, [form_of(item) for item in items])


def _bullets(text: str) -> Form | None:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(map(BULLET.match, lines)):
        return None
    items = [BULLET.sub("", line, count=1) for line in lines]
    return _listed(", ".join(items), [form_of(item) for item in items])


# Yes and no

# "No. 5" and "No.5" are numbers, "No 5" is no verdict either, and "Yes, 5 km" says yes.
_AFTER_YES: Final = re.compile(r"\s*(?:[,;:!。,、،—–-](?!\d)|\.(?!\s*\d)|\Z)")


def _yes_or_no(line: str) -> Form | None:
    folded = line.casefold()
    for verdict in ("yes", "no"):
        for word in languages.words(verdict):
            if not folded.startswith(word):
                continue
            rest = line[len(word) :]
            if not _AFTER_YES.match(rest):
                continue
            speakers = [
                language
                for language in languages.LANGUAGES
                if word in getattr(language, verdict)
            ]
            language = languages.language_of(line)
            if language not in speakers:
                language = speakers[0]
            # "Yes, but only with consent" is not yes.
            if not languages.words_pattern(language.condition).search(rest):
                return Form(verdict, verdict)
    return None


# A letter of multiple choice

# "(B)" and "b)"
_BRACKETED: Final = re.compile(r"[(\[](\w)[)\]]|(\w)[).]")
_OPTION: Final = re.compile(
    r"(?:option|choice|alternative|letter|answer)\s\(?([A-J])\)?", re.IGNORECASE
)


def _letter(line: str) -> Form | None:
    match = _BRACKETED.fullmatch(line) or _OPTION.fullmatch(line)
    if match is None:
        return None
    letter = match[match.lastindex or 0]
    if letter.isdigit():  # (3) is a number
        return None
    return Form(letter, letter.casefold())


# Dates and times

# "on March 5", "am 5. März"
_BEFORE_DATE: Final = re.compile(
    r"(?:in|on|at|by|the|year|em|en|le|am|um|im|il|el|w|в)\s", re.IGNORECASE
)
_YEAR: Final = re.compile(r"(?:1[0-9]|20)\d\d")


def _date(line: str) -> Form | None:
    preposition = _BEFORE_DATE.match(line)
    if preposition:
        line = line[preposition.end() :]
    date = read_date(line)
    if date:
        return Form(date, date)
    # "1969" alone may be any number.
    if preposition and _YEAR.fullmatch(line):
        return Form(line, line)
    time = read_time(line)
    if time is None:
        return None
    key, in_either_half = time
    weaker = (in_either_half,) if in_either_half else ()
    return Form(line, key, weaker)


# Quantities

# "5 apples" counts apples, but "5 squared", "5 or 6" and "5 BC" count nothing.
_NOT_A_NOUN: Final = word_set(
    "squared cubed or and bc ad bce ce ago of out in on at to from by per below above "
    "before after times factorial remainder mod over under plus minus than each "
    "percent left right if when but not with without e i x y n is are was were the "
    "billionth millionth quadrillion quintillion hundred thousand st nd rd th and/or "
    "greater higher lower older younger longer shorter away behind ahead later earlier "
    "early late square cubic"
)
_NOUN: Final = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+){0,2}")
_MINUS: Final = re.compile(r"(?:minus|negative)\s(?=[\d$.]|[a-z])", re.IGNORECASE)
_PERCENT: Final = re.compile(
    r"\s?(?:%|(?:percent|per cent|pct|prozent|por ciento|por cento|pour cent|per cento|procent|процент\w*)(?!\w))",
    re.IGNORECASE,
)
_PER_MILLE: Final = re.compile(r"\s?‰")
# "20% of the students", "5 m of rope"
_OF_SOMETHING: Final = re.compile(
    r"\s(?:of|de|d'|von|di)\s(?:the\s|all\s)?(?P<noun>[^\W\d_]+(?: [^\W\d_]+){0,2})\Z"
)
# "3 of the apples" are 3 apples.
_OF_THE: Final = re.compile(
    r"(?:out )?of (?:the|his|her|their|its|all|these|those)\s(?P<noun>[^\W\d_]+)",
    re.IGNORECASE,
)
# "$5k", "€3.2bn"
_MONEY_SCALE: Final = re.compile(r"\s?(k|K|M|m|mn|mm|MM|B|b|bn|Bn|T|tn)(?![A-Za-z])")
_THOUSANDS: Final = {"k": 3, "m": 6, "b": 9, "t": 12}
# 5'3"
_FEET: Final = re.compile(
    r"(?P<feet>\d+)\s?(?:'|′|ft|feet)\s?(?P<inches>\d+(?:\.\d+)?)\s?(?:\"|″|''|in|inches)?",
    re.IGNORECASE,
)
_MOST_SUMMANDS: Final = 4
_AND: Final = re.compile(r",?\s(?:and\s)?|,\s?")


@dataclass(slots=True)
class _Quantity:
    value: Fraction
    unit: units.Unit | None = None
    noun: str = ""
    is_share: bool = False

    @property
    def key(self) -> str:
        """The number, with the unit: ``5000 m``."""
        if self.is_share:
            return f"{spelled(self.value)} of 1"
        return f"{self._measure} {self.noun}".rstrip()

    @property
    def _measure(self) -> str:
        """The number in base units, with the base unit."""
        if self.unit is None:
            return spelled(self.value)
        if self.unit.is_money or self.unit.is_ambiguous:
            return f"{spelled(self.value * self.unit.factor)} {self.unit.name}"
        return " ".join(units.in_base_units(self.value, self.unit.name))

    @property
    def weaker(self) -> tuple[str, ...]:
        """What leaves out the unit, or names it by a word with two meanings."""
        number = spelled(self.value)
        if self.is_share:
            percents = self.value * 100
            # "50%" may be written as 0.5 or 50, but "0.5%" not as 0.5.
            if percents > 1:
                return number, spelled(percents)
            return (number,)
        if self.unit is None:
            return (number,) if self.noun else ()
        vague = []
        for name, meanings in units.AMBIGUOUS.items():
            if self.unit.name in meanings:
                vague.append(f"{number} {name}")
        if self.noun:
            vague.append(self._measure)
        if self.unit.is_money and "/" in self.unit.name:
            vague.append(self._measure.partition("/")[0])
        return (*vague, number)


def _quantity(line: str) -> Form | None:
    quantity = _read_quantity(line)
    if quantity:
        spelling = line if quantity.weaker else quantity.key
        return Form(spelling, quantity.key, quantity.weaker)
    return _sum(line)


def _read_quantity(text: str, *, unit: units.Unit | None = None) -> _Quantity | None:
    """Read a whole text as a number with its unit; ``unit`` is that of a number that
    has none.
    """
    minus = _MINUS.match(text)
    if minus:
        text = text[minus.end() :]
    for comma_decimal in (False, True):
        quantity = _with_sign(text, comma_decimal) or _with_unit(text, comma_decimal)
        if quantity is None:
            continue
        has_unit = quantity.unit is not None or quantity.is_share
        # "3,5" alone may be two numbers; "3,5 km" is one.
        if comma_decimal and not has_unit:
            continue
        if minus:
            quantity.value = -quantity.value
        if not has_unit and not quantity.noun:
            quantity.unit = unit
        return quantity
    return None


def _with_sign(text: str, comma_decimal: bool) -> _Quantity | None:
    """Read a number behind the sign of a currency."""
    sign = _signs().match(text)
    if sign is None:
        return None
    money = units.currency(sign["money"])
    rest = text[sign.end() :]
    number = read_number(rest, comma_decimal=comma_decimal)
    if money is None or number is None:
        return None
    value, after = _scaled_money(number.value, rest[number.end :])
    if sign["minus"]:
        value = -value
    if after in ("", money.name) or units.read_unit(after) == money:
        return _Quantity(value, money)
    rate = units.read_unit(f"{money.name} {after}") or units.read_unit(
        f"{money.name}{after}"
    )
    if rate is not None:
        return _Quantity(value, rate)
    if _is_noun(after):
        return _Quantity(
            value, units.Unit(f"{money.name} {after.casefold()}", is_money=True)
        )
    return None


@cache
def _signs() -> re.Pattern[str]:
    signs = languages.either(units.currency_signs())
    return re.compile(
        rf"(?P<minus>-\s?)?(?P<money>{signs})\s?(?=[-\d.])", re.IGNORECASE
    )


def _with_unit(text: str, comma_decimal: bool) -> _Quantity | None:
    number = read_number(text, comma_decimal=comma_decimal)
    if number is None:
        return None
    after = text[number.end :]
    if not after:
        return _Quantity(number.value)
    share = _PERCENT.match(after)
    if share:
        return _share(number.value / 100, after[share.end() :])
    share = _PER_MILLE.fullmatch(after)
    if share:
        return _share(number.value / 1000, "")
    if _MONEY_SCALE.match(after):
        value, name = _scaled_money(number.value, after)
        money = units.read_unit(name)
        if money and money.is_money:  # 1.5M USD
            return _Quantity(value, money)
    is_stuck = not after.startswith((" ", "-", "'"))
    name = after.strip()
    if after.startswith("-"):  # 5-km
        name = name.lstrip("-")
    if is_stuck and re.match(r"[A-Za-z](?![A-Za-z])", after) and "/" not in after:
        return None  # 12A, 3a, 4k, 5m
    unit = units.read_unit(name)
    if unit:
        return _Quantity(number.value, unit)
    if is_stuck and not is_unspaced(name[0]):
        return None  # 6ab, 25π
    quantity = _with_unit_and_noun(number.value, name)
    if quantity:
        return quantity
    part = _OF_THE.fullmatch(name)
    if part:
        name = part["noun"]
    if _is_noun(name):
        return _Quantity(number.value, noun=name.casefold())
    return None


def _scaled_money(value: Fraction, after: str) -> tuple[Fraction, str]:
    """Return an amount with the multiplier behind it, and what follows that."""
    scale = _MONEY_SCALE.match(after)
    if scale:
        value *= 10 ** _THOUSANDS[scale[1][0].lower()]
        after = after[scale.end() :]
    return value, after.strip()


def _with_unit_and_noun(value: Fraction, name: str) -> _Quantity | None:
    """Read ``5 m of rope``, ``66 million years old``."""
    words = name.split(" ")
    for count in range(min(len(words) - 1, 3), 0, -1):
        unit = units.read_unit(" ".join(words[:count]))
        if unit is None or unit.is_money:
            continue
        rest = " ".join(words[count:])
        if _OF_SOMETHING.fullmatch(f" {rest}") or _is_noun(rest):
            return _Quantity(value, unit, rest.casefold())
    return None


def _share(value: Fraction, after: str) -> _Quantity | None:
    if after and not _OF_SOMETHING.fullmatch(after):
        return None
    return _Quantity(value, is_share=True)


def _is_noun(text: str) -> bool:
    noun, _, span = text.casefold().partition(" per ")
    if not _NOUN.fullmatch(noun) or (span and not span.isalpha()):
        return False
    words = re.split(r"[ '-]", noun)
    return _NOT_A_NOUN.isdisjoint(words) and all(
        len(word) > 1 or is_unspaced(word[0]) for word in words
    )


def _sum(line: str) -> Form | None:
    """Read ``5 hours 30 minutes``, ``3 dollars and 50 cents`` or ``5'3"``."""
    feet = _FEET.fullmatch(line)
    if feet:
        line = f"{feet['feet']} ft {feet['inches']} in"
    cuts = [
        match
        for match in _AND.finditer(line)
        if line[match.end() : match.end() + 1].isdigit()
    ]
    if not 0 < len(cuts) < _MOST_SUMMANDS:
        return None
    total = Fraction(0)
    summed_units = []
    base_units = set()
    for piece in _pieces(line, cuts):
        quantity = _read_quantity(piece)
        # "5 km, 3 km" is a list.
        if quantity is None or not quantity.unit or quantity.unit in summed_units:
            return None
        summed_units.append(quantity.unit)
        number, _, base_unit = quantity.key.partition(" ")
        base_units.add(base_unit)
        total += Fraction(number)
    if len(base_units) > 1:
        return None
    return Form(line, f"{float(total):.12g} {base_units.pop()}")


def _pieces(line: str, cuts: Sequence[re.Match[str]]) -> list[str]:
    pieces = []
    start = 0
    for cut in cuts:
        pieces.append(line[start : cut.start()])
        start = cut.end()
    return [*pieces, line[start:]]


# Bounds and ranges

_BOUNDS: Final = {
    "≥": r"at least|no (?:less|fewer) than|not (?:less|fewer) than|a minimum of|minimum of|≥|>=",
    "≤": r"at most|no more than|not more than|a maximum of|maximum of|up to|≤|<=",
    ">": r"more than|greater than|over|above|>",
    "<": r"fewer than|less than|under|below|<",
}
_BOUND: Final = re.compile(
    "|".join(f"({words})" for words in _BOUNDS.values()) + r"(?=[\s\d])",
    re.IGNORECASE,
)
_OR_MORE: Final = re.compile(
    r"(?P<quantity>.+?),?\s(?:or|and)\s(?:(?P<more>more|higher|above|greater|over|older)|"
    r"less|fewer|lower|below|under|younger)(?P<noun>(?:\s.*)?)"
)
_RANGE: Final = re.compile(
    r"\s?(?:–|—|-|~|\bto\b|\buntil\b|\bbis\b)\s?|\s(?:à|a|al|tot)\s"
)


def _bound(line: str) -> Form | None:
    bound = _BOUND.match(line)
    if bound:
        sign = list(_BOUNDS)[(bound.lastindex or 0) - 1]
        rest = line[bound.end() :].strip()
    elif bound := _OR_MORE.fullmatch(line):
        sign = "≥" if bound["more"] else "≤"
        rest = bound["quantity"] + bound["noun"]
    else:
        return None
    quantity = _read_quantity(rest)
    if quantity is None:
        return None
    weaker = tuple(f"{sign} {key}" for key in quantity.weaker)
    return Form(line, f"{sign} {quantity.key}", weaker)


_NOUN_FIRST: Final = re.compile(r"(?P<noun>[^\W\d_]{3,})\s(?P<range>\d.*)")
# "3:4"
_RATIO: Final = re.compile(r"(\d+(?:\.\d+)?)\s?:\s?(\d+(?:\.\d+)?)")


def _ratio(line: str) -> Form | None:
    ratio = _RATIO.fullmatch(line)
    return Form(line, f"{ratio[1]}:{ratio[2]}") if ratio else None


def _range_behind_noun(line: str) -> Form | None:
    """Read ``pages 301 to 318``."""
    match = _NOUN_FIRST.fullmatch(line)
    if match is None:
        return None
    form = _range(match["range"])
    if form is None:
        return None
    return Form(line, f"{match['noun'].casefold()} {form.key}", (form.key,))


def _range(line: str) -> Form | None:
    bare = re.sub(
        r"\A(?:from|between|von|de|entre|zwischen)\s", "", line, flags=re.IGNORECASE
    )
    cuts = list(_RANGE.finditer(bare, 1))
    # "between 5 and 10"
    if line.lower().startswith("between "):
        cuts = list(re.finditer(r"\sand\s", bare))
    for cut in cuts:
        low_text = bare[: cut.start()]
        high_text = bare[cut.end() :]
        form = _range_of_quantities(line, low_text, high_text)
        form = form or _range_of_times(line, low_text, high_text)
        if form:
            return form
    return None


def _range_of_quantities(line: str, low_text: str, high_text: str) -> Form | None:
    high = _read_quantity(high_text)
    if high is None or not low_text:
        return None
    low = _read_quantity(low_text, unit=high.unit)
    # "10 - 5" is a difference.
    if low is None or low.value >= high.value:
        return None
    if high.is_share and not low.is_share and low.unit is None:
        low = _Quantity(low.value / 100, is_share=True)
    if high.noun and not low.noun:
        low.noun = high.noun
    weaker = [
        f"{low_key}…{high_key}"
        for low_key, high_key in zip(low.weaker, high.weaker, strict=False)
    ]
    return Form(line, f"{low.key}…{high.key}", tuple(weaker))


def _range_of_times(line: str, low_text: str, high_text: str) -> Form | None:
    low = _date(low_text)
    high = _date(high_text)
    return Form(line, f"{low.key}…{high.key}") if low and high else None


# Equations

# "x", "x_1", "f(x)", "x'", "total cost"
_NAME: Final = re.compile(
    r"(?P<name>[^\W\d](?:_?\{?\w{1,3}\}?)?'?(?:\([\w,. ]*\))?|[^\W\d][\w ]{1,30})\s?=\s?(?P<value>[^=]+)"
)


def named_value(line: str) -> tuple[str, str] | None:
    """Return the name and the value of ``x = 5``, or None."""
    match = _NAME.fullmatch(line)
    if match is None or len(list_parts(line)) > 1 or "≤" in line:
        return None
    return "".join(match["name"].split()), match["value"].strip()


def _equation(line: str) -> Form | None:
    """Read ``x = 5``, which an answer ``5`` may mean."""
    equation = named_value(line)
    if equation is None:
        return None
    name, value = equation
    form = _form_of_line(value)
    return Form(line, f"{name}={form.key}", (form.key, *form.weaker))


# Lists, sets and tuples


def _enclosed(line: str) -> Form | None:
    """Read a set, a tuple, an interval, or a list in brackets."""
    opening = line[:1]
    closing = line[-1:]
    # The brackets of "[0, 1)" differ.
    if opening not in "([{<⟨" or closing not in ")]}>⟩" or len(line) < 3:
        return None
    inside = line[1:-1]
    if not _is_balanced(inside):
        return None
    parts = _cut_at(inside, ",;")
    if len(parts) < 2 and not (opening + closing == "{}" and inside.strip()):
        return None
    forms = _forms_of_parts(parts or [inside.strip()])
    if opening + closing == "[]":
        return _listed(line, forms)
    keys = [form.key for form in forms]
    if opening + closing == "{}":
        keys = sorted(set(keys))
    return Form(line, opening + "; ".join(keys) + closing)


def _several(line: str) -> Form | None:
    """Read parts that are joined by commas, "and" or "or"."""
    parts = list_parts(line)
    if not 1 < len(parts) <= _MOST_PARTS:
        return None
    forms = _forms_of_parts(parts)
    if _cut_by(_joints("alternative", languages.language_of(line)), line):
        return Form(line, " or ".join(form.key for form in forms), kind="list")
    return _listed(line, forms)


def _forms_of_parts(parts: Sequence[str]) -> list[Form]:
    return [_form_of_line(_without_outer_marks(part)) for part in parts]


def list_parts(line: str) -> list[str]:
    """Return the parts of a line that are joined by "or", or else by commas and "and",
    outside of brackets.
    """
    if not _is_balanced(line) or "\\begin" in line:
        return [line]
    language = languages.language_of(line)
    alternatives = _cut_by(_joints("alternative", language), line)
    if alternatives:
        return alternatives
    parts = []
    for piece in _cut_by(_joints("conjunction", language), line) or [line]:
        parts += _cut_at(piece, ",;、،") or [piece]
    return parts


@cache
def _joints(field: str, language: languages.Language) -> re.Pattern[str]:
    """Return a pattern of "and" or "or" between the parts of a list, with a comma
    before it.
    """
    words, _ = languages.word_patterns(getattr(language, field))
    english = "and|&" if field == "conjunction" else "or"
    return re.compile(rf"(?:\s*[,;]\s*|\s)(?:{words}|{english})\s", re.IGNORECASE)


def _listed(line: str, forms: Sequence[Form]) -> Form:
    keys = [form.key for form in forms]
    if len(keys) == 1:
        return Form(line, f"[{keys[0]}]", kind="list")
    bare_keys = []
    for form in forms:
        is_quantity = form.weaker and form.kind == "value"
        bare_keys.append(form.weaker[-1] if is_quantity else form.key)
    # "3, 4" may leave out the units of "3 m, 4 m", all or none.
    weaker = ("; ".join(bare_keys),) if bare_keys != keys else ()
    return Form(line, "; ".join(keys), weaker, kind="list")


def _cut_by(pattern: re.Pattern[str], line: str) -> list[str]:
    """Cut a line at the matches that are outside of brackets; nothing if there is none."""
    depths = _depths(line)
    cuts = [match for match in pattern.finditer(line) if depths[match.start()] == 0]
    if not cuts:
        return []
    return [part for part in _pieces(line, cuts) if part.strip()]


def _cut_at(line: str, marks: str) -> list[str]:
    """Cut a line at marks outside of brackets that are not within a number; nothing if
    there is none.
    """
    return _cut_by(re.compile(rf"[{marks}](?!(?<=\d,)\d{{3}}(?!\d))\s*"), line)


def _depths(line: str) -> list[int]:
    depths = []
    depth = 0
    for sign in line:
        depth += (sign in "([{") - (sign in ")]}")
        depths.append(depth)
    return depths


def _is_balanced(line: str) -> bool:
    depths = _depths(line)
    return not depths or (min(depths) >= 0 and depths[-1] == 0)


# Texts

# "Oslo (the capital)"
_EXPLANATION: Final = re.compile(
    r"(?P<before>.*\S)\s\((?P<inside>[^()]*[^\W\d_]{2}[^()]*)\)"
)
# The parentheses of "2 (mod 5)" and "x (not 3)" belong to the answer.
_OF_VALUE: Final = re.compile(
    r"\bnot\b|\bmod\b|[=<>≤≥^\\+*/]|\d\s?-\s?\d", re.IGNORECASE
)
_MODULO: Final = re.compile(r"\((mod [^()]+)\)")
_FUNCTIONS: Final = re.compile(
    r"\\[a-zA-Z]+|\{[pbvV]?matrix\}|(?<![a-zA-Z])(?:arc)?(?:sin|cos|tan|cot|log|ln|exp|max|min|lim|gcd|lcm|mod|det)(?![a-z])"
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_OPERATOR: Final = re.compile(r"[-+*/^=<>|√±·×÷≤≥≠!π_∪∩]")
# "x + 1" is "x+1".
_LOOSE_SPACE: Final = re.compile(r"(?<=\W) | (?=\W)|(?<=\d) (?=[^\W\d])")
# "2*x" is "2x".
_TIMES: Final = re.compile(r"(?<=\d)[*·](?=[a-zA-Z])")
# "a = b", "f(x)", "/usr/bin", "--help", "->", "a.b()", "else:"
_CODE: Final = re.compile(
    r"[={}\[\];_\\]|\w\(|(?:^|\s|\w)/\w+|(?:^|\s)--?\w|->|\w\.\w+\(|\w:$|\n"
)
_SQL: Final = re.compile(
    r"\s*(?:(?i:select|insert|update|delete|create|alter|drop)\s.*\b(?i:from|into|set|table|where|view|index)\b|"
    r"(?:WHERE|ORDER BY|GROUP BY|HAVING|LEFT JOIN|INNER JOIN|JOIN|order by|group by)\s)",
    re.DOTALL,
)
_QUOTED: Final = re.compile(r"('[^']*'|\"[^\"]*\")")
_ARTICLE: Final = re.compile(r"\A(?:the|an?)\s+(?=\S)", re.IGNORECASE)
_TITLE: Final = re.compile(
    r"(?:(?:mr|mrs|ms|miss|dr|prof|professor|sir|dame|captain|capt|admiral|colonel|general|major|lieutenant|sergeant|inspector|judge|nurse|lord|lady|herr|frau|señor|señora|monsieur|madame|"
    r"rev|hon|president)\.?\s)+(?=[^\W\d_])",
    re.IGNORECASE,
)
# "J. Smith" and "Smith Jr." are "J Smith" and "Smith Jr".
_INITIAL: Final = re.compile(r"(?<=\b[^\W\d_])\.(?=\s|$)|(?<=\b[JS]r)\.(?=\s|$)")
# "Bus: 7" is "Bus 7".
_LABEL_MARK: Final = re.compile(r"[:,](?=\s)|[\"“”«»]")
_ELEMENTS: Final = (
    "He|Li|Be|Ne|Na|Mg|Al|Si|Cl|Ar|Ca|Sc|Ti|Cr|Mn|Fe|Co|Ni|Cu|Zn|Ga|Ge|As|Se|Br|Kr|Rb|Sr|Zr|Nb|Mo|Ag|Cd|Sn|Sb|Te|"
    "Xe|Cs|Ba|La|Pt|Au|Hg|Tl|Pb|Bi|H|B|C|N|O|F|P|S|K|V|Y|I|W|U"
)
_FORMULA: Final = re.compile(rf"(?:(?:{_ELEMENTS})\d*|[()]\d*)+(?:\^?\d*[-+])?")


def is_sql(text: str) -> bool:
    """Return whether a text is a statement of SQL or a clause of one."""
    return _SQL.match(text) is not None


def is_code(text: str) -> bool:
    """Return whether a text of several lines is code, in which lines and indentation
    count.
    """
    return "\n" in text and _CODE.search(text.replace("\n", " ")) is not None


def _explained(line: str) -> Form | None:
    """Read an answer with an explanation in parentheses at its end."""
    match = _EXPLANATION.fullmatch(line)
    if match is None or _OF_VALUE.search(match["inside"]):
        return None
    form = _form_of_line(match["before"])
    if form.kind == "value":
        return form
    return Form(
        line, f"{form.key} ({match['inside'].casefold()})", (form.key,), kind="text"
    )


def _mathematics(line: str) -> Form | None:
    """Read what consists of numbers, single letters and operators, in which spaces do
    not count.
    """
    text = _MODULO.sub(r"\1", line)
    if not (_OPERATOR.search(text) or "\\" in text) or _WORD.search(
        _FUNCTIONS.sub(" ", text)
    ):
        return None
    key = _LOOSE_SPACE.sub("", _TIMES.sub("", text))
    return Form(line, key, kind="mathematics")


def _as_sql(text: str) -> Form:
    """Read SQL, in which the case of words and white space do not count, but those of
    quoted texts do.
    """
    line = " ".join(text.split())
    pieces = _QUOTED.split(line)
    pieces[::2] = map(str.casefold, pieces[::2])
    return Form(line, "".join(pieces).rstrip(" ;."), kind="code")


def _as_text(line: str) -> Form:
    if _CODE.search(line):
        return Form(line, line.rstrip(), kind="text")
    text = _MODULO.sub(r"\1", line)
    text = _INITIAL.sub("", _LABEL_MARK.sub("", text))
    text = _TITLE.sub("", _ARTICLE.sub("", text))
    text = " ".join(text.split()).strip(" .!?*\"'") or line
    if len(text) > 1 and _FORMULA.fullmatch(text):  # CO is not Co
        return Form(line, text, (text.casefold(),), kind="text")
    is_word = all(part.isalpha() or part.isdigit() for part in re.split("[-']", text))
    # The case of a token such as "get_Name" or "R2D2" counts.
    key = text.casefold() if is_word or " " in text else text
    weaker = _family_name_first(key)
    article = _articles().match(key)
    if article:
        weaker = (*weaker, key[article.end() :])
    return Form(line, key, weaker, kind="text")


@cache
def _articles() -> re.Pattern[str]:
    """Return a pattern of articles, also of other languages: "der" of "der rhein"."""
    words = [word for word in languages.words("article") if len(word) > 1]
    elided = languages.either(word for word in words if word.endswith("'"))
    spaced = languages.either(word for word in words if not word.endswith("'"))
    return re.compile(rf"(?:(?:{spaced})\s+|(?:{elided}))(?=\S)", re.IGNORECASE)


def _family_name_first(key: str) -> tuple[str, ...]:
    """Return ``kessler; miriam``, which is how the list "Kessler, Miriam" is read, of
    ``miriam kessler``.
    """
    words = key.split(" ")
    if not 2 <= len(words) <= 4 or not all(
        word.replace("-", "").replace("'", "").isalpha() for word in words
    ):
        return ()
    return (f"{words[-1]}; {' '.join(words[:-1])}",)


_READERS: Final[Sequence[Callable[[str], Form | None]]] = (
    _letter,
    _yes_or_no,
    _date,
    _quantity,
    _ratio,
    _bound,
    _range,
    _range_behind_noun,
    _equation,
    _enclosed,
    _several,
    _explained,
    _mathematics,
)
"""Each reads a whole line, or nothing; the first that reads it decides."""
