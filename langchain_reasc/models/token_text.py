"""Align tokens with the text: those of the answer, of the last step, and of tool calls.

A token is known by the bytes that it spells; a character may be split over several
tokens. Tokens may spell more than the response's text: reasoning before it, an end
token or a stop string after it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.answers import Places
from langchain_reasc.method.confidence import Span, Spans
from langchain_reasc.models.contract import GENERATED_TEXT

_HEAD: Final = 64  # characters that may stand between a tool's name and its arguments
# braces near the name at which arguments may begin; deep nesting costs much at each
_TRIED: Final = 100
_JSON: Final = json.JSONDecoder(strict=False)


def recorded_pieces(metadata: Mapping[str, Any]) -> list[bytes] | None:
    """Return what each token spells, as a model in this process recorded it; None if it
    did not.
    """
    recorded = metadata.get(GENERATED_TEXT)
    # which stands for other bytes
    if not isinstance(recorded, Mapping) or "\ufffd" in str(recorded.get("text")):
        return None
    raw = str(recorded.get("text")).encode(errors="replace")
    sizes = recorded.get("sizes")
    if not isinstance(sizes, list) or not all(
        type(size) is int and size >= 0 for size in sizes
    ):
        return None
    if not sizes or sum(sizes) < len(raw):
        return None
    # A stop string is cut off the text, so that the last tokens may spell more than is
    # there.
    return [
        raw[end - size : end]
        for end, size in zip(accumulate(sizes), sizes, strict=True)
    ]


def lengths_in(text: str, pieces: Sequence[bytes]) -> list[int] | None:
    """Return how many characters of a text each token spells; None if they do not spell
    it, or it is empty.

    A character that is split over several tokens counts for the one in which it begins.
    """
    begin = b"".join(pieces).rfind(text.encode(errors="replace"))
    if begin < 0 or not text:
        return None
    encoded = [len(character.encode(errors="replace")) for character in text]
    starts = begin + np.cumsum([0, *encoded[:-1]])  # of each character, in bytes
    return [
        int(n)
        for n in np.diff(np.searchsorted(starts, _ends(pieces), side="left"), prepend=0)
    ]


def spans_of(
    pieces: Sequence[bytes], places: Places, kept: npt.NDArray[np.intp]
) -> Spans:
    """Return the tokens that spell any part of the answer and of the last step.

    Args:
        pieces: what each token spells, in UTF-8.
        places: ranges of characters in the response's text.
        kept: the tokens that carry a signal, ascending indices; spans are ranges of
            these.

    Returns:
        Without spans if the tokens do not spell the text.
    """
    begin = b"".join(pieces).rfind(places.text.encode(errors="replace"))
    ends = _ends(pieces)
    spans: list[Span | None] = []
    for place in (places.answer, places.last_step):
        if begin < 0 or place is None:
            spans.append(None)
            continue
        first, stop = (
            begin + len(places.text[:index].encode(errors="replace")) for index in place
        )
        start, stop = (
            int(index)
            for index in np.searchsorted(kept, _tokens_over(ends, first, stop))
        )
        spans.append((start, stop) if start < stop else None)
    return Spans(*spans)


def tokens_of_calls(
    pieces: Sequence[bytes], calls: Sequence[Mapping[str, Any]]
) -> npt.NDArray[np.bool_] | None:
    """Return the tokens that spell the names and arguments of a response's tool calls,
    shape (T,).

    What a model says beside a call, the marks around it and the format's own words are
    left out. Calls are looked for as JSON, however that is laid out or escaped; a
    format that writes arguments in another way is not understood. None if a call is not
    found, or there is none.
    """
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    ends = _ends(pieces)
    end = len(text)
    mask = np.zeros(len(pieces), dtype=np.bool_)
    # a draft of a call may stand before it, in the model's reasoning
    for call in reversed(calls):
        place = _last_call(text, end, str(call["name"]), call["args"])
        if place is None:
            return None
        for span in place:
            first, stop = (
                len(text[:index].encode("utf-8", "surrogateescape")) for index in span
            )
            mask[slice(*_tokens_over(ends, first, stop))] = True
        end = place[0][0]
    return mask if calls else None


def _ends(pieces: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """The byte at which each token ends."""
    return np.cumsum([len(piece) for piece in pieces], dtype=np.intp)


def _tokens_over(ends: npt.NDArray[np.intp], first: int, stop: int) -> tuple[int, int]:
    """The range of tokens that spell any of the bytes from first to stop."""
    begins = np.concatenate(([0], ends[:-1]))
    return int(np.searchsorted(ends, first, side="right")), int(
        np.searchsorted(begins, stop, side="left")
    )


def _last_call(
    text: str, end: int, name: str, arguments: Any
) -> tuple[Span, Span] | None:
    """Where the last such call before ``end`` has its name and its arguments."""
    expected = _canonical(arguments)
    name_pattern = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    if not expected or not name:
        return None
    for head, brace in islice(_braces_after(name, text, end), _TRIED):
        names = [match.span() for match in name_pattern.finditer(text, head, brace)]
        try:
            value, stop = _JSON.raw_decode(text, brace)
        except (RecursionError, ValueError):
            continue
        if names and stop <= end and _canonical(value) == expected:
            return names[-1], (brace, stop)
    return None


def _braces_after(name: str, text: str, end: int) -> Iterator[tuple[int, int]]:
    """Yield (from where to look for the name, brace) of each brace with the name
    shortly before it, the last first.
    """
    brace = end
    while (brace := text.rfind("{", 0, brace)) >= 0:
        head = max(0, brace - _HEAD - len(name))
        if name in text[head:brace]:
            yield head, brace


def _canonical(value: Any) -> str | None:
    """JSON in which 1, 1.0, true and "1" differ, as they do in a model's own words."""
    try:
        return json.dumps(value, sort_keys=True)
    except (RecursionError, TypeError, ValueError):
        return None
