"""Weights, the tally, and the Beta posterior."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from langchain_reasc.method import (
    WEIGHTS,
    ReASC,
    Response,
    Standardizer,
    decide,
    evidence_by_answer,
    leader,
    posterior,
)

BY = Standardizer(mean=10.0, std=2.0, scale=0.5)


@pytest.mark.parametrize(
    ("weight", "score", "expected"),
    [
        ("reasc", 14.0, math.e),
        ("reasc", 6.0, 1.0),
        ("count", -1e9, 1.0),
    ],
)
def test_weights_by_hand(weight: str, score: float, expected: float) -> None:
    assert WEIGHTS[weight](score, BY) == pytest.approx(expected)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_no_weight_falls_with_confidence_and_all_stay_finite(weight: str) -> None:
    weights = [WEIGHTS[weight](score, BY) for score in (-1e300, -5.0, 0.0, 9.0, 11.0, 40.0, 1e300)]
    assert weights == sorted(weights) and weights[0] >= 0 and math.isfinite(weights[-1])


def test_evidence_adds_up_in_the_order_first_seen_and_a_tie_goes_to_the_first() -> None:
    evidence = evidence_by_answer([("b", 1.0), (None, 9.0), ("a", 2.5), ("b", 1.0)])
    assert list(evidence.items()) == [("b", 2.0), ("a", 2.5)]
    assert [leader(one) for one in ({}, {"b": 1.0, "a": 1.0}, evidence, {"b": 0.0})] == [None, "b", "a", "b"]


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.0), (1.0, 0.0), (2.7, 1.3), (12.0, 11.0), (30.5, 2.0)])
def test_posterior_is_the_beta_tail(first: float, second: float) -> None:
    """Against direct integration of p^v1 (1-p)^v2 over p > 1/2; only the two leading answers count."""

    def density(p: float) -> float:
        return p**first * (1 - p) ** second

    expected = quad(density, 0.5, 1)[0] / quad(density, 0, 1)[0]
    assert posterior({"b": second, "c": 0.0, "a": first}) == pytest.approx(expected, abs=1e-9)


@given(st.floats(1e10, 5e21), st.floats(-4, 4))
def test_posterior_of_huge_evidence_is_a_probability(second: float, lead: float) -> None:
    """``lead`` in standard deviations: the tail of a normal distribution, at either end of a leader and a runner-up."""
    first = second + abs(lead) * math.sqrt(2 * second)
    assert posterior({"a": first, "b": second}) == pytest.approx(NormalDist().cdf(abs(lead)), abs=1e-4)
    assert posterior({"a": second}) == 1.0


@given(st.dictionaries(st.sampled_from("abcde"), st.floats(0, 50), max_size=5), st.floats(0, 50))
def test_a_vote_for_the_leader_never_lowers_the_posterior(evidence: dict[str, float], weight: float) -> None:
    first = leader(evidence) or "a"
    more = posterior({**evidence, first: evidence.get(first, 0.0) + weight})
    assert 0.5 - 1e-12 <= posterior(evidence) <= more + 1e-12 <= 1.0 + 2e-12


@pytest.mark.parametrize(("weight", "stops"), [(3.322, True), (3.3215, False)])
def test_one_heavy_vote_stops_alone(weight: float, stops: bool) -> None:
    """Unopposed, 1 - 2^-(v+1) ≥ 0.95 from v = log2(20) - 1 = 3.3219 on, which λ = 0.7 gives at z = 1.715."""
    assert (posterior({"a": weight}) >= 0.95) is stops
    z = math.log(weight) / 0.7
    assert decide(ReASC(Standardizer(mean=10.0, std=2.0)), [Response("a", 10.0 + 2.0 * z)]).stop is stops
