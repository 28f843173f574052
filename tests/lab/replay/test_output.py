"""What is shown: the table, the data, the pictures, the worked question."""

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from langchain_reasc_lab.pools import Pool, PoolScores, calibrate_offline_on, read_pool
from langchain_reasc_lab.replay import (
    Replay,
    Row,
    as_data,
    draw_posteriors,
    draw_tradeoff,
    pick_worked,
    print_comparison,
    replay,
    save_figure,
    summarize,
    worked_table,
)
from rich.console import Console

from lab.pools.synthetic import write_pool
from langchain_reasc.exceptions import MissingExtraError
from langchain_reasc.method import Measure


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return read_pool(write_pool(tmp_path_factory.mktemp("pool") / "p.sqlite", questions=60, metadata={"model": "m"}))


@pytest.fixture(scope="module")
def run(pool: Pool) -> Replay:
    return replay(pool, ["auto", Measure(), Measure("token_logprob")], calibration_size=40)


@pytest.fixture(scope="module")
def rows(run: Replay) -> list[Row]:
    return summarize(run, resamples=50)


def _printed(run: Replay, rows: list[Row], width: int = 100, encoding: str = "utf-8") -> str:
    held = io.BytesIO()
    out = io.TextIOWrapper(held, encoding=encoding)
    print_comparison(run, rows, Console(file=out, width=width))
    out.flush()
    return held.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("parameters", "width", "encoding"),
    [(None, 96, "utf-8"), (None, 80, "ascii"), (7e9, 100, "ascii"), (7e12, 80, "utf-8")],
)
def test_the_table_fits_with_nothing_cut_off(run: Replay, parameters: float | None, width: int, encoding: str) -> None:
    rows = summarize(run, parameters=parameters, resamples=50)
    rows += [replace(row, method="ReASC (calibrated)") for row in rows if row.method == "ReASC (offline)"]
    many = replace(rows[0].tokens, value=123_456.0)
    rows.append(replace(rows[-1], tokens=many, tokens_vs_sc=rows[1].tokens_vs_sc))
    text = _printed(run, rows, width, encoding)
    verdict, _, table = text[: text.index("20 questions, ")].partition("\n\n")
    assert verdict.startswith("Asking once: ") and "20 tested questions do not tell methods apart." in verdict
    assert max(map(len, verdict.splitlines())) <= 79
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in text and "..." not in table
    assert "[" in text and "ReASC by self_certainty/bottom_group/W=128" in text
    for row in rows:
        learned = math.isnan(row.accuracy.low)  # while it was tested, which one arrangement gives no interval of
        accuracy = f"{100 * row.accuracy.value:.1f}" if row.accuracy.value < 1 else "100"
        assert f"{accuracy}{'' if learned else ' ['}" in text
        assert (f"{row.tokens.value:,.0f}" if row.tokens.value < 99_999 else "123k") in text
        assert learned or f"{row.accuracy_vs_asc.high * 100:+.1f}]" in text
    assert "calibrated)" in table and "Samples" in table and "A live run" in text
    assert ("Δ acc. to ASC" if encoding == "utf-8" else "Delta acc. to ASC") in table


def test_the_data_is_complete_and_plain_json(run: Replay, rows: list[Row]) -> None:
    data = json.loads(json.dumps(as_data(run, rows), allow_nan=False))
    assert (data["questions"], data["tested"], data["calibration_size"], data["seed"]) == (60, 20, 40, 0)
    assert [row["method"] for row in data["rows"]][:4] == ["pass@1", "SC@16", "ESC (w=4)", "ASC"]
    paper = next(
        row
        for row in data["rows"]
        if row["measure"] == {"signal": "self_certainty", "score": "bottom_group", "window": 128}
    )
    assert paper["calibrations"][0]["n"] == 40
    assert {"value", "low", "high"} == set(paper["accuracy_vs_asc"])
    assert data["metadata"] == {"model": "m"}
    assert {entry["method"] for entry in data["live"]} == {"ReASC (calibrated)"}
    assert all("the agreement rule decides" in entry["why"] for entry in data["live"])


def test_pictures_are_written(pool: Pool, rows: list[Row], tmp_path: Path) -> None:
    calibration = calibrate_offline_on(pool, PoolScores(pool), [(at, 0) for at in range(40)], Measure())
    for picture in (
        save_figure(draw_tradeoff(rows), tmp_path / "a.png"),
        save_figure(draw_posteriors(pick_worked(pool, calibration)), tmp_path / "b.png"),
    ):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 10_000


def test_without_matplotlib_the_extra_is_named(
    rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"langchain-reasc\[lab\]"):
        draw_tradeoff(rows)


def test_the_worked_question_shows_reasc_stopping_before_asc(pool: Pool) -> None:
    calibration = calibrate_offline_on(pool, PoolScores(pool), [(at, 0) for at in range(40)], Measure())
    worked = pick_worked(pool, calibration)
    assert len(worked.reasc) < len(worked.asc)
    assert worked.reasc[-1].answer == worked.question.reference
    for plain in (False, True):
        out = io.StringIO()
        Console(file=out, width=100).print(worked_table(worked, plain=plain))
        assert "ReASC stops" in out.getvalue() and "ASC stops" in out.getvalue()
        assert out.getvalue().isascii() == plain
