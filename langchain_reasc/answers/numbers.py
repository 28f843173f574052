"""What counts as one quantity in running text, and the canonical spelling of a number.

A quantity is one token: ``1,234.5``, ``1.234,56``, ``1 000 000``, ``3/4``, ``1 1/2``, ``3.2e-4``, ``10^8``,
``$1.5 million``; and so is a time (``3:45 PM``), a date (``2024-01-15``) and a ratio (``3:2``). Text comes here in
plain marks (:mod:`.marks`).
"""

import re
from fractions import Fraction

__all__ = ["QUANTITY", "last_quantity", "read_quantity"]

_WRITTEN_OUT = 60
"""Powers of ten, and digits of a fraction, up to which a number is written out; beyond, it keeps its spelling."""
_WINDOW = 400
_LONGEST_TOKEN = 80

_NUMBER = r"""(?:
    (?P<mixed>\d+\ )?(?P<top>\d+)/(?P<bottom>\d+)(?![\d/])
  | (?: (?P<european>\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}(?!\d))
      | (?P<spaced>\d{1,3}(?:\ \d{3})+(?!\d)(?:[.,]\d+)?)
      | (?P<swiss>\d{1,3}(?:['’]\d{3})+(?!\d)(?:\.\d+)?)
      | (?P<english>\d+(?:,\d{3}(?!\d))*(?:\.\d+)?|\.\d+)
    )
    (?: e(?P<exponent>[-+]?\d+)(?!\w) | \^\{?(?P<power>-?\d+)\}? )?
)
(?P<scale>\ ?(?:thousand|million|billion|trillion)\b)?"""
_CLOCK = r"(?P<clock>\d{1,2}(?::\d\d){1,2})(?:\ ?(?P<half>[ap])\.?m\b\.?)?(?![\d:])"
_HOUR = r"(?P<hour>\d{1,2})\ ?(?P<noon>[ap])(?:m\b|\.m\b\.?)"
_RATIO = r"(?P<left>\d+)(?::|\ :\ )(?P<right>\d+)(?![\d:])"
_DATE = r"""\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?(?!\d)
          | \d{1,2}(?P<mark>[./-])\d{1,2}(?P=mark)\d{4}(?!\d)"""
_MONEY = r"(?:[$€£¥₹₩₽]\ ?|\b(?:usd|eur|gbp|chf)\ )"
_FLAGS = re.VERBOSE | re.IGNORECASE

QUANTITY = re.compile(
    rf"(?<![a-z0-9_.^{{\\])(?:{_DATE}|{_CLOCK}|{_HOUR}|{_RATIO}|(?:(?<![\])}}])[-+])?{_MONEY}?-?{_NUMBER})", _FLAGS
)
"""A quantity in running text; a sign belongs to it unless it stands between two of them, as in ``10-3``."""

_DIGIT = re.compile(r"\d")
_SPELLED = re.compile(rf"(?P<sign>[-+]?)\ ?{_NUMBER}", _FLAGS)
_TIME = re.compile(rf"{_CLOCK}|{_HOUR}|{_RATIO}", _FLAGS)
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def last_quantity(text: str, *, since: int = 0) -> str | None:
    """The last quantity of a text in plain marks, as it is written there; none that begins before ``since`` counts."""
    end = len(text)
    while end > since:  # from the end, so that a long text costs no more than its tail
        start = max(end - _WINDOW, 0)
        if _DIGIT.search(text, start, end):
            near = QUANTITY.finditer(text, max(start - _LONGEST_TOKEN, 0), end + _LONGEST_TOKEN)
            if found := [match[0] for match in near if match.start() >= since]:
                return found[-1]
        end = start
    return None


def read_quantity(text: str) -> str | None:
    """The canonical spelling of a text that is nothing but a quantity, else None.

    ``"1.234,50"`` gives ``"1234.5"``, ``"1 1/2"`` ``"1.5"``, ``"2/6"`` ``"1/3"``, ``"3.2e-4"`` ``"0.00032"``, and
    ``"3:45pm"`` ``"3:45 pm"``.
    """
    if match := _SPELLED.fullmatch(text):
        value = _value(match)
        return None if value is None else _written(-value if match["sign"] == "-" else value)
    if match := _TIME.fullmatch(text):
        if match["left"]:
            return f"{match['left']}:{match['right']}"
        half = match["half"] or match["noon"]
        return (match["clock"] or match["hour"]) + (f" {half.lower()}m" if half else "")
    return None


def _value(match: re.Match[str]) -> Fraction | None:
    scale = _SCALES[match["scale"].strip().lower()] if match["scale"] else 1
    if match["bottom"]:
        if not int(match["bottom"]) or len(match["top"] + match["bottom"]) > _WRITTEN_OUT:
            return None
        return (int(match["mixed"] or 0) + Fraction(int(match["top"]), int(match["bottom"]))) * scale
    number = Fraction(_digits(match))
    if match["power"]:
        power = int(match["power"][:9])
        if abs(power) * len(_digits(match)) > _WRITTEN_OUT or (number == 0 and power < 0):
            return None
        return Fraction(number**power) * scale
    exponent = int((match["exponent"] or "0")[:9])
    return None if abs(exponent) > _WRITTEN_OUT else number * Fraction(10) ** exponent * scale


def _digits(match: re.Match[str]) -> str:
    if match["european"]:
        return match["european"].replace(".", "").replace(",", ".")
    if match["spaced"]:
        return match["spaced"].replace(" ", "").replace(",", ".")
    return re.sub("[,'’]", "", match["swiss"] or match["english"])


def _written(value: Fraction) -> str:
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        places = max(places, power)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")  # 1/2 and 0.5 agree
    sign, whole, part = "-" if value < 0 else "", digits[: len(digits) - places], digits[len(digits) - places :]
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"
