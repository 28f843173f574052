"""What is cut off stops generating, frees its sequences, and comes out with what it cost."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face, output_tokens, texts, wait_until_decoding
from langchain_reasc.exceptions import ModelClosedError


def test_cancelled_samples_come_out_with_what_they_cost(endless: ChatLlamaCpp, face: Face) -> None:
    whole = texts(face.sample(endless, "hi", n=4, max_tokens=300))
    stop = next(whole[0][at : at + 5] for at in range(10, 100) if whole[0][at : at + 5].isascii())
    assert not any(stop in whole[i] for i in (1, 2, 3))
    samples = face.sample(endless, "hi", n=4, max_tokens=4000, stop=[stop], cancel_after=1)
    reasons = [(index, message.response_metadata["finish_reason"]) for index, message in samples]
    assert reasons[0] == (0, "stop")
    assert sorted(reasons[1:]) == [(1, "cancelled"), (2, "cancelled"), (3, "cancelled")]
    assert len({output_tokens(message) for _, message in samples[1:]}) == 1  # they were stopped in the same step
    for index, message in samples:
        assert len(message.response_metadata["token_signals"]["top_k"]) == output_tokens(message)
        assert output_tokens(message) >= output_tokens(samples[0][1])
        assert str(message.content)[:10] == whole[index][:10]


def test_samples_that_had_not_begun_do_not_come_out(endless: ChatLlamaCpp) -> None:
    with endless.sample("hi", n=50, max_tokens=2000) as samples:
        wait_until_decoding(endless)
        samples.cancel()
        got = dict(samples)
    assert sorted(got) == list(range(8))
    assert {message.response_metadata["finish_reason"] for message in got.values()} == {"cancelled"}


def test_cancelling_takes_one_decode_step(endless: ChatLlamaCpp) -> None:
    context = endless.engine.context
    for _ in range(10):
        with endless.sample("hi", n=8, max_tokens=3000) as samples:
            wait_until_decoding(endless)
            samples.cancel()
            at = context.decoded
            list(samples)
            assert context.decoded - at <= 8


@asynccontextmanager
async def freed(model: ChatLlamaCpp, *, after: float = 0) -> AsyncIterator[None]:
    """What is abandoned within decodes no more than the step it is in, so many seconds later."""
    yield
    gc.collect()
    await asyncio.sleep(after)
    at = model.engine.context.decoded
    await model.ainvoke("hi", max_tokens=1)  # its turn comes when the abandoned request is over
    assert model.engine.context.decoded - at <= 8


@pytest.mark.parametrize("leave", ["break", "close", "del"])
async def test_dropping_or_leaving_a_stream_frees_its_sequences(endless: ChatLlamaCpp, leave: str) -> None:
    async with freed(endless):
        if leave == "break":
            for _chunk in endless.stream("hi", max_tokens=4000):
                break
        else:
            samples = endless.sample("hi", n=8, max_tokens=4000)
            wait_until_decoding(endless)
            samples.close() if leave == "close" else None
            del samples


@pytest.mark.parametrize("n", [1, 8])
async def test_a_cancelled_task_frees_its_sequences(endless: ChatLlamaCpp, n: int) -> None:
    async with freed(endless):
        task = asyncio.create_task(endless.ainvoke("hi", n=n, max_tokens=4000))
        await asyncio.to_thread(wait_until_decoding, endless)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("leave", ["break", "break out of samples", "drop"])
async def test_leaving_an_async_stream_frees_its_sequences(endless: ChatLlamaCpp, leave: str) -> None:
    async with freed(endless, after=0.01):  # an async generator left behind is closed by the loop
        if leave == "break":
            async for _chunk in endless.astream("hi", max_tokens=4000):
                break
        else:
            samples = endless.asample("hi", n=8, max_tokens=4000)
            reading = asyncio.ensure_future(anext(samples))
            await asyncio.to_thread(wait_until_decoding, endless)
            reading.cancel()
            if leave == "break out of samples":
                await samples.aclose()
            await asyncio.gather(reading, return_exceptions=True)
            del samples, reading


async def test_the_event_loop_keeps_running(endless: ChatLlamaCpp) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticker = asyncio.create_task(tick())
    async with endless.asample("hi", n=8, max_tokens=200) as samples:
        async for _ in samples:
            pass
    ticker.cancel()
    assert ticks > 5


def test_a_waiting_request_is_cancelled_at_once(endless: ChatLlamaCpp) -> None:
    with endless.sample("hi", n=8, max_tokens=4000) as running:
        wait_until_decoding(endless)
        with endless.sample("ho", n=8) as waiting:
            waiting.cancel()
            assert list(waiting) == []
        running.cancel()
        assert len(list(running)) == 8  # it was running all the while


def test_closing_ends_what_runs_and_what_waits(endless_path: Path) -> None:
    model = ChatLlamaCpp(model_path=endless_path, n_ctx=4096)
    running, waiting = model.sample("hi", n=8), model.sample("ho", n=1)
    wait_until_decoding(model)
    model.close()
    for samples in (running, waiting):
        with pytest.raises(ModelClosedError, match="closed"):
            list(samples)
