"""Samples of one prompt drawn from a pool of servers together, as streams that can be cut at once.

**One request per sample, or one for several?** On a real llama-server (``python -m benchmarks.abort``; 8 samples of a
prompt of 398 tokens that it had not seen) a request per sample computed 3,184 prompt tokens, one request with ``n=8``
398, and was done sooner; servers that charge for the prompt charge it once, too. Early abort is no reason against it:
the request is streamed, its responses are told apart and come out as each ends, and the whole stream is closed when the
decision falls. In both ways the server generated under 1 % of what was to come. A request per sample is worth its price
where samples should fail, move and be seeded one by one, or be spread over servers, and it is all that some servers
offer. So ``per_request`` is the caller's choice, 1 by default.

Everything runs in the pool's event loop, for synchronous callers too. A thread blocked in a read sees a cancellation
only when its next token arrives; a task is cancelled where it waits, and its connection is closed in the same moment.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter

from langchain_reasc.source import FailedSample
from langchain_reasc_openai.drawing.draw import Draw
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.routing.event_loop import AsyncItems, Items
from langchain_reasc_openai.routing.replicas import ReplicaPool

__all__ = ["AsyncSampleStream", "SampleStream", "asample", "sample"]


class SampleStream:
    """Samples as ``(index, message)`` in the order they end. ``with`` it, close it or drop it to cut off the rest."""

    def __init__(self, draw: Draw) -> None:
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

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._items: AsyncItems[Drawn] | None = None
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
    per_request: int = 1,
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
        seeds: one for each sample, or None for those without. Samples of one request are drawn with the first one's.
        per_request: how many samples are asked for in one request, by ``n``, of servers that know it. What such a
            request does not return is drawn one by one; its prompt is billed to the sample that ends last.
        sample_timeout: seconds that a sample may take, all its attempts together; then it has failed.
        timeout: seconds that all may take together.
        rate_limiter: asked before each attempt.

    Raises:
        ConfigurationError: an option is wrong.
        ModelClosedError: the pool was closed.
    """
    return SampleStream(
        _draw(pool, messages, n, first, kwargs, seeds, per_request, sample_timeout, timeout, rate_limiter)
    )


def asample(
    pool: ReplicaPool,
    messages: list[BaseMessage],
    *,
    n: int,
    first: int = 0,
    kwargs: Mapping[str, Any] | None = None,
    seeds: Sequence[int | None] | None = None,
    per_request: int = 1,
    sample_timeout: float | None = None,
    timeout: float | None = None,
    rate_limiter: BaseRateLimiter | None = None,
) -> AsyncSampleStream:
    """As :func:`sample`, for ``async for``."""
    return AsyncSampleStream(
        _draw(pool, messages, n, first, kwargs, seeds, per_request, sample_timeout, timeout, rate_limiter)
    )


def _draw(
    pool: ReplicaPool,
    messages: list[BaseMessage],
    n: int,
    first: int,
    kwargs: Mapping[str, Any] | None,
    seeds: Sequence[int | None] | None,
    per_request: int,
    sample_timeout: float | None,
    timeout: float | None,
    rate_limiter: BaseRateLimiter | None,
) -> Draw:
    return Draw(
        pool=pool,
        messages=messages,
        n=n,
        first=first,
        kwargs=kwargs or {},
        seeds=seeds,
        per_request=per_request,
        sample_timeout=sample_timeout,
        timeout=timeout,
        rate_limiter=rate_limiter,
    )
