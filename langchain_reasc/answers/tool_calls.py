"""The answer of a response that calls tools: its calls, whatever their order and ids."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["calls_answer", "canonical_calls"]


def calls_answer(calls: Iterable[Mapping[str, Any]]) -> str | None:
    """The calls as canonical JSON, or None where they cannot be written as such.

    Calls are sorted, and so are their arguments; ids are dropped; a number is a number, so that ``1`` and ``1.0``
    agree, but ``true`` and ``"1"`` are others. Strings count letter by letter: a path or a name is no matter of
    spelling.

    Args:
        calls: each with ``name`` and ``args``.
    """
    try:
        written = sorted(_json({"name": call["name"], "args": _plain(call["args"])}) for call in calls)
    except (RecursionError, TypeError, ValueError):
        return None
    return f"[{', '.join(written)}]"


def canonical_calls(answer: str) -> str | None:
    """An answer that is a list of calls, in canonical form; None where it is anything else."""
    if not (answer.startswith("[{") and answer.endswith("}]") and '"args"' in answer):
        return None
    try:
        calls = json.loads(answer)
    except (RecursionError, ValueError):
        return None
    if not all(isinstance(call, dict) and call.keys() == {"name", "args"} for call in calls):
        return None
    return calls_answer(calls)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def _json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode("utf-8")
