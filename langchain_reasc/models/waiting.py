"""Waiting that Ctrl-C ends, however busy the other threads are.

Where a signal comes just before Python blocks in a lock, CPython notices it only when the lock is left. With busy
threads beside, which take the interpreter in turns, that is a matter of seconds; so nothing is waited for without a
limit, and after a moment is waited for again.
"""

import queue
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Final, TypeVar

__all__ = ["as_they_end", "taken_from"]

T = TypeVar("T")
_MOMENT: Final = 0.5  # seconds


def taken_from(items: "queue.SimpleQueue[T]", *, until: float | None = None) -> T:
    """The next item of a queue.

    Args:
        items: the queue.
        until: when to wait no longer, as ``time.monotonic`` tells it; None waits for ever.

    Raises:
        queue.Empty: nothing came in time.
    """
    while True:
        left = _MOMENT if until is None else min(_MOMENT, until - time.monotonic())
        try:
            return items.get(timeout=max(0.0, left))
        except queue.Empty:
            if left < _MOMENT:
                raise


def as_they_end(futures: "Iterable[Future[Any]]") -> "Iterator[Future[Any]]":
    """Futures in the order they end."""
    left = set(futures)
    while left:
        ended, left = wait(left, _MOMENT, FIRST_COMPLETED)
        yield from ended
