"""Normalize answers: ``1,000``, ``1000.0`` and ``$1000`` are one.

First LaTeX and typography become plain text (:func:`plain_text`), then quantities are read (:func:`read_quantity`), and
meaningless marks are dropped (:func:`normalize`). Each step takes linear time, because a model may write anything.

A quantity is one token: ``1,234.5``, ``1.234,56``, ``1 000 000``, ``3/4``, ``1 1/2``, ``3.2e-4``, ``10^8``,
``$1.5 million``; and so is a time (``3:45 PM``), a date (``2024-01-15``) and a ratio (``3:2``).
"""

import re
import unicodedata
from decimal import Context, Decimal, Inexact
from fractions import Fraction

from langchain_reasc.answers.calls import canonical_calls

# LaTeX and typography

_SIGNS = str.maketrans(
    {dash: "-" for dash in "−–‒﹣－"}
    | {space: " " for space in "\u00a0\u2007\u2009\u200a\u202f"}
    | {hidden: "" for hidden in "\u200b\u2060\ufeff"}
    | {"⁄": "/", "，": ",", "：": ":", "（": "(", "）": ")", "％": "%", "＄": "$"}
)
_FRACTION_SIGN = re.compile("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_RAISED_SIGNS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_WRAPPERS = (
    r"text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|operatorname|mbox|emph|underline|"
    r"boxed|fbox"
)
_BRACES = re.compile(rf"\\[{{}}]|\\(?:{_WRAPPERS})\s?\{{|[{{}}]")
_THIN_GROUP = re.compile(r"(?<=\d)(?:\\[,;: ]|\{,\})(?=\d{3}(?!\d))")
_LATEX = (
    (re.compile(r"\{,\}"), "."),
    (re.compile(r"\\(?=[$%])"), ""),
    (re.compile(r"\\(?:left|right|displaystyle|textstyle|big[lr]?|Big[lr]?)(?![A-Za-z])|\\!|\\[()\[\]]"), ""),
    (re.compile(r"\s?\^\s?\{?\s?\\circ\s?\}?(?:\s?[CF]\b)?|\s?°(?:\s?[CF]\b)?"), ""),
    (re.compile(r"(?<!\\)\\[,;: ]|\\q?quad(?![A-Za-z])|~"), " "),
    (re.compile(r"\\[dtc]?frac(?![a-zA-Z])"), r"\\frac"),
    # The space keeps a whole number in front apart.
    (re.compile(r"(-?)\s?\\frac(?:\{\s?(-?\d+)\s?\}|\s?(\d)\s?)(?:\{\s?(\d+)\s?\}|(\d))"), r" \1\2\3/\4\5"),
    (re.compile(r"\\sqrt\s?([0-9a-zA-Z])"), r"\\sqrt{\1}"),
)
"""LaTeX -> plain spelling, in the order of replacement."""
_TEN_TO_THE = re.compile(
    r"(?<=\d)\s?(?:×|x|\*|·|⋅|\\times|\\cdot)\s?10\s?\^\s?(?:\{\s?([-+]?\d+)\s?\}|([-+]?\d+))", re.IGNORECASE
)
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,9}),(?=\d{1,2}\s?(?:€|EUR\b|Euro\b|\\?%))", re.IGNORECASE)


def plain_text(text: str) -> str:
    """Write LaTeX and typography as plain text: ``\\dfrac{3}{4}`` as ``3/4``, ``–5`` as ``-5``. Words are unchanged."""
    if not text.isascii():
        text = text.translate(_SIGNS)
        text = _FRACTION_SIGN.sub(lambda sign: f" {unicodedata.normalize('NFKC', sign[0]).replace('⁄', '/')}", text)
        text = _RAISED_SIGNS.sub(lambda raised: f"^{raised[0].translate(_RAISED)}", text)
        text = re.sub(r"[^\x00-\x7f]", lambda sign: str(int(sign[0])) if sign[0].isdecimal() else sign[0], text)
    if "\\" in text or "{" in text:
        text = _unwrapped(_THIN_GROUP.sub("", text))
        for pattern, plain in _LATEX:
            text = pattern.sub(plain, text)
    return _DECIMAL_COMMA.sub(r"\1.", _TEN_TO_THE.sub(r"e\1\2", text))


