"""The prior on how answers agree: found from counts, those that a stopping rule cut short too."""

import numpy as np
import pytest

from langchain_reasc.calibration.answer_prior import counts_of, fit_prior
from langchain_reasc.method.partitions import Component, Prior
from langchain_reasc.method.stopping import ASC, Cap, Response, decide


def drawn(component: Component, responses: int, rng: np.random.Generator) -> list[int]:
    answers: list[int] = []
    for n in range(responses):
        counts = np.bincount(answers) if answers else np.zeros(0)
        chances = [*(counts - component.discount), component.concentration + len(counts) * component.discount]
        answers.append(int(rng.choice(len(chances), p=np.maximum(chances, 0) / (n + component.concentration))))
    return answers


def test_counts_are_of_answers_the_most_frequent_first() -> None:
    assert counts_of([3, None, 1, 3, 0, 3, 1]) == (3, 2, 1)
    assert counts_of([None, None]) == counts_of([]) == ()


@pytest.mark.parametrize("threshold", [None, 0.95])
def test_a_mixture_is_found_again_by_what_it_predicts(threshold: float | None) -> None:
    """From whole questions and from those that ASC cut short, which say the same of what comes next."""
    easy, hard, rng = Component(0.0, 0.1), Component(0.3, 10.0), np.random.default_rng(1)
    seen = []
    for question in range(600):
        answers = drawn(easy if question % 2 else hard, 16, rng)
        if threshold is not None:
            answers = answers[: decide(ASC(threshold) | Cap(16), [Response(str(one)) for one in answers]).samples]
        seen.append(counts_of(answers))
    found, true = fit_prior(seen), Prior((easy, hard), (0.5, 0.5))
    for counts in ([1], [2], [1, 1], [3, 1], [4]):
        assert found.leader_stays(counts, 16) == pytest.approx(true.leader_stays(counts, 16), abs=0.06)


def test_a_few_questions_rule_nothing_out() -> None:
    assert fit_prior([]) == fit_prior([()])
    assert fit_prior([]).weights == pytest.approx(Prior.uniform().weights)
    few = fit_prior([(4,)] * 4)
    assert min(few.weights) > 0 and sum(few.weights) == pytest.approx(1.0)
    assert min(few.weights) >= 8 / len(few.weights) / (4 + 8) * (1 - 1e-9)  # as much as 8 questions of any kind
    many = fit_prior([(4,)] * 400)
    assert Prior.uniform().leader_stays([1], 16) < few.leader_stays([1], 16) < many.leader_stays([1], 16)


def test_answers_that_all_differ_promise_no_agreement() -> None:
    assert fit_prior([(1, 1, 1, 1)] * 50).leader_stays([1], 16) < Prior.uniform().leader_stays([1], 16)
