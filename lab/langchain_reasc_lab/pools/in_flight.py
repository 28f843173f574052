"""Calls that wait for somebody else, several at once, each for a limited time."""

import math
import queue
import time
from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import TypeVar

from langchain_reasc.threads import start_daemon, taken_from

__all__ = ["in_flight"]

T = TypeVar("T")


def in_flight(
    calls: Iterable[Callable[[], T]], *, concurrency: int, seconds: float | None = None
) -> Generator[tuple[int, T | Exception], None, None]:
    """What calls return or raise, with their place in the order given, as they end.

    Each runs in a thread of its own, which keeps no process alive; one that takes too long is waited for no longer, and
    the next takes its place. Nothing is begun before the first outcome is asked for.

    Args:
        calls: taken one by one, as there is room.
        concurrency: how many run at once.
        seconds: what each may take; None for any time.
    """
    left = iter(enumerate(calls))
    ended: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()
    until: dict[int, float] = {}  # those that run, the oldest first

    def begin() -> None:
        for at, call in islice(left, concurrency - len(until)):
            until[at] = math.inf if seconds is None else time.monotonic() + seconds
            start_daemon(partial(_ended, at, call, ended), f"reasc-call-{at}")

    begin()
    while until:
        oldest, limit = next(iter(until.items()))
        try:
            at, outcome = taken_from(ended, until=None if seconds is None else limit)
        except queue.Empty:
            at, outcome = oldest, TimeoutError(f"no answer within {seconds:g} s")
        if until.pop(at, None) is None:  # it comes after its time
            continue
        if not isinstance(outcome, Exception) and isinstance(outcome, BaseException):
            raise outcome
        begin()
        yield at, outcome


def _ended(at: int, call: Callable[[], T], ended: "queue.SimpleQueue[tuple[int, T | BaseException]]") -> None:
    try:
        ended.put((at, call()))
    except BaseException as error:
        ended.put((at, error))
