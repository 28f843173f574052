"""Streams between threads and event loops, and resources closed at the end of ``with``.

A producer (:data:`Start`) gets a :class:`Sender`, and returns a function that cancels
it. The consumer reads a :class:`Stream` or an :class:`AsyncStream`, which cancels the
producer when the stream is closed or dropped.
"""

import asyncio
import queue
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from langchain_reasc.threads import taken_from

S = TypeVar("S")
T = TypeVar("T")


class Closing(ABC):
    """A resource that ``with`` or ``async with`` closes."""

    @abstractmethod
    def close(self) -> None:
        """Close the resource. Closing twice does nothing."""

    async def aclose(self) -> None:
        """Like :meth:`close`, for ``async`` code."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class End:
    """The end of a stream. The reader raises the error, if there is one."""

    error: BaseException | None = None


def _do_nothing() -> None: ...


def _unchanged(item: Any) -> Any:
    return item


class Sender(Generic[S]):
    """The sending end, for any thread. It holds no reference to the reading end, so
    that an unread stream is closed.

    Attributes:
        put: sends an item, or the end; neither blocks nor raises. Items after an end
            are lost.
        cancel: asks the producer to stop.
        closed: whether the reading end is closed.
    """

    put: Callable[[S | End], None]

    def __init__(self) -> None:
        self.cancel: Callable[[], object] = _do_nothing
        self.closed = False

    def close(self) -> None:
        """Cancel, and drop the reference to the producer."""
        cancel, self.cancel, self.closed = self.cancel, _do_nothing, True
        cancel()


Start = Callable[[Sender[S]], Callable[[], object]]
"""Starts sending, and returns a function that asks for the end, from any thread. A few
items may still come first.
"""


class _Reader(Closing, Generic[T]):
    """The base class of both reading ends."""

    _sender: Sender[Any] | None = None  # None before the start
    _over = False

    def __init__(self, out: Callable[[Any], T]) -> None:
        self._out = out

    def cancel(self) -> None:
        """Stop the producer, from any thread. Items that are already on their way still
        come out.
        """
        if self._sender is None:
            self._over = True
        else:
            self._sender.cancel()

    def close(self) -> None:
        """Cancel, and end the iteration."""
        self._over = True
        if self._sender is not None:
            self._sender.close()
            self._sender.put(End())  # wakes readers that wait

    def __del__(self) -> None:
        if self._sender is not None:
            self._sender.close()

    def _begin(self, start: Start[S], sender: Sender[S]) -> None:
        sender.cancel = start(sender)
        self._sender = sender
        if self._over:  # another thread has closed the stream meanwhile
            self.close()

    def _item(self, item: Any, stop: type[Exception]) -> T:
        """Convert an item, or raise at the end. The item is None if the stream was
        already over.
        """
        if not (self._over or isinstance(item, End)):
            return self._out(item)
        error = None if self._over else item.error
        self._over = True
        if isinstance(item, End) and self._sender is not None:
            self._sender.cancel = _do_nothing  # drops the reference to the producer
            self._sender.put(End())  # wakes other readers that wait
        raise error or stop


class Stream(_Reader[T]):
    """A stream read from any thread. Closing, leaving ``with`` or dropping it cancels
    the producer.

    Samples of one prompt come as ``(index, message)`` in the order they end.
    """

    def __init__(self, start: Start[S], out: Callable[[S], T] = _unchanged) -> None:
        """Start the producer.

        Args:
            start: starts sending.
            out: converts each sent item, in the reader's thread.

        Raises:
            Exception: the error of ``start``.
        """
        super().__init__(out)
        self._queue: queue.SimpleQueue[S | End] = queue.SimpleQueue()
        sender = Sender[S]()
        sender.put = self._queue.put
        self._begin(start, sender)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Wait for the next item.

        Raises:
            Exception: the error at the end of the stream, once.
        """
        return self._item(
            None if self._over else taken_from(self._queue), StopIteration
        )


class AsyncStream(_Reader[T]):
    """:class:`Stream` for ``async for`` and ``async with``. The producer starts with
    the iteration.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[Start[S]]],
        out: Callable[[S], T] = _unchanged,
    ) -> None:
        """Create the stream without starting it.

        Args:
            prepare: awaited at the first step; its result is called in the reader's
                loop.
            out: converts each sent item.
        """
        super().__init__(out)
        self._prepare = prepare
        self._preparing: asyncio.Future[Start[S]] | None = None
        self._beginning = asyncio.Lock()
        self._queue: asyncio.Queue[S | End] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for the next item.

        Raises:
            Exception: the error of ``prepare``, or the error at the end of the stream,
                once.
        """
        if self._sender is None:
            await self._prepare_once()
        return self._item(
            None if self._over else await self._queue.get(), StopAsyncIteration
        )

    def cancel(self) -> None:
        super().cancel()
        # it may wait for a silent server, or load a model
        if self._preparing is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._preparing.get_loop().call_soon_threadsafe(self._preparing.cancel)

    async def _prepare_once(self) -> None:
        async with self._beginning:
            if self._sender is None and not self._over:
                self._preparing = asyncio.ensure_future(self._prepare())
                try:
                    await asyncio.wait([self._preparing])
                    if not self._preparing.cancelled():
                        start = self._preparing.result()
                        if not self._over:  # not cancelled meanwhile
                            self._begin(start, _LoopSender(self._queue))
                except Exception:
                    self._over = True
                    raise
                finally:
                    self._preparing.cancel()  # if this reader was cancelled
                    self._preparing = None


class _LoopSender(Sender[S]):
    """Sends to a queue of the running event loop."""

    def __init__(self, target: "asyncio.Queue[S | End]") -> None:
        super().__init__()
        self.receive, self._loop = target.put_nowait, asyncio.get_running_loop()
        self._ref: weakref.ref[_LoopSender[Any]] = weakref.ref(self)
        self._inbox = _INBOXES.setdefault(self._loop, _Inbox())

    def put(self, item: S | End) -> None:
        inbox = self._inbox
        inbox.pending.append((self._ref, item))
        if not inbox.scheduled or self._loop.is_closed():
            inbox.scheduled = True
            try:
                self._loop.call_soon_threadsafe(inbox.distribute)
            except RuntimeError:  # the loop has ended, and its readers with it
                inbox.pending.clear()
                self.close()


class _Inbox:
    """Items on their way into an event loop, for all its readers. Items that come
    together wake the loop once.
    """

    def __init__(self) -> None:
        self.pending: deque[tuple[weakref.ref[_LoopSender[Any]], Any]] = deque()
        self.scheduled = False

    def distribute(self) -> None:
        """Put every item into its queue. Called in the loop."""
        self.scheduled = False
        while self.pending:
            to, item = self.pending.popleft()
            if (sender := to()) is not None:
                sender.receive(item)


_INBOXES: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox]] = (
    weakref.WeakKeyDictionary()
)
