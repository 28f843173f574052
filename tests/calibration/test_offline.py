"""Algorithm 1, worked by hand, on degenerate data, and under a change of the score's unit."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from langchain_reasc.calibration import Calibration, calibrate_mixture, calibrate_offline
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, Response, decide

TEN = list(range(1, 11))


def calibrate(scores: Sequence[float], correct: Sequence[int], p_target: float = 0.9) -> Calibration:
    return calibrate_offline(scores, correct, measure=Measure(), p_target=p_target)


def all_but(*wrong: int) -> list[int]:
    return [score not in wrong for score in TEN]


@pytest.mark.parametrize(
    ("scores", "correct", "p_target", "mean_part", "target_part"),
    [
        (TEN, all_but(1, 2, 3, 6), 0.8, 43 / 6, 4),  # 6/10, 6/9, 6/8, then 6/7 ≥ 0.8
        (TEN, all_but(1, 2, 3, 6), 0.9, 43 / 6, 7),  # 6/7, 5/6, 4/5, then 4/4
        (TEN, all_but(9), 0.9, 46 / 9, 1),  # 9/10 at once, although 1/2 at 9: the smallest wins
        (TEN, all_but(9), 0.95, 46 / 9, 10),  # 9/10, 8/9, ..., 1/2, then 1/1: above the mean of the correct
        ([1, 2, 2, 3], [0, 1, 0, 1], 0.6, 2.5, 2),  # both 2s are accepted or neither: 2/4, then 2/3
        ([1, 2, 2, 3], [0, 0, 1, 1], 0.9, 2.5, 3),  # an order among equals must not make 2/2 of the last two
        ([5, 7], [1, 1], 0.9, 6, 5),  # all correct
        ([-3, -1, -2], [0, 1, 0], 0.9, -1, -1),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_algorithm_1_by_hand(
    scores: list[float], correct: list[int], p_target: float, mean_part: float, target_part: float, order: int
) -> None:
    gate = calibrate(scores[::order], correct[::order], p_target).gate
    assert gate.mean_part == pytest.approx(mean_part)
    assert gate.target_part == target_part
    assert gate.threshold == max(gate.mean_part, gate.target_part)
    assert gate.closed_because is None


def test_statistics_are_those_of_all_scores() -> None:
    calibration = calibrate([1, 2, 3, 6], [0, 1, 1, 1])
    assert (calibration.mean, calibration.std) == (pytest.approx(3.0), pytest.approx(3.5**0.5))  # population σ
    assert (calibration.n, calibration.accuracy, calibration.method) == (4, 0.75, "offline")


def test_the_gate_is_closed_when_nothing_reaches_the_target() -> None:
    calibration = calibrate([1, 2, 3, 4], [1, 1, 1, 0])
    assert calibration.gate.threshold is None
    assert calibration.gate.closed_because == "no threshold reaches p_target 0.9; the best accuracy above any is 0.750"
    assert calibration.gate.mean_part == 2.0
    assert calibration.rule(safeguard="paper").gate is None


def test_none_correct_closes_the_gate_and_counts_votes() -> None:
    calibration = calibrate([1, 2, 3], [0, 0, 0])
    assert calibration.gate.closed_because == "none of the 3 calibration responses is correct"
    assert calibration.auroc is None and calibration.accuracy == 0.0
    assert "no calibration response is correct" in (calibration.fallback or "")
    assert calibration.rule() == ASC()


def test_all_correct_opens_the_gate_at_their_mean() -> None:
    calibration = calibrate([1, 2, 6], [1, 1, 1])
    assert calibration.gate.threshold == 3.0
    assert calibration.auroc is None and calibration.fallback is None and calibration.accuracy == 1.0
    assert calibration.rule(safeguard="paper").gate == 3.0


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([], "at least 2 responses, got 0"),
        ([1.0], "at least 2 responses, got 1"),
        ([[1.0, 2.0]], r"one score per response, got shape \(1, 2\)"),
        ([2.0] * 20, "all 20 scores equal 2;.*temperature above 0"),
        ([0.0] * 20, "all 20 scores equal 0;"),
        ([0.1 + 0.2, 0.3] * 10, "all 20 scores equal 0.3;"),  # a spread of rounding only
        ([1.0, np.nan, 3.0], "score 1 is nan"),
        ([1.0, 2.0, np.inf], "score 2 is inf"),
        ([-np.inf, 2.0], "score 0 is -inf"),
        ([1.0, None], "score 1 is nan"),
    ],
)
def test_data_that_determine_nothing(scores: list[float], message: str, online: bool) -> None:
    run: Callable[[], Calibration] = (
        (lambda: calibrate_mixture(scores, measure=Measure()))
        if online
        else (lambda: calibrate(scores, [1] * np.size(scores)))
    )
    with pytest.raises(CalibrationDataError, match=message):
        run()


@pytest.mark.parametrize("labels", [[], [1], [1, 0, 1]])
def test_a_label_for_each_score(labels: list[int]) -> None:
    with pytest.raises(CalibrationDataError, match=f"2 scores but {len(labels)} labels"):
        calibrate([1.0, 2.0], labels)


@pytest.mark.parametrize("p_target", [0.0, 1.0, 90, float("nan")])
def test_a_target_accuracy_lies_between_0_and_1(p_target: float) -> None:
    for run in (
        lambda: calibrate([1, 2], [0, 1], p_target),
        lambda: calibrate_mixture([1, 2], measure=Measure(), p_target=p_target),
    ):
        with pytest.raises(ConfigurationError, match=f"between 0 and 1, got {p_target}"):
            run()


@pytest.mark.parametrize("seed", range(5))
def test_auroc_equals_scikit_learns_within_its_interval(seed: int) -> None:
    rng = np.random.default_rng(seed)
    correct = rng.random(80) < 0.5
    scores = np.round(rng.normal(correct * 0.8, 1), 1)  # rounded, so that ties occur
    auroc = calibrate(scores, correct).auroc
    assert auroc is not None
    assert auroc.value == pytest.approx(roc_auc_score(correct, scores))
    assert 0 < auroc.low < auroc.value < auroc.high < 1
    assert auroc == calibrate(scores, correct).auroc, "the interval is reproducible"


@pytest.mark.parametrize(
    ("wrong", "low", "strong"), [((1,), 0.40, False), ((1, 2), 0.54, True), ((1, 2, 3, 4), 0.63, True)]
)
def test_perfect_separation_of_few_is_not_certain(wrong: tuple[int, ...], low: float, strong: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibration = calibrate(TEN, all_but(*wrong))
    assert calibration.auroc is not None
    assert (calibration.auroc.value, calibration.auroc.high) == (1.0, 1.0)
    assert calibration.auroc.low == pytest.approx(low, abs=0.01)
    assert (calibration.fallback is None) is strong


def test_a_mean_that_rounds_above_equal_scores_leaves_a_gate_that_they_reach() -> None:
    scores = np.array([0.1] * 3 + [0.0])
    assert scores[:3].mean() > 0.1, "the case this is about"
    assert calibrate(scores, scores > 0).gate.threshold == 0.1


@pytest.mark.parametrize(("scores", "weight"), [([-2, -1, -3], "mean"), ([1, 2, 3], "no such weight")])
def test_a_weight_that_cannot_be_had_is_refused_when_calibrating(scores: list[float], weight: str) -> None:
    with pytest.raises(ConfigurationError, match="weight"):
        calibrate_offline(scores, [0, 1, 0], measure=Measure(), weight=weight)
    with pytest.raises(ConfigurationError, match="weight"):
        calibrate_mixture(scores, measure=Measure(), weight=weight)


def test_a_weak_signal_falls_back_to_counting_and_says_so() -> None:
    rng = np.random.default_rng(3)
    calibration = calibrate(rng.normal(0, 1, 80), rng.random(80) < 0.7, p_target=0.6)
    assert calibration.auroc is not None and calibration.auroc.low <= 0.5
    assert f"[{calibration.auroc.low:.2f}, {calibration.auroc.high:.2f}] reaches 0.5" in (calibration.fallback or "")
    assert calibration.gate.threshold is not None

    sure = [Response("a", calibration.gate.threshold + 9 * calibration.std)] * 3
    assert decide(calibration.rule(), sure).evidence == {"a": 3.0}
    assert not decide(calibration.rule(), sure).stop
    assert decide(calibration.rule(safeguard="paper"), sure).reason == "gate"
    assert calibration.rule(safeguard="paper").weight == "reasc"


whole = st.lists(st.tuples(st.integers(-20, 20), st.booleans()), min_size=4, max_size=12)
votes = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-30, 30)), min_size=1, max_size=10)


@settings(max_examples=40)
@given(whole, votes, st.floats(0.01, 100), st.floats(-100, 100))
def test_decisions_do_not_depend_on_the_unit_of_the_score(
    data: list[tuple[int, bool]], votes: list[tuple[str | None, int]], a: float, b: float
) -> None:
    """Scores s and a·s + b (a > 0), calibrated and decided alike, stop at the same response for the same reason."""
    scores, correct = np.array([s for s, _ in data], dtype=float), [c for _, c in data]
    assume(scores.std() > 0)
    plain, moved = calibrate(scores, correct), calibrate(a * scores + b, correct)
    rules = [calibration.rule(safeguard="paper") | Cap(8) for calibration in (plain, moved)]
    given = [Response(answer, float(score)) for answer, score in votes]
    shifted = [Response(answer, float(a * np.float64(score) + b)) for answer, score in votes]
    # A score exactly on the mean of the correct, or a posterior on 0.95, may round to either side.
    assume(
        plain.gate.mean_part is None
        or abs(given[0].score - plain.gate.mean_part) > 1e-6
        or plain.gate.threshold != plain.gate.mean_part
    )  # type: ignore[operator]
    assume(all(abs(rules[0](given[:n]).posterior - 0.95) > 1e-6 for n in range(1, len(given) + 1)))

    one, other = (decide(rule, responses) for rule, responses in zip(rules, (given, shifted), strict=True))
    assert (other.stop, other.reason, other.samples) == (one.stop, one.reason, one.samples)
    assert other.evidence == pytest.approx(one.evidence, rel=1e-6)
