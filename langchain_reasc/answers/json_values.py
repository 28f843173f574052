"""JSON in texts: find objects and lists, write equal values alike, compare with a
tolerance, check names in options.
"""

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

# Objects and lists in a text

_DEEPEST: Final = 32
"""The deepest nesting of a value that is read. Each character is parsed at most this
many times.
"""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_CLOSING: Final = {"{": "}", "[": "]"}
_BEGUN_LIST = re.compile(r"\[\s*[\[{]")
_FENCED = re.compile(r"\s*```\w*\s*\n(.*)\n\s*```\s*", re.DOTALL)

Structure = dict[str, Any] | list[Any]
"""A JSON value that can be an answer as a whole: an object or a list."""


class FoundValue(NamedTuple):
    """An object or a list, and its place: ``text[start:end]``."""

    start: int
    end: int
    value: Structure


def last_value(text: str, *, cut_off: bool = False) -> FoundValue | None:
    """Return the last value in a text: an object, or a list that holds an object, that
    is not inside another value.

    A list without objects counts only if it is the whole text, in a code block or not:
    in prose it may be a citation. If the text was cut off, values inside one that never
    ended do not count.
    """
    for value in _values_backwards(text, cut_off, lists=True):
        return value
    whole = _only_value(text)
    if whole and isinstance(whole.value, list):
        return whole
    return None


def whole_value(text: str, *, any_list: bool) -> Structure | None:
    """Parse a text that is only an object or a list, in a code block or not; return
    None for anything else.

    Unless ``any_list``, a list counts only if it holds an object.
    """
    whole = _only_value(text)
    if whole is None:
        return None
    value = whole.value
    if isinstance(value, list) and not any_list and not _holds_object(value):
        return None
    return value


def _only_value(text: str) -> FoundValue | None:
    """Return the value that is all of a text, without a code block's marks."""
    fenced = _FENCED.fullmatch(text)
    inside = (fenced[1] if fenced else text).strip()
    value = parsed_value(inside)
    if value is None:
        return None
    start = text.index(inside)
    return FoundValue(start, start + len(inside), value)


def field_of_last_object(text: str, path: str, *, cut_off: bool = False) -> str | None:
    """Return a field of the last object that has it, as text: a string as it is, any
    other value as JSON.

    ``a.b`` descends. None if there is no such object, or if the field is null, NaN or
    infinite.
    """
    keys = path.split(".")
    if f'"{keys[0]}"' not in text:
        return None
    for item in _values_backwards(text, cut_off, lists=False):
        value = _descend(item.value, keys)
        if value is _ABSENT:
            continue
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return None


_ABSENT: Final = object()


