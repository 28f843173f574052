"""What limits samples: a cutoff once their rest is not needed, how long they may take, how many may be in flight."""

import asyncio
import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet, WeakValueDictionary

from langchain_core.runnables import RunnableConfig

from langchain_reasc.exceptions import ConfigurationError, SampleTimeout
from langchain_reasc.threads import AsyncWorkers, Workers, blocking

__all__ = ["Cutoff", "QuestionClock", "Slots", "TakenSlots", "TimeLimit", "checked_limit", "within"]

T = TypeVar("T")
_TOO_SHORT: Final = 0.02  # seconds; timers may fire a little early
_registering: Final = threading.Lock()


class Cutoff:
    """Cuts samples off, from any thread.

    Attributes:
        error: what samples fail with that are given up; None where they are cut off without a fault.
        prompt_tokens: tokens of the prompt, once a response has told; for estimates.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[], object]] = {}
        self._stopped = self._given_up = False
        self.error: Exception | None = None
        self.prompt_tokens: int | None = None
        with _registering:
            _alive.add(self)

    @property
    def stopped(self) -> bool:
        """Whether streams are cut off; a response that comes whole is still waited for, since it is paid for whole."""
        return self._stopped

    @property
    def given_up(self) -> bool:
        """Whether nobody waits any more, not even for a whole response."""
        return self._given_up

    def cuts(self, *, whole: bool) -> bool:
        """Return whether a stream is cut off, or with ``whole`` a response that comes in one piece."""
        return self._given_up or (self._stopped and not whole)

    def stop(self) -> None:
        """Cut off streams: their rest is not needed."""
        self._set(given_up=False, error=None)

    def give_up(self, error: Exception | None = None) -> None:
        """Wait for nothing any more. Samples that were not stopped before fail with ``error``, if there is one."""
        self._set(given_up=True, error=error)

    @contextmanager
    def notifying(self, listener: Callable[[], object]) -> Iterator[None]:
        """Within the block, call ``listener`` when samples are stopped or given up, and at once if they have been."""
        key = object()
        with self._lock:
            self._listeners[key] = listener
            late = self._stopped
        if late:
            listener()
        try:
            yield
        finally:
            with self._lock:
                del self._listeners[key]

    def _set(self, *, given_up: bool, error: Exception | None) -> None:
        with self._lock:
            if self._stopped and (self._given_up or not given_up):
                return
            if not self._stopped:
                self.error = error
            self._stopped, self._given_up = True, given_up
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()


_alive: Final[WeakSet[Cutoff]] = WeakSet()


@atexit.register
def _give_up_at_exit() -> None:
    """Close the requests of samples that nobody waits for any more, so that servers stop generating."""
    with _registering:
        cutoffs = tuple(_alive)
    for cutoff in cutoffs:
        cutoff.give_up()


def within(seconds: float | None, function: Callable[[], T], cutoff: Cutoff) -> T:
    """Return the result of a function that runs in a daemon thread, which is abandoned when its time is over.

    Args:
        seconds: how long to wait for it; None for any time.
        function: takes as long as it may, such as a judge, or an extractor of the user's.
        cutoff: tells when the whole call is given up.

    Raises:
        TimeoutError: it took too long, or the call was given up.
        Exception: what the function raised.
    """
    if seconds is not None and seconds <= 0:
        raise TimeoutError("the question has had its time")
    workers = Workers()
    until = None if seconds is None else time.monotonic() + seconds

    async def call() -> None:
        try:
            workers.put((function(), None))
        except BaseException as error:
            workers.put((None, error))

    with cutoff.notifying(workers.wake):
        if not cutoff.given_up:
            workers.start(call, "reasc-within")
        while not cutoff.given_up:
            if (outcome := blocking(workers.get(until))) is not None:
                result, error = outcome
                if error is not None:
                    raise error
                return result  # type: ignore[no-any-return]
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"no result within {seconds:g} s")
    raise TimeoutError("the call was given up")


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
        """Return the error of a sample that was cut off by it."""
        return SampleTimeout(f"the sample was cut off: {self.why}")


class QuestionClock:
    """Measures how long a question takes, without the time in which it waits for others."""

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
        """Stop the clock: the question waits for a place among others, or for their first responses."""
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
        """Seconds that the question still may take, not above zero once it has had its time; None for any time."""
        return None if self._question is None else self._question - self.seconds

    @property
    def over(self) -> bool:
        """Whether the question has had its time, or so nearly that no further sample could end in it."""
        left = self.left
        return left is not None and left <= _TOO_SHORT

    def wave(self) -> TimeLimit | None:
        """Return the limit of a wave launched now; None for any time."""
        left = self.left
        if left is not None and (self._sample is None or left < self._sample):
            return TimeLimit(max(0.0, left), f"the question took longer than timeout={self._question:g} s")
        if self._sample is None:
            return None
        return TimeLimit(self._sample, f"it took longer than sample_timeout={self._sample:g} s")


class Slots:
    """How many samples may be in flight at once (``config["max_concurrency"]``).

    LangChain hands that number down to every step of a chain or an agent, and to each input of a batch, which then know
    nothing of one another. Counted for each of them alone, two inputs with ``max_concurrency=2`` would have four
    samples in flight. So all calls that draw from one model under the same number, at the same time, share its slots,
    and get them in the order they came.
    """

    def __init__(self, limit: int | None, *, is_async: bool, shared_by: object = None) -> None:
        self._left, self._is_async, self._shared_by = limit, is_async, shared_by
        self._queue: deque[Workers | AsyncWorkers] = deque()  # of those who wait
        self._lock = threading.Lock()

    @classmethod
    def of(cls, model: object, config: RunnableConfig, *, is_async: bool) -> Self:
        """Return the slots of all who draw from this model now, under the same number: in threads, or in this loop.

        Raises:
            ConfigurationError: the number is below 1.
        """
        limit = checked_limit(config)
        if limit is None:
            return cls(None, is_async=is_async)
        loop = asyncio.get_running_loop() if is_async else None
        key = (limit, id(model), id(loop))
        with _sharing:
            slots: Self | None = _slots.get(key)
            if slots is None:  # it keeps the objects alive, or others might come to have their ids
                slots = _slots[key] = cls(limit, is_async=is_async, shared_by=(model, loop))
        return slots

    async def take(self, wanted: int, cutoff: Cutoff) -> int:
        """Wait for a slot, and take up to ``wanted``; 0 once the call is given up."""
        if self._left is None:
            return 0 if cutoff.given_up else wanted
        waiting = AsyncWorkers() if self._is_async else Workers()
        with self._lock:
            self._queue.append(waiting)
        try:
            with cutoff.notifying(waiting.wake):
                while not cutoff.given_up:
                    with self._lock:
                        taken = min(wanted, self._left) if self._queue[0] is waiting else 0
                        self._left -= taken
                    if taken:
                        return taken
                    await waiting.get()
            return 0
        finally:
            with self._lock:
                self._queue.remove(waiting)
            self._wake_first()

    def give_back(self, count: int) -> None:
        """Give back the slots of samples that have ended, in any thread."""
        if self._left is not None:
            with self._lock:
                self._left += count
            self._wake_first()

    def _wake_first(self) -> None:
        with self._lock:
            first = self._queue[0] if self._queue else None
        if first:
            first.wake()


class TakenSlots:
    """The slots that a wave has taken, each given back once, when its sample ends; in any thread."""

    def __init__(self, slots: Slots, indices: Iterable[int]) -> None:
        self._slots, self._taken, self._lock = slots, set(indices), threading.Lock()

    def give_back(self, *indices: int) -> None:
        """Give back the slots of samples, as far as they have one."""
        with self._lock:
            ended = self._taken.intersection(indices)
            self._taken -= ended
        if ended:
            self._slots.give_back(len(ended))

    def close(self) -> None:
        """Give back all that are left."""
        self.give_back(*self._taken)


_sharing: Final = threading.Lock()
_slots: Final[WeakValueDictionary[tuple[object, ...], Any]] = WeakValueDictionary()


def checked_limit(config: RunnableConfig) -> int | None:
    """Return ``max_concurrency`` of a config.

    Raises:
        ConfigurationError: it is below 1, so that nothing could ever be drawn.
    """
    limit = config.get("max_concurrency")
    if limit is not None and limit < 1:
        raise ConfigurationError(f"max_concurrency={limit!r} lets no sample be drawn; it must be at least 1")
    return limit
