"""How a call waits: by blocking its thread, or in an event loop.

What happens in a call is written once, as coroutines. An asynchronous call awaits them, with :class:`EventLoop`. A
synchronous call runs them in its own thread, with :class:`Threads`: its methods block, so that a coroutine never has to
wait for an event loop, and :func:`~langchain_reasc.threads.blocking` gets its result at once.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.sampling import Cutoff
from langchain_reasc.threads import DaemonExecutor, aimport_deferred, as_they_end, blocking

__all__ = ["Concurrency", "EventLoop", "Threads", "refuse_async"]

T = TypeVar("T")
R = TypeVar("R")
Each = Callable[[Callable[[T], Coroutine[Any, Any, R]], Iterable[T]], AsyncGenerator[R]]
"""Calls a function on each item, several at once, and yields the results in order of completion."""


def refuse_async(function: Any) -> None:
    """Refuse an async function, or what it returned, in a synchronous call.

    Raises:
        ConfigurationError: it is one.
    """
    if inspect.iscoroutinefunction(function) or inspect.isawaitable(function):
        raise ConfigurationError(
            "when= is an async function, which only asynchronous calls can await: call ainvoke, astream or abatch, or "
            "give a function that is not async"
        )


class Threads:
    """Blocks the calling thread; inputs of a batch are answered in threads of their own."""

    is_async = False

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        """Call a function that may take long."""
        return function()

    @staticmethod
    async def import_deferred() -> None:
        """Leave imports to the code that needs them."""

    @staticmethod
    async def result_of(value: Any) -> Any:
        """Return what a user's function returned; refuse an awaitable."""
        if inspect.iscoroutine(value):
            value.close()
        refuse_async(value)
        return value

    @staticmethod
    @asynccontextmanager
    async def workers(limit: int | None, cutoff: Cutoff) -> AsyncIterator[Each[Any, Any]]:
        """Give what works on ``limit`` items at once. When the block ends, what still runs is given up."""
        threads = DaemonExecutor(limit)

        async def each(function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T]) -> AsyncGenerator[R]:
            jobs = [threads.submit(lambda item: blocking(function(item)), item) for item in items]
            for job in as_they_end(jobs):
                yield job.result()

        try:
            yield each
        finally:  # also after a failure, or Ctrl-C
            cutoff.give_up()
            threads.shutdown(cancel_futures=True)


class EventLoop:
    """The same in an event loop; inputs of a batch are answered in tasks of their own."""

    is_async = True

    @staticmethod
    async def in_thread(function: Callable[[], T]) -> T:
        """Call a function that may take long in a thread, and await it."""
        return await asyncio.to_thread(function)

    @staticmethod
    async def import_deferred() -> None:
        """Import in a thread what would hold the loop for long."""
        await aimport_deferred()

    @staticmethod
    async def result_of(value: Any) -> Any:
        """Return what a user's function returned, awaited if it is async."""
        return await value if inspect.isawaitable(value) else value

    @staticmethod
    @asynccontextmanager
    async def workers(limit: int | None, cutoff: Cutoff) -> AsyncIterator[Each[Any, Any]]:
        """Give what works on ``limit`` items at once. When the block ends, what still runs is cancelled."""
        gate = asyncio.Semaphore(limit or 2**31)
        tasks: list[asyncio.Task[Any]] = []

        async def gated(function: Callable[[T], Coroutine[Any, Any, R]], item: T) -> R:
            async with gate:
                return await function(item)

        async def each(function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T]) -> AsyncGenerator[R]:
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
