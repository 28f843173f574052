"""What is learned without labels: the prior and the score model that questions were drawn from are found again."""

from dataclasses import astuple, replace
from functools import cache

import numpy as np
import pytest

from langchain_reasc.calibration import Observation, RuleBlock, fit_agreement, fit_prior
from langchain_reasc.method.agreement import Agreement, Component, Prior
from langchain_reasc.method.score_model import ScoreModel
from langchain_reasc.method.stopping import ASC, Cap, Response, StoppingRule, decide

from .drawing import Drawn, drawn, questions_of

BUDGET = 8
PRIOR = Prior((Component(0.0, 0.1), Component(0.3, 3.0), Component(-1.0, 3.0)), (0.4, 0.35, 0.25))
MODEL = ScoreModel(((-5.0, -5.0), (5.0, 5.0)), 0.25, 0.2, 0.7, 0.2, 0.1, 0.3)
NOISE = replace(MODEL, intercept=0.0, of_questions=0.0, of_answers=0.0)
ITSELF = Agreement(PRIOR, 0.95, BUDGET, MODEL)


@cache
def some(model: ScoreModel, n: int, rule: StoppingRule | None = None) -> tuple[Drawn, ...]:
    return tuple(questions_of(PRIOR, model, n, BUDGET, seed=1, rule=rule))


def rows(model: ScoreModel, n: int, rule: StoppingRule | None = None) -> list[Observation]:
    return [one.row for one in some(model, n, rule)]


def fitted(questions: list[Observation], budget: int = BUDGET) -> tuple[Prior, ScoreModel]:
    prior, scores = fit_agreement(questions, 0, budget=budget)
    assert scores is not None
    return prior, scores


@pytest.mark.full
@pytest.mark.parametrize("rule", [None, ITSELF, ASC()], ids=["whole", "stopped by the rule", "stopped by counts"])
def test_what_questions_were_drawn_from_is_found_again(rule: StoppingRule | None) -> None:
    """However sampling stopped, as that depends on what was seen."""
    prior, scores = fitted(rows(MODEL, 2500, rule))
    assert scores.of_questions == pytest.approx(MODEL.of_questions, abs=0.04)
    assert scores.of_answers == pytest.approx(MODEL.of_answers, abs=0.08)
    assert scores.question_variance == pytest.approx(MODEL.question_variance, abs=0.03)
    assert scores.answer_variance == pytest.approx(MODEL.answer_variance, abs=0.03)
    assert scores.response_variance == pytest.approx(MODEL.response_variance, abs=0.04)
    for counts in ([1], [2], [1, 1], [3, 1], [1, 1, 1]):
        assert prior.share(counts) == pytest.approx(PRIOR.share(counts), abs=0.025)
        assert prior.leader_stays(counts, 2 * BUDGET) == pytest.approx(
            PRIOR.leader_stays(counts, 2 * BUDGET), abs=0.025
        )


@pytest.mark.full
def test_expected_scores_are_those_of_components_and_of_the_final_answer() -> None:
    """a and its fellows, by the components and answers that a fit does not see."""
    questions = some(MODEL, 2500)
    _, scores = fitted([one.row for one in questions])
    for component, level in enumerate(PRIOR.agreement):
        for is_final in (True, False):
            found = [
                np.interp(score, *zip(*scores.knots, strict=True))
                for one in questions
                if one.component == component
                for answer, score in zip(one.row.answers, one.row.scores[0], strict=True)
                if (answer == one.final) == is_final
            ]
            expected = scores.intercept + scores.of_questions * level + scores.of_answers * is_final
            if len(found) > 1000:
                assert np.mean(found) == pytest.approx(expected, abs=0.08)


@pytest.mark.full
def test_what_is_found_says_how_often_it_is_right() -> None:
    """P(K = answer) of new questions, by how often it is: also where scores decide."""
    prior, scores = fitted(rows(MODEL, 1000, ITSELF))
    rule = Agreement(prior, 0.95, BUDGET, scores)
    said, came = list[float](), list[bool]()
    for one in questions_of(PRIOR, MODEL, 1500, BUDGET, seed=2):
        for length in (1, 3):
            decision = rule(one.row.responses(0)[:length])
            said.append(decision.posterior)
            came.append(decision.answer == str(one.final))
    for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.0)):
        inside = [low < one <= high for one in said]
        assert sum(inside) > 100
        assert np.mean(np.array(came)[inside]) == pytest.approx(np.mean(np.array(said)[inside]), abs=0.05)


@pytest.mark.full
def test_noise_tells_nothing() -> None:
    _, scores = fitted(rows(NOISE, 1000))
    assert abs(scores.of_questions) < 0.06 and abs(scores.of_answers) < 0.1


@pytest.mark.full
def test_scores_that_fall_with_agreement_are_found_too() -> None:
    _, scores = fitted([replace(one, scores=-one.scores) for one in rows(MODEL, 1000)])
    assert scores.of_questions == pytest.approx(-0.2, abs=0.07) and scores.of_answers == pytest.approx(-0.7, abs=0.12)


def test_only_the_order_of_scores_counts() -> None:
    given = rows(MODEL, 40)
    prior, scores = fitted(given)
    other_prior, other = fitted([replace(one, scores=np.exp(one.scores) + 3) for one in given])
    assert other_prior.weights == pytest.approx(prior.weights, abs=0.02)
    assert astuple(other)[1:] == pytest.approx(astuple(scores)[1:], abs=0.1)


def unscored(*answers: int | None, score: float = np.nan) -> Observation:
    return Observation(answers, np.full((1, len(answers)), score))


