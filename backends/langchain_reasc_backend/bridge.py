"""What is made in one thread and read in another, or in an event loop: the one way across.

Whoever makes it is given a :class:`Sender`, and says how it is cancelled (:data:`Start`). Whoever reads it has a
:class:`Stream` or an :class:`AsyncStream`, which cancels what nobody reads any more.
"""

import asyncio
import queue
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from langchain_reasc.threads import taken_from
from langchain_reasc_backend.closing import Closing

__all__ = ["AsyncStream", "End", "Sender", "Start", "Stream"]

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class End:
    """Nothing follows; the reader is raised the error, where there is one."""

    error: BaseException | None = None


def _nothing() -> None: ...


def _same(item: Any) -> Any:
    return item


class Sender(Generic[S]):
    """The sending end, for any thread. It does not hold the reading end, which can so be dropped while this is used.

    Attributes:
        put: hands over an item, or the end; neither blocks nor raises. What comes after an end is lost.
        cancel: asks whoever sends to stop.
        closed: whether nobody reads any more.
    """

    put: Callable[[S | End], None]

    def __init__(self) -> None:
        self.cancel: Callable[[], object] = _nothing
        self.closed = False

    def close(self) -> None:
        """Nobody reads any more: cancel, and let go of whoever sends."""
        cancel, self.cancel, self.closed = self.cancel, _nothing, True
        cancel()


Start = Callable[[Sender[S]], Callable[[], object]]
"""Begins to send, and returns what asks for an end, from any thread. What had begun may still be sent before it."""


class _Reading(Closing, Generic[T]):
    """What the two reading ends share."""

    _sender: Sender[Any] | None = None  # until it has begun
    _over = False

    def __init__(self, out: Callable[[Any], T]) -> None:
        self._out = out

    def cancel(self) -> None:
        """Stop what is being made, from any thread; what had begun still comes out, and what had not does not."""
        if self._sender is None:
            self._over = True
        else:
            self._sender.cancel()

    def close(self) -> None:
        """Cancel, and end the iteration."""
        self._over = True
        if self._sender is not None:
            self._sender.close()
            self._sender.put(End())  # for whoever waits

    def __del__(self) -> None:
        if self._sender is not None:
            self._sender.close()

    def _begin(self, start: Start[S], sender: Sender[S]) -> None:
        sender.cancel = start(sender)
        self._sender = sender
        if self._over:  # since a moment ago, by another thread
            self.close()

    def _taken(self, item: Any, stop: type[Exception]) -> T:
        """Return what is made of an item, or raise at the end; the item is None where the stream was over already."""
        if not (self._over or isinstance(item, End)):
            return self._out(item)
        error = None if self._over else item.error
        self._over = True
        if isinstance(item, End) and self._sender is not None:
            self._sender.cancel = _nothing  # which would keep what has ended
            self._sender.put(End())  # for others who wait
        raise error or stop


class Stream(_Reading[T]):
    """What is made elsewhere, read from any thread. ``with`` it, close it or drop it: what nobody reads is cancelled.

    Samples of one prompt come as ``(index, message)`` in the order they end.
    """

    def __init__(self, start: Start[S], out: Callable[[S], T] = _same) -> None:
        """Begin.

        Args:
            start: begins to send.
            out: makes what comes out of what was sent, in the reader's thread.

        Raises:
            Exception: what ``start`` raised.
        """
        super().__init__(out)
        self._came: queue.SimpleQueue[S | End] = queue.SimpleQueue()
        sender = Sender[S]()
        sender.put = self._came.put
        self._begin(start, sender)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Wait for the next item.

        Raises:
            Exception: what the sender ended with, once.
        """
        return self._taken(None if self._over else taken_from(self._came), StopIteration)


class AsyncStream(_Reading[T]):
    """:class:`Stream` for ``async for`` and ``async with``. It begins with the iteration."""

    def __init__(self, prepare: Callable[[], Awaitable[Start[S]]], out: Callable[[S], T] = _same) -> None:
        """Set it up; ``prepare`` is awaited at the first step, and what it returns is called in the reader's loop."""
        super().__init__(out)
        self._prepare = prepare
        self._preparing: asyncio.Future[Start[S]] | None = None
        self._beginning = asyncio.Lock()
        self._came: asyncio.Queue[S | End] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for the next item.

        Raises:
            Exception: what preparing raised or the sender ended with, once.
        """
        if self._sender is None:
            await self._prepared()
        return self._taken(None if self._over else await self._came.get(), StopAsyncIteration)

    def cancel(self) -> None:
        super().cancel()
        if self._preparing is not None:  # which may wait for a silent server, or load a model
            with suppress(RuntimeError):  # the loop has ended
                self._preparing.get_loop().call_soon_threadsafe(self._preparing.cancel)

    async def _prepared(self) -> None:
        async with self._beginning:
            if self._sender is None and not self._over:
                self._preparing = asyncio.ensure_future(self._prepare())
                try:
                    await asyncio.wait([self._preparing])
                    if not self._preparing.cancelled():
                        start = self._preparing.result()
                        if not self._over:  # nor cancelled meanwhile
                            self._begin(start, _LoopSender(self._came))
                except Exception:
                    self._over = True
                    raise
                finally:
                    self._preparing.cancel()  # where this reader was
                    self._preparing = None


class _LoopSender(Sender[S]):
    """Sends to a queue of the event loop that it is made in."""

    def __init__(self, came: "asyncio.Queue[S | End]") -> None:
        super().__init__()
        self.arrived, self._loop = came.put_nowait, asyncio.get_running_loop()
        self._me: weakref.ref[_LoopSender[Any]] = weakref.ref(self)
        self._mail = _MAIL.setdefault(self._loop, _Mail())

    def put(self, item: S | End) -> None:
        mail = self._mail
        mail.posted.append((self._me, item))
        if not mail.on_its_way or self._loop.is_closed():
            mail.on_its_way = True
            try:
                self._loop.call_soon_threadsafe(mail.deliver)
            except RuntimeError:  # the loop has ended, and its readers with it
                mail.posted.clear()
                self.close()


class _Mail:
    """What is on its way into an event loop, for all who read there: what comes together wakes the loop once."""

    def __init__(self) -> None:
        self.posted: deque[tuple[weakref.ref[_LoopSender[Any]], Any]] = deque()
        self.on_its_way = False

    def deliver(self) -> None:
        """Bring everything to its queue; called in the loop."""
        self.on_its_way = False
        while self.posted:
            to, item = self.posted.popleft()
            if (sender := to()) is not None:
                sender.arrived(item)


_MAIL: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mail]] = weakref.WeakKeyDictionary()
