"""One spelling per answer: ``1,000``, ``1000.0`` and ``$1000`` cast their votes together."""

import re
from decimal import Decimal
from fractions import Fraction

__all__ = ["equivalent", "normalize"]

_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|textbf)\{([^{}]*)\}")
_LATEX_RATIO = re.compile(r"\\[dt]?frac\{([-+]?\d+)\}\{(\d+)\}")
_NOISE = re.compile(r"\\[,;! ]|\{,\}|\\?[$€£%]|\\[()\[\]]")
_GROUPED = re.compile(r"(?<=\d)[, ](?=\d{3}(?!\d))")
_NUMBER = re.compile(r"[-+]? ?(?:\d+(?:\.\d*)?|\.\d+)")
_RATIO = re.compile(r"([-+]?) ?(?:(\d{1,30}) )?(\d{1,30})/(\d{1,30})")  # 3/2 or 1 1/2


def normalize(answer: str) -> str:
    """The canonical form of an answer: numbers without signs of currency or grouping, text casefolded.

    ``"$1,000.0"`` gives ``"1000"``, ``"1/2"`` and ``"\\frac{1}{2}"`` give ``"0.5"``, ``" Blue. "`` gives ``"blue"``.
    Normalizing twice changes nothing.
    """
    text, before = answer.casefold().replace("−", "-"), ""
    while text != before:  # what surrounded a mark may form another
        text, before = _cleaned(text), text
    number = _GROUPED.sub("", text)
    if _NUMBER.fullmatch(number):
        return _plain(Decimal(number.replace(" ", "")))
    if (ratio := _RATIO.fullmatch(number)) and int(ratio[4]):
        size = int(ratio[2] or 0) + Fraction(int(ratio[3]), int(ratio[4]))
        return _ratio(-size if ratio[1] == "-" else size)
    return text


def equivalent(one: str | None, other: str | None) -> bool:
    """Whether two answers are the same once normalized; no answer equals nothing."""
    return one is not None and other is not None and normalize(one) == normalize(other)


def _cleaned(text: str) -> str:
    text = _NOISE.sub("", _LATEX_TEXT.sub(r"\1", text))
    text = _LATEX_RATIO.sub(r" \1/\2", text)  # the space keeps a whole number in front apart
    return " ".join(text.split()).rstrip(".").strip("* ")


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.lstrip("+"))
    digits = digits.lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return digits if digits == "0" else sign + digits


def _ratio(value: Fraction) -> str:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1:  # a finite decimal, so that 1/2 and 0.5 agree
        places = value.denominator.bit_length()
        return _plain(Decimal(f"{value.numerator * 10**places // value.denominator}e-{places}"))  # exact
    return f"{value.numerator}/{value.denominator}"