@pytest.mark.parametrize(
    "given",
    [
        [unscored(0, 0, 1)] * 9,
        [unscored(0, 0, 1, score=0.5)] * 9,
        [Observation((0, 0, 1), np.array([[0.1, 0.2, 0.3]])), Observation((0, 1, 0), np.array([[0.4, np.nan, 0.6]]))],
        [Observation((0, None, 1), np.array([[0.5, at, 0.5]])) for at in range(16)],  # without a vote there is no score
    ],
    ids=["none", "equal", "five", "equal votes"],
)
def test_too_few_scores_or_equal_ones_leave_the_counts(given: list[Observation]) -> None:
    prior, scores = fit_agreement(given, 0, budget=8)
    assert scores is None and prior == fit_prior([one.answers for one in given])
    assert fit_agreement(given, None, budget=8) == (prior, None)


def without_some(questions: list[Observation]) -> list[Observation]:
    rng = np.random.default_rng(0)
    return [replace(one, scores=np.where(rng.random(one.scores.shape) < 0.3, np.nan, one.scores)) for one in questions]


@pytest.mark.parametrize(
    "given",
    [
        rows(MODEL, 1),
        rows(MODEL, 16),
        without_some(rows(MODEL, 16)),
        [*rows(MODEL, 8), *[unscored(0, 0)] * 30],
        [Observation((0,), np.array([[float(at)]])) for at in range(16)],
        [Observation((0,) * 30, np.arange(30.0)[None])] * 3,  # beyond 24 votes
        [Observation((*range(30),), np.arange(30.0)[None])] * 3,
        [Observation((0, 0, 1, None), np.array([[1e300, 2.0, -1e300, 0.0]]))] * 9,
        [Observation((0, 0, 1), np.array([[float(at > 3), 1.0, 0.0]])) for at in range(9)],  # two different scores
    ],
    ids=["one", "16", "some", "few scored", "one response", "many", "scattered", "huge", "two scores"],
)
@pytest.mark.parametrize("budget", [1, 8])
def test_little_or_odd_data_make_a_rule_all_the_same(given: list[Observation], budget: int) -> None:
    prior, scores = fitted(given, budget)
    assert np.isfinite(astuple(scores)[1:]).all() and min(astuple(scores)[4:]) > 0
    assert min(prior.weights) > 0 and sum(prior.weights) == pytest.approx(1.0)
    block = RuleBlock.agreement(prior, 0.9, scores)
    rule = RuleBlock.model_validate_json(block.model_dump_json()).rule(budget=budget)
    assert rule == Agreement(prior, 0.9, budget, scores)
    for one in given:
        decision = rule(one.responses(0))
        assert 0 <= decision.posterior <= 1 and 0 < (decision.agrees or 0) < 1


def test_a_few_scores_are_shrunk_to_telling_nothing() -> None:
    few, many = (fitted(rows(MODEL, n))[1] for n in (4, 64))
    assert abs(few.of_answers) < abs(many.of_answers)
    assert abs(few.of_questions) < 0.3


def test_responses_without_a_score_are_counts() -> None:
    given = rows(MODEL, 64)
    prior, _ = fitted([*given, *[unscored(0, 0, 0, 0)] * 300])
    counted = fit_prior([*(one.answers for one in given), *[(0, 0, 0, 0)] * 300])
    for counts in ([1], [2], [1, 1]):
        assert prior.share(counts) == pytest.approx(counted.share(counts), abs=0.02)


def test_few_questions_are_drawn_towards_a_given_prior() -> None:
    easy = Prior(Prior.uniform().components, (1.0, *[0.0] * (len(Prior.uniform().components) - 1)))
    given = rows(MODEL, 16)
    alone, towards = (fit_agreement(given, 0, budget=8, towards=one)[0] for one in (None, easy))
    assert alone.share([1]) < towards.share([1]) < easy.share([1])


@pytest.mark.parametrize("threshold", [None, 0.95])
def test_a_mixture_is_found_again_by_what_it_predicts(threshold: float | None) -> None:
    """From whole questions and from those that ASC cut short, which say the same of what comes next."""
    easy, hard, rng = Component(0.0, 0.1), Component(0.3, 10.0), np.random.default_rng(1)
    seen = []
    for question in range(400):
        answers = drawn(easy if question % 2 else hard, 16, rng)
        if threshold is not None:
            answers = answers[: decide(ASC(threshold) | Cap(16), [Response(str(one)) for one in answers]).samples]
        seen.append(answers)
    found, true = fit_prior(seen), Prior((easy, hard), (0.5, 0.5))
    for counts in ([1], [2], [1, 1], [3, 1], [4]):
        assert found.leader_stays(counts, 16) == pytest.approx(true.leader_stays(counts, 16), abs=0.06)


def test_a_few_questions_rule_nothing_out() -> None:
    assert fit_prior([]) == fit_prior([[]])
    assert fit_prior([]).weights == pytest.approx(Prior.uniform().weights)
    few, many = fit_prior([[0] * 4] * 4), fit_prior([[0] * 4] * 400)
    assert sum(few.weights) == pytest.approx(1.0)
    assert min(few.weights) >= 8 / len(few.weights) / (4 + 8) * (1 - 1e-9)  # as much as 8 questions of any kind
    apart = fit_prior([[0, 1, 2, 3]] * 50)
    stays = [prior.leader_stays([1], 16) for prior in (apart, Prior.uniform(), few, many)]
    assert stays == sorted(stays)
