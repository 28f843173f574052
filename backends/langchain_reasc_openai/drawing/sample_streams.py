"""Samples of one prompt drawn from a pool of servers together, as streams that can be cut at once.

**One request per sample, or one for several?** On a real llama-server (``python -m trials.abort``; 8 samples of a
prompt of 398 tokens that it had not seen) a request per sample computed 3,184 prompt tokens, one request with ``n=8``
398, and was done sooner; servers that charge for the prompt charge it once, too. Early abort is no reason against it:
the request is streamed, its responses are told apart and come out as each ends, and the whole stream is closed when the
decision falls. In both ways the server generated under 1 % of what was to come. A request per sample is worth its price
where samples should fail, move and be seeded one by one, or be spread over servers, and it is all that some servers
offer. So ``per_request`` is the caller's choice, 1 by default.

Everything runs in the pool's event loop, for synchronous callers too. A thread blocked in a read sees a cancellation
only when its next token arrives; a task is cancelled where it waits, and its connection is closed in the same moment.
"""

from collections.abc import Awaitable, Callable
from typing import Self

from langchain_core.messages import AIMessage

from langchain_reasc.models.closing import Closing
from langchain_reasc.models.contract import FailedSample
from langchain_reasc_openai.drawing.draw import Draw
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.routing.event_loop import AsyncItems, Items

__all__ = ["AsyncSampleStream", "SampleStream"]


class SampleStream(Closing):
    """Samples as ``(index, message)`` in the order they end. ``with`` it, close it or drop it to cut off the rest."""

    def __init__(self, draw: Draw) -> None:
        """Begin to draw.

        Raises:
            ModelClosedError: the pool was closed.
        """
        self._draw = draw
        self._items = Items(draw.pool.loop, draw.produce)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, AIMessage | FailedSample]:
        """The next sample to end; one that failed comes as a :class:`~langchain_reasc.models.prepared.FailedSample`."""
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


class AsyncSampleStream(Closing):
    """:class:`SampleStream` for ``async for`` and ``async with``. The requests are sent when iteration begins."""

    def __init__(self, prepare: Callable[[], Awaitable[Draw]]) -> None:
        """Set it up; ``prepare`` is awaited at the first step, and may ask the servers what they support."""
        self._prepare = prepare
        self._draw: Draw | None = None
        self._items: AsyncItems[Drawn] | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, AIMessage | FailedSample]:
        """The next sample to end; one that failed comes as a :class:`~langchain_reasc.models.prepared.FailedSample`."""
        if self._items is None and not self._over:
            self._draw = await self._prepare()
            if not self._over:  # nor cancelled meanwhile
                self._items = AsyncItems(self._draw.pool.loop, self._draw.produce)
        if self._items is None:
            raise StopAsyncIteration
        drawn = await anext(self._items)
        return drawn.index, drawn.outcome()

    def cancel(self) -> None:
        """Cancel as :meth:`SampleStream.cancel` does."""
        if self._draw is None:
            self._over = True
        else:
            self._draw.cancel()

    def close(self) -> None:
        """Cut off what runs, and end the iteration."""
        self._over = True
        if self._items is not None:
            self._items.close()