def _descend(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if not isinstance(value, dict):
            return _ABSENT
        value = value.get(key, _ABSENT)
    return value


def parsed_value(text: str) -> Structure | None:
    """Parse a text that is one object or list; return None for anything else. NaN and
    infinities become null.
    """
    try:
        value = parse_json(text, strict=False, parse_constant=lambda name: None)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _values_backwards(text: str, cut_off: bool, *, lists: bool) -> Iterator[FoundValue]:
    """Yield the outermost objects, last first, and with ``lists`` also the outermost
    lists that hold an object.

    If a pair of brackets is not JSON, yield what is inside.
    """
    pairs, unclosed = _pairs(text, lists)
    done = len(text)  # what begins behind it is inside a value that has been read
    # the order of closing, backwards: around before inside, the last first
    for start, end, height in reversed(pairs):
        if end > done or height > _DEEPEST or (cut_off and unclosed < start):
            continue
        value = parsed_value(text[start:end])
        if isinstance(value, dict) or (value is not None and _holds_object(value)):
            done = start
            yield FoundValue(start, end, value)


def _holds_object(values: list[Any]) -> bool:
    return any(
        isinstance(value, dict) or (isinstance(value, list) and _holds_object(value))
        for value in values
    )


def _pairs(text: str, lists: bool) -> tuple[list[tuple[int, int, int]], int]:
    """Return the balanced pairs of braces in closing order, and the place of the first
    value that stays open.

    Each pair is (start, end, depth of the nesting inside). With ``lists``, square
    brackets are pairs too.
    """
    pairs: list[tuple[int, int, int]] = []
    stack: list[tuple[str, int]] = []
    heights = [0]
    position = 0
    # outside of values a quotation mark is prose
    while token := (_TOKEN if stack else _OPENING).search(text, position):
        position = token.end()
        mark = token[0]
        if mark in _CLOSING:
            stack.append((mark, token.start()))
            heights.append(0)
        elif stack and mark == _CLOSING[stack[-1][0]]:
            _, start = stack.pop()
            height = heights.pop() + 1
            heights[-1] = max(heights[-1], height)
            if lists or mark == "}":
                pairs.append((start, position, height))
    for mark, start in stack:
        # An open "[" in prose is not the beginning of a list.
        if mark == "{" or (lists and _BEGUN_LIST.match(text, start)):
            return pairs, start
    return pairs, len(text)


# Values

REASONING: Final = (
    "reasoning",
    "rationale",
    "explanation",
    "thoughts",
    "thought",
    "thinking",
    "scratchpad",
    "chain_of_thought",
)
"""Fields and arguments in which a model thinks aloud, so that no two responses agree.
"""

Names = Sequence[str] | AbstractSet[str]
"""Several names, in a collection that pydantic knows."""
Path = tuple[str, ...]
"""The keys that lead to a value. A value in a list has the keys of the list."""

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UTC: Final = re.compile(
    r"\A(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?)[+-]00:00\Z"
)


def canonical(value: Any) -> str:
    """Return a value as JSON that spells equal values alike: ``1.0`` as ``1``, sorted
    keys, NFC.

    UUIDs are in lower case, and an instant in UTC ends with ``Z``.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    text = json.dumps(plain(value), sort_keys=True, ensure_ascii=False, default=str)
    if text.isascii():
        return text
    # Half of a surrogate pair cannot be written to a file.
    return normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


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
            # A decimal with more digits than a float has keeps them all.
            digits = len(value.as_tuple().digits)
            return str(value.normalize(Context(prec=max(digits, 1))))
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case SecretStr() | SecretBytes():
            return sha256(str(value.get_secret_value()).encode()).hexdigest()
        case float() if value.is_integer():
            return int(value)
    return value


def leaves(
    value: Any, path: Path = (), *, into_lists: bool = False
) -> Iterator[tuple[Path, Any]]:
    """Yield the values in an object and in objects inside it, and if asked in lists of
    objects.
    """
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key), into_lists=into_lists)
        return
    is_list = into_lists and isinstance(value, list)
    if is_list and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from leaves(inner, path, into_lists=True)
    else:
        yield path, value


def near(
    value: Any,
    other: Any,
    tolerance: Mapping[str, float],
    tool: str = "",
    path: Path = (),
) -> bool:
    """Return whether two JSON values are the same, except for numbers within their
    tolerance.
    """
    match value, other:
        case dict(), dict():
            return value.keys() == other.keys() and all(
                near(item, other[key], tolerance, tool, (*path, key))
                for key, item in value.items()
            )
        case list(), list():
            return len(value) == len(other) and all(
                near(*pair, tolerance, tool, path)
                for pair in zip(value, other, strict=True)
            )
    if _is_number(value) and _is_number(other):
        return within(value, other, option_for(tolerance, path, tool) or 0.0)
    return canonical(value) == canonical(other)  # in Python, True == 1


def _is_number(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


# Options that name values


def names_of(path: Path, tool: str = "") -> tuple[str, ...]:
    """Return the names that options may use for a value; the first one includes the
    tool.
    """
    name = ".".join(path)
    return (f"{tool}.{name}", name) if tool else (name,)


def option_for(options: Mapping[str, Any], path: Path, tool: str = "") -> Any:
    """Return the option for a value, or None."""
    for name in names_of(path, tool):
        if name in options:
            return options[name]
    return None


def check_options(tolerance: Mapping[str, float], **options: object) -> None:
    """Check tolerances, and that names come as a collection.

    Raises:
        ConfigurationError: a tolerance is not a distance, or a single string is given
            instead of several names.
    """
    for option, option_value in options.items():
        lists = [option_value]
        if isinstance(option_value, Mapping):  # tool -> names
            lists = list(option_value.values())
        if any(isinstance(names, str) for names in lists):
            raise ConfigurationError(
                f"{option} must be a list of names, got {option_value!r}"
            )
    for name, distance in tolerance.items():
        if (
            isinstance(distance, bool)
            or not isinstance(distance, int | float)
            or not 0 <= distance < math.inf
        ):
            raise ConfigurationError(
                f"the tolerance of {name!r} must be a finite number of at least 0, got "
                f"{distance!r}"
            )
