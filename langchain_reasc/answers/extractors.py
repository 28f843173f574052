"""Extractors: from a response to its answer, or None. They compose: ``boxed() | last_number()``."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.answers.choice import ChoiceFinder
from langchain_reasc.answers.closing import closing_number, last_number_in
from langchain_reasc.answers.equivalence import Equivalence
from langchain_reasc.answers.explicit import explicit_answer
from langchain_reasc.answers.json_objects import field_of_last_object
from langchain_reasc.answers.marks import boxed_content
from langchain_reasc.answers.mathematics import canonical_mathematics, require_math_verify
from langchain_reasc.answers.normalize import normalize, without_unit
from langchain_reasc.exceptions import ConfigurationError

__all__ = [
    "AnswerSpec",
    "Extractor",
    "boxed",
    "choice",
    "extractor",
    "json_field",
    "last_number",
    "matching",
    "mathematical",
    "message_extractor",
]


@dataclass(frozen=True)
class Extractor:
    """A function from a response to a normalized answer; ``a | b`` asks ``b`` where ``a`` finds none.

    Attributes:
        find: finds the raw answer, or None, in a text (with ``reads_message``, in the message).
        name: the name shown in messages.
        explicit: does the same in the text of a response that was cut off, where only what it explicitly states is an
            answer; where it is None, such a response casts no vote.
        over_tool_calls: whether its finding is the answer of a response that also calls tools.
        reads_message: whether ``find`` is given the ``AIMessage``.
        canonical: turns a raw answer into the spelling in which equal answers agree.
        without_units: whether what it finds has no unit, so that a label needs none either.
        blocks: whether finding an answer may take seconds, and is done beside an event loop.
        otherwise: the extractor that is asked where this one finds none.
        equivalence: tells which answers vote together that are not spelled alike; None where only such do that are.
    """

    find: Callable[[Any], str | None]
    name: str
    explicit: Callable[[str], str | None] | None = None
    over_tool_calls: bool = False
    reads_message: bool = False
    canonical: Callable[[str], str] = normalize
    without_units: bool = False
    blocks: bool = False
    otherwise: "Extractor | None" = None
    equivalence: Equivalence | None = None

    def __call__(self, response: str | AIMessage) -> str | None:
        """The answer in a text, or in a message."""
        given = _as_message(response) if self.reads_message else _as_text(response)
        return self._first(self.find(given), lambda other: other(response))

    def label(self, right: str) -> str:
        """The right answer as those would spell it that it finds: ``18 dollars`` is 18 where units are left out."""
        return self.canonical(without_unit(right) if self.without_units else right)

    def from_cut_off(self, text: str) -> str | None:
        """The answer that a text states explicitly, where it was cut off before its end."""
        found = self.explicit(text) if self.explicit else None
        return self._first(found, lambda other: other.from_cut_off(text))

    def __or__(self, other: "Extractor") -> "Extractor":
        rest = self.otherwise | other if self.otherwise else other
        own = self.name.split(" | ")[0]
        return replace(
            self,
            otherwise=rest,
            name=f"{own} | {rest.name}",
            over_tool_calls=self.over_tool_calls or other.over_tool_calls,
            blocks=self.blocks or other.blocks,
            equivalence=self.equivalence or other.equivalence,
        )

    def _first(self, found: str | None, ask: "Callable[[Extractor], str | None]") -> str | None:
        if found is None:
            return ask(self.otherwise) if self.otherwise else None
        return self.canonical(str(found)) or None


AnswerSpec = str | Extractor | Callable[[str], str | None]


def extractor(spec: AnswerSpec = "auto") -> Extractor:
    """The extractor a name or a function stands for.

    Args:
        spec: ``"auto"`` (what the response says its answer is, else the number it comes down to), ``"boxed"``,
            ``"number"`` (the last one), ``"choice"``, ``"math"`` (like auto, and equal formulas agree),
            ``"regex:PATTERN"`` (its first group), ``"json:FIELD"`` (dots descend), ``"text"`` (the whole response), or
            any function from text to an answer or None.

    Raises:
        ConfigurationError: an unknown name or an invalid pattern.
        MissingExtraError: ``"math"`` without the extra ``math``.
    """
    if isinstance(spec, Extractor):
        return spec
    if callable(spec):
        return Extractor(spec, _name_of(spec), over_tool_calls=True)
    kind, _, rest = spec.partition(":")
    if kind == "regex" and rest:
        return matching(rest)
    if kind == "json" and rest:
        return json_field(rest)
    named: dict[str, Callable[[], Extractor]] = {
        "auto": lambda: Extractor(_auto, "auto", explicit=partial(explicit_answer, cut_off=True), without_units=True),
        "boxed": boxed,
        "number": last_number,
        "choice": choice,
        "math": mathematical,
        "text": lambda: Extractor(str, "text"),
    }
    if spec not in named:
        raise ConfigurationError(
            f"unknown answer extractor {spec!r}; choose auto, boxed, number, choice, math, text, regex:PATTERN, "
            "json:FIELD, or pass a function from text to an answer"
        )
    return named[spec]()


def message_extractor(find: Callable[[AIMessage], str | None], *, name: str | None = None) -> Extractor:
    """An extractor whose function gets the whole ``AIMessage``: its tool calls, its blocks, how it ended.

    It alone decides what is an answer, of refusals and of responses that were cut off too (these never pass the gate).

    Args:
        find: message -> answer, or None.
        name: the name shown in messages; None for the function's.
    """
    return Extractor(find, name or _name_of(find), over_tool_calls=True, reads_message=True)


def boxed() -> Extractor:
    """The content of the last ``\\boxed{...}``, braces balanced, without its unit."""
    return Extractor(_boxed, "boxed", explicit=partial(_boxed, cut_off=True), without_units=True)


def last_number() -> Extractor:
    """The last quantity in the text, whatever it belongs to: ``-5``, ``$1,234.5``, ``3/4``, ``3.2e-4``, ``3:45 PM``."""
    return Extractor(last_number_in, "number", explicit=_explicit_number, without_units=True)


def choice(letters: str = "ABCDEFGHIJ") -> Extractor:
    """The letter of a multiple-choice answer: boxed, said to be the answer, called right, chosen, or alone."""
    find = ChoiceFinder(letters)
    return Extractor(find, "choice", explicit=partial(find, cut_off=True))


def mathematical() -> Extractor:
    """As ``auto``, and what is equal as mathematics votes together: ``\\frac{1}{\\sqrt{2}}`` and ``\\sqrt{2}/2``.

    Raises:
        MissingExtraError: math-verify is not installed.
    """
    require_math_verify()
    return Extractor(
        _auto,
        "math",
        explicit=partial(explicit_answer, cut_off=True),
        canonical=canonical_mathematics,
        without_units=True,
        blocks=True,
    )


def matching(pattern: str) -> Extractor:
    """The first group (or, without groups, the whole) of the last match of a regular expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"invalid answer pattern {pattern!r}: {error}") from None

    def find(text: str, *, cut_off: bool = False) -> str | None:
        found = None
        for match in compiled.finditer(text):
            found = match
        if found is None or (cut_off and not _is_cued(found)):
            return None
        return found[1] if compiled.groups else found[0]

    return Extractor(find, f"regex:{pattern}", explicit=partial(find, cut_off=True))


