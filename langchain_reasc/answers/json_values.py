"""JSON in texts: find objects, write equal values alike, compare with a tolerance, and check field names in options."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from decimal import Context, Decimal
from hashlib import sha256
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from pydantic import SecretBytes, SecretStr

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_json
from langchain_reasc.method.fields import within

# Objects in a text

_DEEPEST: Final = 32
"""The deepest nesting of an object that is read. Each character is parsed at most this many times."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_CLOSING: Final = {"{": "}", "[": "]"}


class FoundObject(NamedTuple):
    """An object and its place: ``text[start:end]``."""

    start: int
    end: int
    value: dict[str, Any]


def last_object(text: str, *, cut_off: bool = False) -> FoundObject | None:
    """Return the last object in a text. If the text was cut off, skip objects inside one that never ended."""
    return next(_objects_backwards(text, cut_off), None)


def field_of_last_object(text: str, path: str, *, cut_off: bool = False) -> str | None:
    """Return a field of the last object that has it, as text: a string as it is, any other value as JSON.

    ``a.b`` descends. None if there is no such object, or if the field is null, NaN or infinite.
    """
    keys = path.split(".")
    if f'"{keys[0]}"' not in text:
        return None
    fields = (_descend(found.value, keys) for found in _objects_backwards(text, cut_off))
    value = next((value for value in fields if value is not _ABSENT), None)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


_ABSENT: Final = object()


def _descend(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def parsed_object(text: str) -> dict[str, Any] | None:
    """Parse a text that is one object; return None for anything else. NaN and infinities become null."""
    try:
        value = parse_json(text, strict=False, parse_constant=lambda name: None)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _objects_backwards(text: str, cut_off: bool) -> Iterator[FoundObject]:
    """Yield the outermost objects, last first. If a pair of braces is not JSON, yield the objects inside it."""
    pairs, unclosed = _pairs(text)
    done = len(text)  # what begins behind it is inside an object that has been read
    for start, end, height in reversed(pairs):  # the order of closing, backwards: around before inside, the last first
        if end > done or height > _DEEPEST or (cut_off and unclosed < start):
            continue
        if (value := parsed_object(text[start:end])) is not None:
            done = start
            yield FoundObject(start, end, value)


def _pairs(text: str) -> tuple[list[tuple[int, int, int]], int]:
    """Return the balanced pairs of braces in closing order, and the place of the first brace that stays open.

    Each pair is (start, end, depth of the nesting inside).
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
"""Fields and arguments in which a model thinks aloud, so that no two responses agree."""

Names = Sequence[str] | AbstractSet[str]
"""Several names, in a collection that pydantic knows."""
Path = tuple[str, ...]
"""The keys that lead to a value. A value in a list has the keys of the list."""

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UTC: Final = re.compile(r"\A(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?)[+-]00:00\Z")


def canonical(value: Any) -> str:
    """Return a value as JSON that spells equal values alike: ``1.0`` as ``1``, sorted keys, NFC.

    UUIDs are in lower case, and an instant in UTC ends with ``Z``.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    text = json.dumps(plain(value), sort_keys=True, ensure_ascii=False, default=str)
    return text if text.isascii() else normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def plain(value: Any) -> Any:
    """Normalize a value: sort sets, write decimals as numbers, and instants in UTC."""
    match value:
        case str():
            return value.lower() if _UUID.fullmatch(value) else _UTC.sub(r"\1Z", value)
        case None | int():
            return value
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case set() | frozenset():
            return sorted(map(plain, value), key=canonical)
        case Decimal():
            number = float(value)
            if math.isfinite(number) and Decimal(repr(number)) == value:
                return plain(number)
            return str(value.normalize(Context(prec=max(len(value.as_tuple().digits), 1))))
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case SecretStr() | SecretBytes():
            return sha256(str(value.get_secret_value()).encode()).hexdigest()
        case float() if value.is_integer():
            return int(value)
    return value


def leaves(value: Any, path: Path = (), *, into_lists: bool = False) -> Iterator[tuple[Path, Any]]:
    """Yield the values in an object and in objects inside it, and if asked in lists of objects."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key), into_lists=into_lists)
    elif into_lists and isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from leaves(inner, path, into_lists=True)
    else:
        yield path, value


def near(one: Any, other: Any, tolerance: Mapping[str, float], tool: str = "", path: Path = ()) -> bool:
    """Return whether two JSON values are the same, except for numbers within their tolerance."""
    match one, other:
        case dict(), dict():
            same_keys = one.keys() == other.keys()
            return same_keys and all(near(one[key], other[key], tolerance, tool, (*path, key)) for key in one)
        case list(), list():
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(near(*pair, tolerance, tool, path) for pair in pairs)
    if _is_number(one) and _is_number(other):
        return within(one, other, option_for(tolerance, path, tool) or 0.0)
    return canonical(one) == canonical(other)  # in Python, True == 1


def _is_number(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


# Options that name values


def names_of(path: Path, tool: str = "") -> tuple[str, ...]:
    """Return the names that options may use for a value; the first one includes the tool."""
    name = ".".join(path)
    return (f"{tool}.{name}", name) if tool else (name,)


def option_for(options: Mapping[str, Any], path: Path, tool: str = "") -> Any:
    """Return the option for a value, or None."""
    return next((options[name] for name in names_of(path, tool) if name in options), None) if options else None


def check_options(tolerance: Mapping[str, float], **names: object) -> None:
    """Check tolerances, and that names come as a collection.

    Raises:
        ConfigurationError: a tolerance is not a distance, or a single string is given instead of several names.
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
