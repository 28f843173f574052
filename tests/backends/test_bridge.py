"""One bridge between threads and loops: in whatever order things happen, nothing is lost, said twice or left on."""

import asyncio
import gc
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_backend.bridge import AsyncStream, End, Sender, Stream
from properties import examples

OVER: Final = "over"


class InThreads:
    """Reads in threads."""

    def open(self, start: Any, *out: Any) -> Any:
        return Stream(start, *out)

    async def next(self, stream: Any) -> Any:
        return await asyncio.to_thread(next, stream, OVER)

    def run(self, start: Any) -> list[Any]:
        with Stream[Any](start) as stream:
            return list(stream)


class InLoop:
    """Reads in an event loop."""

    def open(self, start: Any, *out: Any) -> Any:
        async def begin() -> Any:
            return start

        return AsyncStream(begin, *out)

    async def next(self, stream: Any) -> Any:
        return await anext(stream, OVER)

    def run(self, start: Any) -> list[Any]:
        async def main() -> list[Any]:
            async with self.open(start) as stream:
                return [item async for item in stream]

        return asyncio.run(main())


class Source:
    """Sends what the test says; ``begun`` first, so that an asynchronous reader has begun when it has that."""

    def __init__(self) -> None:
        self.sender, self.cancels = Sender[Any](), 0

    def start(self, sender: Sender[Any]) -> Callable[[], None]:
        self.sender = sender
        sender.put("begun")
        return self.cancel

    def cancel(self) -> None:
        self.cancels += 1

    def send(self, *items: Any) -> None:
        for item in items:
            self.sender.put(item)


def sending(*runs: Callable[[Sender[Any]], None]) -> Any:
    """Starts a thread for each way of sending."""

    def start(sender: Sender[Any]) -> Callable[[], None]:
        for run in runs:
            threading.Thread(target=run, args=[sender]).start()
        return lambda: None

    return start


@pytest.fixture(params=[InThreads, InLoop], ids=["thread", "loop"])
def way(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def stream(way: Any, source: Source) -> Any:
    """A stream that has begun."""
    opened = way.open(source.start)
    assert await way.next(opened) == "begun"
    return opened


async def rest(way: Any, stream: Any) -> list[Any]:
    items = []
    while (item := await way.next(stream)) is not OVER:
        items.append(item)
    return items


async def waiting(read: Awaitable[Any]) -> "asyncio.Future[Any]":
    """Somebody who waits for the next item, and waits by now."""
    reader = asyncio.ensure_future(read)
    await asyncio.sleep(0.02)
    assert not reader.done()
    return reader


PAUSES: Final = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.002]), max_size=8)


@examples(25)
@given(sent=PAUSES, read=PAUSES, fails=st.booleans())
@pytest.mark.parametrize("kind", [InThreads, InLoop])
def test_all_comes_in_order_whoever_is_the_slower(kind: Any, sent: list[float], read: list[float], fails: bool) -> None:
    way, came, pauses = kind(), [], iter(read)

    def send(sender: Sender[Any]) -> None:
        for number, pause in enumerate(sent):
            time.sleep(pause)
            sender.put(number)
        sender.put(End(ValueError("no") if fails else None))

    async def main() -> None:
        stream = way.open(sending(send))
        while (item := await way.next(stream)) is not OVER:
            came.append(item)
            await asyncio.sleep(next(pauses, 0.0))

    if fails:
        with pytest.raises(ValueError, match="no"):
            asyncio.run(main())
    else:
        asyncio.run(main())
    assert came == list(range(len(sent)))


def test_many_threads_may_send(way: Any) -> None:
    together = threading.Barrier(8)

    def send(at: int) -> Callable[[Sender[Any]], None]:
        def run(sender: Sender[Any]) -> None:
            together.wait()
            for number in range(300):
                sender.put((at, number))
            if together.wait() == 0:  # all have sent
                sender.put(End())

        return run

    came = way.run(sending(*map(send, range(8))))
    assert len(came) == 8 * 300
    assert all([number for by, number in came if by == at] == list(range(300)) for at in range(8))


async def test_many_may_read_and_all_of_them_are_told_of_the_end(way: Any, stream: Any, source: Source) -> None:
    readers = [await waiting(rest(way, stream)) for _ in range(3)]
    source.send(*range(50), End(ValueError("no")))
    ended = await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), 60)
    assert Counter(type(one) for one in ended) == {list: 2, ValueError: 1}, "the error is raised once"
    assert await way.next(stream) is OVER


async def test_an_error_is_raised_once_after_what_came_before(way: Any, stream: Any, source: Source) -> None:
    source.send(1, 2, End(ValueError("no")), 3, End(ValueError("again")))
    assert [await way.next(stream), await way.next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="no"):
        await way.next(stream)
    assert await rest(way, stream) == []


async def test_what_cannot_begin_raises_and_is_over(way: Any) -> None:
    def refuse(_: Sender[Any]) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await way.next(way.open(refuse))

    async def unprepared() -> Any:
        raise ValueError("no")

    stream = AsyncStream[Any](unprepared)
    with pytest.raises(ValueError, match="no"):
        await anext(stream)
    assert await anext(stream, OVER) is OVER


