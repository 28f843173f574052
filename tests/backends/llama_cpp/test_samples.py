"""Parallel samples of many callers: one prefill, shared steps, slots, turns; and nobody's answer depends on others."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.conftest import REAL, real_options
from backends.llama_cpp.faces import Face, cache_read, output_tokens, texts, wait_until, wait_until_decoding
from langchain_reasc.exceptions import ConfigurationError

LONG = "the more words there are, the more there is to prefill " * 10
QUESTIONS = [f"Kira has {n} roses and buys 12 more. How many roses does Kira have?" for n in (7, 8)]
EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": False}
"""Half-precision keys and values would make near-ties fall either way."""


def test_waves_of_a_prompt_share_one_prefill(endless: ChatLlamaCpp, face: Face) -> None:
    context = endless.engine.context
    question = f"asked by {type(face).__name__}: {LONG}"
    prompt, before = len(endless.prompt_tokens(question)), context.decoded
    first = dict(face.sample(endless, question, n=4, max_tokens=10))
    # The prompt once; the first token of a sample is drawn from the prompt's logits, the last is not decoded.
    assert context.decoded - before == prompt + 4 * 9
    assert [cache_read(first[i]) for i in range(4)] == [0, prompt, prompt, prompt]
    before = context.decoded
    second = dict(face.sample(endless, question, n=4, first=4, max_tokens=10))
    assert context.decoded - before == 4 * 9
    assert {cache_read(message) for message in second.values()} == {prompt}
    assert len({message.text for message in (first | second).values()}) == 8
    assert {i: message.response_metadata["seed"] for i, message in second.items()} == {4: 5, 5: 6, 6: 7, 7: 8}


def comparable(samples: list[tuple[int, AIMessage]]) -> list[Any]:
    """Everything about samples but how long they took."""
    return [
        (index, message.content, {k: v for k, v in message.response_metadata.items() if k != "timing"})
        for index, message in samples
    ]


@pytest.fixture(params=REAL)
def load_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return real_options(request, max_tokens=16)


@pytest.mark.full  # computes for long
def test_the_same_calls_give_the_same_responses_to_the_last_bit(load_options: dict[str, Any], face: Face) -> None:
    courses = []
    for seed, questions in ((1, [*QUESTIONS, QUESTIONS[0]]),) * 2 + ((2, QUESTIONS[:1]),):
        with ChatLlamaCpp(seed=seed, **load_options) as model:
            courses.append([comparable(face.sample(model, question, n=8)) for question in questions])
    assert courses[0] == courses[1]
    assert courses[0][:1] != courses[2]


@pytest.mark.parametrize("full_precision", REAL, indirect=True)
def test_samples_drawn_together_are_those_drawn_singly(full_precision: Path) -> None:
    with ChatLlamaCpp(model_path=full_precision, n_ctx=512, seed=1, max_tokens=16, **EXACT) as model:
        together = texts(list(model.sample(QUESTIONS[0], n=12)))  # which are more than there are slots
        assert together == {at: model.invoke(QUESTIONS[0], seed=1 + at).text for at in range(12)}
        assert len(set(together.values())) > 1


def test_more_samples_than_slots_run_in_turns_and_come_as_they_end(real: ChatLlamaCpp, face: Face) -> None:
    lengths = [output_tokens(message) for _, message in face.sample(real, QUESTIONS[0], n=8, stop=["."])]
    assert lengths == sorted(lengths) and len(set(lengths)) > 1
    samples = dict(face.sample(real, QUESTIONS[0], n=21, stop=["."]))
    assert sorted(samples) == list(range(21))
    assert {m.response_metadata["finish_reason"] for m in samples.values()} == {"stop"}
    assert all(len(m.response_metadata["token_signals"]["top_k"]) == output_tokens(m) for m in samples.values())


def test_a_full_cache_makes_the_youngest_wait(endless_path: Path) -> None:
    options: dict[str, Any] = {"n": 4, "max_tokens": 150, "temperature": 0.0}
    with ChatLlamaCpp(model_path=endless_path, n_ctx=256, n_cells=4096) as roomy:
        wanted = texts(list(roomy.sample("hi", **options)))
    with ChatLlamaCpp(model_path=endless_path, n_ctx=256, n_cells=256) as crowded:
        got = list(crowded.sample("hi", **options))
        assert texts(got) == wanted
        # Each was set back at least once but the first, so tokens were decoded again.
        assert crowded.engine.context.decoded > len(crowded.prompt_tokens("hi")) + 4 * 149
        # Interrupted or not, a sample is what it is: drawn ones too end and have all their signals.
        got += crowded.sample("hi", n=4, max_tokens=150)
        assert {len(m.response_metadata["token_signals"]["top_k"]) for _, m in got} == {150}


@pytest.mark.parametrize("n", [0, 1025])
def test_n_has_limits(shipped: ChatLlamaCpp, n: int) -> None:
    with pytest.raises(ConfigurationError, match=r"n: .*1"):
        shipped.sample("hi", n=n)


def test_a_request_joins_and_shares_the_steps_of_those_that_run(endless: ChatLlamaCpp) -> None:
    context = endless.engine.context
    with endless.sample("one", n=2, max_tokens=3000) as first, endless.sample("two", n=2, max_tokens=3000) as second:
        wait_until_decoding(endless)
        assert output_tokens(endless.invoke("a short one", max_tokens=20)) == 20
        before, steps, seconds = context.decoded, context.steps, context.decode_seconds
        wait_until(lambda: context.steps >= steps + 200)
        assert (context.decoded - before) / (context.steps - steps) == pytest.approx(4, rel=0.1)
        assert context.decode_seconds > seconds
        first.cancel()
        second.cancel()
        assert max(output_tokens(message) for _, message in [*first, *second]) < 3000


def test_one_sample_is_not_kept_out_by_many(endless: ChatLlamaCpp) -> None:
    with endless.sample("many", n=100, max_tokens=60) as many:
        wait_until_decoding(endless)
        endless.invoke("one", max_tokens=5)
        many.cancel()
        ended = [index for index, message in many if message.response_metadata["finish_reason"] == "length"]
        assert len(ended) <= 24  # of the hundred; it had to wait for a slot, not for them all


def test_a_long_prompt_does_not_stop_running_answers(endless_path: Path) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=4096, n_cells=16384, n_batch=256) as model:
        context = model.engine.context
        with model.sample("hi", n=1, max_tokens=3000) as running:
            wait_until_decoding(model)
            before, steps = context.decoded, context.steps
            model.invoke(LONG * 6, max_tokens=1)
            decoded, steps = context.decoded - before, context.steps - steps
            running.cancel()
        # The prompt came in by 256/8 tokens a step, and each of these steps carried the running answer on.
        prompt = len(model.prompt_tokens(LONG * 6))
        assert steps >= prompt // 32 > 90
        assert decoded - prompt >= steps - 3


@pytest.mark.parametrize("options", [{}, {"n_batch": 8}, {"n_cells": 600, "n_ctx": 512}, {"n_parallel": 3}])
def test_the_crowd_changes_no_answer(endless_path: Path, options: dict[str, Any]) -> None:
    prompts = [LONG[: 56 * (1 + number % 3)] + str(number) for number in range(12)]
    options = {"n_ctx": 4096, "n_cells": 16384, "seed": 3, "max_tokens": 40, **EXACT, **options}
    with ChatLlamaCpp(model_path=endless_path, **options) as model:
        alone = [model.invoke(prompt, seed=number) for number, prompt in enumerate(prompts)]
    with ChatLlamaCpp(model_path=endless_path, **options) as model, ThreadPoolExecutor(len(prompts)) as threads:
        asked = [threads.submit(model.invoke, prompt, seed=number) for number, prompt in enumerate(prompts)]
        together = [answer.result(timeout=60) for answer in asked]
    assert [message.content for message in together] == [message.content for message in alone]
    for pair in zip(alone, together, strict=True):
        wanted, got = (message.response_metadata["token_signals"] for message in pair)
        for name, values in wanted.items():
            assert got[name] == pytest.approx(values, abs=1e-3)


async def test_samples_of_many_questions_at_once_leave_the_event_loop_free(endless: ChatLlamaCpp) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    async def ask(number: int) -> dict[int, str]:
        async with endless.asample(f"question {number}", n=4, max_tokens=15) as samples:
            return texts([pair async for pair in samples])

    ticker = asyncio.create_task(tick())
    together = await asyncio.gather(*(ask(number) for number in range(16)))
    ticker.cancel()
    assert ticks > 5
    assert together == [texts(list(endless.sample(f"question {number}", n=4, max_tokens=15))) for number in range(16)]


def test_timing_says_where_the_time_went(endless: ChatLlamaCpp) -> None:
    def timing(prompt: str, n: int) -> Any:
        return endless.invoke(prompt, max_tokens=n).response_metadata["timing"]

    long = timing(LONG * 6, 2)
    assert long["prefill"] > long["decode"] > 0
    assert timing(LONG * 6, 2)["prefill"] == 0
    assert timing("short", 400)["decode"] > 20 * timing("shorter", 2)["decode"]
    with endless.sample("in the way", n=8, max_tokens=100):
        wait_until_decoding(endless)
        assert timing("one more", 1)["queued"] > 0


def test_several_models_in_one_process(endless_path: Path, shipped: ChatLlamaCpp) -> None:
    def ask(model: ChatLlamaCpp) -> list[str]:
        return [str(model.invoke(QUESTIONS[0]).content) for _ in range(5)]

    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, seed=1, max_tokens=40) as other:
        wanted = [str(model.invoke(QUESTIONS[0]).content) for model in (shipped, other)]
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(ask, (shipped, other), timeout=60)) == [[text] * 5 for text in wanted]
    assert shipped.invoke(QUESTIONS[0]).content == wanted[0]  # the other one's end is not its own
