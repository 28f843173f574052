"""measure="auto": it finds what separates, says what it rejected, and does not fool itself on noise."""

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

from langchain_reasc.calibration import Selection
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.method.token_signals import SIGNALS

from .choosing import Responses, select_measure


def noise(responses: int, tokens: int, signals: tuple[str, ...], seed: int) -> tuple[Responses, npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    return [{name: rng.normal(0, 1, tokens) for name in signals} for _ in range(responses)], rng.random(responses) < 0.5


def test_a_planted_signal_is_found_and_what_was_rejected_is_said() -> None:
    """Right responses have a higher token_logprob in their last 8 tokens, and only there."""
    responses, correct = noise(60, 40, ("self_certainty", "kl_uniform", "token_logprob", "neg_entropy"), seed=0)
    for signals, right in zip(responses, correct, strict=True):
        signals["token_logprob"][-8:] += 0.9 * right
    found = select_measure(responses, correct)
    assert found.measure == Measure("token_logprob", "tail_group", 8)
    assert 0.75 < found.cross_validated <= found.auroc + 1e-9 and found.auroc > 0.85
    over_all = roc_auc_score(correct, [found.measure(signals) for signals in responses])
    assert found.auroc == pytest.approx(over_all, abs=0.03)  # which the mean over folds estimates
    names = [(one.signal, one.score, one.window) for one in found.rejected]
    assert names[0] == ("self_certainty", "bottom_group", 128), "the paper's default, and the best of each signal"
    assert sorted(name for name, *_ in names[1:] if name != "self_certainty") == ["neg_entropy", "token_logprob"]
    assert all(one.behind == pytest.approx(found.auroc - one.auroc) and one.behind > 0 for one in found.rejected)
    assert select_measure(responses, correct, seed=0) == found != select_measure(responses, correct, seed=1)


@pytest.mark.full  # computes for long
def test_noise_stays_near_one_half_when_held_out() -> None:
    """Choosing the best of many measures on noise looks good in hindsight; on folds held out it must not."""
    found = [select_measure(*noise(60, 20, SIGNALS, seed)) for seed in range(12)]
    assert np.mean([selection.auroc for selection in found]) > 0.55
    assert np.mean([selection.cross_validated for selection in found]) == pytest.approx(0.5, abs=0.07)


def _held_out_auroc(found: Selection) -> float:
    z, right = zip(*found.cross_fitted, strict=True)
    return float(roc_auc_score(right, z))


@pytest.mark.full  # computes for long
def test_responses_are_scored_by_what_is_chosen_without_them() -> None:
    """So that on noise they look like noise, and on a planted signal as good as it is."""
    found = [select_measure(*noise(60, 20, SIGNALS, seed)) for seed in range(12)]
    assert np.mean([_held_out_auroc(one) for one in found]) == pytest.approx(0.5, abs=0.07)
    responses, correct = noise(60, 40, ("self_certainty", "token_logprob"), seed=0)
    for signals, right in zip(responses, correct, strict=True):
        signals["token_logprob"] = 100.0 + 7.0 * (signals["token_logprob"] + 0.6 * right)  # in another unit
    planted = select_measure(responses, correct)
    assert _held_out_auroc(planted) > 0.9 and len(planted.cross_fitted) == 60
    assert sum(right for _, right in planted.cross_fitted) == correct.sum()
    assert np.std([z for z, _ in planted.cross_fitted]) == pytest.approx(1.0, abs=0.1)


def test_the_papers_default_wins_a_tie() -> None:
    """Responses of equal tokens: every measure is the same number."""
    correct = np.arange(40) % 2 == 0
    levels = np.random.default_rng(2).normal(correct, 1)
    responses = [{name: np.full(12, level) for name in SIGNALS} for level in levels]
    assert select_measure(responses, correct).measure == Measure()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [(4, 20, "at least 5 .* got 4 correct and 20 wrong"), (20, 0, "at least 5 .* got 20 correct and 0 wrong")],
)
def test_labels_that_compare_nothing(right: int, wrong: int, message: str) -> None:
    responses, _ = noise(right + wrong, 10, ("top_k",), seed=4)
    with pytest.raises(CalibrationDataError, match=message):
        select_measure(responses, [True] * right + [False] * wrong)


def test_the_answers_tokens_are_found() -> None:
    """A response that casts no vote has no such tokens, and its score of them is not missed."""
    responses, correct = noise(80, 40, ("self_certainty", "token_logprob"), seed=5)
    spans: list[Spans | None] = []
    for at, (signals, right) in enumerate(zip(responses, correct, strict=True)):
        begin = 3 * at % 30
        signals["token_logprob"][begin : begin + 3] += 2.0 * right
        spans.append(Spans(answer_span=(begin, begin + 3)))
    best = Measure("token_logprob", "answer_span")
    found = select_measure(responses, correct, spans, ["answer_span"])
    assert found.measure == best and found.auroc > 0.85

    without = np.flatnonzero(~correct)[::2].tolist()
    voting = [at for at in range(80) if at not in without]
    voted = [None if at in without else spans[at] for at in range(80)]
    found = select_measure(responses, correct, voted, ["answer_span"])
    scores = [best(responses[at], spans[at]) for at in voting]
    assert found.measure == best
    assert found.auroc == pytest.approx(roc_auc_score(correct[voting], scores), abs=0.06)
    assert len(found.cross_fitted) == len(voting)
