"""The JSON objects in a text."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from langchain_reasc.untrusted import parse_json

__all__ = ["field_of_last_object", "last_object", "parsed_object", "replaced_object", "source_of_last_object"]

_DEEPEST = 32
"""Levels of braces and brackets in an object that is read: so each character is parsed so many times at most."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_OPENING = re.compile(r"[{\[]")


class _Pair(NamedTuple):
    """A pair of braces: text[start:end], and the levels from it to the deepest in it."""

    start: int
    end: int
    height: int


def field_of_last_object(text: str, path: str, *, cut_off: bool = False) -> str | None:
    """A field of the last object that has it, as text: strings as they are, the rest as JSON.

    Args:
        text: may hold several objects, and other text around them.
        path: the field's name; ``a.b`` descends.
        cut_off: an object inside one that never ended is then no answer: the answer was still to come.

    Returns:
        None without such an object, or where the field is null, NaN or infinite.
    """
    keys = path.split(".")
    if f'"{keys[0]}"' not in text:
        return None
    for _, value in _last_first(text, cut_off):
        found, has_it = _descend(value, keys)
        if has_it:
            return _written(found)
    return None


def last_object(text: str, *, cut_off: bool = False) -> dict[str, Any] | None:
    """The last object in a text; ``cut_off`` as in :func:`field_of_last_object`."""
    return next((value for _, value in _last_first(text, cut_off)), None)


def source_of_last_object(text: str, *, cut_off: bool = False) -> str | None:
    """The last object in a text, as it is written there; ``cut_off`` as in :func:`field_of_last_object`."""
    return next((text[pair.start : pair.end] for pair, _ in _last_first(text, cut_off)), None)


def replaced_object(text: str, value: dict[str, Any]) -> str | None:
    """The text with another object in the place of its last one; None without one."""
    at = next((pair for pair, _ in _last_first(text, cut_off=False)), None)
    return None if at is None else text[: at.start] + json.dumps(value, ensure_ascii=False) + text[at.end :]


def parsed_object(text: str) -> dict[str, Any] | None:
    """The object that a text is; None where it is anything else. NaN and infinities in it are null."""
    try:
        value = parse_json(text, strict=False, parse_constant=lambda name: None)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _last_first(text: str, cut_off: bool) -> Iterator[tuple[_Pair, dict[str, Any]]]:
    """The objects that are in no other one; where braces hold no JSON, those among what they hold."""
    pairs, unclosed = _pairs(text)
    done = len(text)  # what begins behind it is inside an object that has been read
    for pair in reversed(pairs):  # the order of closing, backwards: around before inside, the last first
        if pair.end > done or pair.height > _DEEPEST or (cut_off and unclosed < pair.start):
            continue
        if (value := parsed_object(text[pair.start : pair.end])) is not None:
            done = pair.start
            yield pair, value


def _pairs(text: str) -> tuple[list[_Pair], int]:
    """The balanced pairs of braces in the order in which they close, and where the first brace is that never does."""
    pairs: list[_Pair] = []
    stack: list[tuple[str, int]] = []
    heights = [0]
    at = 0
    while token := (_TOKEN if stack else _OPENING).search(text, at):  # outside of objects a quotation mark is prose
        at, mark = token.end(), token[0]
        if mark in "{[":
            stack.append((mark, token.start()))
            heights.append(0)
        elif mark in "}]" and stack and stack[-1][0] == {"}": "{", "]": "["}[mark]:
            _, start = stack.pop()
            height = heights.pop() + 1
            heights[-1] = max(heights[-1], height)
            if mark == "}":
                pairs.append(_Pair(start, at, height))
    return pairs, next((start for mark, start in stack if mark == "{"), len(text))


def _descend(value: Any, keys: list[str]) -> tuple[Any, bool]:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None, False
        value = value[key]
    return value, True


def _written(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
