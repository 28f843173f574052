"""Weights, the tally, and the Beta posterior."""

import math

import pytest
from scipy.integrate import quad

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import WEIGHTS, Standardizer, evidence_by_answer, leader, posterior

BY = Standardizer(mean=10.0, std=2.0, scale=0.5)


@pytest.mark.parametrize(
    ("weight", "score", "expected"),
    [
        ("reasc", 14.0, math.e),
        ("reasc", 10.0, 1.0),
        ("reasc", 6.0, 1.0),
        ("exponential", 14.0, math.e),
        ("exponential", 6.0, 1 / math.e),
        ("mean", 15.0, 1.5),
        ("mean", -1.0, 0.0),
        ("sigmoid", 10.0, 0.5),
        ("sigmoid", 14.0, 1 / (1 + 1 / math.e)),
        ("count", 14.0, 1.0),
        ("count", -1e9, 1.0),
    ],
)
def test_weights_by_hand(weight: str, score: float, expected: float) -> None:
    assert WEIGHTS[weight](score, BY) == pytest.approx(expected)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("score", [-1e300, 1e300])
def test_weights_stay_finite_and_non_negative(weight: str, score: float) -> None:
    value = WEIGHTS[weight](score, BY)
    assert math.isfinite(value) and value >= 0


@pytest.mark.parametrize("mean", [0.0, -3.0])
def test_mean_weights_need_a_positive_mean(mean: float) -> None:
    with pytest.raises(ConfigurationError, match=f"weight='mean'.*{mean:g}"):
        WEIGHTS["mean"](1.0, Standardizer(mean=mean, std=1.0))


def test_evidence_adds_up_in_the_order_first_seen() -> None:
    evidence = evidence_by_answer([("b", 1.0), (None, 9.0), ("a", 2.5), ("b", 1.0)])
    assert list(evidence.items()) == [("b", 2.0), ("a", 2.5)]


@pytest.mark.parametrize(
    ("evidence", "expected"), [({}, None), ({"b": 1.0, "a": 1.0}, "b"), ({"b": 1.0, "a": 1.5}, "a"), ({"b": 0.0}, "b")]
)
def test_the_leader_and_its_ties(evidence: dict[str, float], expected: str | None) -> None:
    assert leader(evidence) == expected


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.0), (1.0, 0.0), (2.7, 1.3), (12.0, 11.0), (30.5, 2.0)])
def test_posterior_is_the_beta_tail(first: float, second: float) -> None:
    """Against direct integration of p^v1 (1-p)^v2 over p > 1/2; only the two leading answers count."""

    def density(p: float) -> float:
        return p**first * (1 - p) ** second

    expected = quad(density, 0.5, 1)[0] / quad(density, 0, 1)[0]
    assert posterior({"b": second, "c": 0.0, "a": first}) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [({}, 0.5), ({"a": 3.0, "b": 3.0}, 0.5), ({"a": math.exp(50)}, 1.0), ({"a": math.exp(50), "b": math.exp(50)}, 0.5)],
)
def test_posterior_at_its_ends(evidence: dict[str, float], expected: float) -> None:
    assert posterior(evidence) == pytest.approx(expected)
