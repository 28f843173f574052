"""signal="auto": it finds what separates, says what it rejected, and does not fool itself on noise."""

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

from langchain_reasc.calibration import Selection, select_measure
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.method.token_signals import SIGNALS

Responses = list[dict[str, npt.NDArray[np.float64]]]


def noise(responses: int, tokens: int, signals: tuple[str, ...], seed: int) -> tuple[Responses, npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    return [{name: rng.normal(0, 1, tokens) for name in signals} for _ in range(responses)], rng.random(responses) < 0.5


@pytest.fixture(scope="module")
def planted() -> tuple[Responses, npt.NDArray[np.bool_]]:
    """Right responses have a higher token_logprob in their last 8 tokens, and only there."""
    responses, correct = noise(60, 40, ("self_certainty", "kl_uniform", "token_logprob", "neg_entropy"), seed=0)
    for signals, right in zip(responses, correct, strict=True):
        signals["token_logprob"][-8:] += 0.9 * right
    return responses, correct


@pytest.fixture(scope="module")
def selection(planted: tuple[Responses, npt.NDArray[np.bool_]]) -> Selection:
    return select_measure(*planted)


def test_the_planted_signal_is_found(selection: Selection) -> None:
    assert selection.measure == Measure("token_logprob", "tail_group", 8)
    assert selection.auroc > 0.85
    assert 0.75 < selection.cross_validated <= selection.auroc + 1e-9


def test_what_was_rejected_and_by_how_much(selection: Selection) -> None:
    rejected = {measure.signal: measure for measure in selection.rejected if measure.signal != "self_certainty"}
    assert rejected.keys() == {"token_logprob", "neg_entropy"}, "the best other measure of each signal"
    paper = [m for m in selection.rejected if (m.signal, m.score, m.window) == ("self_certainty", "bottom_group", 128)]
    assert len(paper) == 1, "the paper's default is always reported"
    for measure in selection.rejected:
        assert measure.behind == pytest.approx(selection.auroc - measure.auroc) and measure.behind > 0


def test_the_auroc_reported_is_that_of_the_measure(
    planted: tuple[Responses, npt.NDArray[np.bool_]], selection: Selection
) -> None:
    """The mean over folds estimates the AUROC over all responses."""
    responses, correct = planted
    over_all = roc_auc_score(correct, [selection.measure(signals) for signals in responses])
    assert selection.auroc == pytest.approx(over_all, abs=0.03)


def test_selection_is_deterministic_by_seed(
    planted: tuple[Responses, npt.NDArray[np.bool_]], selection: Selection
) -> None:
    assert select_measure(*planted, seed=0) == selection
    assert select_measure(*planted, seed=1).auroc != selection.auroc


def test_noise_stays_near_one_half_when_held_out() -> None:
    """Choosing the best of many measures on noise looks good in hindsight; on folds held out it must not."""
    found = [select_measure(*noise(60, 20, SIGNALS, seed)) for seed in range(20)]
    assert np.mean([selection.auroc for selection in found]) > 0.55
    assert np.mean([selection.cross_validated for selection in found]) == pytest.approx(0.5, abs=0.07)


def test_the_papers_default_wins_a_tie() -> None:
    """Responses of equal tokens: every measure is the same number."""
    rng = np.random.default_rng(2)
    correct = np.arange(40) % 2 == 0
    levels = rng.normal(correct, 1)
    responses = [{name: np.full(12, level) for name in SIGNALS} for level in levels]
    assert select_measure(responses, correct).measure == Measure()


def test_only_signals_that_every_response_carries() -> None:
    responses, correct = noise(30, 10, ("token_logprob", "top_k"), seed=3)
    del responses[7]["top_k"]
    found = select_measure(responses, correct)
    assert {found.measure.signal, *(m.signal for m in found.rejected)} == {"token_logprob"}
    del responses[8]["token_logprob"]
    with pytest.raises(CalibrationDataError, match="no token signal that every calibration response carries"):
        select_measure(responses, correct)


@pytest.mark.parametrize(("right", "wrong"), [(0, 20), (20, 0), (4, 20), (20, 4), (0, 0)])
def test_too_few_of_a_class(right: int, wrong: int) -> None:
    responses, _ = noise(right + wrong, 10, ("top_k",), seed=4)
    with pytest.raises(CalibrationDataError, match=f"at least 5 .* got {right} correct and {wrong} wrong"):
        select_measure(responses, [True] * right + [False] * wrong)


@pytest.mark.parametrize("labels", [19, 21])
def test_a_label_for_each_response(labels: int) -> None:
    responses, _ = noise(20, 10, ("top_k",), seed=5)
    with pytest.raises(CalibrationDataError, match=f"20 responses but {labels} labels"):
        select_measure(responses, np.arange(labels) % 2 == 0)


def _spelled(responses: Responses, correct: npt.NDArray[np.bool_]) -> list[Spans | None]:
    """Raises the signal of right answers at their tokens, where each response has its own."""
    spans: list[Spans | None] = []
    for at, (signals, right) in enumerate(zip(responses, correct, strict=True)):
        begin = 3 * at % 30
        signals["token_logprob"][begin : begin + 3] += 2.0 * right
        spans.append(Spans(answer_span=(begin, begin + 3)))
    return spans


def test_the_answers_tokens_are_found_where_every_vote_has_them() -> None:
    responses, correct = noise(80, 40, ("self_certainty", "token_logprob"), seed=5)
    spans = _spelled(responses, correct)
    found = select_measure(responses, correct, spans=spans)
    assert found.measure == Measure("token_logprob", "answer_span") and found.auroc > 0.85
    assert all(measure.score != "last_step" for measure in found.rejected)
    spans[7] = Spans(last_step=(0, 3))
    assert select_measure(responses, correct, spans=spans).measure.score != "answer_span"
    assert select_measure(responses, correct) == select_measure(responses, correct, spans=[Spans()] * 80)


def test_a_response_without_a_vote_needs_no_span() -> None:
    responses, correct = noise(80, 40, ("self_certainty", "token_logprob"), seed=5)
    spans = _spelled(responses, correct)
    without = np.flatnonzero(~correct)[::2]
    for at in without:
        spans[at] = None
    found = select_measure(responses, correct, spans=spans)
    assert found.measure == Measure("token_logprob", "answer_span")
    voting = [at for at in range(80) if at not in without]
    scores = [found.measure(responses[at], spans[at] or Spans()) for at in voting]
    assert found.auroc == pytest.approx(roc_auc_score(correct[voting], scores), abs=0.06)


def test_where_no_wrong_response_votes_its_score_says_nothing() -> None:
    responses, correct = noise(40, 12, ("token_logprob",), seed=6)
    spans = [Spans(answer_span=(0, 2)) if right else None for right in correct]
    assert select_measure(responses, correct, spans=spans).measure.score != "answer_span"