def _unwrapped(text: str) -> str:
    """Remove commands that only change the appearance: ``\\text{\\textbf{Blue}}`` becomes ``Blue``."""
    kept: list[str] = []
    dropped: list[bool] = []  # for each open brace, whether it went with its command
    at = 0
    for brace in _BRACES.finditer(text):
        kept.append(text[at : brace.start()])
        at, mark = brace.end(), brace[0]
        command = len(mark) > 2
        if command or mark == "{":
            dropped.append(command)
        if not (command or (mark == "}" and dropped and dropped.pop())):
            kept.append(mark)
    return "".join([*kept, text[at:]])


# Quantities

_WRITTEN_OUT = 60
"""The largest power of ten, and the most digits of a fraction, that are written out. A longer number is unchanged."""
_EXACT = Context(prec=5000, traps=[Inexact])  # more digits than a number has whose spelling is looked into
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
_SIGNED = re.compile(rf"(?P<sign>[-+]?)\ ?{_NUMBER}", _FLAGS)
_TIME = re.compile(rf"{_CLOCK}|{_HOUR}|{_RATIO}", _FLAGS)
_SEPARATORS = {"european": (r"\.", ","), "spaced": (" ", ","), "swiss": ("['’]", "."), "english": (",", ".")}
"""Way to write a number -> the marks between thousands and before decimals."""
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def last_quantity(text: str, *, since: int = 0) -> str | None:
    """Return the last quantity of a plain text as it is written, ignoring those that begin before ``since``."""
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
    """Return the canonical spelling of a plain text that is only a quantity, or None.

    ``"1.234,50"`` gives ``"1234.5"``, ``"1 1/2"`` ``"1.5"``, ``"2/6"`` ``"1/3"``, ``"3.2e-4"`` ``"0.00032"``, and
    ``"3:45pm"`` ``"3:45 pm"``.
    """
    if match := _SIGNED.fullmatch(text):
        value = _value(match)
        return None if value is None else _exact(-value if match["sign"] == "-" else value)
    if match := _TIME.fullmatch(text):
        if match["left"]:
            return f"{match['left']}:{match['right']}"
        half = match["half"] or match["noon"]
        return (match["clock"] or match["hour"]) + (f" {half.lower()}m" if half else "")
    return None


def _value(match: re.Match[str]) -> Fraction | None:
    value = _fraction(match) if match["bottom"] else _decimal(match)
    scale = _SCALES[match["scale"].strip().lower()] if match["scale"] else 1
    return None if value is None else value * scale


def _fraction(match: re.Match[str]) -> Fraction | None:
    top, bottom = match["top"], match["bottom"]
    if len(top + bottom) > _WRITTEN_OUT or not int(bottom):
        return None
    return int(match["mixed"] or 0) + Fraction(int(top), int(bottom))


def _decimal(match: re.Match[str]) -> Fraction | None:
    digits = ""
    for style, (thousands, point) in _SEPARATORS.items():
        if match[style]:
            digits = re.sub(thousands, "", match[style]).replace(point, ".")
    number = Fraction(digits)
    if match["power"]:
        power = int(match["power"][:9])
        if abs(power) * len(digits) > _WRITTEN_OUT or (number == 0 and power < 0):
            return None
        return Fraction(number**power)
    exponent = int((match["exponent"] or "0")[:9])
    return None if abs(exponent) > _WRITTEN_OUT else number * Fraction(10) ** exponent


def _exact(value: Fraction) -> str:
    """Spell a number as a decimal if that is finite, else as a reduced fraction, so that 1/2 and 0.5 agree."""
    try:
        decimal = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    except Inexact:
        return f"{value.numerator}/{value.denominator}"
    return f"{decimal.normalize(_EXACT):f}"


