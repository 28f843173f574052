"""Requests that share decode steps: who joins when, who waits for whom, and that nobody's answer depends on it."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face, output_tokens, texts, wait_until_decoding

WORDS = "the more words there are, the more there is to prefill "


@pytest.fixture
def model(endless_path: Path) -> Iterator[ChatLlamaCpp]:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=4096, n_cells=16384, seed=1) as model:
        yield model


def generated(model: ChatLlamaCpp) -> int:
    """Tokens of the samples that are being decoded now."""
    return sum(len(sequence.tokens) for sequence in model.engine._worker._decoder._scheduler.running)


def test_requests_share_decode_steps(model: ChatLlamaCpp) -> None:
    context = model.engine.context
    with model.sample("one", n=2, max_tokens=3000) as first, model.sample("two", n=2, max_tokens=3000) as second:
        wait_until_decoding(model)
        while not model.engine._worker._decoder._scheduler.running[3:]:
            time.sleep(0.001)
        before, steps, seconds = context.decoded, context.steps, context.decode_seconds
        while context.steps < steps + 200:
            time.sleep(0.001)
        tokens_per_step = (context.decoded - before) / (context.steps - steps)
        assert tokens_per_step == pytest.approx(4, rel=0.1)
        assert context.decode_seconds > seconds
        first.cancel()
        second.cancel()


def test_a_request_joins_while_another_runs(model: ChatLlamaCpp, face: Face) -> None:
    with model.sample("a long one", n=3, max_tokens=3900) as running:
        wait_until_decoding(model)
        assert output_tokens(face.invoke(model, "a short one", max_tokens=20)) == 20
        running.cancel()
        assert min(output_tokens(message) for _, message in running) < 3900


def test_one_sample_is_not_kept_out_by_many(model: ChatLlamaCpp, face: Face) -> None:
    with model.sample("many", n=100, max_tokens=60) as many:
        wait_until_decoding(model)
        face.invoke(model, "one", max_tokens=5)
        many.cancel()
        ended = [index for index, message in many if message.response_metadata["finish_reason"] == "length"]
        assert len(ended) <= 24  # of the hundred; it had to wait for a slot, not for them all


def test_a_long_prompt_does_not_stop_running_answers(endless_path: Path) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=4096, n_cells=16384, n_batch=256) as model:
        context, long = model.engine.context, WORDS * 60
        with model.sample("hi", n=1, max_tokens=3000):
            wait_until_decoding(model)
            before, steps = generated(model), context.steps
            model.invoke(long, max_tokens=1)
            after, steps = generated(model), context.steps - steps
        # The prompt came in by 256/8 tokens a step, and each of these steps carried the running answer on.
        assert steps >= len(model.prompt_tokens(long)) // 32 > 90
        assert after - before >= steps - 3


@pytest.mark.parametrize("options", [{}, {"n_batch": 8}, {"n_cells": 600, "n_ctx": 512}, {"n_parallel": 3}])
def test_the_crowd_changes_no_answer(endless_path: Path, face: Face, options: dict[str, Any]) -> None:
    prompts = [WORDS * (1 + number % 3) + str(number) for number in range(12)]
    # Half-precision keys and values would make near-ties fall either way.
    exact = {"type_k": "f32", "type_v": "f32", "flash_attn": False}
    defaults: dict[str, Any] = {"n_ctx": 4096, "n_cells": 16384, "seed": 3, "max_tokens": 40, **exact}
    with ChatLlamaCpp(model_path=endless_path, **{**defaults, **options}) as model:
        alone = [face.invoke(model, prompt, seed=number) for number, prompt in enumerate(prompts)]
    with (
        ChatLlamaCpp(model_path=endless_path, **{**defaults, **options}) as model,
        ThreadPoolExecutor(len(prompts)) as threads,
    ):
        asked = [threads.submit(model.invoke, prompt, seed=number) for number, prompt in enumerate(prompts)]
        together = [answer.result(timeout=60) for answer in asked]
    assert [message.content for message in together] == [message.content for message in alone]
    for pair in zip(alone, together, strict=True):
        wanted, got = (message.response_metadata["token_signals"] for message in pair)
        for name, values in wanted.items():
            assert got[name] == pytest.approx(values, abs=1e-3)


async def test_samples_of_many_questions_at_once(model: ChatLlamaCpp) -> None:
    async def ask(number: int) -> dict[int, str]:
        async with model.asample(f"question {number}", n=4, max_tokens=15) as samples:
            return texts([pair async for pair in samples])

    together = await asyncio.gather(*(ask(number) for number in range(16)))
    alone = [texts(list(model.sample(f"question {number}", n=4, max_tokens=15))) for number in range(16)]
    assert together == alone


def test_timing_says_where_the_time_went(model: ChatLlamaCpp) -> None:
    def timing(prompt: str, n: int) -> Any:
        return model.invoke(prompt, max_tokens=n).response_metadata["timing"]

    long = timing(WORDS * 60, 2)
    assert long["prefill"] > long["decode"] > 0
    assert timing(WORDS * 60, 2)["prefill"] == 0
    assert timing("short", 1000)["decode"] > 50 * timing("shorter", 2)["decode"]
    with model.sample("in the way", n=8, max_tokens=300):
        wait_until_decoding(model)
        assert timing("one more", 1)["queued"] > 0


def test_several_models_in_one_process(endless_path: Path, shipped: ChatLlamaCpp) -> None:
    question = "Kira has 7 roses and buys 12 more. How many roses does Kira have?"

    def ask(model: ChatLlamaCpp) -> list[str]:
        return [str(model.invoke(question).content) for _ in range(5)]

    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, seed=1, max_tokens=40) as other:
        wanted = [str(model.invoke(question).content) for model in (shipped, other)]
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(ask, (shipped, other), timeout=60)) == [[text] * 5 for text in wanted]
    assert shipped.invoke(question).content == wanted[0]  # the other one's end is not its own
