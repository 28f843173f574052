"""Extractors: from a response's text to its answer, or None. They compose: ``boxed() | last_number()``."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_reasc.answers.normalize import normalize
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["AnswerSpec", "Extractor", "boxed", "choice", "extractor", "json_field", "last_number", "matching"]


@dataclass(frozen=True)
class Extractor:
    """A function from text to a normalized answer; ``a | b`` asks ``b`` where ``a`` finds none.

    Attributes:
        find: text -> raw answer, or None.
        name: shown in messages.
    """

    find: Callable[[str], str | None]
    name: str

    def __call__(self, text: str) -> str | None:
        found = self.find(text)
        return None if found is None else normalize(str(found)) or None

    def __or__(self, other: "Extractor") -> "Extractor":
        def first_found(text: str) -> str | None:
            found = self.find(text)
            return other.find(text) if found is None else found

        return Extractor(first_found, f"{self.name} | {other.name}")


AnswerSpec = str | Extractor | Callable[[str], str | None]


def extractor(spec: AnswerSpec = "auto") -> Extractor:
    """The extractor a name or a function stands for.

    Args:
        spec: ``"auto"`` (boxed; without a box, the last number), ``"boxed"``, ``"number"``, ``"choice"``,
            ``"regex:PATTERN"`` (its first group), ``"json:FIELD"`` (dots descend), ``"text"`` (the whole response), or
            any function from text to an answer or None.

    Raises:
        ConfigurationError: an unknown name or an invalid pattern.
    """
    if isinstance(spec, Extractor):
        return spec
    if callable(spec):
        return Extractor(spec, getattr(spec, "__name__", "custom"))
    kind, _, rest = spec.partition(":")
    if kind == "regex" and rest:
        return matching(rest)
    if kind == "json" and rest:
        return json_field(rest)
    named: dict[str, Callable[[], Extractor]] = {
        "auto": lambda: Extractor(_auto, "auto"),
        "boxed": boxed,
        "number": last_number,
        "choice": choice,
        "text": lambda: Extractor(str, "text"),
    }
    if spec not in named:
        raise ConfigurationError(
            f"unknown answer extractor {spec!r}; choose auto, boxed, number, choice, text, regex:PATTERN, json:FIELD, "
            "or pass a function from text to an answer"
        )
    return named[spec]()


def boxed() -> Extractor:
    """The content of the last ``\\boxed{...}``, braces balanced."""
    return Extractor(_boxed, "boxed")


def last_number() -> Extractor:
    """The last number in the text, with its sign; ``$``, thousands commas and fractions (``3/4``) allowed."""
    number = r"(?:\d+(?:,\d{3}(?!\d))*(?:\.\d+)?|\.\d+)"
    pattern = re.compile(rf"(?<![\w.])[-−+]?[$€£]?{number}(?:/\d+)?")
    return Extractor(lambda text: _last(pattern, text), "number")


def choice(letters: str = "ABCDEFGHIJ") -> Extractor:
    """The letter of a multiple-choice answer: boxed, after "answer", in parentheses, or alone on the last line."""
    letter = f"([{letters}])"
    cue = r"(?i:answer)(?:[\s*:=]|(?i:is|option|choice))*\(?"
    patterns = [
        re.compile(rf"{cue}{letter}\b"),
        re.compile(rf"{cue}(?i:{letter})[).*]*\s*$", re.MULTILINE),  # elsewhere a small "a" is an article
        re.compile(rf"\({letter}\)"),
        re.compile(rf"^\s*\**{letter}[).:]?\**\s*\Z", re.MULTILINE),
    ]

    def find(text: str) -> str | None:
        inside = _boxed(text)
        if inside is not None and (held := re.search(rf"\b{letter}\b", inside)):
            return held[1]
        return next((found for pattern in patterns if (found := _last(pattern, text))), None)

    return Extractor(find, "choice")


def matching(pattern: str) -> Extractor:
    """The first group (or, without groups, the whole) of the last match of a regular expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"invalid answer pattern {pattern!r}: {error}") from None
    return Extractor(lambda text: _last(compiled, text), f"regex:{pattern}")


def json_field(field: str) -> Extractor:
    """A field of the last JSON object in the text; ``a.b`` descends."""

    def find(text: str) -> str | None:
        value: Any = _last_object(text)
        for key in field.split("."):
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        if value is None:
            return None
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    return Extractor(find, f"json:{field}")


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = match[1] if pattern.groups else match[0]
    return found


def _auto(text: str) -> str | None:
    # A box that was cut off is no answer, whatever digits stand in it.
    return _boxed(text) if "\\boxed{" in text else last_number().find(text)


def _boxed(text: str) -> str | None:
    opening = text.rfind("\\boxed{")
    if opening < 0:
        return None
    start = opening + len("\\boxed{")
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return None  # cut off before the brace closed: not an answer


def _last_object(text: str) -> dict[str, Any] | None:
    decoder, found, at = json.JSONDecoder(), None, text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            found, at = value, text.find("{", end)
        except ValueError:
            at = text.find("{", at + 1)
    return found
