"""``reasc report``: what it writes, what it prints, and how it fails."""

import csv
import json
import math
import re
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
SAID = ("--shuffles", 1, "--calibration-size", 40, "--max-samples", 8, "--signal", "token_logprob", "--score", "mean")
QUICK = ("--only", "acceptance", "--only", "histogram", *SAID)
FAST = ("--only", "histogram", *SAID)
TABLE = ("--only", "bins", *SAID)


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pools")
    return [write_pool(folder / f"{name}.sqlite", 60, 8, seed=at) for at, name in enumerate(("one", "two"))]


@pytest.mark.full  # computes for long
def test_it_writes_all_it_is_asked_for(pools: list[Path], tmp_path: Path) -> None:
    out = {kind: tmp_path / "new" / f"report.{kind}" for kind in ("html", "md", "csv", "json")}
    names = dict(zip(("--out", "--markdown", "--csv", "--json"), out.values(), strict=True))
    done = reasc("report", *pools, *TABLE, *FAST, *(part for pair in names.items() for part in pair))
    assert done.stdout == ""
    assert all(f"wrote {path}" in done.stderr for path in out.values())
    assert "Seconds" in done.stderr and "histogram" in done.stderr
    page = out["html"].read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "one and two" in page and page.count("<svg") == 2
    assert f"--only histogram {' '.join(map(str, SAID[:8]))}" in re.sub("</?span>", "", page)
    data = json.loads(out["json"].read_text(encoding="utf-8"))
    assert {part["name"] for part in data["parts"]} == {"histogram", "bins"}
    assert next(csv.reader(out["csv"].open(encoding="utf-8")))[0] == "table"
    assert "## Accuracy by confidence" in out["md"].read_text(encoding="utf-8")
    assert not list((tmp_path / "new").glob(".*")), "nothing half written is left"


@pytest.mark.slow  # makes several reports
def test_without_a_file_it_prints(pools: list[Path]) -> None:
    done = reasc("report", pools[0], *QUICK)
    assert "--only acceptance" in done.stdout and "of the questions are answered from one response" in done.stdout
    for option, begins in (("--json", "{"), ("--markdown", "# ReASC on one")):
        assert reasc("report", pools[0], *TABLE, option, "-").stdout.startswith(begins)


def test_it_lists_what_there_is() -> None:
    shown = reasc("report", "--list").stdout
    assert "histogram" in shown and "Figures 2 and 6" in shown


@pytest.mark.slow  # makes several reports
def test_a_pool_that_cannot_tell_something_leaves_a_sentence(pools: list[Path], tmp_path: Path) -> None:
    lines = (question(f"q{n}", response("7"), response("8")) for n in range(50))
    bare = write_lines(tmp_path / "bare.sqlite", *lines)
    done = reasc("report", pools[0], bare, *FAST, "--out", tmp_path / "r.html")
    assert "histogram: bare: " in done.stderr and "has neither token signals" in done.stderr
    assert "Not to be had" in (tmp_path / "r.html").read_text(encoding="utf-8")
    refused = reasc("report", bare, *FAST, "--max-samples", 2, "--out", tmp_path / "none.html", code=1)
    assert "nothing could be made of this" in refused.stderr and not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nope.jsonl",), "no pool at nope.jsonl"),
        (("{one}", "{one}"), "again; name each pool once"),
        (("{one}", "--only", "histgram"), "did you mean 'histogram'?"),
        (("{one}", "--signal", "vibes"), "unknown signal 'vibes'"),
        (("{one}", "--calibration-size", "300", "--only", "acceptance"), "300"),
    ],
)
def test_an_error_is_one_line_and_code_1(pools: list[Path], arguments: tuple[str, ...], says: str) -> None:
    done = reasc("report", *(one.format(one=pools[0]) for one in arguments), code=1)
    assert says in done.stderr and done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stdout == ""


def test_without_jinja2_the_extra_is_named_before_anything_is_computed(
    pools: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = reasc("report", "nope.jsonl", "--out", tmp_path / "r.html", code=1)
    assert 'pip install "langchain-reasc[lab]"' in done.stderr
    assert reasc("report", pools[0], *TABLE).stdout, "a terminal needs no jinja2"


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
    data = json.loads(reasc("report", *arguments, "--only", "main", "--json", "-").stdout)
    [main] = data["parts"]
    names = [column["name"] for column in main["table"]["columns"]]
    return data, {row[0]: dict(zip(names, row, strict=True)) for row in main["table"]["rows"]}


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
        assert f"calibrated on 24 others in {beside}" in data["parts"][0]["table"]["notes"][0]
        assert f"--calibration-pool {beside}" in data["parts"][0]["command"]
        assert list(rows) == [row.method for row in expected]
        for row in expected:
            made = rows[row.method]
            assert made["Accuracy %"]["value"] == 100 * row.accuracy.value
            high = 100 * row.accuracy_vs_asc.high
            assert made["Δ to ASC"]["high"] == (None if math.isnan(high) else high)
            assert (made["Samples"], made["Tokens"]) == (row.samples.value, row.tokens.value)
    assert "24 others in" in reasc("replay", test).stdout


@pytest.mark.full  # computes for long
@pytest.mark.parametrize(
    ("more", "says"),
    [({"fingerprint": {"model": "other"}}, "(their model differ)"), ({"shared": True}, "both hold question 'q0'")],
)
def test_a_pool_that_cannot_calibrate_is_not_used_and_refused_where_it_was_named(
    tmp_path: Path, more: dict[str, Any], says: str
) -> None:
    test, beside = calibrated(tmp_path, **more), tmp_path / "calibration-pool.sqlite"
    done = reasc("report", test, "--only", "bins", "--calibration-size", 16)
    assert says not in done.stderr
    done = reasc("replay", test, "--shuffles", 1)
    assert "20 of the 40 questions calibrate" in done.stdout
    assert f"not calibrated on {beside}" in done.stderr and says in " ".join(done.stderr.split())
    refused = reasc("report", test, "--calibration-pool", beside, code=1)
    assert says in " ".join(refused.stderr.split())
