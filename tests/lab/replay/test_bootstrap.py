"""Intervals: of resamples, exact ones, and what learning adds; how often they hold what they are for."""

import numpy as np
import pytest
from langchain_reasc_lab.replay import Bootstrap, exact, exact_of_alike
from scipy.stats import beta


def _columns(**columns: list[list[float]]) -> Bootstrap:
    held = {name: np.array(values, dtype=float) for name, values in columns.items()}
    return Bootstrap(held, ~np.isnan(next(iter(held.values()))), seed=0)


def test_differences_are_paired() -> None:
    one = [float(number % 2) for number in range(100)]
    drawn = _columns(one=[one], better=[[min(1.0, value + (at == 0)) for at, value in enumerate(one)]])
    difference = drawn.estimate(lambda mean: mean("better") - mean("one"))
    assert difference.value == pytest.approx(0.01)
    assert difference.low == 0 and difference.high <= 0.04  # far less than either varies


def test_a_share_of_none_or_all_has_the_exact_interval() -> None:
    drawn = _columns(all=[[1.0] * 30], none=[[0.0] * 30], three=[[1.0] * 3 + [0.0] * 27])
    assert drawn.share("all").low == pytest.approx(beta.ppf(0.025, 30, 1))
    assert drawn.share("none").high == pytest.approx(beta.ppf(0.975, 1, 30))
    assert drawn.share("three", among="three").low == pytest.approx(beta.ppf(0.025, 3, 1))


@pytest.mark.parametrize("shuffles", [1, 10])
@pytest.mark.parametrize(
    "wrong", [0.01, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.004, 0.03, 0.97))]
)
def test_the_interval_of_a_share_holds_it_where_few_are_wrong_or_right(wrong: float, shuffles: int) -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        hard = rng.random(300) < min(1.0, 2 * wrong)  # only these are answered wrong, some of the time
        right = (rng.random((shuffles, 300)) > wrong / min(1.0, 2 * wrong)) | ~hard
        found.append(
            Bootstrap({"x": right.astype(float)}, np.full(right.shape, True), seed=0, resamples=200).share("x")
        )
    assert np.mean([one.low <= 1 - wrong <= one.high for one in found]) >= 0.92
    assert all(one.low <= one.value <= one.high for one in found)


def test_a_share_among_some_questions() -> None:
    drawn = _columns(right=[[1.0, 0.0, 0.0, 0.0]], accepted=[[1.0, 1.0, 0.0, 0.0]])
    estimate = drawn.share("right", among="accepted")
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.5, exact(1, 2).low, exact(1, 2).high))


@pytest.mark.parametrize(("right", "questions"), [(0, 30), (1, 30), (29, 30), (30, 30), (1, 1)])
def test_the_exact_interval_is_clopper_and_pearsons(right: int, questions: int) -> None:
    found = exact(right, questions)
    assert found.low == pytest.approx(beta.ppf(0.025, right, questions - right + 1) if right else 0.0)
    assert found.high == pytest.approx(beta.ppf(0.975, right + 1, questions - right) if right < questions else 1.0)
    halves = exact(right / 2, questions, right / 4, 0.5)  # as many halves are as many of twice the questions
    assert (halves.low, halves.high) == pytest.approx(
        (exact(right, 2 * questions).low, exact(right, 2 * questions).high)
    )


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("share", "questions"), [(0.5, 40), (0.9, 40), (0.97, 150)])
def test_the_interval_of_responses_to_the_same_questions_holds_their_share(
    share: float, questions: int, alike: float
) -> None:
    rng, question, found = np.random.default_rng(4), np.repeat(np.arange(questions), 8), []
    for _ in range(300):
        same = np.repeat(rng.random(questions), 8)
        drawn = np.where(rng.random(question.size) < alike, same, rng.random(question.size))
        right, some = drawn < share, rng.random(question.size) < 0.4  # as many as a bin has of a question
        found.append(exact_of_alike(right[some], question[some]))
    assert np.mean([one.low <= share <= one.high for one in found]) >= 0.92
    assert all(one.low <= one.value <= one.high for one in found)


def _shuffled(rng: np.random.Generator, gained: float, lost: float, shuffles: int, questions: int) -> Bootstrap:
    """Two methods of which one alone is right on so many answers; a third of the questions make all the difference."""
    drawn, open_ = rng.random((shuffles, questions)), rng.random(questions) < 1 / 3
    one, other = (drawn < 3 * gained) & open_, (drawn > 1 - 3 * lost) & open_
    columns = {"one": one.astype(float), "other": other.astype(float)}
    return Bootstrap(columns, np.full(one.shape, True), seed=0, resamples=1)


@pytest.mark.parametrize("shuffles", [1, 10])
@pytest.mark.parametrize(("gained", "lost"), [(0.0, 0.001), (0.002, 0.004), (0.0, 0.01), (0.03, 0.06), (0.2, 0.1)])
def test_the_interval_of_a_difference_holds_it(gained: float, lost: float, shuffles: int) -> None:
    rng = np.random.default_rng(0)
    found = [_shuffled(rng, gained, lost, shuffles, 300).difference("one", "other") for _ in range(300)]
    assert np.mean([one.low <= gained - lost <= one.high for one in found]) >= 0.94
    assert all(one.low <= one.value <= one.high for one in found)


def _learned(rng: np.random.Generator, shuffles: int, spread: float) -> Bootstrap:
    """What was learned moves all questions of a shuffle, and a fifth of its variance is that of the recording."""
    each = np.sqrt(0.2) * rng.normal() + np.sqrt(0.8) * rng.normal(size=(shuffles, 1))
    cells = spread * each + rng.normal(size=200) + rng.normal(size=(shuffles, 200))
    return Bootstrap({"x": cells}, np.full(cells.shape, True), seed=0, resamples=200)


@pytest.mark.parametrize(("shuffles", "spread"), [(2, 0.3), (5, 0.3), (20, 0.3), (5, 0.0)])
def test_the_interval_of_what_learned_holds_what_other_recordings_teach(shuffles: int, spread: float) -> None:
    rng = np.random.default_rng(2)
    runs = [_learned(rng, shuffles, spread) for _ in range(150)]
    narrow, wide = ([run.estimate(lambda mean: mean("x"), learned=learned) for run in runs] for learned in (0.0, 0.2))
    covered = [np.mean([one.low <= 0 <= one.high for one in found]) for found in (narrow, wide)]
    assert covered[1] >= 0.92 and (covered[0] < 0.75) == (spread > 0)
    assert all(one.value == other.value for one, other in zip(narrow, wide, strict=True))


def test_one_arrangement_does_not_show_what_learning_varies() -> None:
    run = _learned(np.random.default_rng(3), 1, 0.3)
    alone, learned = run.resampled("x"), run.resampled("x", learned=0.2)
    assert alone.low < alone.value == learned.value
    assert np.isnan(learned.low) and np.isnan(learned.high) and learned.interval(".1f") == ""
    assert np.isnan(_columns(right=[[1.0] * 30]).share("right", learned=0.2).low)  # nor an exact one
