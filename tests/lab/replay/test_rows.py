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
    CALIBRATED,
    EQUAL_COST,
    HORIZON,
    MIXTURE,
    OFFLINE,
    ONLINE,
    Estimate,
    Replay,
    Row,
    as_data,
    footnotes,
    print_comparison,
    replay,
    summarize,
)
from rich.console import Console

from lab.pools.synthetic import question, response, write_lines, write_pool
from langchain_reasc.method import Measure

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


@pytest.mark.slow  # replays several arrangements
def test_controls_are_asc_at_the_cost_of_each_row_and_four_at_once(tmp_path: Path) -> None:
    pool = read_pool(write_pool(tmp_path / "p.sqlite", questions=90))
    run = replay(pool, [Measure()], shuffles=2, calibration_size=40, controls=True)
    rows = _rows(run)
    names = ["pass@1", "SC@16", "ESC (w=4)", "ASC", HORIZON, AGREEMENT, ASC_AT_ONCE, OFFLINE]
    beside = [name for one in (ONLINE, MIXTURE) for name in (one, EQUAL_COST[one])]
    assert list(rows) == [*names, EQUAL_COST[OFFLINE], CALIBRATED, *beside]
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
        pytest.param(1, False, (WITHOUT, ONCE), SPREAD, marks=pytest.mark.slow),
        pytest.param(2, False, (SPREAD,), ONCE, marks=pytest.mark.slow),
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


def _printed(run: Replay, rows: list[Row]) -> list[str]:
    console = Console(width=100, file=StringIO(), color_system=None)
    print_comparison(run, rows, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()
