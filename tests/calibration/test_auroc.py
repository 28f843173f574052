"""How well scores separate right responses from wrong ones: over all questions, and within each."""

import numpy as np
import pytest
from scipy.stats import norm

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


def test_between_questions_alone_shows_nothing_auroc_per_question() -> None:
    rows = [(n, right, float(n)) for n in range(6) for right in (True, False)]
    assert auroc_per_question(judged(*rows)).tolist() == [[0.5] * 6] * 2


def test_without_both_there_is_nothing_to_tell() -> None:
    alike = judged((0, True, 1.0), (0, True, 2.0))
    assert not alike.both and not clustered(alike) and auroc_per_question(alike).shape == (2, 0)
    assert judged((0, True, 1.0), (1, False, 2.0)).both
    assert auroc_per_question(judged((0, True, 1.0), (1, False, 2.0))).shape == (2, 0)


def test_an_interval_knows_that_responses_to_one_question_are_alike() -> None:
    """Of 60 questions with 16 like responses each, there is as much to learn as of 60 responses, not of 960."""
    rng = np.random.default_rng(3)
    right, own = rng.random(60) < 0.5, rng.normal(size=60)
    rows = [(n, bool(right[n]), float(own[n] + right[n])) for n in range(60) for _ in range(16)]
    many = clustered(judged(*rows))[0]
    single = clustered(judged(*rows[::16]))[0]
    assert (many.low, many.high) == pytest.approx((single.low, single.high), abs=0.005)
    assert single.high - single.low > 0.2


def test_an_interval_is_as_wide_as_resampled_questions_have_it() -> None:
    rng = np.random.default_rng(5)
    able = rng.beta(2, 2, 150)
    rows = [(n, bool(r), float(rng.normal() + able[n] + r)) for n in range(150) for r in rng.random(8) < able[n]]
    one = judged(*rows)
    found = clustered(one)[0]
    drawn = []
    for _ in range(400):
        at = np.concatenate([np.flatnonzero(one.question == n) for n in rng.integers(0, 150, 150)])
        drawn.append(pooled(Judged(one.question[at], one.right[at], one.scores[:1, at]))[0])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.012)
    assert found.value == pooled(one)[0]


def test_an_interval_where_all_are_in_order_or_there_is_one_question() -> None:
    ordered = judged(*((n, n % 2 == 1, n % 2 + n / 1000) for n in range(20)))
    best, worst = clustered(ordered)
    assert best.value == 1 and 0.6 < best.low < best.high == 1
    assert worst.value == 0 and worst.low == 0 < worst.high < 0.4
    alone = clustered(judged((0, True, 2.0), (0, False, 1.0), (0, True, 0.0)))[0]
    assert (alone.value, alone.low, alone.high) == (0.5, 0, 1)
    level = clustered(judged(*((n, n % 2 == 1, 1.0) for n in range(20))))[0]
    assert (level.value, level.low, level.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_mean_over_questions_by_hand() -> None:
    found = mean_auroc([1.0, 0.5])
    assert found is not None and found.value == 0.75
    assert 0 < found.low < 0.35 and found.high < 1
    assert mean_auroc([]) is None


@pytest.mark.parametrize(("questions", "low"), [(1, 0.21), (4, 0.51), (40, 0.91)])
def test_perfect_separation_within_few_questions_is_not_certain(questions: int, low: float) -> None:
    found = mean_auroc([1.0] * questions)
    assert found is not None and (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(low, abs=0.01)


@pytest.mark.parametrize(("right", "wrong"), [(20, 20), (120, 8), (8, 120)])
@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_the_interval_holds_the_true_auroc_as_often_as_it_says(right: int, wrong: int, shift: float) -> None:
    rng = np.random.default_rng(7)
    true, held, correct = norm.cdf(shift / 2**0.5), 0, np.arange(right + wrong) < right
    for _ in range(200):
        auroc = auroc_with_interval(rng.normal(shift * correct), correct)
        assert auroc is not None
        held += auroc.low <= true <= auroc.high
    assert held >= 0.9 * 200
