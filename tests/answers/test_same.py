"""Which responses vote together: a table of situations, asked of the runnable.

``same.jsonl`` holds one situation a line: responses to a question, and the answer that each of them gives. Equal names
in ``votes`` are the same answer; null is a response that gives none. ``report`` is a public report of the situation.
Rows with ``"fails": true`` are not counted right yet; take the mark off what is mended.
"""

import json
from collections.abc import Sequence
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langchain_reasc import FixedBudget, ReASCRunnable


class Says(BaseChatModel):
    """Gives complete texts in turn."""

    texts: list[str]
    count: list[int] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "says"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        text = self.texts[len(self.count) % len(self.texts)]
        self.count.append(1)
        usage: Any = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        message = AIMessage(text, response_metadata={"finish_reason": "stop"}, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


def answers_of(responses: Sequence[str], question: str, answer: Any) -> list[str | None]:
    """Return the answer that each response is counted for, beside the others.

    Response i is given 2**i times, so that the count of an answer tells which responses give it.
    """
    texts = [text for at, text in enumerate(responses) for _ in range(2**at)]
    model = Says(texts=texts)
    budget = len(texts)
    voter = ReASCRunnable(model=model, answer=answer, max_samples=budget, concurrency=1, rule=FixedBudget(budget))
    evidence = voter.solve(question or "?").decision.evidence
    answers: list[str | None] = [None] * len(responses)
    for name, weight in evidence.items():
        for at in range(len(responses)):
            if round(weight) >> at & 1:
                answers[at] = name
    return answers


def mistakes(answers: Sequence[str | None], votes: Sequence[str | None]) -> list[str]:
    """Return what is counted wrongly: votes missing or unwanted, pairs together or apart."""
    wrong = []
    for at, (answer, vote) in enumerate(zip(answers, votes, strict=True)):
        if (answer is None) != (vote is None):
            wrong.append(f"response {at} {'casts no vote' if answer is None else f'votes for {answer!r}'}")
    for one, other in combinations(range(len(votes)), 2):
        if None in (answers[one], answers[other], votes[one], votes[other]):
            continue
        together = answers[one] == answers[other]
        if together != (votes[one] == votes[other]):
            wrong.append(f"responses {one} and {other} vote {'together' if together else 'apart'}")
    return wrong


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()]


def parameter(row: dict[str, Any]) -> Any:
    marks = [pytest.mark.xfail(strict=True, reason=row["situation"])] if row.get("fails") else []
    name = f"{row['situation']} [{row['answer']}] {row['responses'][0]}"
    return pytest.param(row, marks=marks, id=name[:100])


@pytest.mark.parametrize("row", [parameter(row) for row in lines("same.jsonl")])
def test_which_responses_vote_together(row: dict[str, Any]) -> None:
    answers = answers_of(row["responses"], row["question"], row["answer"])
    assert mistakes(answers, row["votes"]) == [], answers


class Kind(Enum):
    """Kinds of mail."""

    SPAM = "spam"
    HAM = "ham"


@pytest.mark.parametrize("labels", [["spam", "ham"], Kind, Literal["spam", "ham"], "spam,ham", "ham, spam"], ids=str)
def test_labels_may_be_given_in_several_ways(labels: Any) -> None:
    responses = ["Spam.", "The mail is spam.", "ham", "spam or ham", "not spam", "eggs"]
    answers = answers_of(responses, "Spam or ham?", labels)
    assert answers == ["spam", "spam", "ham", None, None, None]


ORDINARY = ["Yes.", "B", "positive", "spam", "Paris", '{"label": "spam"}']


@pytest.mark.parametrize("text", ORDINARY)
def test_equal_ordinary_responses_end_sampling_soon(text: str) -> None:
    decision = ReASCRunnable(model=Says(texts=[text]), concurrency=1).solve("q").decision
    assert decision.reason != "unanswered" and not decision.undecided
    assert decision.samples <= 4
    assert list(decision.evidence) == [decision.answer]


def test_a_stray_number_costs_no_samples() -> None:
    texts = ["Paris", "Paris.", "**Paris**", "The capital of France is Paris.", "Paris. It has 2 million inhabitants."]
    voter = ReASCRunnable(model=Says(texts=texts), concurrency=1)
    decision = voter.solve("What is the capital of France?").decision
    assert decision.answer == "Paris"
    assert decision.samples <= 4


@pytest.mark.parametrize(
    ("responses", "answer"),
    [
        (["41 cups", "41"], "41 cups"),
        (["41", "41 cups"], "41 cups"),
        (["paris.", "Paris"], "paris"),
        (["$1,234.50", "1234.5"], "$1,234.50"),
        (["1,000.0", "1000"], "1000"),
        (["5 km", "5,000 m"], "5 km"),
        (["**Paris**", "The answer is Paris."], "Paris"),
    ],
)
def test_the_answer_is_written_as_the_first_response_of_its_class_says_it_whole(
    responses: list[str], answer: str
) -> None:
    assert set(answers_of(responses, "", "auto")) == {answer}
