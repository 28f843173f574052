"""Threads and event loops: daemon threads, waits that Ctrl-C ends, and coroutines run
without a loop.
"""

import asyncio
import atexit
import os
import queue
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")
_POLL: Final = 0.5  # seconds; see `taken_from`
_AT_EXIT: Final = 1.0  # seconds that threads are given when the interpreter exits
_DEFERRED: Final = ("scipy.special", "jsonschema", "langsmith.run_helpers")
_started: WeakSet[threading.Thread] = WeakSet()


def start_daemon(run: Callable[[], object], name: str) -> threading.Thread:
    """Run a function in a daemon thread, with a copy of the caller's context."""
    thread = threading.Thread(
        target=copy_context().run, args=[run], name=name, daemon=True
    )
    thread.start()
    _started.add(thread)
    return thread


@atexit.register
def _join_at_exit() -> None:
    """Wait for daemon threads at exit. Before Python 3.14, one in compiled code may
    abort the exiting process.
    """
    ends = time.monotonic() + _AT_EXIT
    for thread in tuple(_started):
        thread.join(max(0.0, ends - time.monotonic()))


class DaemonExecutor(Executor):
    """A ``ThreadPoolExecutor`` of daemon threads, which runs each call in a copy of the
    caller's context.

    ``concurrent.futures`` joins its threads before the interpreter exits, so an
    abandoned batch would keep the process alive until a server has answered all of it.

    Args:
        max_workers: how many calls run in parallel; None for the default of
            ``ThreadPoolExecutor``.
        name: the name of the threads.
    """

    def __init__(self, max_workers: int | None = None, name: str = "reasc") -> None:
        self._max_workers = max_workers or min(32, (os.cpu_count() or 1) + 4)
        self._name = name
        self._lock = threading.Lock()
        self._shut_down = False
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = (
            queue.SimpleQueue()
        )
        self._threads: set[threading.Thread] = set()

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "Future[T]":
        """Run a call as soon as fewer than ``max_workers`` calls are running."""
        future: Future[T] = Future()
        with self._lock:
            if self._shut_down:
                raise RuntimeError("cannot submit after shutdown")
            self._calls.put(
                (future, partial(copy_context().run, partial(fn, *args, **kwargs)))
            )
            if len(self._threads) < self._max_workers:
                self._threads.add(
                    start_daemon(self._work, f"{self._name}-{len(self._threads)}")
                )
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. With ``wait``, return when the running calls have
        ended.
        """
        with self._lock:
            self._shut_down = True
            while cancel_futures and not self._calls.empty():
                self._calls.get()[0].cancel()
            threads = tuple(self._threads)
        for thread in threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._calls.empty():
                    self._threads.discard(threading.current_thread())
                    return
                future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del (
                future,
                call,
            )  # or they would outlive their reader while this thread waits


@cache
def _beside_loops() -> DaemonExecutor:
    return DaemonExecutor(32, "reasc-beside")


if hasattr(os, "register_at_fork"):
    # a child has none of its threads
    os.register_at_fork(after_in_child=_beside_loops.cache_clear)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function in a thread of a separate pool.

    ``asyncio.to_thread`` uses the loop's default pool, which an agent's synchronous
    tools may fill for seconds.
    """
    return await asyncio.wrap_future(_beside_loops().submit(function, *args, **kwargs))


def taken_from(items: "queue.SimpleQueue[T]", *, until: float | None = None) -> T:
    """Return the next item of a queue. Ctrl-C ends the wait, however busy other threads
    are.

    If a signal arrives just before Python blocks in a lock, CPython notices the signal
    only after the lock is released, which may take seconds. So each wait has a short
    limit, and is then repeated.

    Raises:
        queue.Empty: no item came ``until`` then, in terms of ``time.monotonic()``.
    """
    while True:
        left = _POLL if until is None else min(_POLL, until - time.monotonic())
        try:
            return items.get(timeout=max(0.0, left))
        except queue.Empty:
            if left < _POLL:
                raise


def as_they_end(futures: "Iterable[Future[Any]]") -> "Iterator[Future[Any]]":
    """Yield futures in order of completion; Ctrl-C ends the wait as in
    :func:`taken_from`.
    """
    left = set(futures)
    while left:
        ended, left = wait(left, _POLL, FIRST_COMPLETED)
        yield from ended


def blocking(awaitable: Awaitable[T]) -> T:
    """Run a coroutine that never waits for an event loop in this thread, and return its
    result.

    Code that synchronous and asynchronous calls share is written once, as coroutines.
    In a synchronous call, everything that they await blocks the thread, so the
    coroutine ends in one step. Callbacks, context variables and Ctrl-C are those of the
    caller's thread.
    """
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a synchronous call waited for an event loop")


def blocking_items(items: AsyncGenerator[T]) -> Generator[T]:
    """Iterate over an asynchronous generator that never waits for an event loop."""
    try:
        while True:
            yield blocking(anext(items))
    except StopAsyncIteration:
        return
    finally:
        blocking(items.aclose())


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T]:
    """Iterate over synchronous or asynchronous items, and close their generator at the
    end.
    """
    try:
        if isinstance(items, AsyncIterable):
            async for item in items:
                yield item
        else:
            for item in items:
                yield item
    finally:
        with suppress(Exception):
            if close := getattr(items, "aclose", None):
                await close()
            elif close := getattr(items, "close", None):
                close()


async def result_of(value: Awaitable[T] | T) -> T:
    """Return a value; if it is an awaitable, await it."""
    return await value if isinstance(value, Awaitable) else value


def in_event_loop() -> bool:
    """Return whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@cache
def import_deferred() -> None:
    """Import modules that the first question needs and ``import langchain_reasc``
    defers; it takes some 100 ms.
    """
    for name in _DEFERRED:
        import_module(name)
