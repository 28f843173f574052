"""Align tokens with the text: those of the answer, of the last step, and of tool calls.

A token is known by the bytes that it spells; a character may be split over several
tokens. Tokens may spell more than the response's text: reasoning before it, an end
token or a stop string after it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.answers import Places
from langchain_reasc.method.confidence import Span, Spans
from langchain_reasc.models.contract import GENERATED_TEXT

_HEAD: Final = 64
"""The most characters between a tool's name and its arguments."""
_TRIED: Final = 100
"""The most braces near a name that are tried: deep nesting costs much at each."""
_JSON: Final = json.JSONDecoder(strict=False)


def recorded_pieces(metadata: Mapping[str, Any]) -> list[bytes] | None:
    """Return what each token spells, as a model in this process recorded it; None if it
    did not.
    """
    recorded = metadata.get(GENERATED_TEXT)
    if not isinstance(recorded, Mapping):
        return None
    text = str(recorded.get("text"))
    sizes = recorded.get("sizes")
    # A replacement character stands for other bytes.
    if "\ufffd" in text or not isinstance(sizes, list) or not sizes:
        return None
    if not all(type(size) is int and size >= 0 for size in sizes):
        return None
    raw = text.encode(errors="replace")
    # A stop string is cut off the text, so the last tokens may spell more than the text.
    if sum(sizes) < len(raw):
        return None
    pieces = []
    end = 0
    for size in sizes:
        pieces.append(raw[end : end + size])
        end += size
    return pieces


def lengths_in(text: str, pieces: Sequence[bytes]) -> list[int] | None:
    """Return how many characters of a text each token spells; None if they do not spell
    it, or it is empty.

    A character that is split over several tokens counts for the one in which it begins.
    """
    # The text comes last: reasoning before it may say the same.
    begin = b"".join(pieces).rfind(text.encode(errors="replace"))
    if begin < 0 or not text:
        return None
    encoded = [len(character.encode(errors="replace")) for character in text]
    # The byte at which each character starts.
    starts = begin + np.cumsum([0, *encoded[:-1]])
    begun = np.searchsorted(starts, _ends(pieces), side="left")
    lengths: list[int] = np.diff(begun, prepend=0).tolist()
    return lengths


def spans_of(
    pieces: Sequence[bytes], places: Places, token_indices: npt.NDArray[np.intp]
) -> Spans:
    """Return the tokens that spell any part of the answer and of the last step.

    Args:
        pieces: what each token spells, in UTF-8.
        places: ranges of characters in the response's text.
        token_indices: the tokens that carry a signal, ascending; spans are ranges of
            these.

    Returns:
        Without spans if the tokens do not spell the text.
    """
    # Reasoning before the text may say the same.
    begin = b"".join(pieces).rfind(places.text.encode(errors="replace"))
    ends = _ends(pieces)
    spans: list[Span | None] = []
    for place in (places.answer, places.last_step):
        if begin < 0 or place is None:
            spans.append(None)
            continue
        before, through = (
            len(places.text[:index].encode(errors="replace")) for index in place
        )
        tokens = _tokens_over(ends, begin + before, begin + through)
        first, stop = map(int, np.searchsorted(token_indices, tokens))
        spans.append((first, stop) if first < stop else None)
    return Spans(*spans)


def tokens_of_calls(
    pieces: Sequence[bytes], calls: Sequence[Mapping[str, Any]]
) -> npt.NDArray[np.bool_] | None:
    """Return the tokens that spell the names and arguments of a response's tool calls,
    shape (T,).

    Leave out text beside a call, the marks around it and the format's own words. Find
    calls as JSON, in any layout. Return None if a call is not found, such as one in
    another format, or there is none.
    """
    # Parts of characters survive the way to text and back.
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
    ends = _ends(pieces)
    end = len(text)
    mask = np.zeros(len(pieces), dtype=np.bool_)
    # The last place counts: the model's reasoning may have a draft of the call.
    for call in reversed(calls):
        place = _last_call(text, end, str(call["name"]), call["args"])
        if place is None:
            return None
        for span in place:
            before, through = (
                len(text[:index].encode("utf-8", "surrogateescape")) for index in span
            )
            first, stop = _tokens_over(ends, before, through)
            mask[first:stop] = True
        end = place[0][0]
    return mask if calls else None


def _ends(pieces: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """The byte at which each token ends."""
    return np.cumsum([len(piece) for piece in pieces], dtype=np.intp)


def _tokens_over(ends: npt.NDArray[np.intp], first: int, stop: int) -> tuple[int, int]:
    """The range of tokens that spell any of the bytes from first to stop."""
    begins = np.concatenate(([0], ends[:-1]))
    first_token = np.searchsorted(ends, first, side="right")
    stop_token = np.searchsorted(begins, stop, side="left")
    return int(first_token), int(stop_token)


def _last_call(
    text: str, end: int, name: str, arguments: Any
) -> tuple[Span, Span] | None:
    """Where the last such call before ``end`` has its name and its arguments."""
    expected = _canonical(arguments)
    if not expected or not name:
        return None
    # The name of another tool may have this one in it, such as search_all.
    name_pattern = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    brace = end
    tries = 0
    while tries < _TRIED:
        brace = text.rfind("{", 0, brace)
        if brace < 0:
            return None
        head = max(0, brace - _HEAD - len(name))
        if name not in text[head:brace]:
            continue
        tries += 1
        try:
            value, stop = _JSON.raw_decode(text, brace)
        except (RecursionError, ValueError):
            continue
        names = [match.span() for match in name_pattern.finditer(text, head, brace)]
        # A call cannot reach into the call after it.
        if names and stop <= end and _canonical(value) == expected:
            return names[-1], (brace, stop)
    return None


def _canonical(value: Any) -> str | None:
    """JSON in which 1, 1.0, true and "1" differ, as they do in a model's own words."""
    try:
        return json.dumps(value, sort_keys=True)
    except (RecursionError, TypeError, ValueError):
        return None
