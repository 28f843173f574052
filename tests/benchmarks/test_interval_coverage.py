"""How often intervals hold their value: what is counted, and that a study of few small recordings runs."""

import pytest
from langchain_reasc_lab.replay import Estimate
from langchain_reasc_lab.simulation.pools import simulated_pool

from benchmarks.interval_coverage import covered, main, recorded
from langchain_reasc.calibrating import PoolScores

ROW = ("ASC", "accuracy")


def test_a_recording_holds_what_was_simulated() -> None:
    simulated = simulated_pool(7, questions=5, measures=2).tested  # of which some have no answer
    pool = recorded(simulated)
    assert [one.correct for one in pool.responses] == simulated.correct.ravel().tolist()
    scored = PoolScores(pool).responses("recorded")
    assert [list(one) for one in scored] == [simulated.to_question(question) for question in range(5)]


def test_intervals_are_held_against_the_mean_of_all_recordings() -> None:
    found = [{ROW: Estimate(value, low, high)} for value, low, high in ((1, 0, 2), (2, 1, 4), (6, 4, 7), (3, 2, 5))]
    mean, share, width = covered(found, ROW) or pytest.fail("it varies")
    assert (mean, share.value, width) == (3, 0.5, 2.75)
    assert covered([*found, {}], ROW) is None and covered([{ROW: Estimate(1, 1, 1)}] * 2, ROW) is None


def test_the_command_prints_the_coverage_of_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--recordings", "3", "--questions", "40", "--calibration", "20", "--shuffles", "2", "--jobs", "1"]
    assert main(sizes) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "3 recordings of pool 12" in lines[0] and max(map(len, lines)) <= 100
    assert {"ESC (w=4)", "ReASC (offline)", "ReASC (online)", "ReASC (mixture)"} <= {
        line[:30].strip() for line in lines
    }
