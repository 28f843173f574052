"""An event loop in a thread of its own, and streams of what is made there."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_reasc_backend.bridge import End, Sender, Start

from langchain_reasc.exceptions import ModelClosedError

__all__ = ["LoopThread", "Produce"]

T = TypeVar("T")
Produce = Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]
"""What fills a stream: called in the loop with the function that hands an item over."""


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
        """Make it, without starting the thread; ``at_end`` runs in the loop before it ends, and must not hold this."""
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

    def producing(self, produce: Produce[T]) -> Start[T]:
        """What begins a stream with a coroutine; it raises what :meth:`run` does. Cancelled, the coroutine ends."""
        return lambda sender: self.run(_produce(produce, sender)).cancel

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


async def _produce(produce: Produce[T], sender: Sender[T]) -> None:
    def put(item: T) -> None:
        if sender.closed:  # the coroutine may have swallowed the cancellation
            raise asyncio.CancelledError
        sender.put(item)

    try:
        await produce(put)
    except asyncio.CancelledError:
        sender.put(End(ModelClosedError("this chat model was closed while it was generating")))
        raise
    except Exception as error:
        sender.put(End(error))
    else:
        sender.put(End())
