"""Servers that never stop sending, or send too much, cost only one sample, little time and bounded memory."""

import asyncio
import gzip
import resource
import sys
import time
from typing import Any, Final

import pytest
from langchain_reasc_openai import ChatOpenAICompatible

from langchain_reasc import ReASCRunnable

from .conftest import FIELDS, WAYS, Chat
from .exchange import Answer, Exchange
from .fake_server import serving
from .test_faults import BAD, reasc_over, sample_meets

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
        for choice in range(exchange.body.get("n") or 1):
            await exchange.token("so ", choice=choice)


def peak() -> int:
    """Return the process's peak memory in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize(
    ("endless", "logprobs", "chat", "runner"),
    [
        (tokens, True, "ChatOpenAI", WAYS[0]),
        (tokens, True, "ChatOpenAICompatible", WAYS[1]),
        (chunks(content="so "), False, "ChatOpenAI", WAYS[1]),
        (chunks(content=""), False, "ChatOpenAICompatible", WAYS[0]),
        (chunks(content="so " * 9), True, "ChatOpenAICompatible", WAYS[0]),
    ],
    indirect=["chat", "runner"],
)
def test_a_response_ends_soon_after_its_limit(runner: Any, chat: Chat, endless: Answer, logprobs: bool) -> None:
    before = peak()
    with sample_meets(endless) as served:
        model = chat(served.url, max_tokens=LIMIT)
        reasc = reasc_over(model) if logprobs else ReASCRunnable(model=model)
        result = runner.solve(reasc, "q")
    assert result.answer == "42"
    cut = result.responses[BAD]
    assert (cut.status, cut.answer) == ("complete", None)
    assert cut.message.response_metadata["finish_reason"] == "length"
    assert len(cut.message.text) <= 4 * (2 * LIMIT + 64) + 30
    assert peak() - before < MOST_MEMORY


def test_a_response_ends_soon_among_others_of_its_request() -> None:
    options: dict[str, Any] = {"preset": "vllm", "samples_per_request": 2, "max_tokens": LIMIT}
    with serving(tokens) as served:
        model = ChatOpenAICompatible(base_url=served.url, **options, **FIELDS | {"seed": None})
        with model.sample("q", n=2) as samples:
            for _, message in samples:
                assert message.response_metadata["finish_reason"] == "length"
                assert len(message.text) <= 4 * (2 * LIMIT + 64) + 30


PACKED: Final = "content-type: text/event-stream\r\ncontent-encoding: gzip"


@pytest.mark.parametrize(
    ("flood", "says", "runner"),
    [
        (sends_for_ever(("data: " + "so " * 100 + "\n") * 300), "16 MiB", WAYS[0]),
        (sends_for_ever(": so\n\n" * 9000), r"1 s \(stream_chunk_timeout\)", WAYS[1]),
        (sends_for_ever(gzip.compress(bytes(64 << 20)), PACKED), r"\(gzip\)", WAYS[0]),
        (sends_for_ever("no! " * 20_000, "content-type: text/plain", status=500), "Error code: 500", WAYS[1]),
    ],
    ids=["one event", "comments", "gzip bomb", "error body"],
    indirect=["runner"],
)
@pytest.mark.parametrize("chat", ["ChatOpenAICompatible"], indirect=True)
def test_a_flood_fails_its_sample_alone(runner: Any, chat: Chat, flood: Answer, says: str) -> None:
    before, begun = peak(), time.monotonic()
    with sample_meets(flood) as served:
        model = chat(served.url, stream_chunk_timeout=1 if "stream_chunk" in says else 20)
        result = runner.solve(reasc_over(model), "q")
    assert result.answer == "42"
    assert result.responses[BAD].status == "failed"
    with pytest.raises(type(result.failures[0]), match=says):
        raise result.failures[0]
    assert peak() - before < MOST_MEMORY
    assert time.monotonic() - begun < 30


def test_the_time_of_a_sample_has_an_end_by_default() -> None:
    assert ReASCRunnable.model_fields["sample_timeout"].default == 3600
    assert ChatOpenAICompatible.model_fields["sample_timeout"].default == 3600
