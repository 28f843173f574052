"""The rows of a replay beside each other: intervals of differences, controls, and what is said below the table."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.replay import (
    AGREEMENT,
    ASC_AT_ONCE,
    EQUAL_COST,
    HORIZON,
    MIXTURE,
    OFFLINE,
    ONLINE,
    SAFEGUARDED,
    Estimate,
    MethodSettings,
    Replay,
    Row,
    as_data,
    footnotes,
    print_comparison,
    replay,
    side_by_side,
    summarize,
)
from rich.console import Console

from lab.pools.synthetic import question, response, write_lines, write_pool
from langchain_reasc.calibration import calibrate_mixture
from langchain_reasc.method import ASC, Cap, Measure

FOUR = MethodSettings(max_samples=4)
SPREAD, ONCE = "with the variance between shuffles", "rows that were calibrated once hold for that calibration"
WITHOUT = f"No interval: {AGREEMENT}, {ONLINE}, as other questions"


def _rows(run: Replay) -> dict[str, Row]:
    return {row.method: row for row in summarize(run, resamples=200)}


def test_where_nothing_differed_the_interval_is_the_exact_one(tmp_path: Path) -> None:
    lines = [question(f"q{n}", *[response("7")] * 16) for n in range(160)]
    run = replay(read_pool(write_lines(tmp_path / "p.sqlite", *lines)), shuffles=2)
    rows = _rows(run)
    most = 1 - 0.025 ** (1 / 160)  # none of 160
    for name in ("pass@1", "SC@16", "ESC (w=4)"):
        difference = rows[name].accuracy_vs_asc
        assert (difference.value, difference.low, difference.high) == pytest.approx((0, -most, most))
    assert rows["ASC"].accuracy_vs_asc == Estimate(0.0, 0.0, 0.0)
    assert "Clopper and Pearson's for Δ" in " ".join(footnotes(run, [*rows.values()]))
    found = {row["method"]: row["accuracy_vs_asc"] for row in as_data(run, [*rows.values()])["rows"]}
    assert found["ESC (w=4)"] == pytest.approx({"value": 0, "low": -most, "high": most})


def test_what_decides_by_asc_has_no_difference_to_bound(tmp_path: Path) -> None:
    same = [question(f"q{n}", *[response("7", score=1.0)] * 4) for n in range(6)]
    pool = read_pool(write_lines(tmp_path / "p.sqlite", *same))
    rows = _rows(replay(pool, ["recorded"], calibration_size=3, settings=FOUR, controls=True))
    for name in (OFFLINE, MIXTURE, ASC_AT_ONCE):  # the first two could not be calibrated, and count votes
        assert rows[name].accuracy_vs_asc == Estimate(0.0, 0.0, 0.0)


def test_controls_are_asc_at_the_cost_of_each_row_and_four_at_once(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=90))
    run = replay(pool, [Measure()], shuffles=2, calibration_size=40, controls=True)
    rows = _rows(run)
    names = ["pass@1", "SC@16", "ESC (w=4)", "ASC", HORIZON, AGREEMENT, ASC_AT_ONCE, OFFLINE]
    beside = [name for one in (ONLINE, MIXTURE) for name in (one, EQUAL_COST[one])]
    assert list(rows) == [*names, EQUAL_COST[OFFLINE], SAFEGUARDED, *beside]
    for name, control in EQUAL_COST.items():
        assert rows[control].tokens.value == pytest.approx(rows[name].tokens.value, rel=0.1)
        assert len(rows[control].outcomes.confidences) == 2
    assert rows[ASC_AT_ONCE].accuracy == rows["ASC"].accuracy
    assert rows[ASC_AT_ONCE].tokens.value > rows["ASC"].tokens.value
    told = " ".join(footnotes(run, [*rows.values()]))
    assert "ASC at equal cost: at the confidence" in told and "ASC (4 at once): " in told
    assert not set(_rows(replay(pool, [Measure()], calibration_size=40))) & {ASC_AT_ONCE, *EQUAL_COST.values()}


@pytest.mark.parametrize(
    ("shuffles", "apart", "says", "not_said"),
    [
        (0, False, (WITHOUT, ONCE), SPREAD),
        (1, False, (WITHOUT, ONCE), SPREAD),
        (2, False, (SPREAD,), ONCE),
        (2, True, (SPREAD, ONCE), WITHOUT),
    ],
)
def test_what_an_interval_leaves_out_is_told(
    tmp_path: Path, shuffles: int, apart: bool, says: tuple[str, ...], not_said: str
) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=30))
    if apart:
        pool = replace(pool, calibrating=10, calibration_path=tmp_path / "c.sqlite")
    run = replay(pool, [Measure()], calibration_size=10, shuffles=shuffles)
    told = " ".join(footnotes(run, summarize(run, resamples=10)))
    assert all(one in told for one in says) and not_said not in told


def test_what_learns_while_it_is_tested_has_no_interval_in_one_arrangement(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=60, separation=2.0))
    run = replay(pool, [Measure()], calibration_size=20)
    rows = _rows(run)
    fields = ("accuracy", "samples", "tokens", "tokens_vs_sc", "tokens_vs_asc", "accuracy_vs_sc", "accuracy_vs_asc")
    for name, row in rows.items():
        shown = {np.isfinite(getattr(row, field).low) for field in fields}
        assert shown == {name not in (AGREEMENT, ONLINE)}, name
    online = next(one for one in as_data(run, [*rows.values()])["rows"] if one["method"] == ONLINE)
    assert online["accuracy"] == {"value": rows[ONLINE].accuracy.value, "low": None, "high": None}
    [line] = [line for line in _printed(run, [*rows.values()]) if line.startswith(f" {ONLINE}")]
    assert "[" not in line and f"{100 * rows[ONLINE].accuracy.value:.1f}" in line


def test_several_calibrations_that_all_count_votes_do_not_prove_that_none_weighs_them(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=60, separation=0.0))
    for shuffles, differ in ((1, False), (3, True)):
        settings = MethodSettings(calibration_responses=1)
        rows = _rows(replay(pool, [Measure()], shuffles=shuffles, calibration_size=30, settings=settings))
        row, asc = rows[SAFEGUARDED], rows["ASC"]
        assert all(rule == ASC() | Cap(16) for rule in row.outcomes.rules.values())
        assert (row.accuracy_vs_asc.value, row.tokens_vs_asc.value) == (0, 1)
        assert (row.accuracy_vs_asc.low < 0 < row.accuracy_vs_asc.high) == differ
        assert np.isnan(row.tokens_vs_asc.low) == differ
        assert (row.accuracy_vs_sc.low < asc.accuracy_vs_sc.low) == differ
        assert (row.accuracy_vs_sc.high > asc.accuracy_vs_sc.high) == differ


def _printed(run: Replay, rows: list[Row]) -> list[str]:
    console = Console(width=100, file=StringIO(), color_system=None)
    print_comparison(run, rows, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_row_that_learns_has_the_spread_between_shuffles_in_its_interval(tmp_path: Path) -> None:
    run = replay(
        read_pool(write_pool(tmp_path / "p.sqlite", 60, separation=2.0)), [Measure()], shuffles=4, calibration_size=30
    )
    rows = _rows(run)
    learned = {name for name, row in rows.items() if row.outcomes.learned}
    assert learned == {AGREEMENT, OFFLINE, SAFEGUARDED, ONLINE, MIXTURE}
    alone, wider = side_by_side(run.outcomes, seed=0, resamples=200), set()
    for name, row in rows.items():
        narrow = alone.resampled(((name, row.spec), "tokens"))
        wider |= {name} if row.tokens.high - row.tokens.low > narrow.high - narrow.low else set()
        assert row.tokens.value == narrow.value
    assert {OFFLINE, ONLINE} <= wider <= learned  # a row may vary no more than questions and responses do


def test_it_is_said_why_the_gate_of_a_mixture_was_closed(tmp_path: Path) -> None:
    specs = [Measure(), Measure("token_logprob")]
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=30))
    run = replay(pool, specs, shuffles=2, calibration_size=20)
    rows = summarize(run, resamples=10)
    [line] = [line for line in footnotes(run, rows) if "the gate was closed" in line]
    assert "by self_certainty/bottom_group/W=128, token_logprob/bottom_group/W=128: the gate was closed" in line
    assert line.endswith("in 2 of 2 arrangements (2: 10 responses are too few for a two-component mixture).")
    held = run.outcomes[MIXTURE, Measure()].calibrations
    held[:] = [calibrate_mixture(np.linspace(0.0, 1.0, 60), measure=Measure()) for _ in held]  # no second component
    assert "W=128: BIC prefers one component in 2 of 2 arrangements; " in " ".join(footnotes(run, rows))
