"""Votes by the odds of being right, and scores as log-odds: by hand, at their limits, by Bayes' rule spelled out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import Cap, Response, decide
from langchain_reasc.method.bayesian_vote import BayesianVote, PointOdds, probability_of_leader

EVEN = PointOdds(((-50.0, -50.0), (50.0, 50.0)), average=0.0)


def of_probability(p: float, answer: str | None = "a") -> Response:
    """Under even odds, a response that is right with probability p."""
    return Response(answer, math.log(p / (1 - p)))


def test_one_response_by_hand() -> None:
    """p = ½ and K = 5: ℓ = ln 5, P = 5/6; p = .99 / (.99 + .05): ℓ = ln 99, P = .99."""
    vote = BayesianVote(EVEN)
    decision = vote([of_probability(0.5)])
    assert decision.evidence == {"a": pytest.approx(math.log(5))}
    assert (decision.posterior, decision.stop) == (pytest.approx(5 / 6), False)
    enough = decide(vote, [of_probability(0.99 / 1.04 + 1e-9)])
    assert (enough.stop, enough.answer, enough.reason, enough.samples) == (True, "a", "evidence", 1)
    assert not vote([of_probability(0.99 / 1.04 - 1e-6)]).stop


def test_several_responses_by_hand() -> None:
    """K = 1: odds of 3, 3 and 4 for a, a and b, so 9 and 4 against the 1 of what is not seen."""
    vote = BayesianVote(EVEN, alternatives=1.0, floor=0.0)
    decision = vote([of_probability(0.75), of_probability(0.8, "b"), of_probability(0.75)])
    assert (decision.answer, decision.posterior) == ("a", pytest.approx(9 / 14))
    given = [of_probability(0.2), of_probability(0.2), of_probability(0.95, "b")]
    assert (BayesianVote(EVEN)(given).answer, Cap(3)(given).answer) == ("b", "a")


def test_what_a_response_counts() -> None:
    vote = BayesianVote(EVEN)
    assert vote.weights([of_probability(1e-9), Response(None, 0.0), Response("a", not_voted=True)]) == [0.5, 0.0, 0.0]
    given = [Response("a", 1.0), Response("a")]
    with pytest.raises(LogprobsUnavailable, match="on_missing_confidence='count'"):
        decide(vote, given)
    counted = BayesianVote(PointOdds(((0.0, 0.3), (1.0, 1.3)), 0.7), on_missing_confidence="count")
    assert counted.weights(given) == [pytest.approx(1.3 + math.log(5)), pytest.approx(0.7 + math.log(5))]
    assert vote([Response(None)]).posterior == 0.0  # no answer needs no score


@pytest.mark.parametrize("score", [1e300, -1e300])
def test_it_stays_finite(score: float) -> None:
    decision = BayesianVote(EVEN)([Response("a", score)] * 200 + [Response("b", -score)])
    assert 0.0 <= decision.posterior <= 1.0
    assert all(map(math.isfinite, decision.evidence.values()))


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(-20, 20), max_size=4))
def test_the_probability_equals_its_definition(evidence: dict[str, float]) -> None:
    total = 1 + sum(map(math.exp, evidence.values()))
    expected = max(map(math.exp, evidence.values()), default=0.0) / total if evidence else 0.0
    assert probability_of_leader(evidence) == pytest.approx(expected)


POINTS = PointOdds(((-2.0, -1.0), (0.0, 1.0), (1.0, 4.0)), average=0.5)


@pytest.mark.parametrize(
    ("odds", "score", "expected"),
    [
        *((POINTS, *pair) for pair in ((-9.0, -1.0), (-2.0, -1.0), (-1.0, 0.0), (0.0, 1.0), (0.5, 2.5), (9.0, 4.0))),
        (PointOdds(((3.0, 0.7),), average=0.0), 8.0, 0.7),
    ],
)
def test_odds_by_hand(odds: PointOdds, score: float, expected: float) -> None:
    assert odds(score) == pytest.approx(expected)
