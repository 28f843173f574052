"""Scores in the agreement rule: its posterior against a computation spelled out, and what no score may do."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from langchain_reasc.method import (
    Agreement,
    Cap,
    Component,
    Prior,
    Response,
    decide,
    fewest_further,
    final_answers,
    likelihoods,
)
from langchain_reasc.method.decision import succession, support
from langchain_reasc.method.score_model import ScoreModel

from .by_hand import SCORES, outcome, responses

PRIOR = Prior(
    (Component(0.0, 0.1), Component(0.3, 2.0), Component(0.85, 1.0), Component(-1.0, 2.0)), (0.4, 0.3, 0.1, 0.2)
)
CURVED = ScoreModel(((-2.0, -1.0), (0.0, 0.5), (1.0, 2.0)), 0.2, -0.4, 1.3, 0.6, 0.02, 0.5)
INVERTED = replace(SCORES, of_answers=-0.7, question_variance=0.05)
WITHOUT = replace(SCORES, of_questions=0.0, of_answers=0.0)


def rule(budget: int, scores: ScoreModel | None = SCORES, prior: Prior = PRIOR) -> Agreement:
    return Agreement(prior, 0.95, budget, scores)


def density(model: ScoreModel, prior: Prior, scored: Sequence[tuple[str, float]], final: str | None) -> np.ndarray:  # type: ignore[type-arg]
    """The density of all scores in each component, if this is the answer K."""
    own = np.array([[one == other for one, _ in scored] for other, _ in scored])
    covariance = model.question_variance + model.answer_variance * own + model.response_variance * np.eye(len(scored))
    found = []
    for level in prior.agreement:
        mean = [
            model.intercept + model.of_questions * level + model.of_answers * (answer == final) for answer, _ in scored
        ]
        found.append(multivariate_normal(mean, covariance).pdf([score for _, score in scored]))
    return np.array(found)


def joint(
    at: Agreement, given: Sequence[Response], counts: Counter[str], known: Counter[str]
) -> dict[str | None, float]:
    """P(counts, K, scores) for each K; None for an answer that nobody gave.

    Args:
        at: the rule.
        given: the responses, for their scores.
        counts: how often each answer was given, for their likelihood.
        known: the same, for what the horizon would give.
    """
    assert at.scores is not None
    scored = [
        (one.answer, float(np.interp(one.score, *zip(*at.scores.knots, strict=True))))
        for one in given
        if one.answer is not None and one.score is not None
    ]
    likely = np.array(at.prior.weights) * likelihoods([[*counts.values()]], at.prior.components)[0]
    horizon = max(2 * at.budget, known.total())
    finals = final_answers(tuple(known.values()), horizon, at.prior.components)
    found: dict[str | None, float] = {}
    for final, stays in zip([*known, None], finals, strict=True):
        of_scores = density(at.scores, at.prior, scored, final) if scored else 1.0
        found[final] = float((likely * stays * of_scores).sum())
    return found


def counted(given: Sequence[Response]) -> Counter[str]:
    return Counter(one.answer for one in given if one.answer is not None)


def likeliest(at: Agreement, given: Sequence[Response]) -> tuple[str | None, float]:
    """The likeliest K among the answers, and its probability."""
    found = joint(at, given, counted(given), counted(given))
    answer = max((one for one in found if one is not None), key=lambda one: found[one])
    return answer, found[answer] / sum(found.values())


def agreeing(at: Agreement, given: Sequence[Response], answer: str) -> float:
    """P(one further response gives this answer), summed over all that it may give."""
    counts = counted(given)
    found = {}
    for following in [*counts, "a new one"]:
        after = Counter(counts)
        after[following] += 1
        known = after if counts.total() < 2 * at.budget else counts
        found[following] = sum(joint(at, given, after, known).values())
    return found[answer] / sum(found.values())


STATES = [
    ("a", [1.2]),
    ("aa", [1.2, -0.3]),
    ("ab", [-1.0, 2.5]),
    ("ab", [None, 0.7]),
    ("aab", [0.4, None, 1.9]),
    ("aabbb", [2.0, 1.5, -1.0, None, -2.0]),
    ("abc", [0.0, None, 0.1]),
    ("aabcd", [-2.9, 0.3, 0.2, 0.1, 2.9]),
    ("a-ab", [0.3, 2.0, -0.6, 0.3]),  # what has no vote has no say
    ("aaaaaaab", [0.1, 0.2, 0.3, -0.4, 0.5, None, -1.7, 2.9]),
]


@pytest.mark.parametrize("model", [SCORES, CURVED, INVERTED], ids=["plain", "curved", "inverted"])
@pytest.mark.parametrize(("answers", "scores"), STATES)
def test_the_posterior_is_that_of_its_definition(answers: str, scores: list[float | None], model: ScoreModel) -> None:
    given = responses(answers, scores)
    for budget in (4, 8, 12):
        at = rule(budget, model)
        decision = at(given)
        answer, stays = likeliest(at, given)
        assert (decision.answer, decision.posterior) == (answer, pytest.approx(stays, abs=1e-9))
        assert decision.agrees == pytest.approx(agreeing(at, given, answer or ""), abs=1e-9)
        assert decision.stop == (stays >= 0.95 and len(given) < budget)


@pytest.mark.parametrize(("answers", "scores"), [("aa", [1.0, 0.0]), ("abb", [2.0, -1.0, 0.3]), ("aaab", [0.5] * 4)])
def test_where_the_horizon_was_reached_one_more_response_changes_nothing(answers: str, scores: list[float]) -> None:
    """As when several run at once, or rows were sampled with a larger budget."""
    given = responses(answers, scores)
    at = rule(len(given) // 2)
    decision = at(given)
    answer, stays = likeliest(at, given)
    assert (decision.answer, decision.posterior) == (answer, pytest.approx(stays, abs=1e-9))
    assert decision.agrees == pytest.approx(agreeing(at, given, answer or ""), abs=1e-9)


@pytest.mark.parametrize("answers", ["a", "aa", "aab", "aabc", "aaaab"])
def test_scores_that_tell_nothing_change_nothing_but_the_horizon(answers: str) -> None:
    rng = np.random.default_rng(0)
    some, others = (responses(answers, rng.normal(size=len(answers)).tolist()) for _ in range(2))
    decision = rule(6, WITHOUT)(some)
    other = rule(6, WITHOUT)(others)
    assert (decision.stop, decision.answer, decision.samples) == (other.stop, other.answer, other.samples)
    counts_of_twice = rule(12, None)(responses(answers))
    assert decision.answer == counts_of_twice.answer
    for one in (decision, other):
        assert one.posterior == pytest.approx(counts_of_twice.posterior, abs=1e-12)
        assert one.agrees == pytest.approx(counts_of_twice.agrees, abs=1e-12)
    without = rule(6, SCORES)(responses(answers))
    assert (without.posterior, without.agrees) == pytest.approx((decision.posterior, decision.agrees), abs=1e-12)


def test_scores_of_one_answer_do_not_count_twice() -> None:
    """If they hardly differ, three say what one does; the more they differ, the more each of them says."""
    alike = replace(SCORES, of_questions=0.0, answer_variance=1.0, response_variance=1e-6)
    gain = []
    for model in (alike, replace(alike, response_variance=1.0)):
        at = rule(8, model)
        high, low = (at(responses("aaab", [score] * 3 + [0.0])).posterior for score in (2.0, 0.0))
        first_high, first_low = (at(responses("aaab", [score, None, None, 0.0])).posterior for score in (2.0, 0.0))
        gain.append((_logit(high) - _logit(low)) / (_logit(first_high) - _logit(first_low)))
    assert gain[0] == pytest.approx(1.0, abs=1e-3) and gain[1] > 1.2


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def test_the_likeliest_answer_need_not_lead() -> None:
    given = responses("aab", [-2.5, -2.5, 2.5])
    at = rule(3, replace(SCORES, of_answers=3.0))
    decision = decide(at | Cap(3), given)
    assert outcome(decision) == (True, "b", "budget", 3)
    assert decision.evidence == {"a": 2.0, "b": 1.0} and decision.posterior > 0.5
    assert rule(3, None)(given).answer == "a"
    assert support(decision) == decision.agrees != succession([1.0, 2.0])


@given(st.text("abc-", min_size=1, max_size=7), st.randoms(use_true_random=False))
def test_the_order_of_responses_does_not_matter(answers: str, rng: object) -> None:
    scores = np.linspace(-2, 2, len(answers)).tolist()
    given = responses(answers, scores)
    shuffled = sorted(given, key=lambda _: rng.random())  # type: ignore[attr-defined]
    decision, other = rule(8)(given), rule(8)(shuffled)
    assert decision.posterior == pytest.approx(other.posterior, abs=1e-12)
    assert decision.answer == other.answer or decision.answer is not None  # of equal ones the first
    if decision.answer == other.answer and decision.agrees is not None:
        assert decision.agrees == pytest.approx(other.agrees, abs=1e-12)


@pytest.mark.parametrize("budget", [1, 2, 8, pytest.param(40, marks=pytest.mark.full)])
@pytest.mark.parametrize("model", [SCORES, INVERTED, replace(SCORES, of_questions=40.0, response_variance=1e-9)])
def test_probabilities_are_probabilities_at_every_budget(budget: int, model: ScoreModel) -> None:
    rng = np.random.default_rng(budget)
    for length in [*range(1, 9), 16, 23, 24, 25, 40]:
        answers = "".join(rng.choice([*"aaabc-"], length))
        given = responses(answers, [None if rng.random() < 0.2 else float(3 * rng.normal()) for _ in answers])
        decision = rule(budget, model)(given)
        assert 0 <= decision.posterior <= 1
        if decision.answer is None:
            assert set(answers) == {"-"} and decision.agrees is None
        else:
            assert decision.agrees is not None and 0 < decision.agrees < 1
        assert not (decision.stop and length >= budget)


def test_from_the_24th_vote_on_only_counts_decide() -> None:
    many = responses("a" * 14 + "b" * 10, [-3.0] * 14 + [3.0] * 10)
    strong = replace(SCORES, of_answers=3.0)
    assert rule(40, strong)(many[:20] + many[-3:]) != rule(40, None)(many[:20] + many[-3:])
    assert rule(40, strong)(many) == rule(40, None)(many)
    assert rule(40, strong)([*many, Response("b", 3.0)]) == rule(40, None)([*many, Response("b", 3.0)])


def test_a_cut_off_first_response_never_stops_alone() -> None:
    at = Agreement(PRIOR, 0.6, 8, SCORES)
    best = Response("a", SCORES.extremes[1])
    assert at([best]).stop and not at([replace(best, cut_off=True)]).stop
    assert at([replace(best, cut_off=True)]).posterior == at([best]).posterior
    assert at([replace(best, cut_off=True), best]).stop


def test_blank_responses_have_no_score() -> None:
    given = responses("aab", [1.0, None, -1.0])
    for score in (-3.0, None, 3.0):
        blank = Response("b", score, blank=True)
        assert rule(8)([*given, blank]) == rule(8)([*given, Response("b")])
    assert rule(8)([*given, Response("b", 3.0)]) != rule(8)([*given, Response("b")])


def test_scores_beyond_those_seen_count_as_the_last() -> None:
    assert rule(8, CURVED)(responses("ab", [1e300, -9.0])) == rule(8, CURVED)(responses("ab", [1.0, -2.0]))
    assert (CURVED.extremes, SCORES.extremes) == ((-2.0, 1.0), (-3.0, 3.0))
    assert rule(8)(responses("ab", [9.0, -9.0])) == rule(8)(responses("ab", [3.0, -3.0]))


@pytest.mark.parametrize(
    ("threshold", "budget", "first"),
    [(0.6, 8, 1), (0.99, 8, 1), (0.995, 8, 2), (0.9999, 8, 4), (0.9999, 2, 2), (0.6, 1, 1)],
)
def test_the_first_wave_is_what_the_best_scores_need(threshold: float, budget: int, first: int) -> None:
    at = Agreement(PRIOR, threshold, budget, SCORES)
    assert at.reads_scores and at.first_wave == first
    best = [Response("a", SCORES.extremes[1])] * budget
    assert decide(at | Cap(budget), best).samples == first
    assert Agreement(PRIOR, threshold, budget).first_wave is None
    mirrored = {name: -getattr(SCORES, name) for name in ("intercept", "of_questions", "of_answers")}
    inverted = replace(SCORES, **mirrored)
    assert Agreement(PRIOR, threshold, budget, inverted).first_wave == first


def test_how_many_more_could_stop_it_is_told_by_the_best_score_so_far() -> None:
    at = Agreement(PRIOR, 0.999, 8, SCORES)
    further = []
    for best in (3.0, 2.0, 1.0):
        given = responses("aba", [best, 0.0, 1.0])
        further.append(fewest_further(at, given, 5))
        assert decide(at, [*given, *responses("aaaaa", score=best)]).samples == 3 + further[-1]
    assert further[0] < further[1] < further[2]
