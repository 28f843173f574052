"""How well scores tell right responses from wrong ones: all together, and within questions."""

import numpy as np
import pytest

from langchain_reasc.calibration.separation import Judged, pooled, pooled_with_intervals, resampled, within


def judged(*rows: tuple[int, bool, float]) -> Judged:
    question, right, scores = zip(*rows, strict=True)
    own = np.array(scores)
    return Judged(np.array(question, dtype=np.intp), np.array(right), np.stack([own, -own]))


def test_by_hand() -> None:
    """Question 0: 3 beats 1 and not 4; question 1 has no wrong one; question 2: a tie."""
    one = judged((0, True, 3.0), (0, False, 1.0), (0, False, 4.0), (1, True, 0.0), (2, True, 2.0), (2, False, 2.0))
    assert within(one).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    beaten = (2 + 0 + 1.5) / 9  # 3 beats 1 and 2; 0 none; 2 beats 1, and is level with 2
    assert pooled(one).tolist() == [pytest.approx(beaten), pytest.approx(1 - beaten)]


def test_between_questions_alone_shows_nothing_within() -> None:
    rows = [(n, right, float(n)) for n in range(6) for right in (True, False)]
    assert within(judged(*rows)).tolist() == [[0.5] * 6] * 2


def test_without_both_there_is_nothing_to_tell() -> None:
    alike = judged((0, True, 1.0), (0, True, 2.0))
    assert not alike.both and within(alike).shape == (2, 0)
    assert judged((0, True, 1.0), (1, False, 2.0)).both
    assert within(judged((0, True, 1.0), (1, False, 2.0))).shape == (2, 0)


def test_a_bound_is_one_on_the_mean_over_questions() -> None:
    values = np.random.default_rng(0).normal(0.7, 0.2, 400)
    low, high = (resampled(values, np.random.default_rng(1), level=level) for level in (0.1, 0.9))
    assert low == pytest.approx(values.mean() - 1.2816 * 0.2 / 20, abs=0.003)
    assert high == pytest.approx(values.mean() + 1.2816 * 0.2 / 20, abs=0.003)
    assert resampled(np.array([0.8]), np.random.default_rng(0), level=0.1) == 0.8


def test_an_interval_knows_that_responses_to_one_question_are_alike() -> None:
    """Of 60 questions with 16 like responses each, there is as much to learn as of 60 responses, not of 960."""
    rng = np.random.default_rng(3)
    right, own = rng.random(60) < 0.5, rng.normal(size=60)
    rows = [(n, bool(right[n]), float(own[n] + right[n])) for n in range(60) for _ in range(16)]
    clustered = pooled_with_intervals(judged(*rows))[0]
    single = pooled_with_intervals(judged(*rows[::16]))[0]
    assert (clustered.low, clustered.high) == pytest.approx((single.low, single.high), abs=0.005)
    assert single.high - single.low > 0.2


def test_an_interval_is_as_wide_as_resampled_questions_have_it() -> None:
    rng = np.random.default_rng(5)
    able = rng.beta(2, 2, 150)
    rows = [(n, bool(r), float(rng.normal() + able[n] + r)) for n in range(150) for r in rng.random(8) < able[n]]
    one = judged(*rows)
    found = pooled_with_intervals(one)[0]
    drawn = []
    for _ in range(400):
        at = np.concatenate([np.flatnonzero(one.question == n) for n in rng.integers(0, 150, 150)])
        drawn.append(pooled(Judged(one.question[at], one.right[at], one.scores[:1, at]))[0])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.012)
    assert found.value == pooled(one)[0]


def test_an_interval_where_all_are_in_order_or_there_is_one_question() -> None:
    ordered = judged(*((n, n % 2 == 1, n % 2 + n / 1000) for n in range(20)))
    best, worst = pooled_with_intervals(ordered)
    assert best.value == 1 and 0.6 < best.low < best.high == 1
    assert worst.value == 0 and worst.low == 0 < worst.high < 0.4
    alone = pooled_with_intervals(judged((0, True, 2.0), (0, False, 1.0), (0, True, 0.0)))[0]
    assert (alone.value, alone.low, alone.high) == (0.5, 0, 1)
    level = pooled_with_intervals(judged(*((n, n % 2 == 1, 1.0) for n in range(20))))[0]
    assert (level.value, level.low, level.high) == pytest.approx((0.5, 0.5, 0.5))
