"""The two ways of a call: in threads, or in tasks of an event loop.

What happens in a call is written once, as coroutines. An asynchronous call awaits them,
by :data:`EVENT_LOOP`. A synchronous call runs them in its own thread, by
:data:`THREADS`: whatever they await then blocks that thread instead of waiting for an
event loop, and :func:`~langchain_reasc.threads.blocking` gets their result at once.
Where the two ways differ, they differ here.
"""

import asyncio
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
)
from langchain_core.runnables.utils import coro_with_context

from langchain_reasc.threads import (
    DaemonExecutor,
    as_they_end,
    blocking,
    blocking_items,
    in_thread,
    start_daemon,
    taken_from,
)

T = TypeVar("T")
R = TypeVar("R")
RunEach = Callable[
    [Callable[[T], Coroutine[Any, Any, R]], Iterable[T]], AsyncGenerator[R]
]
"""Calls a function on each item, several at once, and yields the results in order of
completion.
"""


class Workers(ABC):
    """Work beside a call, and the queue of items that it hands to the call.

    Attributes:
        patience: seconds that a worker is given to end once it was asked to.
        put: hands over an item.
    """

    patience: float
    put: Callable[[Any], None]

    @abstractmethod
    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run a coroutine in parallel with the others. It must not raise."""

    @abstractmethod
    def call_later(self, seconds: float, function: Callable[[], object]) -> Any:
        """Call a function after a number of seconds, unless the timer that is returned
        is cancelled before.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make :meth:`get` return None. Any thread may call this."""

    @abstractmethod
    async def get(self, until: float | None = None) -> Any:
        """Return the next item, or None if woken or if no item came in time (in terms
        of ``time.monotonic()``).
        """

    @abstractmethod
    async def join(self, seconds: float) -> None:
        """Wait for the workers to end, and abandon those that do not."""


class ThreadWorkers(Workers):
    """Workers that are threads."""

    patience = 0.05  # a thread cannot be cancelled, and ends a moment after it is asked

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.put = self._items.put

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._threads.append(start_daemon(partial(blocking, work()), name))

    def call_later(
        self, seconds: float, function: Callable[[], object]
    ) -> threading.Timer:
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), function)
        timer.daemon = True
        timer.start()
        return timer

    def wake(self) -> None:
        self.put(None)

    async def get(self, until: float | None = None) -> Any:
        try:
            return taken_from(self._items, until=until)
        except queue.Empty:
            return None

    async def join(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


class TaskWorkers(Workers):
    """Workers that are tasks of the running event loop. Tasks that do not end are
    cancelled.
    """

    patience = 0.0

    def __init__(self) -> None:
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self.put = self._items.put_nowait

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._tasks.append(asyncio.create_task(work(), name=name))

    def call_later(
        self, seconds: float, function: Callable[[], object]
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, function)

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.put, None)

    async def get(self, until: float | None = None) -> Any:
        if until is None or not self._items.empty():
            return await self._items.get()
        left = until - time.monotonic()
        if left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    return await self._items.get()
        return None

    async def join(self, seconds: float) -> None:
        left = {task for task in self._tasks if not task.done()}
        if left and seconds:
            _, left = await asyncio.wait(left, timeout=seconds)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class Concurrency(ABC):
    """How a call waits, and what it does in parallel.

    Attributes:
        blocks: whether waiting blocks the thread of the caller.
        workers: makes workers beside the call.
        semaphore: makes a semaphore; its ``acquire`` is awaited by ``result_of``.
        callback_manager: LangChain's kind of callback manager.
        callback_manager_of: makes one for a config.
    """

    blocks: bool
    workers: type[Workers]
    semaphore: Callable[[int], Any]
    callback_manager: Any
    callback_manager_of: Callable[[RunnableConfig], Any]

    @property
    @abstractmethod
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the caller; None if there is none."""

    @abstractmethod
    async def run(self, function: Callable[[], T]) -> T:
        """Call a function that may take long, without blocking an event loop."""

    @abstractmethod
    async def run_in(self, context: Context, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs in a context."""

    @abstractmethod
    def result(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what the caller's own kind of function returns: a result, or a
        coroutine.
        """

    @abstractmethod
    def items(self, generator: AsyncGenerator[Any]) -> Any:
        """Return what the caller's own kind of generator function returns."""

    @abstractmethod
    def method(self, owner: Any, name: str) -> Any:
        """Return a method in the caller's kind: ``stream`` or ``astream``."""

    @abstractmethod
    def jobs(
        self, limit: int | None, give_up: Callable[[], object]
    ) -> AbstractAsyncContextManager[RunEach[Any, Any]]:
        """Yield a function that runs up to ``limit`` jobs in parallel. Jobs that are
        unfinished at the end are given up.
        """


class Threads(Concurrency):
    """Blocks the calling thread, and works beside it in threads."""

    blocks = True
    workers = ThreadWorkers
    semaphore = threading.Semaphore
    callback_manager = CallbackManager
    callback_manager_of = staticmethod(get_callback_manager_for_config)
    loop = None

    async def run(self, function: Callable[[], T]) -> T:
        return function()

    async def run_in(self, context: Context, work: Coroutine[Any, Any, T]) -> T:
        return context.run(blocking, work)

    def result(self, work: Coroutine[Any, Any, Any]) -> Any:
        return blocking(work)

    def items(self, generator: AsyncGenerator[Any]) -> Any:
        return blocking_items(generator)

    def method(self, owner: Any, name: str) -> Any:
        return getattr(owner, name)

    @asynccontextmanager
    async def jobs(
        self, limit: int | None, give_up: Callable[[], object]
    ) -> AsyncGenerator[RunEach[Any, Any]]:
        threads = DaemonExecutor(limit)

        async def run_each(
            function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T]
        ) -> AsyncGenerator[R]:
            jobs = [
                threads.submit(lambda item: blocking(function(item)), item)
                for item in items
            ]
            for job in as_they_end(jobs):
                yield job.result()

        try:
            yield run_each
        finally:  # also after a failure, or Ctrl-C
            give_up()
            threads.shutdown(cancel_futures=True)


class EventLoop(Concurrency):
    """Works in tasks of the running event loop."""

    blocks = False
    workers = TaskWorkers
    semaphore = asyncio.Semaphore
    callback_manager = AsyncCallbackManager
    callback_manager_of = staticmethod(get_async_callback_manager_for_config)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def run(self, function: Callable[[], T]) -> T:
        return await in_thread(function)

    async def run_in(self, context: Context, work: Coroutine[Any, Any, T]) -> T:
        return await coro_with_context(work, context)

    def result(self, work: Coroutine[Any, Any, Any]) -> Any:
        return work

    def items(self, generator: AsyncGenerator[Any]) -> Any:
        return generator

    def method(self, owner: Any, name: str) -> Any:
        return getattr(owner, f"a{name}")

    @asynccontextmanager
    async def jobs(
        self, limit: int | None, give_up: Callable[[], object]
    ) -> AsyncGenerator[RunEach[Any, Any]]:
        gate = asyncio.Semaphore(limit or 2**31)
        tasks: list[asyncio.Task[Any]] = []

        async def gated(function: Callable[[T], Coroutine[Any, Any, R]], item: T) -> R:
            async with gate:
                return await function(item)

        async def run_each(
            function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T]
        ) -> AsyncGenerator[R]:
            tasks[:] = [asyncio.create_task(gated(function, item)) for item in items]
            for done in asyncio.as_completed(tasks):
                yield await done

        try:
            yield run_each
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


THREADS: Final = Threads()
EVENT_LOOP: Final = EventLoop()
