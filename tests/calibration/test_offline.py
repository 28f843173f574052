"""Algorithm 1 by hand, on degenerate data and in any unit; what it is believed to, and how often chance fools it."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples
from scipy.stats import beta

from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    Judged,
    Observation,
    auroc_per_question,
    calibrate_mixture,
    calibrate_offline,
    fit,
    mean_auroc,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, ReASC, Response, decide

from .choosing import select_measure

TEN = list(range(1, 11))
SEPARATES = AUROC(value=0.8, low=0.7, high=0.9)


def calibrate(scores: npt.ArrayLike, correct: npt.ArrayLike, p_target: float = 0.9, **options: Any) -> Calibration:
    return calibrate_offline(scores, correct, measure=Measure(), p_target=p_target, **options)


def all_but(*wrong: int) -> list[int]:
    return [score not in wrong for score in TEN]


def ranked(n: int, *wrong: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Scores n, n - 1, …, 1, of which those at these ranks (1 is the highest) are wrong."""
    return np.arange(n, 0, -1.0), ~np.isin(np.arange(1, n + 1), wrong)


@pytest.mark.parametrize(("order", "told"), [("easy", True), ("hard", True), ("random", False), ("all right", False)])
def test_questions_that_come_easy_or_hard_first_are_told(
    order: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    right = np.arange(60) < (60 if order == "all right" else 40)
    right = {"hard": right[::-1], "random": np.random.default_rng(0).permutation(right)}.get(order, right)
    fit([Observation((0,), np.array([[at % 5.0]]), right=(bool(one),)) for at, one in enumerate(right)], [Measure()])
    assert (f"the questions come {order} ones first" in caplog.text) is told


@pytest.mark.parametrize(
    ("scores", "correct", "p_target", "mean_part", "target_part"),
    [
        (TEN, all_but(1, 2, 3, 6), 0.8, 43 / 6, 4),  # 6/10, 6/9, 6/8, then 6/7 ≥ 0.8
        (TEN, all_but(1, 2, 3, 6), 0.9, 43 / 6, 7),  # 6/7, 5/6, 4/5, then 4/4
        (TEN, all_but(9), 0.9, 46 / 9, 1),  # 9/10 at once, although 1/2 at 9: the smallest wins
        (TEN, all_but(9), 0.95, 46 / 9, 10),  # 9/10, 8/9, ..., 1/2, then 1/1: above the mean of the correct
        ([1, 2, 2, 3], [0, 1, 0, 1], 0.6, 2.5, 2),  # both 2s are accepted or neither: 2/4, then 2/3
        ([1, 2, 2, 3], [0, 0, 1, 1], 0.9, 2.5, 3),  # an order among equals must not make 2/2 of the last two
        ([1, 2, 6], [1, 1, 1], 0.9, 3, 1),  # all correct
        ([0.1, 0.1, 0.1, 0.0], [1, 1, 1, 0], 0.9, 0.1, 0.1),  # whose mean rounds above them
    ],
)
def test_algorithm_1_by_hand(
    scores: list[float], correct: list[int], p_target: float, mean_part: float, target_part: float
) -> None:
    for order in (1, -1):
        gate = calibrate(scores[::order], correct[::order], p_target).gate
        assert gate.mean_part == pytest.approx(mean_part)
        assert (gate.target_part, gate.threshold, gate.closed_because) == (
            target_part,
            max(gate.mean_part or 0, target_part),
            None,
        )


@pytest.mark.parametrize(
    ("correct", "closed", "fallback"),
    [
        ([1, 1, 1, 0], "no threshold reaches p_target 0.9; the best accuracy above any is 0.750", "reaches 0.5"),
        ([0, 0, 0, 0], "none of the 4 calibration responses is correct", "no calibration response is correct"),
        ([1, 1, 1, 1], None, None),
    ],
)
def test_a_gate_is_closed_and_votes_are_counted_where_labels_say_so(
    correct: list[int], closed: str | None, fallback: str | None
) -> None:
    calibration = calibrate([1, 2, 3, 4], correct)
    assert calibration.gate.closed_because == closed
    assert (fallback or "") in (calibration.fallback or "") and (calibration.fallback is None) is (fallback is None)
    assert (calibration.auroc is None) is (len(set(correct)) == 1)
    assert isinstance(calibration.rule(), ASC)
    assert calibration.rule(safeguard="paper").gate == calibration.gate.threshold  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0, 2.0]], r"one score per response, got shape \(1, 2\)"),
        ([2.0] * 20, "all 20 scores equal 2;.*temperature above 0"),
        ([0.1 + 0.2, 0.3] * 10, "all 20 scores equal 0.3;"),  # a spread of rounding only
        ([1.0, np.nan, 3.0], "score 1 is nan"),
        ([-np.inf, 2.0], "score 0 is -inf"),
    ],
)
def test_data_that_determine_nothing(scores: list[float], message: str) -> None:
    with pytest.raises(CalibrationDataError, match=message):
        calibrate_mixture(scores, measure=Measure())
    with pytest.raises(CalibrationDataError, match=message):
        calibrate(scores, [1] * np.size(scores))


