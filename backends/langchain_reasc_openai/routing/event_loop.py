"""An event loop in a thread of its own, and iterators over what is made there."""

import asyncio
import atexit
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from langchain_reasc.exceptions import ModelClosedError
from langchain_reasc.models.waiting import taken_from

__all__ = ["AsyncItems", "Items", "LoopThread", "Produce"]

T = TypeVar("T")
Produce = Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]
"""What fills an iterator: called in the loop with the function that hands an item over."""


@dataclass(frozen=True)
class _Running:
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Event
    thread: threading.Thread

    def stop(self) -> None:
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.ended.set)


class LoopThread:
    """An event loop in a daemon thread, for whatever outlives or is called outside the loops of its callers.

    HTTP connections belong to one event loop. Callers come from threads without a loop and from loops that end
    (``asyncio.run`` twice); here their requests share connections all the same, and can be cut off at once, which a
    thread blocked in a read cannot. The thread starts with the first request and ends with :meth:`close`, or when its
    owner is dropped.
    """

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]] | None = None) -> None:
        """Make it, without starting the thread.

        Args:
            name: the thread's name.
            at_end: run in the loop before it ends; closes connections. It must not refer to this object.
        """
        self._name, self._at_end = name, at_end
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._closed = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine; cancelling the future cancels it.

        Raises:
            ModelClosedError: after :meth:`close`.
        """
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self.started())
        except BaseException:
            coroutine.close()
            raise

    def started(self) -> asyncio.AbstractEventLoop:
        """The loop, running.

        Raises:
            ModelClosedError: after :meth:`close`.
        """
        with self._lock:
            if self._closed:
                raise ModelClosedError("this chat model was closed; make a new one")
            if self._running is None or not self._running.thread.is_alive():  # not so in a forked process
                self._running = _start(self._name, self._at_end)
                weakref.finalize(self, self._running.stop).atexit = False
                _live.add(self)
            return self._running.loop

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call something in the loop; where the loop has ended there is nothing to call it for."""
        running = self._running
        if running is not None:
            with suppress(RuntimeError):
                running.loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Cancel what runs, close the connections and wait for the thread."""
        with self._lock:
            self._closed, running = True, self._running
        if running is not None:
            running.stop()
            if running.thread is not threading.current_thread():
                running.thread.join()


_live: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """At the interpreter's end a daemon thread stops where it is, and what it had begun would be complained about."""
    for loop in list(_live):
        loop.close()


def _start(name: str, at_end: Callable[[], Awaitable[None]] | None) -> _Running:
    began: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(began, at_end)), name=name, daemon=True)
    thread.start()
    return _Running(*began.result(), thread)


async def _serve(began: Future[Any], at_end: Callable[[], Awaitable[None]] | None) -> None:
    ended = asyncio.Event()
    began.set_result((asyncio.get_running_loop(), ended))
    await ended.wait()
    await _end_tasks()
    if at_end is not None:
        await at_end()
    await _end_tasks()


async def _end_tasks() -> None:
    """Cancel all that runs. A dropped generator is closed in a task, which leaves the next generator behind it."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)


@dataclass(frozen=True)
class _End:
    error: BaseException | None


class _Reading(Generic[T]):
    """A coroutine of the loop that hands items over, and whether anybody still reads them."""

    _over = True  # until it has started

    def __init__(self, loop: LoopThread, produce: Produce[T], put: Callable[[T | _End], None]) -> None:
        self._closed = threading.Event()
        self._future = loop.run(_produce(produce, put, self._closed))
        self._over = False

    def close(self) -> None:
        """Cancel the coroutine and end the iteration."""
        self._over = True
        self._closed.set()
        self._future.cancel()

    def __del__(self) -> None:
        if not self._over:
            self.close()


class Items(_Reading[T]):
    """What a coroutine of the loop hands over, read from a thread. Closed or dropped, it cancels the coroutine."""

    def __init__(self, loop: LoopThread, produce: Produce[T]) -> None:
        """Start the coroutine.

        Raises:
            ModelClosedError: the loop was closed.
        """
        self._queue: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        super().__init__(loop, produce, self._queue.put)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """The next item.

        Raises:
            Exception: what the coroutine raised.
        """
        if self._over:
            raise StopIteration
        item = taken_from(self._queue)
        if not isinstance(item, _End):
            return item
        self._over = True
        raise item.error or StopIteration


class AsyncItems(_Reading[T]):
    """:class:`Items` read from an event loop, another than the one that makes them."""

    def __init__(self, loop: LoopThread, produce: Produce[T]) -> None:
        """Start the coroutine, from inside the reader's running loop.

        Raises:
            ModelClosedError: the loop was closed.
        """
        self._queue: asyncio.Queue[T | _End] = asyncio.Queue()
        reader, put = asyncio.get_running_loop(), self._queue.put_nowait

        def hand_over(item: T | _End) -> None:
            with suppress(RuntimeError):  # the reader's loop has ended
                reader.call_soon_threadsafe(put, item)

        super().__init__(loop, produce, hand_over)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next item.

        Raises:
            Exception: what the coroutine raised.
        """
        if self._over:
            raise StopAsyncIteration
        item = await self._queue.get()
        if not isinstance(item, _End):
            return item
        self._over = True
        raise item.error or StopAsyncIteration


async def _produce(produce: Produce[T], put: Callable[[T | _End], None], closed: threading.Event) -> None:
    def hand_over(item: T) -> None:
        if closed.is_set():  # the coroutine may have swallowed the cancellation
            raise asyncio.CancelledError
        put(item)

    try:
        await produce(hand_over)
    except asyncio.CancelledError:
        put(_End(ModelClosedError("this chat model was closed while it was generating")))
        raise
    except Exception as error:
        put(_End(error))
    else:
        put(_End(None))
