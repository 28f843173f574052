"""The JSON objects in a text."""

import json
import math
import re
from typing import Any

__all__ = ["field_of_last_object"]

_DEEPEST = 32
"""Levels of braces and brackets that are read: what is deeper is no answer, and each level may be read once more."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_BRACE = re.compile(r"[{}\[\]]")


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
    for start, end, inside_unclosed in reversed(_outermost(text)):
        if cut_off and inside_unclosed:
            continue
        for value in _objects(text, start, end):
            found, has_it = _descend(value, keys)
            if has_it:
                return _written(found)
    return None


def _outermost(text: str) -> list[tuple[int, int, bool]]:
    """(start, end, whether inside a brace that never closes) of each balanced pair of braces that is in no other."""
    stack: list[tuple[str, int]] = []
    pairs: list[tuple[int, int, bool]] = []
    at = 0
    while token := (_TOKEN if stack else _BRACE).search(text, at):  # a quotation mark outside of objects is prose
        at, mark = token.end(), token[0]
        if mark in "{[":
            stack.append((mark, token.start()))
        elif mark in "}]" and stack and stack[-1][0] == {"}": "{", "]": "["}[mark]:
            _, start = stack.pop()
            if mark == "}":
                while pairs and pairs[-1][0] > start:
                    pairs.pop()
                pairs.append((start, at, False))
    unclosed = [start for mark, start in stack if mark == "{"]
    return [(start, end, bool(unclosed) and unclosed[0] < start) for start, end, _ in pairs]


def _objects(text: str, start: int, end: int, depth: int = 0) -> list[Any]:
    """The object between two braces; where those hold no JSON, the objects among what they hold, the last first."""
    inside = text[start:end]
    if _depth(inside) <= _DEEPEST and (value := _parsed(inside)) is not None:
        return [value]
    if depth >= _DEEPEST:
        return []
    inner = _outermost(text[start + 1 : end - 1])
    shifted = [(start + 1 + first, start + 1 + last) for first, last, _ in reversed(inner)]
    return [value for first, last in shifted for value in _objects(text, first, last, depth + 1)]


def _depth(text: str) -> int:
    deepest = depth = 0
    for token in _TOKEN.finditer(text):
        depth += 1 if token[0] in "{[" else -1 if token[0] in "}]" else 0
        deepest = max(deepest, depth)
    return deepest


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, strict=False, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


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
