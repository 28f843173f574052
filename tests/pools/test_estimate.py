"""Estimates: from the best that is known, and honest about it."""

import pytest

from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.data.template import Template
from langchain_reasc.models.integrations import Integration, register_integration, registry
from langchain_reasc.pools.bill import QuestionCost
from langchain_reasc.pools.estimate import Estimate, estimate
from pools.synthetic import Guesser

QUESTIONS = [LabelledQuestion(f"q{at}", "x" * 40, "6") for at in range(10)]
ALL = {question.id: 4 for question in QUESTIONS}


def told(model: object = None, **options: object) -> Estimate:
    return estimate(model or Guesser(), QUESTIONS, ALL, Template(), **options)  # type: ignore[arg-type]


class Limited(Guesser):
    max_tokens: int | None = 50


class Counting(Guesser):
    def get_num_tokens_from_messages(self, messages: object, tools: object = None) -> int:
        return 11


def test_nothing_but_characters_is_known() -> None:
    first = told()
    assert (first.questions, first.responses) == (10, 40)
    assert (first.prompt, first.prompt_by) == (40 * 10, "characters")
    assert (first.completion, first.completion_by, first.is_expected) == (None, None, False)


def test_the_template_is_part_of_each_prompt() -> None:
    longer = estimate(Guesser(), QUESTIONS, ALL, Template.read("{question}" + "y" * 60).after("z" * 100))
    assert longer.prompt == 40 * (40 + 60 + 100) // 4


def test_a_limit_is_an_upper_bound() -> None:
    bound = told(Limited())
    assert (bound.completion, bound.completion_by, bound.is_expected) == (40 * 50, "limit", False)
    assert told(Guesser().bind(max_tokens=7)).completion == 40 * 7
    assert told(Limited(max_tokens=None)).completion is None


def test_the_models_own_tokenizer_counts() -> None:
    counting = told(Guesser(custom_get_token_ids=lambda text: list(range(len(text) // 2))))
    assert (counting.prompt, counting.prompt_by) == (40 * 20, "tokenizer")


def test_a_registered_class_counts_and_another_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(Counting()).prompt_by == "characters"  # it might ask its provider
    monkeypatch.setattr(registry, "_registered", {})
    register_integration(f"{Counting.__module__}.Counting")(lambda model: Integration(counts_tokens=True))
    assert told(Counting()).prompt == 40 * 11


def test_what_was_recorded_tells_best() -> None:
    costs = [QuestionCost(f"q{at}", 2, 20.0, mean) for at, mean in enumerate((90.0, 100.0, 110.0))]
    best = told(Limited(), costs=costs)
    assert (best.completion, best.completion_by, best.basis) == (40 * 100, "recorded", 3)
    assert (best.prompt, best.prompt_by) == (40 * 20, "recorded")
    assert best.spread == pytest.approx(4.303 * (10 / 3**0.5) / 100, rel=1e-3)  # Student's t with 2 degrees of freedom
    assert told(costs=costs[:2]).spread is None


def test_a_prompt_that_several_responses_share_is_no_more_expensive_than_it_was() -> None:
    shared = [QuestionCost("q0", 4, 2.5, 10.0)]  # 10 tokens once, for 4 responses
    assert told(costs=shared).prompt == 40 * 2.5


def test_recorded_questions_that_are_not_asked_tell_of_responses_alone() -> None:
    other = told(costs=[QuestionCost("another", 4, 20.0, 10.0), QuestionCost("unsaid", 4, None, 30.0)])
    assert (other.prompt_by, other.completion) == ("characters", 40 * 20)


def test_only_what_is_missing_counts() -> None:
    left = estimate(Limited(), QUESTIONS, {"q0": 1, "q1": 0}, Template())
    assert (left.questions, left.responses, left.prompt, left.completion) == (1, 1, 10, 50)
    none = estimate(Limited(), QUESTIONS, {}, Template())
    assert (none.responses, none.prompt, none.is_expected) == (0, 0, True)