async def test_what_comes_out_is_made_by_the_reader_and_an_error_there_costs_one_item(way: Any) -> None:
    made_in: list[threading.Thread] = []

    def out(item: Any) -> Any:
        made_in.append(threading.current_thread())
        return item if item == "begun" else 12 // item

    source = Source()
    stream = way.open(source.start, out)
    assert await way.next(stream) == "begun"
    sends = threading.Thread(target=source.send, args=[0, 3, End()])
    sends.start()
    with pytest.raises(ZeroDivisionError):
        await way.next(stream)
    assert await rest(way, stream) == [4]
    assert len(made_in) == 3 and sends not in made_in


async def test_cancelled_what_had_begun_still_comes(way: Any, stream: Any, source: Source) -> None:
    reader = await waiting(way.next(stream))
    await asyncio.to_thread(stream.cancel)
    assert source.cancels == 1
    source.send("what it was at", End())
    assert (await reader, await rest(way, stream)) == ("what it was at", [])
    stream.cancel()
    stream.close()
    assert source.cancels == 1, "it has ended, and is told nothing more"


async def test_closing_cancels_once_and_ends_whoever_waits(way: Any, stream: Any, source: Source) -> None:
    readers = [await waiting(way.next(stream)) for _ in range(2)]
    await asyncio.to_thread(stream.close)
    assert await asyncio.wait_for(asyncio.gather(*readers), 60) == [OVER, OVER]
    stream.close()
    stream.cancel()
    source.send("late", End(ValueError("late")))
    assert (source.cancels, source.sender.closed, await rest(way, stream)) == (1, True, [])


async def test_dropped_it_cancels_at_once_and_its_sender_may_go_on(way: Any, source: Source) -> None:
    stream = way.open(source.start)
    await way.next(stream)
    gc.disable()
    try:
        del stream
        await asyncio.sleep(0.01)
        assert (source.cancels, source.sender.closed) == (1, True)
    finally:
        gc.enable()
    source.send("late", End())


async def test_left_in_the_middle_or_at_the_end_of_with_it_is_cancelled() -> None:
    sources = [Source() for _ in range(4)]
    for item in Stream[Any](sources[0].start):
        assert item == "begun"
        break
    async for item in InLoop().open(sources[1].start):
        assert item == "begun"
        break
    with Stream[Any](sources[2].start) as stream:
        assert next(stream) == "begun"
    async with InLoop().open(sources[3].start) as later:
        assert await anext(later) == "begun"
    assert list(stream) == [item async for item in later] == []
    assert [source.cancels for source in sources] == [1] * 4


async def test_who_waits_too_long_for_an_item_loses_none(source: Source) -> None:
    stream = InLoop().open(source.start)
    await anext(stream)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
    source.send(1, 2, End())
    assert [item async for item in stream] == [1, 2]


@pytest.mark.parametrize("leave", ["cancel", "close"])
@pytest.mark.parametrize("when", ["before", "preparing"])
async def test_what_is_not_wanted_before_it_begins_never_does(leave: str, when: str, source: Source) -> None:
    prepared = asyncio.Event()

    async def begin() -> Any:
        await prepared.wait()
        return source.start

    stream = AsyncStream[Any](begin)
    if when == "preparing":
        readers = [await waiting(anext(stream, OVER)) for _ in range(2)]
        await asyncio.to_thread(getattr(stream, leave))
        prepared.set()
        assert await asyncio.gather(*readers) == [OVER, OVER]
    else:
        getattr(stream, leave)()
    assert [item async for item in stream] == []
    assert source.sender.cancel is Sender[Any]().cancel


async def test_it_begins_once_for_all_who_read_and_anew_after_one_who_left(source: Source) -> None:
    begun = 0
    slow = asyncio.Event()

    async def begin() -> Any:
        nonlocal begun
        begun += 1
        await slow.wait()
        return source.start

    stream = AsyncStream[Any](begin)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.01)
    readers = [await waiting(anext(stream, OVER)) for _ in range(2)]
    slow.set()
    await asyncio.sleep(0.01)
    source.send(End())
    assert set(await asyncio.gather(*readers)) == {"begun", OVER} and begun == 2


async def test_closed_while_it_begins_it_is_cancelled(source: Source) -> None:
    def start(sender: Sender[Any]) -> Any:
        stream.close()  # as another thread may
        return source.start(sender)

    stream = InLoop().open(start)
    assert await anext(stream, OVER) is OVER
    assert source.cancels == 1


def test_a_loop_that_has_ended_cancels_what_was_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source(), Source()]
    streams = [InLoop().open(source.start) for source in sources]

    async def main() -> None:
        for stream in streams:
            await anext(stream)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *_: None)
            sources[0].send("what comes in the loop's last moment, and is never delivered")

    asyncio.run(main())
    for source in sources:
        source.send("late", "later", End())
        assert (source.cancels, source.sender.closed) == (1, True)


async def test_what_comes_together_wakes_a_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source() for _ in range(4)]
    streams = [InLoop().open(source.start) for source in sources]
    readers = [asyncio.ensure_future(rest(InLoop(), stream)) for stream in streams]
    await asyncio.sleep(0.01)
    loop, calls = asyncio.get_running_loop(), []
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *given: (calls.append(given), wake(*given)))
    for source in sources:
        source.send("word", "last word", End())
    assert await asyncio.gather(*readers) == [["begun", "word", "last word"]] * 4
    assert len(calls) == 2, "and once for the four who then say that nobody else need wait"


def test_an_interrupt_ends_the_waiting(way: Any, source: Source) -> None:
    main: Any = threading.main_thread().ident
    interrupt = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        way.run(source.start)
    assert source.cancels == 1
