"""Samples of one prompt drawn from a pool of servers together, each a stream of its own that can be cut at once.

One request per sample, rather than one with ``n``: a stream per sample fails, moves to another server and is cut off by
itself, each sample has its own seed, and servers that cache prefixes compute the shared prompt once either way.

Everything runs in the pool's event loop, for synchronous callers too. A thread blocked in a read sees a cancellation
only when its next token arrives; a task is cancelled where it waits, and its connection is closed in the same moment.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.rate_limiters import BaseRateLimiter

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.source import FailedSample
from langchain_reasc_openai.attempts import Attempt
from langchain_reasc_openai.event_loop import AsyncItems, Items
from langchain_reasc_openai.reading import message_of, read, received_tokens
from langchain_reasc_openai.replicas import ReplicaPool

__all__ = ["AsyncSampleStream", "SampleStream", "asample", "sample"]


@dataclass
class _Drawn:
    """One sample, while it is drawn and after."""

    index: int
    chunks: list[ChatGenerationChunk] = field(default_factory=list)
    server: str | None = None
    error: Exception | None = None
    cancelled: bool = False
    lost: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, server: str) -> None:
        """Start, or start again elsewhere: what the failed attempt generated is put down as lost, once."""
        if self.server is not None:
            error = f"{type(self.error).__name__}: {self.error}".splitlines()[0]
            self.lost.append({"server": self.server, "error": error, "received_tokens": received_tokens(self.chunks)})
        self.chunks, self.server, self.error = [], server, None

    def outcome(self) -> AIMessage | FailedSample:
        """What the iterator hands over."""
        if self.error is not None:
            return FailedSample(self.error, self._message() if self.chunks else None)
        return self._message()

    def _message(self) -> AIMessage:
        message = message_of(self.chunks)
        metadata = {**message.response_metadata, "server": self.server}
        if self.lost:
            metadata["failed_attempts"] = self.lost
        if self.cancelled or self.error:
            metadata["received_tokens"] = received_tokens(self.chunks)
            metadata["finish_reason"] = "cancelled" if self.cancelled else "error"
        return message.model_copy(update={"response_metadata": metadata})


@dataclass(kw_only=True)
class _Draw:
    """The samples of one call."""

    pool: ReplicaPool
    messages: list[BaseMessage]
    n: int
    first: int
    kwargs: Mapping[str, Any]
    seeds: Sequence[int | None] | None
    sample_timeout: float | None
    timeout: float | None
    rate_limiter: BaseRateLimiter | None
    cancelled: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigurationError(f"at least 1 sample is drawn, got n={self.n}")
        if self.seeds is not None and len(self.seeds) != self.n:
            raise ConfigurationError(f"a seed for each of the {self.n} samples is needed, got {len(self.seeds)}")
        for name in ("sample_timeout", "timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigurationError(f"{name} must be a positive number of seconds, got {seconds!r}")

    async def produce(self, put: Callable[[_Drawn], None]) -> None:
        """Draw them all, handing over each when it ends."""
        if self.cancelled:
            return
        begun = time.monotonic()
        deadlines = [begun + seconds for seconds in (self.sample_timeout, self.timeout) if seconds is not None]
        deadline = min(deadlines, default=None)
        self.tasks = [asyncio.create_task(self._one(index, deadline, put)) for index in range(self.n)]
        try:
            await asyncio.wait(self.tasks)
        finally:
            self.cancelled = True
            self._cancel_tasks()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Cut off what runs; callable from any thread."""
        self.cancelled = True
        self.pool.loop.call_soon(self._cancel_tasks)

    def _cancel_tasks(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def _one(self, position: int, deadline: float | None, put: Callable[[_Drawn], None]) -> None:
        drawn = _Drawn(self.first + position)

        def take(chunk: ChatGenerationChunk) -> None:
            drawn.chunks.append(chunk)
            if self.cancelled:  # a client may have swallowed the cancellation
                raise asyncio.CancelledError

        kwargs = {**self.kwargs}
        if self.seeds is not None and self.seeds[position] is not None:
            kwargs["seed"] = self.seeds[position]

        async def once(attempt: Attempt) -> None:
            drawn.begin(attempt.replica.url)
            try:
                await read(attempt, self.messages, kwargs, take)
            except Exception as error:
                drawn.error = error
                raise

        try:
            attempts = self.pool.attempts(self.messages, rate_limiter=self.rate_limiter)
            await attempts.run(once, deadline=deadline)
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
            drawn.cancelled, drawn.error = True, None
            if drawn.server is None:  # never sent, and so never paid for
                return
        except Exception as error:
            drawn.error = error
        put(drawn)


class SampleStream:
    """Samples as ``(index, message)`` in the order they end. ``with`` it, close it or drop it to cut off the rest."""

    def __init__(self, draw: _Draw) -> None:
        self._draw = draw
        self._items = Items(draw.pool.loop, draw.produce)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, AIMessage | FailedSample]:
        """The next sample to end; one that failed comes as a :class:`~langchain_reasc.source.FailedSample`."""
        drawn = next(self._items)
        return drawn.index, drawn.outcome()

    def cancel(self) -> None:
        """Close the connections of all live samples at once; callable from any thread.

        Those that were sent still come out of the iterator, with ``finish_reason="cancelled"`` and what they said so
        far. The others cost nothing and do not come out.
        """
        self._draw.cancel()

    def close(self) -> None:
        """Cut off what runs, and end the iteration."""
        self._items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncSampleStream:
    """:class:`SampleStream` for ``async for`` and ``async with``. The requests are sent when iteration begins."""

    def __init__(self, draw: _Draw) -> None:
        self._draw = draw
        self._items: AsyncItems[_Drawn] | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, AIMessage | FailedSample]:
        """The next sample to end; one that failed comes as a :class:`~langchain_reasc.source.FailedSample`."""
        if self._closed:
            raise StopAsyncIteration
        if self._items is None:
            self._items = AsyncItems(self._draw.pool.loop, self._draw.produce)
        drawn = await anext(self._items)
        return drawn.index, drawn.outcome()

    def cancel(self) -> None:
        """As :meth:`SampleStream.cancel`."""
        self._draw.cancel()

    def close(self) -> None:
        """Cut off what runs, and end the iteration."""
        self._closed = True
        if self._items is not None:
            self._items.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sample(
    pool: ReplicaPool,
    messages: list[BaseMessage],
    *,
    n: int,
    first: int = 0,
    kwargs: Mapping[str, Any] | None = None,
    seeds: Sequence[int | None] | None = None,
    sample_timeout: float | None = None,
    timeout: float | None = None,
    rate_limiter: BaseRateLimiter | None = None,
) -> SampleStream:
    """Draw samples ``first`` to ``first + n - 1`` of one prompt.

    A sample whose server fails in the middle is begun again on another: what was lost is listed in the message's
    ``response_metadata["failed_attempts"]`` and is not part of its usage. ``response_metadata["server"]`` names the
    server; one that was cut off has no usage but ``response_metadata["received_tokens"]``.

    Args:
        pool: the servers.
        messages: the prompt.
        n: how many.
        first: index of the first.
        kwargs: of the chat model's ``_astream``.
        seeds: one for each sample, or None for those without.
        sample_timeout: seconds that a sample may take, all its attempts together; then it has failed.
        timeout: seconds that all may take together.
        rate_limiter: asked before each attempt.

    Raises:
        ConfigurationError: an option is wrong.
        ModelClosedError: the pool was closed.
    """
    return SampleStream(_draw(pool, messages, n, first, kwargs, seeds, sample_timeout, timeout, rate_limiter))


def asample(
    pool: ReplicaPool,
    messages: list[BaseMessage],
    *,
    n: int,
    first: int = 0,
    kwargs: Mapping[str, Any] | None = None,
    seeds: Sequence[int | None] | None = None,
    sample_timeout: float | None = None,
    timeout: float | None = None,
    rate_limiter: BaseRateLimiter | None = None,
) -> AsyncSampleStream:
    """As :func:`sample`, for ``async for``."""
    return AsyncSampleStream(_draw(pool, messages, n, first, kwargs, seeds, sample_timeout, timeout, rate_limiter))


def _draw(
    pool: ReplicaPool,
    messages: list[BaseMessage],
    n: int,
    first: int,
    kwargs: Mapping[str, Any] | None,
    seeds: Sequence[int | None] | None,
    sample_timeout: float | None,
    timeout: float | None,
    rate_limiter: BaseRateLimiter | None,
) -> _Draw:
    return _Draw(
        pool=pool,
        messages=messages,
        n=n,
        first=first,
        kwargs=kwargs or {},
        seeds=seeds,
        sample_timeout=sample_timeout,
        timeout=timeout,
        rate_limiter=rate_limiter,
    )