@pytest.mark.parametrize(
    ("wrong", "low", "strong"), [((1,), 0.40, False), ((1, 2), 0.54, True), ((1, 2, 3, 4), 0.63, True)]
)
def test_perfect_separation_of_few_is_not_certain(wrong: tuple[int, ...], low: float, strong: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibration = calibrate(TEN, all_but(*wrong))
    assert calibration.auroc is not None
    assert (calibration.auroc.value, calibration.auroc.low) == (1.0, pytest.approx(low, abs=0.01))
    assert (calibration.fallback is None) is strong


@pytest.mark.parametrize(
    ("n", "wrong", "accepted"),
    [
        (128, range(65, 129), 61),  # one wrong of 46 is allowed, two of 61, three of 76: there are twelve
        (128, [1, *range(65, 129)], 61),  # 1 of 46, 1 of 61
        (128, [1, 2, *range(65, 129)], None),  # 2 of 46
        (128, [1, 50, 60, *range(70, 129)], 46),  # 1 of 46, then 3 of 61
        (128, [1, 50, 60, *range(90, 129)], 46),  # that 3 of 76 would do again does not count: the sequence has ended
        (128, [], 116),  # below the mean of the right ones nothing is accepted
        (60, range(40, 61), 29),  # 46 is more than half of 60: there it starts with none wrong of 29
        (60, [1, *range(40, 61)], None),
        (28, [28], None),
    ],
)
def test_the_safe_gate_by_hand(n: int, wrong: Sequence[int], accepted: int | None) -> None:
    gate = calibrate(*ranked(n, *wrong)).gate
    assert gate.accepted == accepted and gate.level == 0.95
    if accepted is None:
        assert gate.safe_threshold is None and gate.lower_bound is None and gate.safe_closed_because
    else:
        assert gate.mean_part is not None and gate.safe_threshold == max(gate.mean_part, n - accepted + 1)
        right = accepted - sum(one <= accepted for one in wrong)
        assert gate.lower_bound == pytest.approx(beta.ppf(0.05, right, accepted - right + 1))  # Clopper and Pearson


@pytest.mark.parametrize(
    ("n", "reason"),
    [
        (28, "28 responses are too few to vouch for an accuracy of 0.9 (29 at least)"),
        (60, "1 of the 29 highest-scoring responses are wrong; 0.9 at 95 % allows 0"),
    ],
)
def test_a_safe_gate_that_is_closed_says_why(n: int, reason: str) -> None:
    made = calibrate(*ranked(n, 1, *range(n - 15, n + 1)), within=SEPARATES)
    assert made.gate.threshold is not None
    rule = made.rule()
    assert isinstance(rule, ReASC) and rule.gate is None and rule.weight == "reasc"
    assert made.notices() == (f"the gate is closed: {reason}",)


@pytest.mark.parametrize(
    ("tested", "accepted", "rank"),
    [
        (ranked(128, *range(65, 129)), 61, 61),
        (ranked(128, 1, *range(50, 129)), 46, 46),
        (ranked(128, 1, 2, *range(65, 129)), None, None),
        (ranked(64, 40, 41, *range(50, 65)), 29, 58),  # 29 of 64, as some had no score: as many are 58 of 128
        (ranked(128), 116, None),  # below the mean of the right ones nothing is accepted
    ],
)
def test_a_measure_chosen_on_the_responses_is_tested_on_those_that_did_not_choose_it(
    tested: tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]], accepted: int | None, rank: int | None
) -> None:
    scores, correct = ranked(128, *range(124, 129))
    scores = -((129 - scores) ** 3)  # so that the mean is low
    gate = calibrate(scores, correct, cross_fitted=list(zip(*tested, strict=True))).gate
    assert gate.accepted == accepted
    assert gate.safe_threshold == (-(rank**3) if rank else gate.threshold if accepted else None)
    assert gate.threshold == calibrate(scores, correct).gate.threshold == scores[correct].mean() < -(77**3)


def test_where_the_papers_gate_is_closed_the_safe_one_is_too() -> None:
    scores, correct = ranked(128, 1, 2, *range(5, 129, 2))
    gate = calibrate(scores, correct, cross_fitted=list(zip(*ranked(128), strict=True))).gate
    assert gate.threshold is None and gate.safe_closed_because == gate.closed_because


def test_scores_that_are_equal_are_accepted_together_or_not_at_all() -> None:
    """46 of the highest score would do; but with it come 14 more, of which 5 are wrong."""
    correct = np.arange(128) % 12 != 0
    assert correct[:46].mean() > 0.9
    assert calibrate(np.repeat([2.0, 1.0], [60, 68]), correct).gate.safe_threshold is None


