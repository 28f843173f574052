"""When a sample is cut off, and how a model is read so that it can be: in a thread, or task, of its own.

So nobody waits for a server that is silent: neither a decision, nor a time limit, nor Ctrl-C.
"""

import asyncio
import atexit
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.daemons import start_daemon
from langchain_reasc.models.waiting import taken_from

__all__ = ["CUTOFF", "Cutoff", "aread", "failure_of", "read"]

T = TypeVar("T")
_WAKE: Final = object()
_END: Final = object()
_AHEAD: Final = 8  # items that are read before they are wanted
_MOMENT: Final = 0.05  # seconds in which a stream that is cut off comes to its next item, if it is not silent
_registering: Final = threading.Lock()


class Cutoff:
    """When samples are cut off, told to whoever draws them. Usable from any thread.

    Attributes:
        error: what the samples fail with that are given up; None where they are cut off without a fault.
        prompt_tokens: tokens of the prompt, once a response has told; for estimates.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[], None]] = {}
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
        """Whether a stream is cut off, or with ``whole`` a response that comes in one piece."""
        return self._given_up or (self._stopped and not whole)

    def stop(self) -> None:
        """Cut off streams: their rest is not needed."""
        self._tell(given_up=False, error=None)

    def give_up(self, error: Exception | None = None) -> None:
        """Wait for nothing any more. What had not been stopped before fails with ``error``, where there is one."""
        self._tell(given_up=True, error=error)

    @contextmanager
    def heard_by(self, listener: Callable[[], Any]) -> Iterator[None]:
        """Within the block, call ``listener`` when samples are stopped or given up, and at once if they have been."""
        key = object()
        with self._lock:
            self._listeners[key] = listener
            told = self._stopped
        if told:
            listener()
        try:
            yield
        finally:
            with self._lock:
                del self._listeners[key]

    def _tell(self, *, given_up: bool, error: Exception | None) -> None:
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
    """What still runs then runs in daemon threads for nobody: close its requests, so that servers stop generating."""
    with _registering:
        cutoffs = tuple(_alive)
    for cutoff in cutoffs:
        cutoff.give_up()


CUTOFF: Final[ContextVar[Cutoff | None]] = ContextVar("langchain_reasc_cutoff", default=None)
"""The cutoff of the sample that runs in this context; None outside a sample."""


def failure_of(error: BaseException) -> Exception | KeyboardInterrupt:
    """What a sample fails with whose model raised this.

    ``CancelledError``, of a task that the model itself had cancelled, and ``SystemExit`` would end the thread, task or
    event loop that reads the model, and with it the other samples. Only an interrupt ends them all.
    """
    if isinstance(error, Exception | KeyboardInterrupt):
        return error
    failure = SamplingError(f"the model raised {error!r}")
    failure.__cause__ = error
    return failure


class _Raised(NamedTuple):
    error: Exception | KeyboardInterrupt


def read(
    items: Iterator[T], cutoff: Cutoff, ending: Callable[[list[T]], T], *, whole: bool = False
) -> Generator[T, None, None]:
    """Items as they come; once they are cut off, those that had come, and the ending made of them.

    The thread between costs about 5 µs of processor time an item, and 0.1 ms where items come one by one, milliseconds
    apart: it has to be woken for each. To begin and end it takes about 0.8 ms a sample.

    Args:
        items: what a model says; the thread that reads it closes it after its next item.
        cutoff: when it is waited for no longer.
        ending: makes the last item of all that had come.
        whole: whether it is waited for until it is given up.

    Raises:
        Exception: what reading raised (:func:`failure_of` it), or the error with which it was given up.
    """
    if cutoff.cuts(whole=whole):  # nothing has been asked of the model, and nothing will be
        yield _ended(cutoff, ending, [])
        return
    came: queue.SimpleQueue[Any] = queue.SimpleQueue()
    left, room = threading.Event(), threading.Semaphore(_AHEAD)

    def pump() -> None:
        CUTOFF.set(None)  # a whole response that is streamed inside is not cut off there
        try:
            for item in items:
                came.put(item)
                room.acquire()
                if left.is_set() or cutoff.cuts(whole=whole):
                    came.put(_WAKE)  # which may be on its way still, and must be heard before the end
                    break
        except BaseException as error:
            came.put(_Raised(failure_of(error)))
        finally:
            with suppress(Exception):
                getattr(items, "close", lambda: None)()
            came.put(_END)

    seen: list[T] = []
    with cutoff.heard_by(lambda: came.put(_WAKE)):
        reader = start_daemon(partial(copy_context().run, pump), "reasc-read")
        try:
            while (item := taken_from(came)) is not _END:
                if isinstance(item, _Raised):
                    raise item.error
                if item is not _WAKE:
                    room.release()
                    seen.append(item)
                    yield item
                elif cutoff.cuts(whole=whole):
                    room.release()
                    for last in _come(came):
                        seen.append(last)
                        yield last
                    yield _ended(cutoff, ending, seen)
                    return
        finally:
            left.set()
            room.release()
            reader.join(_MOMENT)


def _ended(cutoff: Cutoff, ending: Callable[[list[T]], T], seen: list[T]) -> T:
    if cutoff.error:
        raise cutoff.error
    return ending(seen)


def _come(came: "queue.SimpleQueue[Any]") -> Iterator[Any]:
    """What has come when the items are cut off, and what is on its way: it is paid for."""
    with suppress(queue.Empty):
        while (item := came.get(timeout=_MOMENT)) is not _END:
            if item is not _WAKE and not isinstance(item, _Raised):
                yield item


async def aread(
    items: AsyncIterator[T], cutoff: Cutoff, ending: Callable[[list[T]], T], *, whole: bool = False
) -> AsyncGenerator[T, None]:
    """The asynchronous :func:`read`; the task that reads is cancelled at once."""
    if cutoff.cuts(whole=whole):
        yield _ended(cutoff, ending, [])
        return
    came: asyncio.Queue[Any] = asyncio.Queue()
    loop, left, room = asyncio.get_running_loop(), asyncio.Event(), asyncio.Semaphore(_AHEAD)
    reading = asyncio.create_task(_pump(items, came, left, room), name="reasc-read")
    seen: list[T] = []
    try:
        with cutoff.heard_by(lambda: loop.call_soon_threadsafe(came.put_nowait, _WAKE)):
            while (item := await came.get()) is not _END:
                if isinstance(item, _Raised):
                    raise item.error
                if item is not _WAKE:
                    room.release()
                    seen.append(item)
                    yield item
                elif cutoff.cuts(whole=whole):
                    while not came.empty():
                        if (last := came.get_nowait()) not in (_WAKE, _END) and not isinstance(last, _Raised):
                            seen.append(last)
                            yield last
                    yield _ended(cutoff, ending, seen)
                    return
    finally:
        left.set()
        reading.cancel()
        await asyncio.wait([reading])


async def _pump(
    items: AsyncIterator[T], came: "asyncio.Queue[Any]", left: asyncio.Event, room: asyncio.Semaphore
) -> None:
    CUTOFF.set(None)  # a whole response that is streamed inside is not cut off there
    try:
        async for item in items:
            came.put_nowait(item)
            await room.acquire()
            if left.is_set():  # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes with a token
                break
    except asyncio.CancelledError as error:
        if left.is_set():
            raise
        came.put_nowait(_Raised(failure_of(error)))
    except BaseException as error:
        came.put_nowait(_Raised(failure_of(error)))
    finally:
        if close := getattr(items, "aclose", None):
            with suppress(Exception):
                await close()
        came.put_nowait(_END)
