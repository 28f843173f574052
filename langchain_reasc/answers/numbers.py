r"""Read numbers: ``1,234.5``, ``1.234,56``, ``3/4``, ``1 1/2``, ``3.2e-4``, ``10^8``,
``five hundred``.
"""

import re
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Final

from langchain_reasc.answers.languages import SCALES, either

_LARGEST_POWER: Final = 60
"""The largest power of ten, and the most digits of a fraction, that are written out. A
longer number is text.
"""
_EXACT: Final = Context(prec=5000, traps=[Inexact])

_DECIMAL_COMMA: Final = r"(?P<comma>\d+,\d+)"
# In turn: "1 3/4", "1.234,56", "1 234,5", "1,234.5", "3.14", with "e-4" or "^8" behind
_NUMBER: Final = r"""(?P<sign>[-–+]\ ?)?(?:
    (?:(?P<whole>\d+)\ )?(?P<top>\d+)/(?P<bottom>\d+)(?![\d/])
  | (?: (?P<european>\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}(?![\d.]))
      | (?P<spaced>\d{1,3}(?:[\ '’]\d{3})+(?!\d)(?:[.,]\d+)?)
      | (?P<grouped>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?)
      %s
      | (?P<simple>\d+\.\d+|\.\d+|\d+)
    )
    (?:[eE](?P<exponent>[-+]?\d+)(?!\w)|\^\{?(?P<power>-?\d+)\}?(?![\w.]))?
)"""
_ENGLISH: Final = re.compile(_NUMBER % "", re.VERBOSE)
_CONTINENTAL: Final = re.compile(_NUMBER % f"| {_DECIMAL_COMMA}", re.VERBOSE)

_SMALL: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES: Final = (
    dict(zip(_SMALL.split(), range(20), strict=True))
    | dict(zip(_TENS.split(), range(20, 100, 10), strict=True))
    | {"hundred": 100, "thousand": 1000}
)
_NAMES: Final = "|".join(sorted(_VALUES, key=len, reverse=True))
_WORDS: Final = re.compile(
    rf"(?:{_NAMES})(?:[\s-]+(?:and\s+)?(?:{_NAMES}))*(?![a-z])", re.IGNORECASE
)
# "a dozen", "a million"
_A_DOZEN: Final = re.compile(
    r"an?(?=\s(?:dozen|hundred|thousand|million|billion)\b)", re.IGNORECASE
)
# "two and a half", "2 and 1/2"
_HALF: Final = re.compile(
    r"\ ?and a half\b|\ and\ (?P<top>\d+)/(?P<bottom>\d+)", re.IGNORECASE
)
# "5 million", "3 lakh"
_SCALE: Final = re.compile(
    rf"\ ?(?P<word>{either(SCALES)})\.?(?![a-zà-ÿа-я])", re.IGNORECASE
)
_DOZEN: Final = re.compile(r"\ ?dozen\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number at the beginning of a text.

    Attributes:
        value: its value.
        end: where it ends in the text.
    """

    value: Fraction
    end: int


def read_number(text: str, *, comma_decimal: bool = False) -> Number | None:
    """Read the number at the beginning of a plain text, with its multiplier; None if
    the text begins otherwise.

    Args:
        text: a text of :func:`~langchain_reasc.answers.notation.plain_text`.
        comma_decimal: whether ``3,5`` is three and a half.
    """
    number = _in_digits(text, comma_decimal) or _in_words(text)
    if number is None:
        return None
    return _scaled(text, _with_half(text, number))


def spelled(value: Fraction) -> str:
    """Spell a number as a decimal if that is finite, else as a reduced fraction, so
    that 1/2 and 0.5 agree.
    """
    if value.denominator == 1 and value.numerator.bit_length() < 64:
        return str(value.numerator)
    try:
        decimal = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    except Inexact:
        return f"{value.numerator}/{value.denominator}"
    return f"{decimal.normalize(_EXACT):f}"


def _in_digits(text: str, comma_decimal: bool) -> Number | None:
    pattern = _CONTINENTAL if comma_decimal else _ENGLISH
    match = pattern.match(text)
    if match is None:
        return None
    value = _fraction(match) if match["bottom"] else _decimal(match)
    if value is None:
        return None
    if (match["sign"] or "").startswith(("-", "–")):
        value = -value
    return Number(value, match.end())


def _fraction(match: re.Match[str]) -> Fraction | None:
    top = match["top"]
    bottom = match["bottom"]
    if len(top + bottom) > _LARGEST_POWER or not int(bottom):
        return None
    return int(match["whole"] or 0) + Fraction(int(top), int(bottom))


def _decimal(match: re.Match[str]) -> Fraction | None:
    groups = match.groupdict()
    if groups["european"]:
        digits = groups["european"].replace(".", "").replace(",", ".")
    elif groups.get("comma"):
        digits = groups["comma"].replace(",", ".")
    elif groups["spaced"]:
        digits = re.sub("[ '’]", "", groups["spaced"]).replace(",", ".")
    else:
        digits = (groups["grouped"] or groups["simple"]).replace(",", "")
    if len(digits) > 1000:
        return None
    number = Fraction(digits)
    if groups["power"]:
        # Nine digits are enough to be refused.
        power = int(groups["power"][:9])
        if abs(power) * len(digits) > _LARGEST_POWER or (number == 0 and power < 0):
            return None
        return Fraction(number**power)
    exponent = int((groups["exponent"] or "0")[:9])
    if abs(exponent) > _LARGEST_POWER:
        return None
    return number * Fraction(10) ** exponent


def _in_words(text: str) -> Number | None:
    """Read a number in English words, up to the thousands."""
    dozen = _A_DOZEN.match(text)
    if dozen:
        return Number(Fraction(1), dozen.end())
    match = _WORDS.match(text)
    if match is None:
        return None
    words = re.findall(r"[a-z]+", match[0].lower())
    total = current = 0
    previous = 1000
    for word in words:
        if word == "and":
            continue
        value = _VALUES[word]
        if word == "hundred":
            current = max(current, 1) * 100
        elif word == "thousand":
            total = total + max(current, 1) * 1000
            current = 0
        elif current % 100 and not (value < 10 and 20 <= previous < 100):
            return None  # five six
        else:
            current += value
        previous = value
    return Number(Fraction(total + current), len(match[0].rstrip(" -")))


def _with_half(text: str, number: Number) -> Number:
    half = _HALF.match(text, number.end)
    if half is None or number.value.denominator != 1:
        return number
    bottom = int(half["bottom"] or 2)
    if not bottom:
        return number
    return Number(number.value + Fraction(int(half["top"] or 1), bottom), half.end())


def _scaled(text: str, number: Number) -> Number:
    while scale := _SCALE.match(text, number.end):
        power = SCALES[scale["word"].casefold()]
        number = Number(number.value * 10**power, scale.end())
    dozen = _DOZEN.match(text, number.end)
    if dozen:
        number = Number(number.value * 12, dozen.end())
    return number