@pytest.mark.parametrize("p_target", [0.7, 0.9])
def test_the_safe_gate_is_fooled_in_one_run_of_twenty_at_most(p_target: float) -> None:
    """All responses are right just less often than asked, whatever their score: every gate that opens is wrong."""
    rng = np.random.default_rng(0)
    runs = [calibrate(rng.normal(size=128), rng.random(128) < p_target - 1e-6, p_target).gate for _ in range(300)]
    assert np.mean([gate.safe_threshold is not None for gate in runs]) <= 0.075  # 0.05, and two standard errors
    assert np.mean([gate.threshold is not None for gate in runs]) > 0.7, "the paper's nearly always opens"


def test_the_safe_gate_opens_where_the_score_deserves_it() -> None:
    """AUROC .96 at 67 % right."""
    rng = np.random.default_rng(1)
    right = [rng.random(128) < 0.67 for _ in range(40)]
    opened = [calibrate(rng.normal(2.5 * one), one).gate.safe_threshold is not None for one in right]
    assert np.mean(opened) >= 0.8


@pytest.mark.parametrize(
    ("within", "weight"),
    [
        (None, "count"),
        (AUROC(value=0.7, low=0.6, high=0.8), "count"),
        (AUROC(value=0.7, low=0.61, high=0.8), "reasc"),
    ],
)
def test_weights_need_a_score_that_separates_within_questions(within: AUROC | None, weight: str) -> None:
    made = calibrate(*ranked(128, *range(65, 129)), within=within)
    rule, paper = made.rule(), made.rule(safeguard="paper")
    assert isinstance(rule, ReASC) and (rule.weight, rule.gate) == (weight, made.gate.safe_threshold)
    assert isinstance(paper, ReASC) and paper.weight == "reasc" and made.notices("paper") == ()
    assert any("votes are counted, not weighed" in one for one in made.notices()) is (weight == "count")


def test_where_neither_gate_nor_weights_hold_it_is_asc() -> None:
    made = calibrate(*ranked(28, *range(20, 29)))
    assert made.counts() and made.rule(confidence=0.9) == ASC(0.9) and len(made.notices()) == 2
    assert not made.counts("paper") and isinstance(made.rule(safeguard="paper"), ReASC)
    counting = calibrate(*ranked(40, *range(30, 41)), weight="count")  # votes that are counted anyway need no reason
    assert counting.unweighed is None and not counting.counts()


def test_easy_questions_do_not_pass_for_separation_within() -> None:
    """Scores that tell easy from hard questions and nothing else: a fine AUROC of first responses, none within."""
    rng = np.random.default_rng(2)
    for _ in range(15):
        easy = rng.random(128)
        right = rng.random((128, 4)) < easy[:, None]
        scores = rng.normal(4 * easy[:, None], 1, (128, 4))
        responses = Judged(np.repeat(np.arange(128), 4), right.ravel(), scores.reshape(1, -1))
        within = mean_auroc(auroc_per_question(responses)[0])
        made = calibrate(scores[:, 0], right[:, 0], within=within)
        assert made.fallback is None and made.unweighed is not None


def chosen(rng: np.random.Generator, n: int, shift: float) -> Calibration:
    """Of three signals one has this shift where a response is right; without, all are noise."""
    names, correct = ("token_logprob", "top_k", "neg_entropy"), rng.random(n) < 0.6
    responses = [{name: rng.normal(shift * (name == "top_k") * right, 1, 20) for name in names} for right in correct]
    found = select_measure(responses, correct)
    scores = [found.measure(signals) for signals in responses]
    return calibrate_offline(scores, correct, measure=found.measure, cross_validated=found.cross_validated)


@pytest.mark.full  # computes for long
def test_choosing_among_noise_is_seen_through_and_not_held_against_what_works() -> None:
    """The best of many worthless measures looks well on the data that chose it."""
    rng = np.random.default_rng(3)
    runs = [chosen(rng, 80, 0.0) for _ in range(16)]
    flattered = [one.fallback or "" for one in runs if one.auroc and one.auroc.low > 0.5]
    assert any("by which choosing it flattered it, reaches 0.5" in one for one in flattered)
    assert np.mean([one.fallback is None for one in runs]) <= 0.08
    assert all(chosen(rng, 128, 0.22).fallback is None for _ in range(4))  # AUROC .75 of the mean over 20 tokens


whole = st.lists(st.tuples(st.integers(-20, 20), st.booleans()), min_size=4, max_size=12)
votes = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-30, 30)), min_size=1, max_size=10)


@examples(25)
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
    mean = plain.gate.mean_part
    assume(mean is None or plain.gate.threshold != mean or abs(votes[0][1] - mean) > 1e-6)
    assume(all(abs(rules[0](given[:n]).posterior - 0.95) > 1e-6 for n in range(1, len(given) + 1)))
    one, other = (decide(rule, responses) for rule, responses in zip(rules, (given, shifted), strict=True))
    assert (other.stop, other.reason, other.samples) == (one.stop, one.reason, one.samples)
    assert other.evidence == pytest.approx(one.evidence, rel=1e-6)
