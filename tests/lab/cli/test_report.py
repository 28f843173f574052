"""``reasc report``: what it writes, what it prints, and how it fails."""

import json
import math
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.replay import MethodSettings, replay, summarize

from lab.pools.synthetic import question, response, write_lines, write_pool

pytest.importorskip("matplotlib")
SETTINGS = (
    "--shuffles",
    1,
    "--calibration-size",
    40,
    "--max-samples",
    8,
    "--signal",
    "token_logprob",
    "--score",
    "mean",
)


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pools")
    return [write_pool(folder / f"{name}.sqlite", 60, 8, seed=at) for at, name in enumerate(("one", "two"))]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool without scores, of which a report is made at once."""
    lines = (question(f"q{n}", response("7"), response("8")) for n in range(30))
    return write_lines(tmp_path_factory.mktemp("counted") / "counted.sqlite", *lines)


@pytest.mark.slow  # makes a whole report of two pools
def test_a_report_of_several_pools_has_every_table_and_figure(pools: list[Path], tmp_path: Path) -> None:
    page, data = tmp_path / "new" / "report.md", tmp_path / "new" / "report.json"
    done = reasc("report", *pools, *SETTINGS, "--out", page, "--json", data)
    assert done.stdout == "" and f"wrote {page}" in done.stderr and f"wrote {data}" in done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ReASC on one and two") and "Not to be had" not in text
    parts = json.loads(data.read_text(encoding="utf-8"))["parts"]
    assert len(parts) == text.count("\n## ") - 1, "and below them the pools"
    figures = list((page.parent / "report-figures").glob("*.png"))
    assert len(figures) == text.count("![") == 3 + 2 * 5
    assert all(part["tables"] and not part["problems"] for part in parts)


def test_a_pool_that_cannot_tell_something_leaves_a_sentence(counted: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.md"
    reasc("report", counted, "--out", page)
    text = page.read_text(encoding="utf-8")
    assert text.index("Asking once:") < text.index("## Main comparison") < text.index("tradeoff.png")
    missing = text[text.index("## Not to be had") :]
    assert "stage2" in missing and "has neither scores nor token signals" in missing
    assert (tmp_path / "report-figures" / "main.csv").read_text(encoding="utf-8").startswith("Method,Accuracy %,")


def test_without_a_file_it_prints(counted: Path) -> None:
    printed = reasc("report", counted).stdout
    assert printed.index("Asking once:") < printed.index("Main comparison") < printed.index("Not to be had")
    assert json.loads(reasc("report", counted, "--json", "-").stdout)["pools"][0]["questions"] == 30


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nope.jsonl",), "no pool at nope.jsonl"),
        (("{one}", "{one}"), "again; name each pool once"),
        (("{one}", "--signal", "vibes"), "unknown signal 'vibes'"),
        (("{one}", "--max-samples", "9"), "--max-samples 9 is more than"),
    ],
)
def test_an_error_is_one_line_and_code_1(counted: Path, arguments: tuple[str, ...], says: str) -> None:
    done = reasc("report", *(one.format(one=counted) for one in arguments), code=1)
    assert says in done.stderr and done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stdout == ""


def test_a_pool_is_not_written_over(counted: Path, tmp_path: Path) -> None:
    before = counted.read_bytes()
    assert "would be lost" in " ".join(reasc("report", counted, "--out", counted, code=2).stderr.split())
    page = tmp_path / "report.md"
    assert "two outputs" in " ".join(reasc("report", counted, "--out", page, "--json", page, code=2).stderr.split())
    assert counted.read_bytes() == before and not page.exists()


def test_without_matplotlib_the_extra_is_named_before_anything_is_computed(
    counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    done = reasc("report", "nope.jsonl", "--out", tmp_path / "r.md", code=1)
    assert 'pip install "langchain-reasc[lab]"' in done.stderr
    assert reasc("report", counted).stdout, "a terminal needs no matplotlib"


def calibrated(folder: Path, *, shared: bool = False, **more: Any) -> Path:
    """A test pool with a calibration pool beside it, of other questions and one response to each."""
    test = write_pool(folder / "test-pool.sqlite", 40, 4, seed=1, metadata={"fingerprint": {"model": "m"}})
    beside = folder / "calibration-pool.sqlite"
    write_pool(beside, 24, 1, seed=2, metadata={"fingerprint": {"model": "m"}, **more})
    if not shared:
        with sqlite3.connect(beside) as sql:
            sql.execute("UPDATE questions SET id = replace(id, 'q', 'c')")
    return test


def main_table(*arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    data = json.loads(reasc("report", *arguments, "--json", "-").stdout)
    [main] = data["parts"][0]["tables"]
    names = [column["name"] for column in main["columns"]]
    return data, {row[0]: dict(zip(names, row, strict=True)) for row in main["rows"]}


@pytest.mark.slow  # makes several reports
def test_a_pool_is_calibrated_on_the_one_beside_it_as_in_the_demo(tmp_path: Path) -> None:
    """Of the demo's two pools the report says, to the digit, what the demo has printed."""
    test, beside = calibrated(tmp_path), tmp_path / "calibration-pool.sqlite"
    settings = MethodSettings(max_samples=4)
    run = replay(read_pool(beside) + read_pool(test), ["auto"], calibration_size=24, settings=settings)
    expected = summarize(run)
    for options in ((), ("--calibration-pool", beside)):
        data, rows = main_table(test, *options)
        assert data["pools"][0]["calibration_pool"] == str(beside) and data["pools"][0]["questions"] == 40
        assert f"calibrated on 24 others in {beside}" in data["parts"][0]["tables"][0]["notes"][0]
        assert list(rows) == [row.method for row in expected]
        for row in expected:
            made = rows[row.method]
            assert made["Accuracy %"]["value"] == 100 * row.accuracy.value
            high = 100 * row.accuracy_vs_asc.high
            assert made["Δ to ASC"]["high"] == (None if math.isnan(high) else high)
            assert (made["Samples"], made["Tokens"]) == (row.samples.value, row.tokens.value)
    assert "24 others in" in reasc("replay", test).stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "says"),
    [({"fingerprint": {"model": "other"}}, "(their model differ)"), ({"shared": True}, "both hold question 'q0'")],
)
def test_a_pool_that_cannot_calibrate_is_not_used_and_refused_where_it_was_named(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    test, beside = calibrated(tmp_path, **more), tmp_path / "calibration-pool.sqlite"
    done = reasc("replay", test, "--shuffles", 1)
    assert "20 of the 40 questions calibrate" in done.stdout
    assert f"not calibrated on {beside}" in done.stderr and says in " ".join(done.stderr.split())
    refused = reasc("report", test, "--calibration-pool", beside, code=1)
    assert says in " ".join(refused.stderr.split())
