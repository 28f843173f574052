"""What a calibration on labels is believed to: each safeguard by hand, and how often chance alone fools it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import ValidationError
from scipy.stats import beta

from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    Gate,
    Judged,
    auroc_per_question,
    auroc_with_interval,
    calibrate_offline,
    load_calibration,
    mean_auroc,
    save_calibration,
    select_measure,
)
from langchain_reasc.exceptions import CalibrationFileError, ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, ReASC, Response, decide

SEPARATES = AUROC(value=0.8, low=0.7, high=0.9)


def calibrated(scores: npt.ArrayLike, correct: npt.ArrayLike, **options: Any) -> Calibration:
    return calibrate_offline(scores, correct, measure=Measure(), **options)


def ranked(n: int, *wrong: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Scores n, n - 1, …, 1, of which those at these ranks (1 is the highest) are wrong."""
    return np.arange(n, 0, -1.0), ~np.isin(np.arange(1, n + 1), wrong)


@pytest.mark.parametrize(
    ("n", "wrong", "accepted"),
    [
        (128, range(65, 129), 61),  # one wrong of 46 is allowed, two of 61, three of 76: there are twelve
        (128, [1, *range(65, 129)], 61),  # 1 of 46, 1 of 61
        (128, [1, 2, *range(65, 129)], None),  # 2 of 46
        (128, [1, 50, 60, *range(70, 129)], 46),  # 1 of 46, then 3 of 61
        (128, [1, 50, 60, *range(90, 129)], 46),  # that 3 of 76 would do again does not count: the sequence has ended
        (60, range(40, 61), 29),  # 46 is more than half of 60: there it starts with none wrong of 29
        (60, [1, *range(40, 61)], None),
        (28, [28], None),
    ],
)
def test_the_safe_gate_by_hand(n: int, wrong: list[int], accepted: int | None) -> None:
    gate = calibrated(*ranked(n, *wrong)).gate
    assert gate.accepted == accepted and gate.level == 0.95
    if accepted is None:
        assert gate.safe_threshold is None and gate.lower_bound is None and gate.safe_closed_because
    else:
        assert gate.mean_part is not None and gate.safe_threshold == max(gate.mean_part, n - accepted + 1)
        assert gate.lower_bound is not None and 0.9 <= gate.lower_bound < 1


def test_the_lower_bound_is_clopper_and_pearsons() -> None:
    gate = calibrated(*ranked(128, 1, *range(65, 129))).gate
    assert gate.lower_bound == pytest.approx(beta.ppf(0.05, 60, 2))  # 60 of 61 right


@pytest.mark.parametrize(
    ("n", "reason"),
    [
        (28, "28 responses are too few to vouch for an accuracy of 0.9 (29 at least)"),
        (60, "1 of the 29 highest-scoring responses are wrong; 0.9 at 95 % allows 0"),
    ],
)
def test_a_safe_gate_that_is_closed_says_why(n: int, reason: str) -> None:
    made = calibrated(*ranked(n, 1, *range(n - 15, n + 1)), within=SEPARATES)
    assert made.gate.threshold is not None
    rule = made.rule()
    assert isinstance(rule, ReASC) and rule.gate is None and rule.weight == "reasc"
    assert made.notices() == (f"the gate is closed: {reason}",)


def test_scores_that_are_equal_are_accepted_together_or_not_at_all() -> None:
    """46 of the highest score would do; but with it come 14 more, of which 5 are wrong."""
    scores = np.repeat([2.0, 1.0], [60, 68])
    correct = np.arange(128) % 12 != 0
    assert correct[:46].mean() > 0.9
    gate = calibrated(scores, correct).gate
    assert gate.safe_threshold is None


def test_below_the_mean_of_the_right_ones_nothing_is_accepted() -> None:
    """Algorithm 1's other part: all of 128 are right."""
    gate = calibrated(*ranked(128)).gate
    assert gate.accepted == 116 and gate.safe_threshold == gate.threshold == gate.mean_part == 64.5


@pytest.mark.parametrize("p_target", [0.7, 0.9])
def test_the_safe_gate_is_fooled_in_one_run_of_twenty_at_most(p_target: float) -> None:
    """All responses are right just less often than asked, whatever their score: every gate that opens is wrong."""
    rng = np.random.default_rng(0)
    runs = [calibrated(rng.normal(size=128), rng.random(128) < p_target - 1e-6).gate for _ in range(400)]
    assert np.mean([gate.safe_threshold is not None for gate in runs]) <= 0.07  # 0.05, and two standard errors
    assert np.mean([gate.threshold is not None for gate in runs]) > 0.7, "the paper's nearly always opens"


def test_the_safe_gate_opens_where_the_score_deserves_it() -> None:
    """AUROC .96 at 67 % right."""
    rng = np.random.default_rng(1)
    opened = 0
    for _ in range(100):
        correct = rng.random(128) < 0.67
        opened += calibrated(rng.normal(2.5 * correct), correct).gate.safe_threshold is not None
    assert opened >= 80


