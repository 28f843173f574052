"""Servers that send without end, or too much: a sample of theirs ends soon, alone, and in bounded memory."""

import asyncio
import gzip
import resource
import sys
import time
from typing import Any, Final

import pytest
from langchain_reasc_openai import ChatOpenAICompatible

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SampleTimeout

from .conftest import FIELDS, Chat
from .exchange import Answer, Exchange
from .fake_server import serving
from .faults import RIGHT
from .test_faults import BAD, reasc_over

LIMIT: Final = 50  # max_tokens
MOST_MEMORY: Final = 200 << 20  # bytes by which a test may grow


def sends_for_ever(piece: str | bytes, head: str = "content-type: text/event-stream", status: int = 200) -> Answer:
    """A reply that goes on until the client hangs up."""

    async def behave(exchange: Exchange) -> None:
        raw = piece.encode() if isinstance(piece, str) else piece
        exchange.writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\nconnection: close\r\n\r\n".encode())
        while not exchange.gone.is_set():
            exchange.writer.write(raw)
            await exchange.writer.drain()
            await asyncio.sleep(0)

    return behave


def chunks(**delta: Any) -> Answer:
    async def behave(exchange: Exchange) -> None:
        while True:
            await exchange.event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])

    return behave


async def tokens(exchange: Exchange) -> None:
    while True:
        await exchange.token("so ")


def one_wrong(answer: Answer) -> Any:
    """A server on which one sample goes wrong."""

    async def behave(exchange: Exchange) -> None:
        await (answer if exchange.sample == BAD else RIGHT)(exchange)

    return serving(behave)


def peak() -> int:
    """Bytes that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize(
    ("endless", "logprobs"),
    [(tokens, True), (chunks(content="so "), False), (chunks(content=""), False), (chunks(content="so " * 9), True)],
)
def test_a_response_ends_soon_after_its_limit(runner: Any, chat: Chat, endless: Answer, logprobs: bool) -> None:
    before = peak()
    with one_wrong(endless) as served:
        model = chat(served.url, max_tokens=LIMIT)
        reasc = reasc_over(model) if logprobs else ReASCRunnable(model=model)
        result = runner.solve(reasc, "q")
    assert result.answer == "42"
    cut = result.responses[BAD]
    assert (cut.status, cut.answer) == ("complete", None)
    assert cut.message.response_metadata["finish_reason"] == "length"
    assert len(cut.message.text) <= 4 * (2 * LIMIT + 64) + 30
    assert peak() - before < MOST_MEMORY


def test_a_response_ends_soon_among_others_of_its_request(runner: Any) -> None:
    async def behave(exchange: Exchange) -> None:
        while True:
            for choice in range(exchange.body["n"]):
                await exchange.token("so ", choice=choice)

    with serving(behave) as served:
        model = ChatOpenAICompatible(
            base_url=served.url, preset="vllm", samples_per_request=2, max_tokens=LIMIT, **FIELDS | {"seed": None}
        )
        with model.sample("q", n=2) as samples:
            for _, message in samples:
                assert message.response_metadata["finish_reason"] == "length"
                assert len(message.text) <= 4 * (2 * LIMIT + 64) + 30


BOMB: Final = gzip.compress(bytes(64 << 20))
FLOODS: Final[dict[str, tuple[Answer, str]]] = {
    "one line": (sends_for_ever("data: " + "so " * 20_000), "an event of more than 16 MiB"),
    "lines of one event": (sends_for_ever(("data: " + "so " * 100 + "\n") * 300), "an event of more than 16 MiB"),
    "comments": (sends_for_ever(": so\n\n" * 9000), r"silent for 1 s \(stream_chunk_timeout\)"),
    "gzip bomb": (
        sends_for_ever(BOMB, "content-type: text/event-stream\r\ncontent-encoding: gzip"),
        r"compresses its reply \(gzip\)",
    ),
    "error body": (sends_for_ever("no! " * 20_000, "content-type: text/plain", status=500), "Error code: 500"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_fails_its_sample_alone(runner: Any, flood: str) -> None:
    endless, says = FLOODS[flood]
    before, begun = peak(), time.monotonic()
    with one_wrong(endless) as served:
        model = ChatOpenAICompatible(
            base_url=served.url,
            preset="generic",
            max_retries=0,
            stream_chunk_timeout=1 if flood == "comments" else 20,
            **FIELDS,
        )
        result = runner.solve(reasc_over(model), "q")
    assert result.answer == "42"
    assert result.responses[BAD].status == "failed"
    with pytest.raises(type(result.failures[0]), match=says):
        raise result.failures[0]
    assert peak() - before < MOST_MEMORY
    assert time.monotonic() - begun < 30


async def keep_alives(exchange: Exchange) -> None:
    await exchange.begin()
    while True:
        await exchange.write(": so\n\n")
        await asyncio.sleep(0.02)


def test_a_server_that_only_keeps_alive_ends_with_its_time(runner: Any, chat: Chat) -> None:
    with one_wrong(keep_alives) as served:
        result = runner.solve(reasc_over(chat(served.url), sample_timeout=2), "q")
    assert (result.answer, result.responses[BAD].status) == ("42", "failed")
    assert isinstance(result.failures[0], SampleTimeout)


def test_the_time_of_a_sample_has_an_end_by_default() -> None:
    assert ReASCRunnable.model_fields["sample_timeout"].default == 3600
    assert ChatOpenAICompatible.model_fields["sample_timeout"].default == 3600
