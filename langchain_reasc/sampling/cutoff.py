"""Cut samples off: a signal from any thread, and waits that end with it."""

import atexit
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeVar
from weakref import WeakSet

from langchain_reasc.concurrency import Concurrency, ThreadWorkers
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.threads import blocking, result_of

T = TypeVar("T")
_END: Final = object()
_AHEAD: Final = 8
"""Items that are read before they are needed."""


class Cutoff:
    """Cuts samples off, from any thread.

    Attributes:
        stopped: whether streams are cut off, as they are too once given up; a response
            that comes whole is still waited for, since it is paid for whole.
        given_up: whether the caller has stopped waiting, even for whole responses.
        error: what samples fail with that are given up; None where they are cut off
            without a fault.
        prompt_tokens: tokens of the prompt, once a response has reported them; for
            estimates.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.given_up = False
        self.error: Exception | None = None
        self.prompt_tokens: int | None = None
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[], object]] = {}
        with _registering:
            _alive.add(self)

    def stop(self) -> None:
        """Cut off streams: their rest is not needed."""
        self._set(given_up=False, error=None)

    def give_up(self, error: Exception | None = None) -> None:
        """Wait for nothing any more. Samples that were not stopped before fail with
        ``error``, if there is one.
        """
        self._set(given_up=True, error=error)

    @contextmanager
    def notifying(self, listener: Callable[[], object]) -> Iterator[None]:
        """Within the block, call ``listener`` when samples are stopped or given up, and
        at once if they have been.
        """
        key = object()
        with self._lock:
            self._listeners[key] = listener
            late = self.stopped
        if late:
            listener()
        try:
            yield
        finally:
            with self._lock:
                del self._listeners[key]

    def _set(self, *, given_up: bool, error: Exception | None) -> None:
        with self._lock:
            is_news = not self.stopped or (given_up and not self.given_up)
            if not is_news:
                return
            if not self.stopped:
                self.error = error
            self.stopped = True
            self.given_up = given_up
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener()


CUTOFF: Final[ContextVar[Cutoff | None]] = ContextVar(
    "langchain_reasc_cutoff", default=None
)
"""The cutoff of the sample that runs in this context; None outside a sample."""

_registering: Final = threading.Lock()
_alive: Final[WeakSet[Cutoff]] = WeakSet()


@atexit.register
def _give_up_at_exit() -> None:
    """Close the requests of samples that nobody waits for any more, so that servers
    stop generating.
    """
    with _registering:
        cutoffs = tuple(_alive)
    for cutoff in cutoffs:
        cutoff.give_up()


def as_failure(error: BaseException) -> Exception | KeyboardInterrupt:
    """Return what a sample fails with whose model raised this.

    ``CancelledError``, of a task that the model itself had cancelled, and
    ``SystemExit`` would end the thread, task or event loop that reads the model, and
    with it the other samples. Only an interrupt ends them all.
    """
    if isinstance(error, Exception | KeyboardInterrupt):
        return error
    failure = SamplingError(f"the model raised {error!r}")
    failure.__cause__ = error
    return failure


class _Raised(NamedTuple):
    error: Exception | KeyboardInterrupt


async def read_until_cut(
    items: AsyncGenerator[T],
    cutoff: Cutoff,
    ending: Callable[[list[T]], T],
    io: Concurrency,
    *,
    whole: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[T]:
    """Yield items as they come; once they are cut off, those that had come, and the
    ``ending`` made of them.

    The worker between costs some 5 µs of processor time an item, and a thread some 0.5
    ms a sample. A thread that reads the items closes the response after the next one; a
    task is cancelled. ``whole`` tells whether the response is taken whole by now, and
    waited for until the cutoff is given up.

    Raises:
        Exception: what reading raised (:func:`as_failure` it), or the error with which
            it was given up.
    """
    items_so_far: list[T] = []
    left = False
    workers = io.workers()
    ahead = io.semaphore(_AHEAD)

    def over() -> bool:
        return cutoff.given_up if whole() else cutoff.stopped

    async def pump() -> None:
        # A whole response that is streamed inside is not cut off there.
        CUTOFF.set(None)
        try:
            async with aclosing(items):
                async for item in items:
                    workers.put(item)
                    await result_of(ahead.acquire())
                    if left or over():
                        # A wake may still be on its way, and must come before the end.
                        workers.put(None)
                        break
        except BaseException as error:
            workers.put(_Raised(as_failure(error)))
        workers.put(_END)

    def cut_off() -> T:
        if cutoff.error:
            raise cutoff.error
        return ending(items_so_far)

    if over():
        # Nothing has been asked of the model, and nothing is.
        yield cut_off()
        return
    # Once the response is cut off: until when items that had come are read.
    until = None
    with cutoff.notifying(workers.wake):
        workers.start(pump, "reasc-read")
        try:
            while True:
                item = await workers.get(until)
                if item is _END:
                    break
                if item is None:
                    if until is not None and time.monotonic() >= until:
                        break
                    if over():
                        until = time.monotonic() + workers.patience
                elif not isinstance(item, _Raised):
                    ahead.release()
                    items_so_far.append(item)
                    yield item
                elif until is None:
                    raise item.error
            if until is not None:
                yield cut_off()
        finally:
            left = True
            ahead.release()
            await workers.join(workers.patience)


def within(seconds: float | None, function: Callable[[], T], cutoff: Cutoff) -> T:
    """Return the result of a function in a daemon thread, which is abandoned after so
    many seconds (None: never).

    Raises:
        TimeoutError: it took too long, or the call was given up.
        Exception: what the function raised.
    """
    if seconds is not None and seconds <= 0:
        raise TimeoutError("the question has had its time")
    workers = ThreadWorkers()
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
            outcome = blocking(workers.get(until))
            if outcome is not None:
                result, error = outcome
                if error is not None:
                    raise error
                return result  # type: ignore[no-any-return]
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"no result within {seconds:g} s")
    raise TimeoutError("the call was given up")