def test_weights_need_a_score_that_separates_within_questions() -> None:
    scores, correct = ranked(128, *range(65, 129))
    for within, weight in (
        (None, "count"),
        (AUROC(value=0.7, low=0.6, high=0.8), "count"),
        (AUROC(value=0.7, low=0.61, high=0.8), "reasc"),
    ):
        made = calibrated(scores, correct, within=within)
        rule = made.rule()
        assert isinstance(rule, ReASC) and rule.weight == weight and rule.gate == made.gate.safe_threshold
        assert made.rule(safeguard="paper").weight == "reasc"  # type: ignore[attr-defined]
        assert any("votes are counted, not weighed" in one for one in made.notices()) is (weight == "count")
        assert made.notices("paper") == ()


def test_where_neither_gate_nor_weights_hold_it_is_asc() -> None:
    made = calibrated(*ranked(28, *range(20, 29)))
    assert made.counts() and made.rule(confidence=0.9) == ASC(0.9)
    assert not made.counts("paper") and isinstance(made.rule(safeguard="paper"), ReASC)
    assert len(made.notices()) == 2


def test_votes_that_are_counted_anyway_need_no_reason() -> None:
    made = calibrated(*ranked(40, *range(30, 41)), weight="count")
    assert made.unweighed is None and not made.counts()


def test_easy_questions_do_not_pass_for_separation_within() -> None:
    """Scores that tell easy from hard questions and nothing else: a fine AUROC of first responses, none within."""
    rng = np.random.default_rng(2)
    fooled = 0
    for _ in range(50):
        easy = rng.random(128)
        right = rng.random((128, 4)) < easy[:, None]
        scores = rng.normal(4 * easy[:, None], 1, (128, 4))
        across = auroc_with_interval(scores[:, 0], right[:, 0])
        responses = Judged(np.repeat(np.arange(128), 4), right.ravel(), scores.reshape(1, -1))
        within = mean_auroc(auroc_per_question(responses)[0])
        assert across is not None and across.low > 0.5 and within is not None
        fooled += within.low > 0.6
    assert fooled == 0


def noise(rng: np.random.Generator, n: int) -> list[dict[str, npt.NDArray[np.float64]]]:
    return [{name: rng.normal(0, 1, 20) for name in ("token_logprob", "top_k", "neg_entropy")} for _ in range(n)]


def chosen(responses: list[dict[str, npt.NDArray[np.float64]]], correct: npt.NDArray[np.bool_]) -> Calibration:
    found = select_measure(responses, correct)
    scores = [found.measure(signals) for signals in responses]
    return calibrate_offline(scores, correct, measure=found.measure, cross_validated=found.cross_validated)


def test_choosing_among_noise_is_seen_through() -> None:
    """The best of many worthless measures looks well on the data that chose it."""
    rng = np.random.default_rng(3)
    runs = [chosen(noise(rng, 80), rng.random(80) < 0.6) for _ in range(25)]
    assert np.mean([one.auroc.low > 0.5 for one in runs if one.auroc]) >= 0.12, "without the correction"
    assert np.mean([one.fallback is None for one in runs]) <= 0.08
    flattered = next(one for one in runs if one.auroc and one.auroc.low > 0.5 and one.fallback)
    assert "by which choosing it flattered it, reaches 0.5" in (flattered.fallback or "")


def test_choosing_a_measure_that_works_is_not_held_against_it() -> None:
    rng = np.random.default_rng(4)
    runs = []
    for _ in range(8):
        responses, correct = noise(rng, 128), rng.random(128) < 0.6
        for signals, right in zip(responses, correct, strict=True):
            signals["top_k"] += 0.22 * right  # AUROC .75 of the mean over 20 tokens
        runs.append(chosen(responses, correct))
    assert np.mean([one.fallback is None for one in runs]) >= 0.9


def test_the_papers_rule_is_the_papers() -> None:
    made = calibrated(*ranked(128, 1, 5, 40, *range(60, 129)))
    assert made.gate.threshold is not None and made.mean is not None and made.std is not None
    first = [Response("a", made.gate.threshold)]
    assert decide(made.rule(safeguard="paper") | Cap(4), first).reason == "gate"
    assert decide(made.rule() | Cap(4), first).reason is None


@pytest.mark.parametrize("given", [True, False, "Paper", None])
def test_another_safeguard_is_refused(offline: Calibration, given: Any) -> None:
    with pytest.raises(ConfigurationError, match="safeguard is 'default' or 'paper'"):
        offline.rule(safeguard=given)


@pytest.mark.parametrize(
    "fields",
    [
        {"level": 0.95},
        {"safe_threshold": 2.0, "accepted": 5, "lower_bound": 0.9},
        {"level": 0.95, "safe_threshold": 2.0},
        {"level": 0.95, "safe_threshold": 2.0, "accepted": 5, "lower_bound": 0.9, "safe_closed_because": "both"},
        {"safe_closed_because": "without a level"},
    ],
)
def test_a_safe_gate_is_whole(fields: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match="safe_"):
        Gate(threshold=1.0, **fields)


def test_a_weight_that_cannot_be_had_is_refused_when_a_file_is_read(offline: Calibration, tmp_path: Any) -> None:
    spoiled = offline.model_copy(update={"weight": "mean", "mean": -1.0})
    path = save_calibration(spoiled, tmp_path / "c.json")
    with pytest.raises(CalibrationFileError, match="weight='mean' divides by the mean score, which is -1"):
        load_calibration(path)
