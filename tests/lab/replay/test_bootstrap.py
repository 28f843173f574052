"""Intervals: what is computed from the resamples, and where they are replaced."""

import numpy as np
import pytest
from langchain_reasc_lab.replay import Bootstrap
from scipy.stats import beta


def _columns(**columns: list[list[float]]) -> Bootstrap:
    held = {name: np.array(values, dtype=float) for name, values in columns.items()}
    return Bootstrap(held, ~np.isnan(next(iter(held.values()))), seed=0)


def test_an_interval_holds_what_resampled_questions_give() -> None:
    rng = np.random.default_rng(1)
    right = (rng.random(400) < 0.7).astype(float)
    estimate = _columns(right=[right.tolist()]).share("right")
    spread = 1.96 * np.sqrt(right.mean() * (1 - right.mean()) / 400)
    assert estimate.value == right.mean()
    assert (estimate.low, estimate.high) == pytest.approx((right.mean() - spread, right.mean() + spread), abs=0.01)


def test_differences_are_paired() -> None:
    one = [float(number % 2) for number in range(100)]
    drawn = _columns(one=[one], better=[[min(1.0, value + (at == 0)) for at, value in enumerate(one)]])
    difference = drawn.estimate(lambda mean: mean("better") - mean("one"))
    assert difference.value == pytest.approx(0.01)
    assert difference.low == 0 and difference.high <= 0.04  # far less than either varies


def test_a_share_of_none_or_all_has_the_exact_interval() -> None:
    drawn = _columns(all=[[1.0] * 30], none=[[0.0] * 30])
    assert drawn.share("all").low == pytest.approx(beta.ppf(0.025, 30, 1))
    assert drawn.share("none").high == pytest.approx(beta.ppf(0.975, 1, 30))
    assert drawn.share("all", questions=3).low == pytest.approx(beta.ppf(0.025, 3, 1))


def test_a_share_among_some_questions() -> None:
    drawn = _columns(right=[[1.0, 0.0, 0.0, 0.0]], accepted=[[1.0, 1.0, 0.0, 0.0]])
    estimate = drawn.share("right", among="accepted", questions=2)
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == (0, 1)  # resamples in which none was accepted say nothing


def test_a_question_counts_as_often_in_the_interval_as_in_the_value() -> None:
    rng = np.random.default_rng(0)
    right = rng.random(200) < 0.5
    often = rng.random((9, 200)) < np.where(right, 0.9, 0.2)  # shuffles happen to test the ones answered right
    cells = np.where(often, right[None].astype(float), np.nan)
    estimate = _columns(right=cells.tolist()).share("right")
    assert estimate.value == pytest.approx(np.nanmean(cells)) and estimate.value > 0.7  # of which half are right
    assert estimate.low < estimate.value < estimate.high
    assert estimate.high - estimate.value == pytest.approx(estimate.value - estimate.low, rel=0.5)
