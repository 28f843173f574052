"""Events of a request as iterators, sync and async, that cancel what nobody reads any more."""

import asyncio
import queue
import weakref
from collections.abc import Callable
from functools import partial
from typing import Self

from langchain_core.messages import AIMessage

from langchain_reasc.models.closing import Closing
from langchain_reasc.models.contract import sample_id
from langchain_reasc.models.waiting import taken_from
from langchain_reasc_llama_cpp.engine.pacing import TakesRequests
from langchain_reasc_llama_cpp.engine.request import Completion, Event, Failed, Finished, GenerationRequest

__all__ = ["AsyncEvents", "AsyncSampleStream", "Events", "SampleStream"]

MakeRequest = Callable[[Callable[[Event], None]], GenerationRequest]


class Events:
    """Iterates over a request's events, from the thread that made it. Dropped, it cancels the request."""

    def __init__(self, engine: TakesRequests, make_request: MakeRequest) -> None:
        """Submit the request.

        Raises:
            ModelClosedError: the engine takes no requests.
        """
        self._over = False
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._engine, self._request = engine, make_request(self._queue.put)
        engine.submit(self._request)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        """The next event.

        Raises:
            ModelError: the request failed.
        """
        if self._over:
            raise StopIteration
        event = taken_from(self._queue)
        self._over = isinstance(event, Finished | Failed)
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            raise StopIteration
        return event

    def cancel(self) -> None:
        """Let the live samples go within one decode step; they still come out."""
        self._engine.cancel(self._request)

    def close(self) -> None:
        """Cancel, and end the iteration."""
        self._over = True
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_request"):
            self.close()


class AsyncEvents:
    """Iterates over a request's events in an event loop; the work is done in the engine's thread.

    Dropped, it cancels the request.
    """

    def __init__(self, engine: TakesRequests, make_request: MakeRequest) -> None:
        """Submit the request from inside a running loop.

        Raises:
            ModelClosedError: the engine takes no requests.
        """
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._engine, self._request = engine, make_request(partial(_receive, weakref.ref(self)))
        engine.submit(self._request)

    @classmethod
    async def start(cls, engine: TakesRequests, prepare: Callable[[], MakeRequest]) -> Self:
        """Read the prompt in a thread of the loop's pool, so that a long one does not block the loop; then submit."""
        return cls(engine, await asyncio.to_thread(prepare))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event.

        Raises:
            ModelError: the request failed.
        """
        if self._over:
            raise StopAsyncIteration
        event = await self._queue.get()
        self._over = isinstance(event, Finished | Failed)
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Finished):
            raise StopAsyncIteration
        return event

    def cancel(self) -> None:
        """Let the live samples go within one decode step; they still come out."""
        self._engine.cancel(self._request)

    def close(self) -> None:
        """Cancel, and end the iteration."""
        self._over = True
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_request"):
            self.close()


def _receive(reader: weakref.ref[AsyncEvents], event: Event) -> None:
    """Bring an event from the engine's thread to the loop of whoever reads, if anybody still does."""
    events = reader()
    if events is None:
        return
    try:
        events._loop.call_soon_threadsafe(events._queue.put_nowait, event)
    except RuntimeError:  # the loop is closed
        events._request.cancelled = True


def _named(message: AIMessage) -> AIMessage:
    """The message with an id, as LangChain gives to messages of calls."""
    message.id = sample_id()
    return message


class SampleStream(Closing):
    """Samples of one prompt, as ``(index, message)`` in the order they end.

    ``with`` it, or close it, or drop it: samples nobody reads any more are cancelled.
    """

    def __init__(self, events: Events, message: Callable[[Completion], AIMessage]) -> None:
        self._events, self._message = events, message

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, AIMessage]:
        """The next sample to end.

        Raises:
            ModelError: generating failed.
        """
        for event in self._events:
            if isinstance(event, Completion):
                return event.index, _named(self._message(event))
        raise StopIteration

    def cancel(self) -> None:
        """Stop generating, within one decode step; callable from any thread.

        What was begun still comes out of the iterator, with finish_reason "cancelled", its text so far and its exact
        usage. Samples that had not begun cost nothing and do not come out.
        """
        self._events.cancel()

    def close(self) -> None:
        """Cancel, and end the iteration."""
        self._events.close()


class AsyncSampleStream(Closing):
    """:class:`SampleStream` for ``async for`` and ``async with``. The prompt is submitted when iteration begins."""

    def __init__(
        self, engine: TakesRequests, prepare: Callable[[], MakeRequest], message: Callable[[Completion], AIMessage]
    ) -> None:
        self._engine, self._prepare, self._message = engine, prepare, message
        self._events: AsyncEvents | None = None
        self._cancelled = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, AIMessage]:
        """The next sample to end.

        Raises:
            ModelError: generating failed.
        """
        if self._events is None and not self._cancelled:
            make_request = await asyncio.to_thread(self._prepare)
            self._events = None if self._cancelled else AsyncEvents(self._engine, make_request)
        if self._events is None:
            raise StopAsyncIteration
        async for event in self._events:
            if isinstance(event, Completion):
                return event.index, _named(self._message(event))
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Cancel as :meth:`SampleStream.cancel` does."""
        self._cancelled = True
        if self._events is not None:
            self._events.cancel()

    def close(self) -> None:
        """Cancel, and end the iteration."""
        self._cancelled = True
        if self._events is not None:
            self._events.close()
