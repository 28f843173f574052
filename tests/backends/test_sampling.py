"""Parallel samples: one prefill, slots, cancellation, determinism, several callers at once."""

import asyncio
import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc.exceptions import ConfigurationError, ModelClosedError

from .faces import Face

LONG_PROMPT = "the more words there are, the more there is to prefill " * 10


def wait_until_decoding(model: ChatLlamaCpp) -> None:
    """Return once the engine has begun to decode something it had not when this was called."""
    context = model._engine.context
    before, deadline = context.decoded, time.monotonic() + 20
    while context.decoded < before + 2 and time.monotonic() < deadline:
        time.sleep(0.001)


def output_tokens(message: AIMessage) -> int:
    assert message.usage_metadata is not None
    return message.usage_metadata["output_tokens"]


def cache_read(message: AIMessage) -> int:
    assert message.usage_metadata is not None
    return message.usage_metadata["input_token_details"]["cache_read"]


def texts(samples: list[tuple[int, AIMessage]]) -> dict[int, str]:
    return {index: str(message.content) for index, message in samples}


def test_samples_share_one_prefill(endless: ChatLlamaCpp, face: Face) -> None:
    context = endless._engine.context
    question = f"asked by {type(face).__name__}: {LONG_PROMPT}"
    prompt = len(endless._prompt(question))
    before = context.decoded
    samples = dict(face.sample(endless, question, n=5, max_tokens=10))
    # The prompt once; the first token of a sample is drawn from the prompt's logits, the last is not decoded.
    assert context.decoded - before == prompt + 5 * 9
    assert [cache_read(samples[i]) for i in range(5)] == [0, *[prompt] * 4]


def test_the_next_wave_of_a_prompt_prefills_nothing(endless: ChatLlamaCpp, face: Face) -> None:
    context = endless._engine.context
    face.invoke(endless, "something else", max_tokens=1)
    first = face.sample(endless, LONG_PROMPT, n=4, max_tokens=10)
    before = context.decoded
    second = face.sample(endless, LONG_PROMPT, n=4, first=4, max_tokens=10)
    assert context.decoded - before == 4 * 9
    assert {cache_read(message) for _, message in second} == {len(endless._prompt(LONG_PROMPT))}
    assert sorted(texts(first) | texts(second)) == list(range(8))
    assert len(set((texts(first) | texts(second)).values())) == 8


def test_seeds_are_counted_from_the_models(endless: ChatLlamaCpp, face: Face) -> None:
    samples = dict(face.sample(endless, "hi", n=3, first=7, max_tokens=8))
    assert {i: m.response_metadata["seed"] for i, m in samples.items()} == {7: 8, 8: 9, 9: 10}


def told(samples: list[tuple[int, AIMessage]]) -> list[Any]:
    """Everything about samples but how long they took."""
    return [
        (index, message.content, {k: v for k, v in message.response_metadata.items() if k != "timing"})
        for index, message in samples
    ]


QUESTIONS = [f"Kira has {n} roses and buys 12 more. How many roses does Kira have?" for n in (7, 8)]


def test_the_same_calls_give_the_same_responses_to_the_last_bit(face: Face) -> None:
    courses = []
    for _ in range(2):
        with ChatLlamaCpp(seed=1) as model:
            courses.append([told(face.sample(model, question, n=8)) for question in [*QUESTIONS, QUESTIONS[0]]])
    assert courses[0] == courses[1]
    with ChatLlamaCpp(seed=2) as model:
        assert told(face.sample(model, QUESTIONS[0], n=8)) != courses[0][0]


def test_without_cached_prompts_a_response_depends_on_its_request_alone(face: Face) -> None:
    with ChatLlamaCpp(seed=1, cached_prompts=0) as model:
        first = told(face.sample(model, QUESTIONS[0], n=8))
        face.sample(model, QUESTIONS[1], n=3)
        face.invoke(model, "Something else in between?")
        assert told(face.sample(model, QUESTIONS[0], n=8)) == first


def test_the_same_seed_gives_the_same_texts(shipped: ChatLlamaCpp, face: Face) -> None:
    first = face.sample(shipped, QUESTIONS[0], n=8)
    face.invoke(shipped, "Something else in between?")
    assert texts(face.sample(shipped, QUESTIONS[0], n=8)) == texts(first)
    assert texts(face.sample(shipped, QUESTIONS[0], n=8, seed=1000)) != texts(first)


def test_samples_come_in_the_order_they_end(shipped: ChatLlamaCpp, face: Face) -> None:
    samples = face.sample(shipped, "Kira has 7 roses and buys 12 more. How many roses does Kira have?", n=8)
    lengths = [output_tokens(message) for _, message in samples]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 1
    assert sorted(i for i, _ in samples) == list(range(8))


def test_more_samples_than_slots_run_in_turns(shipped: ChatLlamaCpp, face: Face) -> None:
    samples = dict(face.sample(shipped, "Kira has 7 roses and buys 12 more. How many roses does Kira have?", n=21))
    assert sorted(samples) == list(range(21))
    assert {m.response_metadata["finish_reason"] for m in samples.values()} == {"stop"}
    assert all(len(m.response_metadata["token_signals"]["top_k"]) == output_tokens(m) for m in samples.values())


