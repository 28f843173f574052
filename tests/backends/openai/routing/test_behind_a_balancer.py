"""Several servers behind one address: a balancer that hands each connection to the next of them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from langchain_reasc_openai.routing.retrying import RetryPolicy

from backends.openai.pools import (
    AsyncCalls,
    Script,
    SyncCalls,
    cut_after,
    endless,
    eventually,
    pool_of,
    refuses,
    says,
    serving,
)
from langchain_reasc.models.contract import FAILED_ATTEMPTS

POLICY = RetryPolicy(attempts=10, first_wait=0.01, longest_wait=0.02, sideline=60)


@pytest.fixture(params=[SyncCalls, AsyncCalls], ids=["sync", "async"])
def calls(request: pytest.FixtureRequest) -> Any:
    return request.param()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def balanced(*urls: str) -> Iterator[str]:
    """The address of a balancer before the servers."""
    turns: list[tuple[str, int]] = []
    began: list[Any] = []
    ready = threading.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not turns:
            turns.extend((urlsplit(url).hostname or "", urlsplit(url).port or 0) for url in urls)
        try:
            theirs, ours = await asyncio.open_connection(*turns.pop(0))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()
            return
        both = [asyncio.create_task(_pass_on(*pair)) for pair in ((reader, ours), (theirs, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for end in (ours, writer):
            end.close()

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        stop = asyncio.Event()
        began.extend([server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop])
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    port, loop, stop = began
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@pytest.mark.parametrize("fault", [refuses(500), refuses(503), refuses(429), cut_after(2)])
def test_a_sample_that_one_server_fails_is_drawn_again(calls: Any, fault: Any) -> None:
    bad, good = Script(fault), Script(says("forty two"))
    with serving(bad) as one, serving(good) as two, balanced(one, two) as url, pool_of(url, retry=POLICY) as pool:
        ended = calls.sample(pool, n=4, seeds=[5, 6, 7, 8])
    assert [message.text for _, message in ended] == ["forty two"] * 4
    assert {request["seed"] for request in good.requests} == {5, 6, 7, 8}
    lost = [attempt for _, message in ended for attempt in message.response_metadata.get(FAILED_ATTEMPTS, [])]
    assert len(lost) == len(bad.requests) > 0 and {attempt["server"] for attempt in lost} == {url}


def test_a_server_that_is_away_is_passed_over(calls: Any) -> None:
    with serving(Script(says("no"))) as gone:
        pass
    with serving(Script(says("forty two"))) as up, balanced(gone, up) as url, pool_of(url, retry=POLICY) as pool:
        assert [message.text for _, message in calls.sample(pool, n=4)] == ["forty two"] * 4


def test_what_is_cut_off_is_cut_off_at_the_servers(calls: Any) -> None:
    scripts = Script(endless), Script(endless)
    with serving(scripts[0]) as one, serving(scripts[1]) as two, balanced(one, two) as url, pool_of(url) as pool:
        calls.cancelled_when(pool, lambda: all(script.open == 2 for script in scripts), n=4)
        assert eventually(lambda: not any(script.open for script in scripts))
