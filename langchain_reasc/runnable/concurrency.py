"""Work on several items concurrently, in threads or in tasks of an event loop.

What happens in a call is written once, as coroutines. An asynchronous call awaits them,
with :class:`EventLoop`. A synchronous call runs them in its own thread, with
:class:`Threads`: nothing that they await then waits for an event loop, and
:func:`~langchain_reasc.threads.blocking` gets their result at once.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from langchain_reasc.sampling import Cutoff
from langchain_reasc.threads import DaemonExecutor, as_they_end, blocking, in_thread

T = TypeVar("T")
R = TypeVar("R")
Each = Callable[[Callable[[T], Coroutine[Any, Any, R]], Iterable[T]], AsyncGenerator[R]]
"""Calls a function on each item, several at once, and yields the results in order of
completion.
"""


class Threads:
    """Works in threads, while the calling thread waits."""

    is_async = False

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        """Call a function that may take long."""
        return function()

    @staticmethod
    @asynccontextmanager
    async def workers(
        limit: int | None, cutoff: Cutoff
    ) -> AsyncIterator[Each[Any, Any]]:
        """Yield a function that runs up to ``limit`` jobs in parallel; unfinished ones
        are abandoned at its end.
        """
        threads = DaemonExecutor(limit)

        async def each(
            function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T]
        ) -> AsyncGenerator[R]:
            jobs = [
                threads.submit(lambda item: blocking(function(item)), item)
                for item in items
            ]
            for job in as_they_end(jobs):
                yield job.result()

        try:
            yield each
        finally:  # also after a failure, or Ctrl-C
            cutoff.give_up()
            threads.shutdown(cancel_futures=True)


class EventLoop:
    """Works in tasks of the running event loop."""

    is_async = True

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        """Call a function that may take long in a thread, and await it."""
        return await in_thread(function)

    @staticmethod
    @asynccontextmanager
    async def workers(
        limit: int | None, cutoff: Cutoff
    ) -> AsyncIterator[Each[Any, Any]]:
        """Yield a function that runs up to ``limit`` jobs in parallel; unfinished ones
        are cancelled at its end.
        """
        gate = asyncio.Semaphore(limit or 2**31)
        tasks: list[asyncio.Task[Any]] = []

        async def gated(function: Callable[[T], Coroutine[Any, Any, R]], item: T) -> R:
            async with gate:
                return await function(item)

        async def each(
            function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T]
        ) -> AsyncGenerator[R]:
            tasks[:] = [asyncio.create_task(gated(function, item)) for item in items]
            for done in asyncio.as_completed(tasks):
                yield await done

        try:
            yield each
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


Concurrency = type[Threads] | type[EventLoop]
