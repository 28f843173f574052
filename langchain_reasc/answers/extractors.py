"""Extractors by name: where answers stand in responses. They compose: ``boxed() | last_number()``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import regex
from langchain_core.messages import AIMessage

from langchain_reasc.answers.choice import ChoiceFinder
from langchain_reasc.answers.closing import closing_number, last_number_in
from langchain_reasc.answers.explicit import explicit_answer
from langchain_reasc.answers.extraction import AnswerSpec, Extractor
from langchain_reasc.answers.json_objects import field_of_last_object
from langchain_reasc.answers.json_values import Names
from langchain_reasc.answers.marks import boxed_content
from langchain_reasc.answers.mathematics import canonical_mathematics, require_math_verify
from langchain_reasc.answers.normalize import without_unit
from langchain_reasc.answers.objects import REASONING, ObjectVotes, Schema, whole_object
from langchain_reasc.exceptions import ConfigurationError

__all__ = [
    "ANY_TEXT",
    "AnswerSpec",
    "Extractor",
    "boxed",
    "choice",
    "extractor",
    "held_to",
    "json_field",
    "json_object",
    "last_number",
    "matching",
    "mathematical",
    "message_extractor",
    "whole_message",
]

ANY_TEXT: Final = "text"
"""What every text votes for where texts are not compared."""
_PATTERN_SECONDS: Final = 1.0
"""Processor time that a pattern of the user's may take over one text."""


def extractor(spec: AnswerSpec = "auto") -> Extractor:
    """The extractor a name or a function stands for.

    Args:
        spec: ``"auto"`` (what the response says its answer is, else the number it comes down to), ``"boxed"``,
            ``"number"`` (the last one), ``"choice"``, ``"math"`` (like auto, and equal formulas agree),
            ``"regex:PATTERN"`` (its first group), ``"json:FIELD"`` (dots descend), ``"json"`` (the whole object, as
            :func:`json_object`), ``"text"`` (the whole response), ``"message"`` (for agents: calls of tools and JSON
            objects; texts are not compared), or any function from text to an answer or None.

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
        "json": json_object,
        "message": whole_message,
    }
    if spec not in named:
        raise ConfigurationError(
            f"unknown answer extractor {spec!r}; choose auto, boxed, number, choice, math, text, message, json, "
            "regex:PATTERN, json:FIELD, or pass a function from text to an answer"
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
    """The first group (or, without groups, the whole) of the last match of a regular expression.

    A pattern that backtracks for longer than a second of processor time over a response finds nothing in it.
    """
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ConfigurationError(f"invalid answer pattern {pattern!r}: {error}") from None

    def find(text: str, *, cut_off: bool = False) -> str | None:
        found = None
        for match in compiled.finditer(text, timeout=_PATTERN_SECONDS):
            found = match
        if found is None or (cut_off and not _is_cued(found)):
            return None
        return found[1] if compiled.groups else found[0]

    return Extractor(find, f"regex:{pattern}", explicit=partial(find, cut_off=True), blocks=True)


def json_field(field: str) -> Extractor:
    """A field of the last JSON object that has it; ``a.b`` descends."""
    find = partial(field_of_last_object, path=field)
    return Extractor(find, f"json:{field}", explicit=partial(find, cut_off=True), over_tool_calls=True)


def json_object(
    *,
    by_field: bool = False,
    leave_out: Names = REASONING,
    tolerance: Mapping[str, float] | None = None,
    voted: Names = (),
    schema: Schema | None = None,
) -> Extractor:
    """Structured output: the last JSON object of a text, or the arguments of its tool call. A list in it is one value.

    Args:
        by_field: whether each field is decided on its own (``"a.b"`` is a field inside another), numbers by their
            weighted median and the rest by vote, and the answer put together from them.
        leave_out: fields that do not count, at any depth; by default those in which a model thinks aloud.
        tolerance: field -> how far, at most, its number is from another that it agrees with.
        voted: by field, those whose numbers are names, such as an id, and are voted on.
        schema: a JSON schema, or a class that pydantic can validate. Objects that it refuses cast no vote; its defaults
            are filled in. Where it has a name, calls of other tools remain calls.

    Raises:
        ConfigurationError: a tolerance that is no distance, a string where several are expected, an unknown schema.
    """
    votes = ObjectVotes(by_field=by_field, leave_out=leave_out, tolerance=tolerance or {}, voted=voted, schema=schema)
    explicit = partial(votes.in_text, cut_off=True)
    return Extractor(votes.in_text, str(votes), explicit=explicit, canonical=votes.label, objects=votes)


def whole_message(schema: Schema | None = None) -> Extractor:
    """What agents do: calls of tools, or an object that is all the text. All other texts are :data:`ANY_TEXT`.

    They cannot be compared by their spelling. A text that was cut off is a text all the same.

    Args:
        schema: what the text is held to, if anything: a text that is no object which it allows casts no vote.
    """
    find = partial(_object_or_text, votes=ObjectVotes(schema=schema))
    return Extractor(find, "message", explicit=find, canonical=str, texts_vote=False)


def held_to(extract: Extractor, schema: Schema | None) -> Extractor:
    """The extractor for a call that holds the text of its responses to a schema, where it has no schema of its own."""
    if schema is None or extract.otherwise:
        return extract
    if not extract.texts_vote:
        return whole_message(schema)
    if extract.objects is None or extract.objects.schema is not None:
        return extract
    votes = replace(extract.objects, schema=schema)
    explicit = partial(votes.in_text, cut_off=True)
    return replace(extract, find=votes.in_text, explicit=explicit, canonical=votes.label, objects=votes)


def _object_or_text(text: str, *, votes: ObjectVotes) -> str | None:
    value = whole_object(text)
    answer = None if value is None else votes.answer(value)
    return answer if answer or votes.schema else ANY_TEXT if text.strip() else None


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


def _is_cued(match: "regex.Match[str]") -> bool:
    """Whether a match has words or marks around its group, and ends before the text does: then it states an answer."""
    group = match[1] if match.re.groups else match[0]
    return match.end() < len(match.string) and bool(re.search(r"\w|#", match[0].replace(group or "", "", 1)))


def _name_of(find: Callable[..., Any]) -> str:
    return str(getattr(find, "__name__", "custom"))
