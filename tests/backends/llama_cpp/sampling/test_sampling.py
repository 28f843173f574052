"""Parallel samples: one prefill, slots, cancellation, determinism, several callers at once."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face, cache_read, output_tokens, texts
from langchain_reasc.exceptions import ConfigurationError

LONG_PROMPT = "the more words there are, the more there is to prefill " * 10


def test_samples_share_one_prefill(endless: ChatLlamaCpp, face: Face) -> None:
    context = endless.engine.context
    question = f"asked by {type(face).__name__}: {LONG_PROMPT}"
    prompt = len(endless.prompt_tokens(question))
    before = context.decoded
    samples = dict(face.sample(endless, question, n=5, max_tokens=10))
    # The prompt once; the first token of a sample is drawn from the prompt's logits, the last is not decoded.
    assert context.decoded - before == prompt + 5 * 9
    assert [cache_read(samples[i]) for i in range(5)] == [0, *[prompt] * 4]


def test_the_next_wave_of_a_prompt_prefills_nothing(endless: ChatLlamaCpp, face: Face) -> None:
    context = endless.engine.context
    face.invoke(endless, "something else", max_tokens=1)
    first = face.sample(endless, LONG_PROMPT, n=4, max_tokens=10)
    before = context.decoded
    second = face.sample(endless, LONG_PROMPT, n=4, first=4, max_tokens=10)
    assert context.decoded - before == 4 * 9
    assert {cache_read(message) for _, message in second} == {len(endless.prompt_tokens(LONG_PROMPT))}
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


def test_samples_come_in_the_order_they_end(shipped: ChatLlamaCpp, face: Face) -> None:
    samples = face.sample(shipped, QUESTIONS[0], n=8)
    lengths = [output_tokens(message) for _, message in samples]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 1
    assert sorted(i for i, _ in samples) == list(range(8))


def test_more_samples_than_slots_run_in_turns(shipped: ChatLlamaCpp, face: Face) -> None:
    samples = dict(face.sample(shipped, QUESTIONS[0], n=21))
    assert sorted(samples) == list(range(21))
    assert {m.response_metadata["finish_reason"] for m in samples.values()} == {"stop"}
    assert all(len(m.response_metadata["token_signals"]["top_k"]) == output_tokens(m) for m in samples.values())


def test_a_full_cache_makes_the_youngest_wait(endless_path: Path, face: Face) -> None:
    options: dict[str, Any] = {"n": 4, "max_tokens": 150, "temperature": 0.0}
    with ChatLlamaCpp(model_path=endless_path, n_ctx=256, n_cells=4096) as roomy:
        wanted = texts(face.sample(roomy, "hi", **options))
    with ChatLlamaCpp(model_path=endless_path, n_ctx=256, n_cells=256) as crowded:
        context = crowded.engine.context
        got = face.sample(crowded, "hi", **options)
        assert texts(got) == wanted
        assert {output_tokens(message) for _, message in got} == {150}
        # Each was set back at least once but the first, so tokens were decoded again.
        assert context.decoded > len(crowded.prompt_tokens("hi")) + 4 * 149
        # Interrupted or not, a sample is what it is: drawn ones too end and have all their signals.
        drawn = face.sample(crowded, "hi", n=4, max_tokens=150)
        assert {len(m.response_metadata["token_signals"]["top_k"]) for _, m in drawn} == {150}


@pytest.mark.parametrize("n", [0, -1, 1025])
def test_n_has_limits(shipped: ChatLlamaCpp, face: Face, n: int) -> None:
    with pytest.raises(ConfigurationError, match=r"n: .*1"):
        face.sample(shipped, "hi", n=n)
