"""How often intervals hold their value: what is counted, and that a study of few small recordings runs."""

import numpy as np
import pytest
from langchain_reasc_lab.pools import PoolScores
from langchain_reasc_lab.replay import AGREEMENT, ONLINE, Estimate
from langchain_reasc_lab.simulation.pools import simulated_pool

from benchmarks.interval_coverage import covered, intervals, main, recorded

ROW = ("ASC", "accuracy")
NAN = float("nan")


def test_a_recording_holds_what_was_simulated() -> None:
    simulated = simulated_pool(7, questions=5, measures=2).tested  # of which some have no answer
    pool = recorded(simulated)
    assert [one.correct for one in pool.responses] == simulated.correct.ravel().tolist()
    scored = PoolScores(pool).responses("recorded")
    assert [list(one) for one in scored] == [simulated.to_question(question) for question in range(5)]


def test_intervals_are_held_against_the_mean_of_all_recordings() -> None:
    ends = ((1, 0, 2), (2, 1, 4), (6, 4, 7), (3, 2, 5), (3, NAN, NAN))
    found = [{ROW: (Estimate(value, low, high), NAN)} for value, low, high in ends]
    mean, shown, share, width, spread = covered(found, ROW) or pytest.fail("it varies")
    assert (mean, shown, share.value, width) == (3, 4, 0.5, 2.75)
    assert spread == pytest.approx(3.92 * np.std([1, 2, 6, 3, 3]))
    assert covered([*found, {}], ROW) is None and covered([{ROW: (Estimate(1, 1, 1), NAN)}] * 2, ROW) is None
    assert covered([{ROW: (Estimate(1, NAN, NAN), NAN)}] * 2, ROW) is None


def test_in_one_arrangement_an_interval_is_held_against_what_its_own_rule_does_on_other_questions() -> None:
    ends = ((1, 0, 2, 1.5), (3, 2, 4, 4.5))  # the last is what the rule does
    found = [{ROW: (Estimate(value, low, high), own)} for value, low, high, own in ends]
    assert (covered(found, ROW) or pytest.fail("it varies"))[2].value == 0.5
    drawn = simulated_pool(12, questions=2040, measures=1).tested
    shown = intervals(drawn[:40], drawn[40:], calibration=20, shuffles=0)
    assert {method for (method, _), (_, own) in shown.items() if np.isnan(own)} == {AGREEMENT, ONLINE}
    assert all(np.isnan(interval.low) == np.isnan(own) for interval, own in shown.values())
    (asc, right), (_, gained) = shown["ASC", "accuracy"], shown["pass@1", "accuracy_vs_asc"]
    assert asc.low < right < asc.high and shown["pass@1", "accuracy"][1] - right == pytest.approx(gained)
    assert all(np.isnan(own) for _, own in intervals(drawn[:40], drawn[40:], calibration=20, shuffles=2).values())


@pytest.mark.slow  # replays three recordings by every method
def test_the_command_prints_the_coverage_of_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--recordings", "3", "--questions", "40", "--calibration", "20", "--shuffles", "2", "--jobs", "1"]
    assert main(sizes) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "3 recordings of pool 12" in lines[0] and max(map(len, lines)) <= 100
    assert {"ESC (w=4)", "ReASC (offline)", "ReASC (online)", "ReASC (mixture)"} <= {
        line[:30].strip() for line in lines
    }
