"""How a call waits: by blocking its thread, or in an event loop.

What happens in a call is written once, as coroutines. An asynchronous call awaits them, with :class:`EventLoop`. A
synchronous call runs them in its own thread, with :class:`Threads`: its methods block, so that a coroutine never has to
wait for an event loop, and :func:`blocking` gets its result at once.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.sampling import (
    AsyncRun,
    AsyncSlots,
    Cutoff,
    Run,
    Sample,
    Slots,
    Wave,
    adrawn,
    apassed_on,
    drawn,
    passed_on,
)
from langchain_reasc.threads import DaemonExecutor, aimport_deferred, as_they_end

__all__ = ["Concurrency", "EventLoop", "Threads", "blocking", "blocking_items", "refuse_async"]

T = TypeVar("T")
R = TypeVar("R")
Each = Callable[[Callable[[T], Coroutine[Any, Any, R]], Iterable[T]], AsyncGenerator[R]]
"""Calls a function on each item, several at once, and yields the results in order of completion."""


def blocking(coroutine: Any) -> Any:
    """Run a coroutine that never waits for an event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
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

    new_run = Run

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
    async def take_slots(model: object, config: RunnableConfig, wanted: int, cutoff: Cutoff) -> tuple[Slots, int]:
        """Wait until a sample may be launched; return the slots, and how many were taken: 0 once given up."""
        slots = Slots.of(model, config)
        return slots, slots.take(wanted, cutoff)

    @staticmethod
    async def drawn(wave: Wave, *, live: bool) -> AsyncGenerator[Sample | AIMessageChunk]:
        """Draw the samples of a wave; with ``live``, yield the chunks of its only sample before it."""
        samples = passed_on(wave) if live else cast("Generator[Sample | AIMessageChunk]", drawn(wave))
        with closing(samples):
            for item in samples:
                yield item

    @staticmethod
    async def step(run: Run, what: Callable[[RunnableConfig], Coroutine[Any, Any, T]], *, last: bool = False) -> T:
        """Do something below a traced run; ``last`` ends the run with its result."""
        return cast(T, (run.last if last else run.step)(lambda config: blocking(what(config))))

    @staticmethod
    async def fail(run: Run, error: BaseException) -> None:
        """End a run that has not ended."""
        run.fail(error)

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

    new_run = AsyncRun

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
    async def take_slots(model: object, config: RunnableConfig, wanted: int, cutoff: Cutoff) -> tuple[AsyncSlots, int]:
        """Wait until a sample may be launched; whoever waits is given up by being cancelled."""
        slots = AsyncSlots.of(model, config)
        return slots, await slots.take(wanted)

    @staticmethod
    def drawn(wave: Wave, *, live: bool) -> AsyncGenerator[Sample | AIMessageChunk]:
        """Draw the samples of a wave; with ``live``, yield the chunks of its only sample before it."""
        return apassed_on(wave) if live else cast("AsyncGenerator[Sample | AIMessageChunk]", adrawn(wave))

    @staticmethod
    async def step(run: AsyncRun, what: Callable[[RunnableConfig], Coroutine[Any, Any, T]], *, last: bool = False) -> T:
        """Do something below a traced run; ``last`` ends the run with its result."""
        return await (run.last if last else run.step)(what)

    @staticmethod
    async def fail(run: AsyncRun, error: BaseException) -> None:
        """End a run that has begun and not ended."""
        await run.fail(error)

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
