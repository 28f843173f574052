"""Which tokens of a response decide what it calls: those of the tools' names and of their arguments.

What a model says beside a call, the marks around it and the format's own words are left out. Calls are looked for in
what the tokens spell, as JSON, however that is laid out or escaped; a format that writes arguments in another way
cannot be told, and its responses are scored as a whole.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.models.contract import GENERATED_TEXT

__all__ = ["Mask", "deciding_tokens", "spelled_by"]

Mask = npt.NDArray[np.bool_]
Span = tuple[int, int]

_HEAD: Final = 64  # characters that may stand between a tool's name and its arguments
_TRIED: Final = 100  # braces near the name at which arguments may begin; deep nesting costs much at each
_JSON: Final = json.JSONDecoder(strict=False)


def deciding_tokens(pieces: Sequence[bytes], calls: Sequence[Mapping[str, Any]]) -> Mask | None:
    """The tokens that hold the name of a tool, or any part of its arguments.

    Args:
        pieces: what each token spells, in UTF-8; a character may be split over several.
        calls: the calls in the order in which they were written, each with ``name`` and ``args``.

    Returns:
        Shape (T,); None where some call is not found, or there is none.
    """
    whole = b"".join(pieces)
    text = whole.decode("utf-8", "surrogateescape")
    spans: list[Span] = []
    end = len(text)
    for call in reversed(calls):  # a draft of a call may stand before it, in the model's reasoning
        found = _last_call(text, end, str(call["name"]), call["args"])
        if found is None:
            return None
        spans += found
        end = min(begin for begin, _ in found)
    if not spans:
        return None
    ends = np.fromiter(accumulate(map(len, pieces)), dtype=np.intp, count=len(pieces))
    begins = ends - np.fromiter(map(len, pieces), dtype=np.intp, count=len(pieces))
    mask: Mask = np.zeros(len(pieces), dtype=bool)
    for begin, stop in ((_byte(text, begin), _byte(text, stop)) for begin, stop in spans):
        mask |= (begins < stop) & (ends > begin)
    return mask


def spelled_by(metadata: Mapping[str, Any]) -> list[bytes] | None:
    """What each token spells, as a model in this process recorded it; None where it did not."""
    held = metadata.get(GENERATED_TEXT)
    if not isinstance(held, Mapping) or "\ufffd" in str(held.get("text")):  # which stands for other bytes
        return None
    raw, sizes = str(held.get("text")).encode(errors="replace"), held.get("sizes")
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        return None
    ends = list(accumulate(sizes))
    if not ends or ends[-1] < len(raw):
        return None
    # A stop string is cut off the text, so that the last tokens may spell more than is there.
    return [raw[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _last_call(text: str, end: int, name: str, arguments: Any) -> tuple[Span, Span] | None:
    """Where the last such call before ``end`` has its name and its arguments."""
    wanted, at, tried = _canonical(arguments), end, 0
    named = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    while wanted and name and tried < _TRIED and (at := text.rfind("{", 0, at)) >= 0:
        head = max(0, at - _HEAD - len(name))
        if name not in text[head:at]:
            continue
        tried += 1
        names = [found.span() for found in named.finditer(text, head, at)]
        if names and (stop := _ends(text, at, wanted)) is not None and stop <= end:
            return names[-1], (at, stop)
    return None


def _ends(text: str, at: int, wanted: str) -> int | None:
    """Where the JSON that begins here ends, if it says what is wanted."""
    try:
        value, stop = _JSON.raw_decode(text, at)
    except (RecursionError, ValueError):
        return None
    return stop if _canonical(value) == wanted else None


def _canonical(value: Any) -> str | None:
    """JSON in which 1, 1.0, true and "1" differ, as they do in a model's own words."""
    try:
        return json.dumps(value, sort_keys=True)
    except (RecursionError, TypeError, ValueError):
        return None


def _byte(text: str, at: int) -> int:
    return len(text[:at].encode("utf-8", "surrogateescape"))
