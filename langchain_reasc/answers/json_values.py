"""JSON values: one spelling for equal ones, when they are near to each other, and by what names options know them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final
from unicodedata import normalize

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.fields import within

__all__ = ["REASONING", "Names", "canonical", "check_tolerance", "named", "names_of", "near"]

REASONING: Final = (
    *("reasoning", "rationale", "explanation", "thoughts", "thought", "thinking", "scratchpad", "chain_of_thought"),
)
"""Fields and arguments in which a model thinks aloud: no two responses agree in them."""

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_UTC: Final = re.compile(r"\A(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?)[+-]00:00\Z")

Names = Sequence[str] | AbstractSet[str]
"""Several names, in any collection that pydantic knows too."""


def canonical(value: Any) -> str:
    """A value as JSON in which equal values are spelled alike: ``1.0`` as ``1``, the keys in order, Unicode in NFC.

    UUIDs are in lower case, and what ends an instant in UTC is ``Z``.

    Raises:
        RecursionError: it is nested too deeply.
    """
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, default=str)
    return text if text.isascii() else normalize("NFC", text.encode("utf-8", "replace").decode("utf-8"))


def names_of(path: tuple[str, ...], tool: str | None = None) -> set[str]:
    """What a value in an object, or in a tool's arguments, may be called by."""
    return {".".join(path)} | ({".".join((tool, *path))} if tool else set())


def named(options: Mapping[str, Any], path: tuple[str, ...], tool: str | None = None) -> Any:
    """What the options say of a value, the name with its tool first; None where they do not name it."""
    if not options:
        return None
    return next(
        (options[name] for name in sorted(names_of(path, tool), key=len, reverse=True) if name in options), None
    )


def near(one: Any, other: Any, tolerance: Mapping[str, float], *, tool: str | None = None, path: Any = ()) -> bool:
    """Whether two JSON values are the same but for numbers that are within their tolerance."""
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


def check_tolerance(tolerance: Mapping[str, float]) -> None:
    """Refuse what is no distance.

    Raises:
        ConfigurationError: naming it.
    """
    for name, distance in tolerance.items():
        if isinstance(distance, bool) or not isinstance(distance, int | float) or not 0 <= distance < math.inf:
            raise ConfigurationError(f"the tolerance of {name!r} is a finite number of at least 0, got {distance!r}")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


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
