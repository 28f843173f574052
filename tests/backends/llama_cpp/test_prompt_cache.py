"""What is prefilled once: shared beginnings, whole prompts, conversations; and what goes first when room is short."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import CachedPrompt, KvCells, PromptCache, common_prefix

from backends.llama_cpp.faces import cache_read, texts
from backends.llama_cpp.test_scheduler import Ledger
from backends.llama_cpp.tiny_gguf import write_tiny_gemma, write_tiny_mamba

RULES = SystemMessage("Answer in one word, and never say why. " * 10)


def prefilled(cache: PromptCache, tokens: Sequence[int]) -> CachedPrompt:
    prompt = cache.open(np.array(tokens, dtype=np.int32))
    assert prompt.slot is not None
    cache.cells.grow(prompt.slot, tokens=len(tokens) - prompt.done)
    prompt.done, prompt.logits = len(tokens), np.zeros(3, dtype=np.float32)
    return prompt


def new_cache(*, size: int = 2, capacity: int = 1000) -> PromptCache:
    return PromptCache(KvCells(Ledger(), capacity=capacity, n_sequences=8), size=size)


@pytest.mark.parametrize(
    ("tokens", "shared", "used", "kept"),
    [(range(50), 40, 40, 1), (range(30), 29, 29, 2), ([*range(10), 99], 0, 0, 2), ([], 0, 0, 2)],
    ids=["all of it", "a prefix, whose last token is decoded for the logits", "too few to be worth sharing", "nothing"],
)
def test_a_prompt_shares_what_another_begins_with(tokens: Sequence[int], shared: int, used: int, kept: int) -> None:
    cache = new_cache()
    cache.release(prefilled(cache, range(40)))
    prompt = cache.open(np.array(tokens, dtype=np.int32))
    assert (prompt.done, prompt.logits) == (shared, None)
    assert (cache.cells.used, len(cache.prompts)) == (used, kept)  # what the new one holds all of is not kept twice


def test_idle_prompts_are_swapped_out_and_put_back_when_wanted_whole_or_in_part() -> None:
    cache = new_cache()
    first = prefilled(cache, range(40))
    cache.release(first)
    assert first.slot is not None  # nobody else wants the cells
    second = prefilled(cache, range(500, 540))
    assert (first.slot, cache.cells.used) == (None, 40)
    cache.release(second)
    assert cache.open(np.arange(40, dtype=np.int32)) is first
    assert first.slot is not None
    assert (second.slot, cache.cells.used) == (None, 40)
    cache.release(first)
    part = cache.open(np.array([*range(500, 530), 99], dtype=np.int32))
    assert part.slot is not None
    assert part.done == part.slot.length == cache.cells.used == 30


def test_what_there_is_no_room_for_is_prefilled_again() -> None:
    cache = new_cache(capacity=100)
    cache.release(prefilled(cache, range(60)))
    prefilled(cache, range(500, 570))
    assert cache.open(np.arange(60, dtype=np.int32)).done == 0


def test_the_least_recently_used_goes_first_and_what_is_in_use_stays() -> None:
    cache = new_cache(size=2)
    prompts = [prefilled(cache, [start, *range(100, 130)]) for start in range(3)]
    used = prefilled(cache, [9, *range(100, 130)])
    for prompt in prompts:
        cache.release(prompt)
    assert cache.prompts == [used, *prompts[1:]]
    assert cache.swap_out()
    assert not cache.swap_out()
    assert used.slot is not None
    assert cache.cells.used == used.slot.length == 31


def test_kept_prompts_hold_no_more_than_the_cache() -> None:
    cache = new_cache(size=50, capacity=100)
    for start in range(10):
        cache.release(prefilled(cache, [start, *range(100, 130)]))
    assert len(cache.prompts) == 3


def test_a_shared_system_prompt_is_prefilled_once_and_changes_no_answer(endless_path: Path) -> None:
    questions = [[RULES, HumanMessage(text)] for text in ("What do bees make?", "Who wrote it?", "Who wrote this?")]
    options = {"model_path": endless_path, "n_ctx": 2048, "temperature": 0.0, "max_tokens": 30}
    with ChatLlamaCpp(**options) as model, ChatLlamaCpp(**options, cached_prompts=0) as forgetful:
        context, prompts = model.engine.context, [model.prompt_tokens(question) for question in questions]
        assert cache_read(model.invoke(questions[0])) == 0
        before = context.decoded
        answer = model.invoke(questions[1])
        shared = common_prefix(*map(np.array, prompts[:2]))
        assert cache_read(answer) == shared > 380
        assert context.decoded - before == len(prompts[1]) - shared + 29
        answers = [model.invoke(question) for question in questions]
        others = [forgetful.invoke(question) for question in questions]
    assert [cache_read(other) for other in others] == [0, 0, 0]
    assert [answer.content for answer in answers] == [other.content for other in others]


def test_a_conversation_reuses_its_answers() -> None:
    with ChatLlamaCpp(seed=1) as shipped:
        question = HumanMessage("Kira has 7 roses and buys 12 more. How many roses does Kira have now?")
        answer = shipped.invoke([question])
        read = cache_read(shipped.invoke([question, answer, question]))
    # All but the end token, which was drawn and never decoded.
    assert read >= answer.usage_metadata["total_tokens"] - 1  # type: ignore[index]


def test_what_was_swapped_out_comes_back_as_it_was(endless_path: Path) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, seed=1, max_tokens=30, type_k="f32", type_v="f32") as model:
        context = model.engine.context
        first = model.invoke([RULES, HumanMessage("What do bees make?")])
        for number in range(5):
            model.invoke(f"Something else, {number}.")
        before = context.decoded
        again = model.invoke([RULES, HumanMessage("What do bees make?")])
        assert again.content == first.content
        assert context.decoded - before == 29
        wanted, got = (message.response_metadata["token_signals"]["top_k"] for message in (first, again))
        assert got == pytest.approx(wanted, abs=1e-4)


def test_a_recurrent_state_is_shared_by_samples_and_continued_only_whole(tmp_path: Path) -> None:
    options = {"model_path": write_tiny_mamba(tmp_path / "mamba.gguf"), "seed": 1, "max_tokens": 20}
    prompt, other = "tell me something " * 3, "tell me something " * 2 + "else"
    with ChatLlamaCpp(**options) as mamba, ChatLlamaCpp(**options, cached_prompts=0) as fresh:
        assert mamba.engine.model.is_recurrent
        together = texts(list(mamba.sample(prompt, n=6)))
        assert together == {index: fresh.invoke(prompt, seed=1 + index).text for index in range(6)}
        assert len(set(together.values())) > 1
        again = mamba.invoke(prompt)
        assert (again.text, cache_read(again)) == (together[0], len(mamba.prompt_tokens(prompt)))
        cut = mamba.invoke(other)
        assert (cut.text, cache_read(cut)) == (fresh.invoke(other).text, 0)
        prompts = [f"question {number} " * (1 + number % 4) for number in range(12)]
        alone = [mamba.invoke(prompt).content for prompt in prompts]
        with ThreadPoolExecutor(len(prompts)) as threads:
            assert [message.content for message in threads.map(mamba.invoke, prompts, timeout=60)] == alone


LONG, OTHER = "tell me something " * 20, "and now for something else, " * 15
SHARES = LONG[:180] + "that is new"
Asked = list[str | list[BaseMessage]]
SEQUENCES: dict[str, Asked] = {
    "a prefix of a copy": [LONG, OTHER, SHARES],
    "a prefix in the cache": [LONG, SHARES],
    "the same from a copy": [LONG, OTHER, LONG],
    "the same in the cache": [LONG, LONG],
    "a copy restored and cut": [LONG, OTHER, LONG + "and more", OTHER, SHARES, LONG],
    "a conversation": [LONG, [HumanMessage(LONG), AIMessage("yes"), HumanMessage("and?")], OTHER, LONG],
    "shorter than the window": ["tell me a lot", "no", "tell me a little", "tell me a lot"],
}


def likeliest(message: AIMessage) -> list[tuple[Any, float]]:
    return [(entry["bytes"], entry["logprob"]) for entry in message.response_metadata["logprobs"]["content"]]


@pytest.mark.full
@pytest.mark.parametrize("swa_full", [True, False])
@pytest.mark.parametrize("asked", SEQUENCES.values(), ids=SEQUENCES)
def test_what_a_sliding_window_lost_is_computed_again(tmp_path: Path, asked: Asked, swa_full: bool) -> None:
    path = write_tiny_gemma(tmp_path / "gemma.gguf", window=64)
    options = {"model_path": path, "seed": 1, "max_tokens": 80, "logprobs": True, "swa_full": swa_full}
    precise = {"n_ctx": 2048, "type_k": "f32", "type_v": "f32"}
    with ChatLlamaCpp(**options, **precise) as model, ChatLlamaCpp(**options, **precise, cached_prompts=0) as fresh:
        for prompt in asked:
            got, wanted = (likeliest(each.invoke(prompt)) for each in (model, fresh))
            assert [token for token, _ in got] == [token for token, _ in wanted]
            # Rounding alone is 1.2e-3 on a processor without AVX-512; a lost window changes the tokens themselves.
            assert [logprob for _, logprob in got] == pytest.approx([logprob for _, logprob in wanted], abs=4e-3)
        assert cache_read(model.invoke(asked[0])) == cache_read(model.invoke(asked[0])) > 0  # the same at once


@pytest.mark.full
@pytest.mark.parametrize("swa_full", [True, False])
@pytest.mark.parametrize("n_cells", [1024, 4096])
def test_samples_beside_each_other_keep_their_windows(tmp_path: Path, n_cells: int, swa_full: bool) -> None:
    options = {"model_path": write_tiny_gemma(tmp_path / "gemma.gguf", window=64), "seed": 1, "max_tokens": 30}
    options |= {"n_ctx": 1024, "n_cells": n_cells, "swa_full": swa_full, "type_k": "f32", "type_v": "f32"}
    prompts = [LONG, SHARES, OTHER, LONG + "?", LONG]
    with ChatLlamaCpp(**options) as model, ChatLlamaCpp(**options, cached_prompts=0) as fresh:
        wanted = [{index: fresh.invoke(prompt, seed=1 + index).text for index in range(4)} for prompt in prompts]
        with ThreadPoolExecutor(len(prompts)) as threads:
            samples = threads.map(lambda prompt: texts(list(model.sample(prompt, n=4))), prompts, timeout=120)
            same = [got[index] == want[index] for got, want in zip(samples, wanted, strict=True) for index in range(4)]
    assert sum(same) >= 17  # rounding decides some draws of a random model, without windows too
