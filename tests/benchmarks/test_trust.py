"""The studies of trust: scores that turn in a stream, and promises beside the truth."""

import numpy as np
import pytest
from langchain_reasc_lab.simulation.pools import kind_of, simulated_pool
from scipy.stats import spearmanr

from benchmarks import promise, turned_signal
from benchmarks.turned_signal import INVERTED, KEPT, NOISE, turned


def test_turned_scores_are_the_same_ones_in_another_order() -> None:
    asked = simulated_pool(3, questions=200).tested
    related = {}
    for how in (KEPT, INVERTED, NOISE):
        scores = turned(asked, 50, how, seed=0).scores
        assert (scores[:, :50] == asked.scores[:, :50]).all()
        for own, given in zip(scores[:, 50:], asked.scores[:, 50:], strict=True):
            np.testing.assert_array_equal(np.sort(own, axis=None), np.sort(given, axis=None))
        related[how] = spearmanr(scores[0, 50:], asked.scores[0, 50:], axis=None).statistic
    assert related == pytest.approx({KEPT: 1.0, INVERTED: -1.0, NOISE: 0.0}, abs=0.05)


@pytest.mark.slow
def test_a_turned_signal_is_noticed_and_costs_less_than_without_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    kept, inverted = turned_signal.outcomes(3, questions=700, turn=400, seed=0, ways=(KEPT, INVERTED))
    assert (kept.alarms, inverted.ended) == (0, "confidence")
    assert inverted.watched <= inverted.delay < 200 and inverted.lost[0] < inverted.lost[1]
    assert turned_signal.main(["--pools", "1", "--questions", "60", "--turn", "40"]) == 0
    assert "scores turn at 40" in capsys.readouterr().out


def test_a_promise_is_compared_with_other_questions(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(promise.promises(3, sizes=(64,), fresh=200, seed=0))
    assert {(one.answers, one.size) for one in found} == {(kind_of(3).answers, 64)}
    assert {one.is_scored for one in found} == {False, True}
    for one in found:
        assert one.agrees[0] < one.stays[0] and one.agrees == pytest.approx((one.agrees[1],) * 2, abs=15)
        assert one.right == pytest.approx((one.right[1],) * 2, abs=15)
    assert promise.main(["--pools", "1", "--sizes", "32", "--fresh", "50"]) == 0
    shown = capsys.readouterr().out
    for name in ("agrees", "stays", "right"):
        assert f"{name}, learned from 32: true minus promised" in shown
