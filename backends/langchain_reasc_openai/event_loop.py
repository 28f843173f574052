"""An event loop in its own thread, and streams from it."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from langchain_reasc_backend.bridge import End, Sender, Start

from langchain_reasc.exceptions import ModelClosedError

T = TypeVar("T")
Produce = Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]
"""A coroutine function that fills a stream. It is called in the loop, with a function
that sends an item.
"""


class LoopThread:
    """An event loop in a daemon thread, for connections that outlive the callers' event
    loops.

    HTTP connections belong to one event loop, but callers come from threads without a
    loop and from loops that end (``asyncio.run`` twice). Here their requests share
    connections and can be cut off at once, unlike a thread blocked in a read. The
    thread starts with the first request, and ends with :meth:`close` or when its owner
    is dropped.
    """

    def __init__(self, name: str, at_end: Callable[[], Awaitable[None]]) -> None:
        """Create the loop without starting the thread.

        Args:
            name: the thread's name.
            at_end: awaited in the loop before its end. It must not hold a reference to
                this object.
        """
        self._name, self._at_end = name, at_end
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine; cancelling the future cancels it.

        Raises:
            ModelClosedError: after :meth:`close`.
        """
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        except BaseException:
            coroutine.close()
            raise

    def producing(self, produce: Produce[T]) -> Start[T]:
        """Return the start of a stream that a coroutine fills until it is cancelled.
        Starting raises as :meth:`run`.
        """
        return lambda sender: self.run(_produce(produce, sender)).cancel

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the loop, unless the loop has ended or never started."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Cancel all tasks, close the connections and wait for the thread."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            self._stop()
            if thread is not threading.current_thread():
                thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ModelClosedError("this chat model was closed; make a new one")
            if self._loop is None:
                begun: Future[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = (
                    Future()
                )
                run = _serve(begun, self._at_end)
                self._thread = threading.Thread(
                    target=_run, args=(run,), name=self._name, daemon=True
                )
                self._thread.start()
                self._loop, self._stop = begun.result()
                weakref.finalize(self, self._stop).atexit = False
                _live.add(self)
            return self._loop


_live: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all loops at the interpreter's end: else daemon threads stop in the middle,
    and Python warns of tasks.
    """
    for loop in list(_live):
        loop.close()


def _run(serve: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new loop; asyncio.run ends by starting a thread, which
    Python 3.12 refuses when it exits.
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(serve)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _serve(begun: Future[Any], at_end: Callable[[], Awaitable[None]]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(ended.set)

    begun.set_result((loop, stop))
    await ended.wait()
    await _end_tasks()
    await at_end()
    await _end_tasks()


async def _end_tasks() -> None:
    """Cancel all tasks. A dropped generator is closed in a new task, which may drop the
    next generator.
    """
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
        sender.put(
            End(ModelClosedError("this chat model was closed while it was generating"))
        )
        raise
    except Exception as error:
        sender.put(End(error))
    else:
        sender.put(End())
