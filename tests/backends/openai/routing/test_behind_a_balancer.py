"""Several servers behind one address: a balancer that hands each connection to the next of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from langchain_reasc_openai.routing.retrying import RetryPolicy
from servers.fake_server import in_thread, listening

from backends.openai.fake_server import Fake
from backends.openai.pools import (
    Script,
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


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    writer.close()


def balanced(*urls: str) -> AbstractContextManager[str]:
    """The address of a balancer before the servers."""
    turns = [urlsplit(url) for url in urls]

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turns.append(server := turns.pop(0))
        try:
            theirs, ours = await asyncio.open_connection(server.hostname, server.port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()
            return
        both = [asyncio.create_task(_pass_on(*pair)) for pair in ((reader, ours), (theirs, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for end in (ours, writer):
            end.close()

    @asynccontextmanager
    async def balancing() -> AsyncIterator[str]:
        async with listening(connected) as port:
            yield f"http://127.0.0.1:{port}/v1"

    return in_thread(balancing())


@pytest.mark.parametrize("fault", [refuses(500), refuses(503), refuses(429), cut_after(2)])
def test_a_sample_that_one_server_fails_is_drawn_again(calls: Any, fault: Any) -> None:
    bad, good = Script(fault), Script(says("forty two"))
    with serving(bad) as one, serving(good) as two, balanced(one, two) as url, pool_of(url, retry=POLICY) as pool:
        ended = calls.sample(pool, n=4, seeds=[5, 6, 7, 8])
    assert [message.text for _, message in ended] == ["forty two"] * 4
    assert {request["seed"] for request in good.requests} == {5, 6, 7, 8}
    lost = [attempt for _, message in ended for attempt in message.response_metadata.get(FAILED_ATTEMPTS, [])]
    assert len(lost) == len(bad.requests) > 0 and {attempt["server"] for attempt in lost} == {url}


def test_a_server_that_is_away_is_passed_over(calls: Any, gone: Fake) -> None:
    with serving(Script(says("forty two"))) as up, balanced(gone.url, up) as url, pool_of(url, retry=POLICY) as pool:
        assert [message.text for _, message in calls.sample(pool, n=4)] == ["forty two"] * 4


def test_what_is_cut_off_is_cut_off_at_the_servers(calls: Any) -> None:
    scripts = Script(endless), Script(endless)
    with serving(scripts[0]) as one, serving(scripts[1]) as two, balanced(one, two) as url, pool_of(url) as pool:
        calls.cancelled_when(pool, lambda: all(script.open == 2 for script in scripts), n=4)
        assert eventually(lambda: not any(script.open for script in scripts))
