"""Graders decide whether an answer is right: by spelling, number, letter, formula or
name, or by your own function.

A whole pool is graded by :mod:`.grading`.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Final

from langchain_reasc.answers import (
    Extractor,
    Form,
    canonical_mathematics,
    choice,
    chosen_letters,
    equivalent,
    extractor,
    form_of,
    kind_of,
    require_math_verify,
)
from langchain_reasc.exceptions import ConfigurationError

TOLERANCE: Final = 1e-4
"""How far, relatively, numbers may differ: that of ToRA's grader and of those made
after it, such as Qwen2.5-Math's.
"""

_OPTIONS: Final = "ABCDEFGHIJ"
_Number = tuple[Fraction, str]
"""A number and its unit."""
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


Grader = Callable[[str, str, Sequence[str]], bool | None]
"""Returns whether an answer is right; None if that cannot be decided.

It is called with the question (empty if it is not known), the answer found in a
response, which is never blank, and the accepted answers, one at least.
"""


def grader_name(grader: Grader) -> str:
    """Return the name that a pool graded by it records: its ``name``, or else a
    function's own.
    """
    for attribute in ("name", "__name__"):
        if hasattr(grader, attribute):
            return str(getattr(grader, attribute))
    return type(grader).__name__


class Exact:
    """Takes an answer for right that is the same as an accepted one, where either may
    leave out a unit.

    Args:
        extract: found the answers, and says when two are the same; see
            :func:`~langchain_reasc_lab.pools.extractor_of`.
    """

    name = "exact"

    def __init__(self, extract: Extractor | None = None) -> None:
        self._extract = extract or extractor()

    def __call__(self, question: str, answer: str, references: Sequence[str]) -> bool:
        return any(
            self._extract.is_same(answer, self._extract.label(right))
            for right in references
        )


class Numeric:
    """Takes an answer for right that is the same number as an accepted one, up to a
    relative tolerance.

    ``1,000``, ``1000.0`` and ``10^3`` are one number, and so are ``1/3`` and
    ``0.33333``, ``12 km`` and ``12``, but not ``12 m``; ``45%`` is 45, and 0.45 as
    well. Two whole numbers must be the same, unless a tolerance is given: 20,001 is not
    20,000. No number is near 0 but 0. An answer that is not a number is right if it is
    spelled like a reference. Where no reference is a number, and none is spelled like
    the answer, it cannot be decided.

    Args:
        tolerance: at most this share of the larger of the two; None for 1e-4, of whole
            numbers 0.

    Raises:
        ConfigurationError: a tolerance that is negative, or 1 and more.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        if tolerance is not None and not 0 <= tolerance < 1:
            raise ConfigurationError(
                "tolerance is a share of the number, 0 or more and below 1, got "
                f"{tolerance!r}"
            )
        self._tolerance = tolerance
        self.name = "numeric" if tolerance is None else f"numeric({tolerance:g})"

    def __call__(
        self, question: str, answer: str, references: Sequence[str]
    ) -> bool | None:
        if _spelled_alike(answer, references):
            return True
        numbers = _numbers(form_of(answer))
        rights = [_numbers(form_of(right)) for right in references]
        if any(self._are_near(numbers, right) for right in rights):
            return True
        return False if any(rights) else None

    def _are_near(self, numbers: Sequence[_Number], others: Sequence[_Number]) -> bool:
        """Return whether two numbers are near, where one of them may leave out the unit
        of the other.
        """
        if not numbers or not others:
            return False
        are_whole = all(
            without_unit.denominator == 1
            for without_unit, _ in (numbers[-1], others[-1])
        )
        tolerance = self._tolerance
        if tolerance is None:
            tolerance = 0.0 if are_whole else TOLERANCE
        pairs = [(number, other) for number in numbers for other in others[:1]]
        pairs += [(number, other) for number in numbers[:1] for other in others[1:]]
        return any(
            unit == other_unit
            and abs(value - other) <= Fraction(tolerance) * max(abs(value), abs(other))
            for (value, unit), (other, other_unit) in pairs
        )


class Choice:
    """Takes an answer for right that names the same letters as an accepted one:
    ``(B) Oslo`` is B.

    Where the answer or every reference names none, it cannot be decided.
    """

    name = "choice"

    def __call__(
        self, question: str, answer: str, references: Sequence[str]
    ) -> bool | None:
        if _spelled_alike(answer, references):
            return True
        given, rights = _letters(answer), [_letters(right) for right in references]
        if given and given in rights:
            return True
        return False if given and any(rights) else None


class Mathematical:
    """Takes an answer for right that equals an accepted one as mathematics, by
    math-verify, within seconds.

    Raises:
        MissingExtraError: math-verify is not installed.
    """

    name = "math"

    def __init__(self) -> None:
        require_math_verify()

    def __call__(self, question: str, answer: str, references: Sequence[str]) -> bool:
        if _spelled_alike(answer, references):
            return True
        if kind_of(answer) is not None:
            return False
        formula = canonical_mathematics(answer)
        return any(
            equivalent(formula, canonical_mathematics(right)) for right in references
        )


class Alias:
    """Takes an answer for right that is one of several accepted names, as open-domain
    question answering counts.

    Case, punctuation, articles and white space do not count, as in the evaluation of
    SQuAD (Rajpurkar et al. 2016) and NQ-Open (Lee et al. 2019). Unlike there,
    punctuation of any script is left out, and numbers are compared as numbers, so that
    1.5 is not 15, nor -5 the same as 5.
    """

    name = "alias"

    def __call__(self, question: str, answer: str, references: Sequence[str]) -> bool:
        if _spelled_alike(answer, references):
            return True
        given = _plain_name(answer)
        return bool(given) and any(given == _plain_name(right) for right in references)


GRADERS: Final[Mapping[str, Callable[[], Grader]]] = {
    **{
        "exact": Exact,
        "numeric": Numeric,
        "choice": Choice,
        "math": Mathematical,
        "alias": Alias,
    }
}
"""Graders by name."""


def _spelled_alike(answer: str, references: Sequence[str]) -> bool:
    return any(equivalent(answer, right) for right in references)


def _numbers(form: Form) -> list[_Number]:
    """Return the number of an answer in base units, then as it is written with less of
    its unit, last without any.
    """
    # a text such as 1e999999999 would take for ever as a fraction
    if form.kind != "value":
        return []
    numbers: list[_Number] = []
    for key in (form.key, *form.weaker):
        number, _, unit = key.partition(" ")
        with suppress(ValueError, ZeroDivisionError):
            numbers.append((Fraction(number), unit))
    return numbers


def _letters(text: str) -> frozenset[str]:
    """Return the letters that a text names as its choice."""
    letters = chosen_letters(text, _OPTIONS) or choice()(text)
    return frozenset((letters or "").split(", ")) - {""}


def _plain_name(text: str) -> str:
    """Return a name without what does not count; empty if nothing is left, or the text
    is a number or tool calls.
    """
    if kind_of(text) is not None or form_of(text).kind == "value":
        return ""
    letters = unicodedata.normalize("NFD", text).casefold()
    kept = "".join(one for one in letters if not _is_punctuation(one))
    return " ".join(_ARTICLE.sub(" ", kept).split())


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(
        character
    ).startswith("P")
