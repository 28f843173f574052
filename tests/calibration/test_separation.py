"""How well scores tell right responses from wrong ones: all together, and within questions."""

import numpy as np
import pytest

from langchain_reasc.calibration.separation import Judged, pooled, resampled, within


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
