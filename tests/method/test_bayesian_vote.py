"""Votes by the odds of being right, and scores as log-odds: by hand, at their limits, by Bayes' rule spelled out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_lab.rules import CGES

from langchain_reasc import BayesianVote
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import Cap, LogisticOdds, PointOdds, Response, Standardizer, decide, probability_of_leader

UNIT = Standardizer(mean=0.0, std=1.0)
EVEN = LogisticOdds(UNIT, slope=1.0, intercept=0.0)


def of_probability(p: float, answer: str | None = "a") -> Response:
    """Under even odds, a response that is right with probability p."""
    return Response(answer, math.log(p / (1 - p)))


def test_one_response_by_hand() -> None:
    """p = ½ and K = 5: ℓ = ln 5, P = 5/6; p = .99 / (.99 + .05): ℓ = ln 99, P = .99."""
    vote = BayesianVote(EVEN)
    decision = vote([of_probability(0.5)])
    assert decision.evidence == {"a": pytest.approx(math.log(5))}
    assert decision.posterior == pytest.approx(5 / 6)
    assert not decision.stop
    enough = decide(vote, [of_probability(0.99 / 1.04 + 1e-9)])
    assert (enough.stop, enough.answer, enough.reason, enough.samples) == (True, "a", "evidence", 1)
    assert enough.posterior == pytest.approx(0.99)
    assert not vote([of_probability(0.99 / 1.04 - 1e-6)]).stop


def test_several_responses_by_hand() -> None:
    """K = 1: odds of 3, 3 and 4 for a, a and b, so 9 and 4 against the 1 of what is not seen."""
    vote = BayesianVote(EVEN, alternatives=1.0, floor=0.0)
    decision = vote([of_probability(0.75), of_probability(0.8, "b"), of_probability(0.75)])
    assert decision.posterior == pytest.approx(9 / 14)
    assert decision.answer == "a"


def test_confidence_outvotes_the_majority() -> None:
    vote = BayesianVote(EVEN)
    given = [of_probability(0.2), of_probability(0.2), of_probability(0.95, "b")]
    assert vote(given).answer == "b"
    assert Cap(3)(given).answer == "a"


def test_no_response_counts_less_than_the_floor() -> None:
    vote = BayesianVote(EVEN)
    assert vote.weights([of_probability(1e-9), Response(None, 0.0), Response("a", alone=True)]) == [0.5, 0.0, 0.0]


def test_the_logistic_map_reads_standardized_scores() -> None:
    vote = BayesianVote(LogisticOdds(Standardizer(10.0, 2.0), slope=3.0, intercept=-1.0))
    assert vote.log_odds(13.0) == pytest.approx(3.5)
    falling = BayesianVote(LogisticOdds(Standardizer(10.0, 2.0), slope=-3.0, intercept=-1.0))
    assert falling.log_odds(13.0) == pytest.approx(-5.5)


def test_a_missing_score_is_an_error_or_an_average_one() -> None:
    given = [Response("a", 1.0), Response("a")]
    with pytest.raises(LogprobsUnavailable, match="on_missing_confidence='count'"):
        decide(BayesianVote(EVEN), given)
    counted = BayesianVote(LogisticOdds(UNIT, 1.0, 0.3), on_missing_confidence="count")
    assert counted.weights(given) == [pytest.approx(1.3 + math.log(5)), pytest.approx(0.3 + math.log(5))]
    assert BayesianVote(EVEN)([Response(None)]).posterior == 0.0  # no answer needs no score


def test_a_cut_off_response_is_never_accepted_alone() -> None:
    for rule in (BayesianVote(EVEN), CGES(EVEN)):
        assert rule.may_accept_first and rule.reads_scores
        assert rule([Response("a", 9.0)]).stop
        assert not rule([Response("a", 9.0, cut_off=True)]).stop
        assert rule([Response("a", 9.0, cut_off=True), Response("a", 9.0)]).stop


@pytest.mark.parametrize("score", [1e300, -1e300])
def test_it_stays_finite(score: float) -> None:
    for rule in (BayesianVote(EVEN), CGES(EVEN)):
        decision = rule([Response("a", score)] * 200 + [Response("b", -score)])
        assert 0.0 <= decision.posterior <= 1.0
        assert all(map(math.isfinite, decision.evidence.values()))


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(-20, 20), max_size=4), st.floats(0, 5))
def test_the_probability_equals_its_definition(evidence: dict[str, float], unseen: float) -> None:
    total = unseen + sum(map(math.exp, evidence.values()))
    expected = max(map(math.exp, evidence.values()), default=0.0) / total if evidence else 0.0
    assert probability_of_leader(evidence, unseen=unseen) == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.02, 0.98)), min_size=1, max_size=8),
    st.sampled_from([None, 2, 4, 7]),
)
def test_cges_is_its_posterior_spelled_out(given: list[tuple[str, float]], answers: int | None) -> None:
    rule = CGES(EVEN, answers=answers)
    decision = rule([of_probability(p, answer) for answer, p in given])
    seen = {answer for answer, _ in given}
    possible = len(seen) + 1 if answers is None else max(answers, len(seen))
    hypotheses = [*seen, *(f"unseen {n}" for n in range(possible - len(seen)))]
    likelihood = {
        truth: math.prod(p if answer == truth else (1 - p) / (possible - 1) for answer, p in given)
        for truth in hypotheses
    }
    assert decision.posterior == pytest.approx(max(likelihood[one] for one in seen) / sum(likelihood.values()))
    assert likelihood[str(decision.answer)] == pytest.approx(max(likelihood[one] for one in seen))


def test_cges_by_hand() -> None:
    """One response, and all else as one more answer: P = C. Two that agree, at .8 each: .64 / (.64 + .04)."""
    rule = CGES(EVEN)
    assert rule([of_probability(0.8)]).posterior == pytest.approx(0.8)
    assert rule([of_probability(0.8)] * 2).posterior == pytest.approx(0.64 / 0.68)
    assert not decide(rule, [of_probability(0.8)] * 2).stop
    assert decide(rule, [of_probability(0.8)] * 3).reason == "evidence"
    assert rule([of_probability(0.1)]).posterior == pytest.approx(0.1)  # more likely one that nobody gave
    assert rule.weights([of_probability(0.1)]) == [0.0]


POINTS = PointOdds(((-2.0, -1.0), (0.0, 1.0), (1.0, 4.0)), average=0.5)


@pytest.mark.parametrize(
    ("score", "expected"), [(-9.0, -1.0), (-2.0, -1.0), (-1.0, 0.0), (0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (9.0, 4.0)]
)
def test_between_points_are_straight_lines_and_beyond_them_nothing_changes(score: float, expected: float) -> None:
    assert POINTS(score) == expected


def test_one_point_is_the_same_for_every_score() -> None:
    assert [PointOdds(((3.0, 0.7),), average=0.0)(score) for score in (-1.0, 3.0, 8.0)] == [0.7] * 3


def test_an_unknown_score_has_average_odds() -> None:
    assert POINTS.average == 0.5
    assert LogisticOdds(Standardizer(2.0, 4.0), slope=1.5, intercept=-0.25).average == -0.25


def test_a_line_on_standardized_scores_is_cut_where_it_decides_anyway() -> None:
    line = LogisticOdds(Standardizer(2.0, 4.0), slope=1.5, intercept=-0.25)
    assert line(6.0) == pytest.approx(1.25)
    assert (line(1e9), line(-1e9)) == (50.0, -50.0)