def json_field(field: str) -> Extractor:
    """A field of the last JSON object that has it; ``a.b`` descends."""
    find = partial(field_of_last_object, path=field)
    return Extractor(find, f"json:{field}", explicit=partial(find, cut_off=True), over_tool_calls=True)


def _auto(text: str) -> str | None:
    if (found := explicit_answer(text)) is not None:
        return found
    # A box that was cut off is no answer, whatever digits stand in it.
    return None if "\\boxed{" in text else closing_number(text)


def _boxed(text: str, *, cut_off: bool = False) -> str | None:
    inside = boxed_content(text, cut_off=cut_off)
    return None if inside is None else without_unit(inside)


def _explicit_number(text: str) -> str | None:
    stated = explicit_answer(text, cut_off=True)
    return None if stated is None else last_number_in(stated)


def _is_cued(match: re.Match[str]) -> bool:
    """Whether a match has words or marks around its group, and ends before the text does: then it states an answer."""
    group = match[1] if match.re.groups else match[0]
    return match.end() < len(match.string) and bool(re.search(r"\w|#", match[0].replace(group or "", "", 1)))


def _name_of(find: Callable[..., Any]) -> str:
    return str(getattr(find, "__name__", "custom"))


def _as_text(response: str | AIMessage) -> str:
    return response if isinstance(response, str) else str(response.text)


def _as_message(response: str | AIMessage) -> AIMessage:
    return AIMessage(response) if isinstance(response, str) else response
