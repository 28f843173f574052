"""Joining two recordings: by what, what an answer costs, and when two pools are refused."""

from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.escalation import Pair, join
from langchain_reasc_lab.pools import read_pool

from lab.pools.synthetic import response, write_lines
from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError


def record(number: int, *, answer: str = "7", reference: str = "7", tokens: int = 10, **more: Any) -> dict[str, Any]:
    prompt = {"prompt_tokens": more.pop("prompt")} if "prompt" in more else {}
    return {
        "id": f"q{number}",
        "reference": reference,
        "responses": [response(answer, tokens, **prompt)] * more.pop("responses", 2),
        **more,
    }


def joined(folder: Path, small: list[dict[str, Any]], large: list[dict[str, Any]], **how: Any) -> Pair:
    return join(
        read_pool(write_lines(folder / "small.sqlite", *small)),
        read_pool(write_lines(folder / "large.sqlite", *large)),
        **how,
    )


@pytest.mark.parametrize(
    ("small", "large", "by"),
    [
        ({}, {}, "20 questions joined by id"),
        ({"id": "s{}", "question_key": "k{}"}, {"id": "l{}", "question_key": "k{}"}, "20 questions joined by id"),
        ({"id": "s{}", "input": "What is {}?"}, {"id": "l{}", "input": "What is {}?"}, "20 questions joined by input"),
    ],
)
def test_questions_are_joined_by_key_or_id_or_input(
    tmp_path: Path, small: dict[str, str], large: dict[str, str], by: str
) -> None:
    def named(number: int, names: dict[str, str]) -> dict[str, Any]:
        return record(number) | {key: text.format(number) for key, text in names.items()}

    numbers = range(20)
    pair = joined(tmp_path, [named(at, small) for at in numbers], [named(at, large) for at in reversed(numbers)])
    assert pair.notes[0] == by and len(pair.questions) == 20


def test_questions_of_one_pool_alone_are_left_out_and_said(tmp_path: Path) -> None:
    pair = joined(tmp_path, [record(at) for at in range(15)], [record(at) for at in range(3, 30)])
    assert len(pair.questions) == 12
    assert pair.notes[0].startswith("12 questions ") and "18 questions" in pair.notes[0]


@pytest.mark.parametrize(
    ("large", "how", "error", "text"),
    [
        ([record(at + 100) for at in range(20)], {}, PoolError, "0 of 20 questions"),
        ([record(at, reference="8") for at in range(20)], {}, PoolError, "20 of 20 questions"),
        ([record(at) for at in range(20)], {"price_ratio": 0.0}, ConfigurationError, "price-ratio"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, large: list[dict[str, Any]], how: dict[str, Any], error: type[ReASCError], text: str
) -> None:
    with pytest.raises(error, match=text):
        joined(tmp_path, [record(at) for at in range(20)], large, **how)


def test_a_question_with_two_references_is_left_out(tmp_path: Path) -> None:
    large = [record(at, reference="8" if at == 3 else "7") for at in range(20)]
    pair = joined(tmp_path, [record(at) for at in range(20)], large)
    assert len(pair.questions) == 19 and pair.comparable
    assert "(question 'q3': '7' and '8')" in " ".join(pair.notes)


def test_letters_that_each_recording_shuffled_are_not_compared(tmp_path: Path) -> None:
    small = [record(at, reference="A", answer="A" if at % 2 else "B") for at in range(20)]
    large = [record(at, reference="C", answer="C" if at < 10 else "B") for at in range(20)]
    pair = joined(tmp_path, small, large)
    assert not pair.comparable and any("cannot be compared" in note for note in pair.notes)
    same = [one.small[0].answer == one.large[0].answer for one in pair.questions]
    assert same == [at % 2 == 1 and at < 10 for at in range(20)], "right answers are equal, and no others"


@pytest.mark.parametrize(
    ("small", "large", "how", "price"),
    [
        ({"tokens": 20}, {"tokens": 10}, {}, 20 / 100),
        ({"tokens": 20}, {"tokens": 10}, {"price_ratio": 30}, 20 / 300),
        ({"tokens": 20}, {"tokens": 10}, {"flat": True}, 1 / 10),
        ({"tokens": 20, "prompt": 40}, {"tokens": 10, "prompt": 50}, {}, 60 / 600),
        ({"tokens": 20, "prompt": 40}, {"tokens": 10}, {}, 20 / 100),
        ({"tokens": 1}, {"tokens": 10}, {}, 1 / 10),
    ],
    ids=["tokens", "dearer", "flat", "prompts of both", "prompts of one", "no token counts"],
)
def test_costs_are_in_answers_of_the_large_model(
    tmp_path: Path, small: dict[str, Any], large: dict[str, Any], how: dict[str, Any], price: float
) -> None:
    pair = joined(tmp_path, [record(at, **small) for at in range(12)], [record(at, **large) for at in range(12)], **how)
    assert pair.price == pytest.approx(price)
    assert {one.cost for question in pair.questions for one in question.large} == {1.0}


def test_how_often_the_large_model_differs_from_itself(tmp_path: Path) -> None:
    large = [record(at) for at in range(12)]
    large[0]["responses"] = [response("7"), response("7"), response("8"), response(None)]
    pair = joined(tmp_path, [record(at) for at in range(12)], large)
    assert pair.differs_from_itself == pytest.approx((1 - 2 / 12) / 12)
