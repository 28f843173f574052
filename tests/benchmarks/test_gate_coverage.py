"""What gates accept: that a measure chosen among many promises no more than one alone, and that the study runs."""

import numpy as np
import pytest

from benchmarks.gate_coverage import CANDIDATES, METHODS, WORLDS, main, outcomes


def test_the_best_of_many_keeps_its_promise_where_it_did_not_on_the_same_responses() -> None:
    rng = np.random.default_rng(5)
    world = WORLDS["step 0 to .89, strong"]
    found = [one for _ in range(120) if (one := outcomes(world, 64, rng))]
    one, best, same = ([gates[name][1] for gates in found] for name in METHODS)
    assert np.mean(one) <= 0.09 and np.mean(best) <= 0.09  # 0.05, and two standard errors
    assert np.mean(same) > np.mean(best)


def test_measures_correlate_with_what_is_right_as_their_world_says() -> None:
    world = WORLDS["slope, strong"]
    scores, right = world.draw(np.random.default_rng(0), 20_000)
    assert scores.shape == (len(CANDIDATES), 20_000) == (84, 20_000)
    assert scores.std(axis=1) == pytest.approx(1.0, abs=0.03)
    gap = scores[:, right].mean(axis=1) - scores[:, ~right].mean(axis=1)
    assert gap[-1] / gap[0] == pytest.approx(2.5, rel=0.1) and (np.diff(gap).mean()) > 0


def test_the_command_prints_a_row_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--calibrations", "3", "--responses", "64", "--worlds", "slope, weak"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[2] for line in lines[-3:]] == list(METHODS)