# Answers

_LONGEST = 1000
"""The most characters of an answer that is normalized. A longer answer is compared as a text."""
_CURRENCY_OR_PERCENT = re.compile(r"[$€£¥₹₩₽%]|^(?:usd|eur|gbp|chf)\s(?=[\d.-])", re.IGNORECASE)
_UNKNOWN = re.compile(r"[a-z](?:\([a-z]\))?\s?=\s?(?=[^=\s])")  # x = 5, f(x) = 2x
_LETTER = re.compile(r"\(([a-z])\)|\[([a-z])\]")
_WORD = re.compile(r"(?<!\\)\b[^\W\d_]{2,}")
_COMMAND = re.compile(r"\\(?:begin|end)\{\w+\}|\\[a-zA-Z]+")
_GAP = re.compile(
    r"(?<=,) (?!\d{3}(?!\d))"  # 2, 300 are two numbers, 2,300 is one
    r"|(?<=[^\w,]) | (?=[^\w\\])|(?<=\d) (?=[a-z\\])"
)
_FORMULA = re.compile(r"[-+*/^=<>|,]|\\[a-z]|^[(\[{].*[)\]}]$")
_BRACED_POWER = re.compile(r"\^\{(\w)\}")
_UNIT = re.compile(
    r"(?P<number>.*?\d(?:\s?(?:thousand|million|billion|trillion))?)\s?(?P<unit>(?!(?:[ap]\.?m|and|or|to|of|in|x|times|plus|minus|than|is)\b)"
    r"[^\W\d_]+\.?(?:[ /][^\W\d_]+\.?){0,3}(?:\^-?\d)?)",
    re.IGNORECASE,
)


def normalize(answer: str) -> str:
    """Return the canonical form of an answer: plain numbers, no currency or formatting, casefolded text.

    ``"$1,000.0"`` gives ``"1000"``, ``"1/2"`` and ``"\\frac{1}{2}"`` give ``"0.5"``, ``"x = 5"`` gives ``"5"``,
    ``"(1, 2)"`` ``"(1,2)"``, ``" Blue. "`` ``"blue"``. The letters of tool calls are unchanged. Normalizing twice
    changes nothing. The time is proportional to the length.
    """
    if answer.startswith("[{") and (calls := canonical_calls(answer)):
        return calls
    if not answer.isascii():
        answer = unicodedata.normalize("NFC", answer.encode("utf-8", "replace").decode("utf-8"))
    text, before = " ".join(answer.split()), ""
    if len(text) > _LONGEST:
        return text.casefold()
    while text != before:  # what surrounded a mark may form another
        text, before = _cleaned(text), text
    return text


def equivalent(one: str | None, other: str | None) -> bool:
    """Return whether two answers are equal after normalization. None equals no answer."""
    return one is not None and other is not None and normalize(one) == normalize(other)


def without_unit(answer: str) -> str:
    """Return the number of an answer with a unit, such as ``12 square meters``, or else the whole answer."""
    text = " ".join(_CURRENCY_OR_PERCENT.sub("", plain_text(answer[:_LONGEST])).split()).strip(" .*")
    if read_quantity(text) is not None or not (match := _UNIT.fullmatch(text)):
        return answer
    return match["number"] if read_quantity(match["number"]) is not None else answer


def _cleaned(text: str) -> str:
    text = _CURRENCY_OR_PERCENT.sub("", plain_text(text).casefold())
    text = " ".join(text.split()).rstrip(".").strip("*`_\"' ")
    if unknown := _UNKNOWN.match(text):
        text = text[unknown.end() :]
    if letter := _LETTER.fullmatch(text):
        text = letter[1] or letter[2]
    number = read_quantity(text)
    if number is not None:
        return number
    if '"' in text or not _FORMULA.search(text) or _WORD.search(_COMMAND.sub(" ", text)):
        return text
    return _BRACED_POWER.sub(r"^\1", _GAP.sub("", text))  # a formula, a tuple or a list: spaces say nothing
