"""The odds of being right by score, learned from labelled responses."""

import numpy as np
import pytest
from langchain_reasc_lab.rules import fit_odds

from langchain_reasc.exceptions import CalibrationDataError


def test_the_odds_are_those_that_made_the_labels() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(5.0, 2.0, 4000)
    right = rng.random(4000) < 1 / (1 + np.exp(-(1.5 * (scores - 5.0) / 2.0 + 0.7)))
    odds = fit_odds(scores.tolist(), right.tolist())
    assert (odds.slope, odds.intercept) == pytest.approx((1.5, 0.7), abs=0.15)
    assert (odds.statistics.mean, odds.statistics.std) == pytest.approx((scores.mean(), scores.std()))


@pytest.mark.parametrize(
    ("scores", "right", "why"),
    [
        ([], [], "right and wrong"),
        ([1.0, 2.0], [True, True], "of 2, 2 are right"),
        ([1.0, 1.0], [True, False], "all 2 scores are 1"),
    ],
)
def test_scores_that_tell_nothing_are_refused(scores: list[float], right: list[bool], why: str) -> None:
    with pytest.raises(CalibrationDataError, match=why):
        fit_odds(scores, right)
