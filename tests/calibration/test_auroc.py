"""How well scores separate right responses from wrong ones: over all questions, and within each."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from langchain_reasc.calibration import AUROC, Judged, auroc_of, auroc_per_question, auroc_with_interval, mean_auroc


def judged(*rows: tuple[int, bool, float]) -> Judged:
    question, right, scores = zip(*rows, strict=True)
    own = np.array(scores)
    return Judged(np.array(question, dtype=np.intp), np.array(right), np.stack([own, -own]))


def pooled(one: Judged) -> list[float]:
    return auroc_of(one.scores[:, one.right], one.scores[:, ~one.right]).tolist()


def clustered(one: Judged) -> list[AUROC]:
    found = [auroc_with_interval(scores, one.right, one.question) for scores in one.scores]
    return [auroc for auroc in found if auroc]


def test_by_hand() -> None:
    """Question 0: 3 beats 1 and not 4; question 1 has no wrong one; question 2: a tie."""
    one = judged((0, True, 3.0), (0, False, 1.0), (0, False, 4.0), (1, True, 0.0), (2, True, 2.0), (2, False, 2.0))
    assert auroc_per_question(one).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    beaten = (2 + 0 + 1.5) / 9  # 3 beats 1 and 2; 0 none; 2 beats 1, and is level with 2
    assert pooled(one) == [pytest.approx(beaten), pytest.approx(1 - beaten)]
    between = judged(*((n, right, float(n)) for n in range(6) for right in (True, False)))
    assert auroc_per_question(between).tolist() == [[0.5] * 6] * 2


def test_without_both_there_is_nothing_to_tell() -> None:
    alike, apart = judged((0, True, 1.0), (0, True, 2.0)), judged((0, True, 1.0), (1, False, 2.0))
    assert (alike.both, apart.both, clustered(alike), mean_auroc([])) == (False, True, [], None)
    assert auroc_per_question(alike).shape == auroc_per_question(apart).shape == (2, 0)


@pytest.mark.parametrize("seed", range(2))
def test_the_auroc_equals_scikit_learns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    right = rng.random(80) < 0.5
    scores = np.round(rng.normal(right * 0.8, 1), 1)  # rounded, so that ties occur
    found = auroc_with_interval(scores, right)
    assert found and found.value == pytest.approx(roc_auc_score(right, scores))
    assert 0 < found.low < found.value < found.high < 1


def test_an_interval_knows_that_responses_to_one_question_are_alike() -> None:
    """Of 60 questions with 16 like responses each, there is as much to learn as of 60 responses, not of 960."""
    rng = np.random.default_rng(3)
    right, own = rng.random(60) < 0.5, rng.normal(size=60)
    rows = [(n, bool(right[n]), float(own[n] + right[n])) for n in range(60) for _ in range(16)]
    many, single = clustered(judged(*rows))[0], clustered(judged(*rows[::16]))[0]
    assert (many.low, many.high) == pytest.approx((single.low, single.high), abs=0.005)
    assert single.high - single.low > 0.2


def test_an_interval_is_as_wide_as_resampled_questions_have_it() -> None:
    rng = np.random.default_rng(5)
    able = rng.beta(2, 2, 150)
    rows = [(n, bool(r), float(rng.normal() + able[n] + r)) for n in range(150) for r in rng.random(8) < able[n]]
    one = judged(*rows)
    found = clustered(one)[0]
    drawn = []
    for _ in range(200):
        at = np.concatenate([np.flatnonzero(one.question == n) for n in rng.integers(0, 150, 150)])
        drawn.append(pooled(Judged(one.question[at], one.right[at], one.scores[:1, at]))[0])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.015)


def test_an_interval_where_all_are_in_order_or_there_is_one_question() -> None:
    ordered = judged(*((n, n % 2 == 1, n % 2 + n / 1000) for n in range(20)))
    best, worst = clustered(ordered)
    assert best.value == 1 and 0.6 < best.low < best.high == 1
    assert worst.value == 0 and worst.low == 0 < worst.high < 0.4
    alone = clustered(judged((0, True, 2.0), (0, False, 1.0), (0, True, 0.0)))[0]
    assert (alone.value, alone.low, alone.high) == (0.5, 0, 1)


@pytest.mark.parametrize(
    ("each", "low", "high"), [([1.0, 0.5], 0.19, 0.97), ([1.0], 0.21, 1), ([1.0] * 4, 0.51, 1), ([1.0] * 40, 0.91, 1)]
)
def test_the_mean_over_few_questions_is_not_certain(each: list[float], low: float, high: float) -> None:
    found = mean_auroc(each)
    assert found is not None and found.value == np.mean(each)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(("right", "wrong", "shift"), [(20, 20, 0.0), (120, 8, 1.0), (8, 120, 2.5), (20, 20, 2.5)])
def test_the_interval_holds_the_true_auroc_as_often_as_it_says(right: int, wrong: int, shift: float) -> None:
    rng = np.random.default_rng(7)
    true, correct = norm.cdf(shift / 2**0.5), np.arange(right + wrong) < right
    found = [auroc_with_interval(rng.normal(shift * correct), correct) for _ in range(200)]
    assert sum(one.low <= true <= one.high for one in found if one) >= 0.9 * 200
