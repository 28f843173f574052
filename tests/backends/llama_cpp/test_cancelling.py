"""What is cut off, fails, or is abandoned stops generating and frees its sequences; nobody else loses anything."""

import asyncio
import gc
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_reasc_backend.bridge import End
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import GenerationRequest
from langchain_reasc_llama_cpp.grammar import Grammar
from langchain_reasc_llama_cpp.sampling import SamplingParameters

from backends.llama_cpp.conftest import REAL, real_options
from backends.llama_cpp.faces import (
    Face,
    cache_read,
    input_tokens,
    output_tokens,
    resident,
    texts,
    wait_until,
    wait_until_decoding,
)
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError, ModelError


@pytest.fixture(scope="module", params=["random", *REAL[1:]])
def endless(request: pytest.FixtureRequest, endless: ChatLlamaCpp) -> Iterator[ChatLlamaCpp]:
    """A random model without an end token, and a real one that may not draw its own."""
    if request.param == "random":
        yield endless
        return
    with ChatLlamaCpp(seed=1, cached_prompts=0, **real_options(request)) as model:
        ends = {token: False for token, (_, ends) in enumerate(model.engine.model.pieces()) if ends}
        yield model.model_copy(update={"logit_bias": ends})


def test_cancelled_samples_come_out_with_what_they_cost(endless: ChatLlamaCpp, face: Face) -> None:
    whole = texts(face.sample(endless, "hi", n=4, max_tokens=120))
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
        assert whole[index].startswith(message.text.rstrip("\ufffd"))  # half a character


def test_samples_that_had_not_begun_do_not_come_out(endless: ChatLlamaCpp) -> None:
    context = endless.engine.context
    for n, begun in ((50, 8), (8, 8)):
        with endless.sample("hi", n=n, max_tokens=3000) as samples:
            wait_until_decoding(endless)
            samples.cancel()
            at = context.decoded
            got = dict(samples)
            assert context.decoded - at <= 8  # one decode step
        assert sorted(got) == list(range(begun))
        assert {message.response_metadata["finish_reason"] for message in got.values()} == {"cancelled"}


@asynccontextmanager
async def freed(model: ChatLlamaCpp, *, after: float = 0) -> AsyncIterator[None]:
    """What is abandoned within decodes no more than the step it is in, so many seconds later."""
    yield
    gc.collect()
    await asyncio.sleep(after)
    at = model.engine.context.decoded
    message = await model.ainvoke("hi", max_tokens=1)  # its turn comes when the abandoned request is over
    assert model.engine.context.decoded - at - (input_tokens(message) - cache_read(message)) <= 8


@pytest.mark.full
@pytest.mark.parametrize("leave", ["break", "close", "del", "callback"])
async def test_dropping_or_leaving_a_stream_frees_its_sequences(endless: ChatLlamaCpp, leave: str) -> None:
    class Careless(BaseCallbackHandler):
        raise_error = True

        def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
            raise RuntimeError("careless")

    async with freed(endless):
        if leave == "break":
            for _chunk in endless.stream("hi", max_tokens=4000):
                break
        elif leave == "callback":
            with pytest.raises(RuntimeError, match="careless"):
                list(endless.stream("hi", config={"callbacks": [Careless()]}, max_tokens=1900))
        else:
            samples = endless.sample("hi", n=8, max_tokens=4000)
            wait_until_decoding(endless)
            samples.close() if leave == "close" else None
            del samples


@pytest.mark.parametrize("leave", ["cancel", "break", "break out of samples", "drop"])
async def test_leaving_an_async_stream_frees_its_sequences(endless: ChatLlamaCpp, leave: str) -> None:
    async with freed(endless, after=0.01):  # an async generator left behind is closed by the loop
        if leave == "cancel":
            task = asyncio.create_task(endless.ainvoke("hi", n=8, max_tokens=4000))
            await asyncio.to_thread(wait_until_decoding, endless)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif leave == "break":
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


