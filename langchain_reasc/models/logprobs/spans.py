"""Which tokens of a response are those of its answer and of its last step."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from langchain_reasc.answers import Places
from langchain_reasc.method.confidence import Span, Spans

__all__ = ["spans_of"]


def spans_of(pieces: Sequence[bytes], places: Places, kept: npt.NDArray[np.intp] | None = None) -> Spans:
    """The tokens that spell any part of what stands at these places.

    The tokens may spell more than the response's text: reasoning before it, an end token or a stop string behind it.

    Args:
        pieces: what each token spells, in UTF-8; a character may be split over several.
        places: ranges of characters in the response's text.
        kept: the tokens that carry a signal, ascending indices, where not all do; spans are ranges of these.

    Returns:
        Without spans where the tokens do not spell the text.
    """
    begin = b"".join(pieces).rfind(places.text.encode(errors="replace"))
    if begin < 0:
        return Spans()
    ends = np.fromiter(accumulate(map(len, pieces)), dtype=np.intp, count=len(pieces))
    begins = np.concatenate(([0], ends[:-1]))

    def span(place: tuple[int, int] | None) -> Span | None:
        if place is None:
            return None
        first, last = (begin + len(places.text[:at].encode(errors="replace")) for at in place)
        tokens = np.array([np.searchsorted(ends, first, side="right"), np.searchsorted(begins, last, side="left")])
        start, stop = tokens if kept is None else np.searchsorted(kept, tokens)
        return (int(start), int(stop)) if start < stop else None

    return Spans(span(places.answer), span(places.last_step))
