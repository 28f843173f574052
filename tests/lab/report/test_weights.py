"""The other weights of the paper's appendix, by hand and at their limits."""

import math

import pytest
from langchain_reasc_lab.report.weights import OTHER_WEIGHTS, OtherWeight

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import ReASC, Response, Standardizer, decide

BY = Standardizer(mean=10.0, std=2.0, scale=0.5)


@pytest.mark.parametrize(
    ("formula", "score", "expected"),
    [
        ("exponential", 6.0, 1 / math.e),
        ("mean", 15.0, 1.5),
        ("mean", -1.0, 0.0),
        ("sigmoid", 10.0, 0.5),
        ("sigmoid", 14.0, 1 / (1 + 1 / math.e)),
    ],
)
def test_weights_by_hand(formula: str, score: float, expected: float) -> None:
    rule = OtherWeight.instead_of(ReASC(BY, gate=99.0), formula)
    assert decide(rule, [Response("a", score)]).evidence == {"a": pytest.approx(expected)}


@pytest.mark.parametrize("formula", OTHER_WEIGHTS)
def test_no_weight_falls_with_confidence_and_all_stay_finite(formula: str) -> None:
    rule = OtherWeight.instead_of(ReASC(BY), formula)
    weights = [rule.weight_of(score) for score in (-1e300, -5.0, 0.0, 9.0, 11.0, 40.0, 1e300)]
    assert weights == sorted(weights) and weights[0] >= 0 and math.isfinite(weights[-1])


@pytest.mark.parametrize("mean", [0.0, -3.0])
def test_mean_weights_need_a_positive_mean(mean: float) -> None:
    with pytest.raises(ConfigurationError, match=f"{mean:g}"):
        OtherWeight.instead_of(ReASC(Standardizer(mean, 1.0)), "mean")