def test_a_full_cache_makes_the_youngest_wait(endless_path: Path, face: Face) -> None:
    options: dict[str, Any] = {"n": 4, "max_tokens": 150, "temperature": 0.0}
    with ChatLlamaCpp(model_path=endless_path, n_ctx=256, n_cells=4096) as roomy:
        wanted = texts(face.sample(roomy, "hi", **options))
    with ChatLlamaCpp(model_path=endless_path, n_ctx=256, n_cells=256) as crowded:
        context = crowded._engine.context
        got = face.sample(crowded, "hi", **options)
        assert texts(got) == wanted
        assert {output_tokens(message) for _, message in got} == {150}
        # Each was set back at least once but the first, so tokens were decoded again.
        assert context.decoded > len(crowded._prompt("hi")) + 4 * 149
        # Interrupted or not, a sample is what it is: drawn ones too end and have all their signals.
        drawn = face.sample(crowded, "hi", n=4, max_tokens=150)
        assert {len(m.response_metadata["token_signals"]["top_k"]) for _, m in drawn} == {150}


def test_a_response_ends_where_the_context_does(endless_path: Path, face: Face) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=64) as model:
        prompt = len(model._prompt("hi"))
        for _, message in face.sample(model, "hi", n=3, max_tokens=1000):
            assert output_tokens(message) == 64 - prompt
            assert message.response_metadata["finish_reason"] == "length"


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


def test_samples_that_had_not_begun_do_not_come_out(endless: ChatLlamaCpp, face: Face) -> None:
    got: list[tuple[int, AIMessage]] = []
    with endless.sample("hi", n=50, max_tokens=2000) as samples:
        wait_until_decoding(endless)
        samples.cancel()
        got.extend(samples)
    assert sorted(i for i, _ in got) == list(range(8))
    assert {m.response_metadata["finish_reason"] for _, m in got} == {"cancelled"}


def test_cancelling_takes_one_decode_step(endless: ChatLlamaCpp) -> None:
    context = endless._engine.context
    for _ in range(10):
        with endless.sample("hi", n=8, max_tokens=3000) as samples:
            wait_until_decoding(endless)
            samples.cancel()
            at = context.decoded
            list(samples)
            assert context.decoded - at <= 8


def test_dropping_or_leaving_a_stream_frees_its_sequences(endless: ChatLlamaCpp) -> None:
    context = endless._engine.context
    for leave in ("break", "close", "del"):
        if leave == "break":
            for _chunk in endless.stream("hi", max_tokens=4000):
                break
        else:
            samples = endless.sample("hi", n=8, max_tokens=4000)
            wait_until_decoding(endless)
            samples.close() if leave == "close" else None
            del samples
        gc.collect()
        at = context.decoded
        endless.invoke("hi", max_tokens=1)  # its turn comes when the abandoned request is over
        assert context.decoded - at <= 8, leave


async def test_a_cancelled_task_frees_its_sequences(endless: ChatLlamaCpp) -> None:
    context = endless._engine.context
    for n in (1, 8):
        task = asyncio.create_task(endless.ainvoke("hi", n=n, max_tokens=4000))
        await asyncio.to_thread(wait_until_decoding, endless)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        at = context.decoded
        await endless.ainvoke("hi", max_tokens=1)  # its turn comes when the abandoned request is over
        assert context.decoded - at <= 8


async def test_leaving_an_async_stream_frees_its_sequences(endless: ChatLlamaCpp) -> None:
    context = endless._engine.context
    for leave in ("break", "break out of samples", "drop"):
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
        gc.collect()
        await asyncio.sleep(0.01)  # an async generator left behind is closed by the loop
        at = context.decoded
        await endless.ainvoke("hi", max_tokens=1)  # its turn comes when the abandoned request is over
        assert context.decoded - at <= 8, leave


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


def test_threads_take_turns_and_get_their_own_answers(shipped: ChatLlamaCpp) -> None:
    questions = [f"Kira has {n} roses. Kira buys 2 roses. How many roses does Kira have?" for n in range(3, 9)]
    wanted = {q: texts(list(shipped.sample(q, n=4))) for q in questions}
    got: dict[str, dict[int, str]] = {}

    def ask(question: str) -> None:
        got[question] = texts(list(shipped.sample(question, n=4)))

    threads = [threading.Thread(target=ask, args=(question,)) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert got == wanted


def test_several_event_loops_at_once(shipped: ChatLlamaCpp) -> None:
    question = "Kira has 7 roses and buys 12 more. How many roses does Kira have?"
    wanted = shipped.invoke(question).content
    got: list[object] = []

    async def ask() -> None:
        got.extend(m.content for m in await asyncio.gather(*(shipped.ainvoke(question) for _ in range(3))))

    threads = [threading.Thread(target=lambda: asyncio.run(ask())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert got == [wanted] * 9


def test_closing_ends_what_runs_and_what_waits(endless_path: Path) -> None:
    model = ChatLlamaCpp(model_path=endless_path, n_ctx=4096)
    running, waiting = model.sample("hi", n=8), model.sample("ho", n=1)
    wait_until_decoding(model)
    model.close()
    for samples in (running, waiting):
        with pytest.raises(ModelClosedError, match="closed"):
            list(samples)


@pytest.mark.parametrize("n", [0, -1, 1025])
def test_n_has_limits(shipped: ChatLlamaCpp, face: Face, n: int) -> None:
    with pytest.raises(ConfigurationError, match=r"n: .*1"):
        face.sample(shipped, "hi", n=n)
