"""What is prefilled once: shared beginnings, whole prompts, conversations; and what goes first when room is short."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import CachedPrompt, KvCells, PromptCache, common_prefix

from backends.llama_cpp.engine.test_scheduler import Ledger
from backends.llama_cpp.faces import Face, cache_read

RULES = SystemMessage("Answer in one word, and never say why. " * 10)


def prefilled(cache: PromptCache, tokens: Sequence[int]) -> CachedPrompt:
    prompt = cache.open(np.array(tokens, dtype=np.int32))
    assert prompt.slot is not None
    cache.cells.grow(prompt.slot, tokens=len(tokens) - prompt.done)
    prompt.done, prompt.logits = len(tokens), np.zeros(3, dtype=np.float32)
    return prompt


def new_cache(*, size: int = 2, whole_only: bool = False, capacity: int = 1000) -> PromptCache:
    return PromptCache(KvCells(Ledger(), capacity=capacity, n_sequences=8), size=size, whole_only=whole_only)


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
    assert (cache.cells.used, len(cache)) == (used, kept)  # what the new one holds all of is not kept twice


def test_idle_prompts_are_swap_out_when_another_comes_in_and_put_back_when_wanted() -> None:
    cache = new_cache()
    first = prefilled(cache, list(range(40)))
    cache.release(first)
    assert first.slot is not None  # nobody else wants the cells
    second = prefilled(cache, list(range(500, 540)))
    assert (first.slot, cache.cells.used) == (None, 40)
    cache.release(second)
    assert cache.open(np.arange(40, dtype=np.int32)) is first
    assert first.slot is not None
    assert (second.slot, cache.cells.used) == (None, 40)


def test_a_prompt_that_was_swap_out_is_shared_in_part() -> None:
    cache = new_cache()
    cache.release(prefilled(cache, range(40)))
    cache.release(prefilled(cache, range(500, 540)))
    other = cache.open(np.array([*range(30), 99], dtype=np.int32))
    assert other.slot is not None
    assert other.done == other.slot.length == cache.cells.used == 30


def test_what_there_is_no_room_for_is_prefilled_again() -> None:
    cache = new_cache(capacity=100)
    cache.release(prefilled(cache, list(range(60))))
    prefilled(cache, list(range(500, 570)))
    assert cache.open(np.arange(60, dtype=np.int32)).done == 0


def test_the_least_recently_used_goes_first_and_what_is_pinned_stays() -> None:
    cache = new_cache(size=2)
    prompts = [prefilled(cache, [start, *range(100, 130)]) for start in range(3)]
    pinned = prefilled(cache, [9, *range(100, 130)])
    for prompt in prompts:
        cache.release(prompt)
    assert len(cache) == 3  # two kept, one pinned
    assert cache.shared(np.array([0, *range(100, 130)], dtype=np.int32)) == 0
    assert cache.shared(np.array([1, *range(100, 130)], dtype=np.int32)) == 31
    assert cache.swap_out()
    assert not cache.swap_out()
    assert pinned.slot is not None
    assert cache.cells.used == pinned.slot.length == 31


def test_kept_prompts_hold_no_more_than_the_cache() -> None:
    cache = new_cache(size=50, capacity=100)
    for start in range(10):
        cache.release(prefilled(cache, [start, *range(100, 130)]))
    assert len(cache) == 3


def test_a_shared_system_prompt_is_prefilled_once(endless_path: Path, face: Face) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, max_tokens=8) as model:
        context = model.engine.context
        first, second = ([RULES, HumanMessage(text)] for text in ("What do bees make?", "Who wrote it?"))
        assert cache_read(face.invoke(model, first)) == 0
        before = context.decoded
        shared = common_prefix(np.array(model.prompt_tokens(first)), np.array(model.prompt_tokens(second)))
        assert cache_read(face.invoke(model, second)) == shared > 380
        assert context.decoded - before == len(model.prompt_tokens(second)) - shared + 7


def test_conversations_of_a_model_that_writes_text_reuse_their_answers(face: Face) -> None:
    with ChatLlamaCpp(seed=1) as shipped:
        question = HumanMessage("Kira has 7 roses and buys 12 more. How many roses does Kira have now?")
        answer = face.invoke(shipped, [question])
        read = cache_read(face.invoke(shipped, [question, answer, question]))
    # All but the end token, which was drawn and never decoded.
    assert read >= answer.usage_metadata["total_tokens"] - 1  # type: ignore[index]


def test_reuse_changes_no_answer(endless_path: Path, face: Face) -> None:
    questions = [[RULES, HumanMessage(text)] for text in ("What do bees make?", "Who wrote it?", "Who wrote this?")]

    def answers(**options: int) -> list[str]:
        with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, temperature=0.0, max_tokens=30, **options) as model:
            got = [str(face.invoke(model, question).content) for question in questions]
            assert (cache_read(face.invoke(model, questions[0])) > 0) == ("cached_prompts" not in options)
            return got

    assert answers() == answers(cached_prompts=0)


def test_what_was_swap_out_comes_back_as_it_was(endless_path: Path, face: Face) -> None:
    exact = {"type_k": "f32", "type_v": "f32"}
    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, seed=1, max_tokens=30, **exact) as model:
        context = model.engine.context
        first = face.invoke(model, [RULES, HumanMessage("What do bees make?")])
        for number in range(5):
            face.invoke(model, f"Something else, {number}.")
        before = context.decoded
        again = face.invoke(model, [RULES, HumanMessage("What do bees make?")])
        assert again.content == first.content
        assert context.decoded - before == 29
        wanted, got = (message.response_metadata["token_signals"]["top_k"] for message in (first, again))
        assert got == pytest.approx(wanted, abs=1e-4)
