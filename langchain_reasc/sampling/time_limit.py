"""How long a sample, or a whole question, may take."""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from langchain_reasc.exceptions import SampleTimeout
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.daemons import start_daemon
from langchain_reasc.models.waiting import taken_from

__all__ = ["QuestionClock", "TimeLimit", "within"]

T = TypeVar("T")
_TOO_SHORT: Final = 0.02  # seconds; timers may fire a little early


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long the samples of one wave may take from now on.

    Attributes:
        seconds: how long until they are cut off.
        why: which limit that is, for the error.
    """

    seconds: float
    why: str

    def error(self) -> SampleTimeout:
        """What a sample failed with that was cut off."""
        return SampleTimeout(f"the sample was cut off: {self.why}")


class QuestionClock:
    """Runs from when it is made, but for the time in which the question waits for others."""

    def __init__(
        self, *, question: float | None, sample: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start.

        Args:
            question: seconds that all samples of the question may take; None for any time.
            sample: seconds that each sample may take from its launch; None for any time.
            clock: returns seconds, counted from any moment.
        """
        self._question, self._sample, self._clock = question, sample, clock
        self._begun = clock()
        self._paused: float | None = None

    def pause(self) -> None:
        """The question waits: for a place among others, or for their first responses."""
        self._paused = self._clock()

    def resume(self) -> None:
        """The question goes on."""
        if self._paused is not None:
            self._begun += self._clock() - self._paused
            self._paused = None

    @property
    def seconds(self) -> float:
        """How long the question has taken."""
        return self._clock() - self._begun

    @property
    def left(self) -> float | None:
        """Seconds that the question still may take, not above zero once it has had its time; None for any time."""
        return None if self._question is None else self._question - self.seconds

    @property
    def over(self) -> bool:
        """Whether the question has had its time, or so nearly that no further sample could end in it."""
        left = self.left
        return left is not None and left <= _TOO_SHORT

    def wave(self) -> TimeLimit | None:
        """The limit of a wave launched now; None for any time."""
        left = self.left
        if left is not None and (self._sample is None or left < self._sample):
            return TimeLimit(max(0.0, left), f"the question took longer than timeout={self._question:g} s")
        if self._sample is None:
            return None
        return TimeLimit(self._sample, f"it took longer than sample_timeout={self._sample:g} s")


def within(seconds: float | None, function: Callable[[], T], cutoff: Cutoff) -> T:
    """Return what a function returns, which runs in a daemon thread and is left to itself when its time is over.

    Args:
        seconds: how long it is waited for; None for any time.
        function: takes as long as it may, such as a judge, or an extractor of the user's.
        cutoff: tells when the whole call is given up.

    Raises:
        TimeoutError: it took too long, or the call was given up.
        Exception: what the function raised.
    """
    if seconds is not None and seconds <= 0:
        raise TimeoutError("the question has had its time")
    if cutoff.given_up:
        raise TimeoutError("the call was given up")
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)
        ended.put(None)

    def given_up() -> None:
        if cutoff.given_up:
            ended.put(None)

    start_daemon(partial(copy_context().run, run), "reasc-within")
    with cutoff.heard_by(given_up):
        try:
            taken_from(ended, until=None if seconds is None else time.monotonic() + seconds)
        except queue.Empty:
            raise TimeoutError(f"no result within {seconds:g} s") from None
    if not outcome.done():
        raise TimeoutError("the call was given up")
    return outcome.result()
