"""How long samples and questions may take."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from langchain_reasc.exceptions import SampleTimeout

_TOO_SHORT: Final = 0.02  # seconds; timers may fire a little early


class TimeLimit(NamedTuple):
    """How long the samples of one wave may take from now on.

    Attributes:
        seconds: how long until they are cut off.
        error: what they then fail with.
    """

    seconds: float
    error: SampleTimeout


class QuestionClock:
    """Measures how long a question takes, without the time in which it waits for
    others.
    """

    def __init__(
        self,
        *,
        question: float | None,
        sample: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start, with the seconds that the question and each sample may take (None: any
        time).
        """
        self._question = question
        self._sample = sample
        self._clock = clock
        self._begun = clock()
        self._paused: float | None = None

    def pause(self) -> None:
        """Stop the clock: the question waits for a place among others, or for their
        first responses.
        """
        self._paused = self._clock()

    def resume(self) -> None:
        """Let the clock go on."""
        if self._paused is not None:
            self._begun += self._clock() - self._paused
            self._paused = None

    @property
    def seconds(self) -> float:
        """How long the question has taken."""
        return self._clock() - self._begun

    @property
    def left(self) -> float | None:
        """Seconds left for this question; zero or less when its time is up. None: no
        limit.
        """
        if self._question is None:
            return None
        return self._question - self.seconds

    @property
    def over(self) -> bool:
        """Whether the question has had its time, or so nearly that no further sample
        could end in it.
        """
        left = self.left
        return left is not None and left <= _TOO_SHORT

    def wave(self) -> TimeLimit | None:
        """Return the limit of a wave launched now; None for any time."""
        left = self.left
        if left is not None and (self._sample is None or left < self._sample):
            seconds = max(0.0, left)
            reason = f"the question took longer than timeout={self._question:g} s"
        elif self._sample is not None:
            seconds = self._sample
            reason = f"it took longer than sample_timeout={self._sample:g} s"
        else:
            return None
        return TimeLimit(seconds, SampleTimeout(f"the sample was cut off: {reason}"))