def test_a_stream_nobody_reads_holds_up_nobody(endless: ChatLlamaCpp) -> None:
    unread = endless.stream("hi", max_tokens=200)
    next(unread)
    unread_samples = endless.sample("ho", n=2, max_tokens=200)
    assert output_tokens(endless.invoke("me", max_tokens=5)) == 5
    assert {output_tokens(message) for _, message in unread_samples} == {200}
    assert sum(1 for _ in unread) > 0  # all of it was generated, and waits to be read


def request(prompt: list[int], events: list[Any], **options: Any) -> GenerationRequest:
    tokens, sampling = np.array(prompt, dtype=np.int32), SamplingParameters()
    return GenerationRequest(
        prompt=tokens, samples=range(1), seed=0, sampling=sampling, max_tokens=4, emit=events.append, **options
    )


@pytest.mark.parametrize(
    ("prompt", "says"),
    [([], "no tokens"), ([1, 259, 3], "token 259.*258"), ([-1], "token -1")],
)
def test_tokens_that_are_none_are_refused(tiny: ChatLlamaCpp, prompt: list[int], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        tiny.engine.submit(request(prompt, []))
    assert isinstance(tiny.invoke("hi"), AIMessage)


def test_a_request_that_cannot_begin_fails_alone_and_has_one_last_event(endless: ChatLlamaCpp) -> None:
    failed: list[Any] = []
    whole: list[Any] = []
    with endless.sample("hi", n=3, max_tokens=100) as running:
        wait_until_decoding(endless)
        endless.engine.submit(request([1, 2, 3], failed, grammar=Grammar(gbnf="root ::= (")))
        endless.engine.submit(request([1, 2, 3], whole))
        assert {message.response_metadata["finish_reason"] for _, message in running} == {"length"}
    wait_until(lambda: whole and isinstance(whole[-1], End))
    assert [isinstance(event, End) for event in whole] == [False, True]
    assert [type(event.error) for event in failed] == [ConfigurationError]


def test_a_failing_decode_ends_what_ran_and_what_waits_goes_on(
    endless_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, n_parallel=1) as model:
        running = model.sample("hi", n=4, max_tokens=1900)
        wait_until_decoding(model)
        waiting = model.sample("ho", n=1, max_tokens=5)

        def broken(*_: Any) -> Any:
            monkeypatch.undo()
            raise OSError("the card fell out")

        monkeypatch.setattr(model.engine.context, "decode", broken)
        with pytest.raises(ModelError, match="the card fell out"):
            list(running)
        assert len(list(waiting)) == 1
        assert len(list(model.sample("hi", n=4, max_tokens=5))) == 4


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.slow  # a load test
def test_a_thousand_requests_cancelled_at_random(endless_path: Path) -> None:
    """From 8 threads; nothing leaks, and those who stayed get the answers they would have had alone."""
    prompts = [f"question {number}: " + "why? " * (number % 7) for number in range(25)]
    exact: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": False}
    with ChatLlamaCpp(model_path=endless_path, n_ctx=512, n_cells=1024, seed=1, max_tokens=12, **exact) as model:
        wanted = [texts(list(model.sample(prompt, n=2))) for prompt in prompts]
        stayed: list[bool] = []

        def visit(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(125):
                number = rng.randrange(len(prompts))
                samples = model.sample(prompts[number], n=2)
                match rng.randrange(5):
                    case 0:
                        samples.cancel()
                    case 1:
                        next(samples)
                        samples.close()
                    case 2:
                        time.sleep(rng.random() / 500)
                        del samples
                    case _:
                        stayed.append(texts(list(samples)) == wanted[number])

        def crowd(first: int) -> None:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(visit, range(first, first + 8), timeout=120))
            gc.collect()

        crowd(0)
        before, threads = resident(), threading.active_count()
        crowd(100)
        assert len(stayed) > 400 and all(stayed)
        assert resident() - before < 8 << 20
        assert threading.active_count() == threads
        decoder = model.engine._worker._decoder
        wait_until(lambda: not decoder.busy)
        assert len(decoder.prompts.prompts) <= 16
        decoder.prompts.swap_out()
        assert (decoder.cells.used, decoder.cells.sequences_left) == (0, 2 * 8 + 2)
