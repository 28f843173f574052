"""JSON objects in texts, and JSON values: one spelling for equal ones, which are near, and what options call them."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.fields import within
from langchain_reasc.untrusted import parse_json

__all__ = [
    "REASONING",
    "FoundObject",
    "Names",
    "canonical",
    "check_options",
    "field_of_last_object",
    "last_object",
    "named",
    "names_of",
    "near",
    "parsed_object",
]

# Objects in a text

_DEEPEST: Final = 32
"""Levels of braces and brackets in an object that is read: each character is parsed that often at most."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_CLOSING: Final = {"{": "}", "[": "]"}


class FoundObject(NamedTuple):
    """An object and where it stands: ``text[start:end]``."""

    start: int
    end: int
    value: dict[str, Any]


def last_object(text: str, *, cut_off: bool = False) -> FoundObject | None:
    """Return the last object in a text.

    Args:
        text: may hold several objects, and other text around them.
        cut_off: whether the text was cut off: an object inside one that never ended then does not count.
    """
    return next(_last_first(text, cut_off), None)


def field_of_last_object(text: str, path: str, *, cut_off: bool = False) -> str | None:
    """Return a field of the last object that has it, as text: strings as they are, the rest as JSON.

    Args:
        text: as for :func:`last_object`.
        path: the field's name; ``a.b`` descends.
        cut_off: as for :func:`last_object`.

    Returns:
        None without such an object, or where the field is null, NaN or infinite.
    """
    keys = path.split(".")
    if f'"{keys[0]}"' not in text:
        return None
    for found in _last_first(text, cut_off):
        value: Any = found.value
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                break
            value = value[key]
        else:
            if isinstance(value, str):
                return value
            is_nothing = value is None or (isinstance(value, float) and not math.isfinite(value))
            return None if is_nothing else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return None


def parsed_object(text: str) -> dict[str, Any] | None:
    """Return the object that a text is; None where it is anything else. NaN and infinities in it are null."""
    try:
        value = parse_json(text, strict=False, parse_constant=lambda name: None)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _last_first(text: str, cut_off: bool) -> Iterator[FoundObject]:
    """Yield the objects that are in no other one; where braces hold no JSON, those among what they hold."""
    pairs, unclosed = _pairs(text)
    done = len(text)  # what begins behind it is inside an object that has been read
    for start, end, height in reversed(pairs):  # the order of closing, backwards: around before inside, the last first
        if end > done or height > _DEEPEST or (cut_off and unclosed < start):
            continue
        if (value := parsed_object(text[start:end])) is not None:
            done = start
            yield FoundObject(start, end, value)


def _pairs(text: str) -> tuple[list[tuple[int, int, int]], int]:
    """Return the balanced pairs of braces in the order in which they close, and where the first open one starts.

    Each pair is its start, its end, and the levels from it to the deepest in it.
    """
    pairs: list[tuple[int, int, int]] = []
    stack: list[tuple[str, int]] = []
    heights = [0]
    at = 0
    while token := (_TOKEN if stack else _OPENING).search(text, at):  # outside of objects a quotation mark is prose
        at, mark = token.end(), token[0]
        if mark in _CLOSING:
            stack.append((mark, token.start()))
            heights.append(0)
        elif stack and mark == _CLOSING[stack[-1][0]]:
            _, start = stack.pop()
            height = heights.pop() + 1
            heights[-1] = max(heights[-1], height)
            if mark == "}":
                pairs.append((start, at, height))
    return pairs, next((start for mark, start in stack if mark == "{"), len(text))


# Values

REASONING: Final = (
    *("reasoning", "rationale", "explanation", "thoughts", "thought", "thinking", "scratchpad", "chain_of_thought"),
)
"""Fields and arguments in which a model thinks aloud: no two responses agree in them."""

Names = Sequence[str] | AbstractSet[str]
"""Several names, in any collection that pydantic knows too."""

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UTC: Final = re.compile(r"\A(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?)[+-]00:00\Z")


def canonical(value: Any) -> str:
    """Return a value as JSON in which equal values are spelled alike: ``1.0`` as ``1``, the keys in order, NFC.

    UUIDs are in lower case, and what ends an instant in UTC is ``Z``.

    Raises:
        RecursionError: it is nested too deeply.
    """
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, default=str)
    return text if text.isascii() else normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def near(one: Any, other: Any, tolerance: Mapping[str, float], *, tool: str | None = None, path: Any = ()) -> bool:
    """Return whether two JSON values are the same but for numbers that are within their tolerance."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            near(one[key], other[key], tolerance, tool=tool, path=(*path, key)) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(near(a, b, tolerance, tool=tool, path=path) for a, b in pairs)
    if _is_number(one) and _is_number(other):
        return within(one, other, named(tolerance, path, tool) or 0.0)
    return canonical(one) == canonical(other)  # in Python, True == 1


def names_of(path: tuple[str, ...], tool: str | None = None) -> set[str]:
    """Return what a value in an object, or in a tool's arguments, may be called by."""
    return {".".join(path)} | ({".".join((tool, *path))} if tool else set())


def named(options: Mapping[str, Any], path: tuple[str, ...], tool: str | None = None) -> Any:
    """Return the option for a value, the name with its tool first; None where there is none."""
    names = sorted(names_of(path, tool), key=len, reverse=True) if options else ()
    return next((options[name] for name in names if name in options), None)


def check_options(tolerance: Mapping[str, float], **names: object) -> None:
    """Refuse what is no distance, and a string where several names are expected.

    Raises:
        ConfigurationError: naming it.
    """
    for option, given in names.items():
        several = given.values() if isinstance(given, Mapping) else [given]
        if any(isinstance(one, str) for one in several):
            raise ConfigurationError(f"{option} must be a list of names, got {given!r}")
    for name, distance in tolerance.items():
        if isinstance(distance, bool) or not isinstance(distance, int | float) or not 0 <= distance < math.inf:
            raise ConfigurationError(
                f"the tolerance of {name!r} must be a finite number of at least 0, got {distance!r}"
            )


def _is_number(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return value.lower() if _UUID.fullmatch(value) else _UTC.sub(r"\1Z", value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value
