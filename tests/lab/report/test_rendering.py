"""What a report becomes: nothing is lost, and nothing is taken for markup, a formula or a terminal's command."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report import (
    Column,
    Report,
    Table,
    print_report,
    report_data,
    report_markdown,
    table_csv,
    write_report,
)
from langchain_reasc_lab.report.tables import cell_text
from rich.console import Console

from lab.report.studies import HOSTILE, ROWS, TABLE, part, pool, report, weighed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("pools")
    metadata = {"fingerprint": {"model": HOSTILE, "sampling": {"temperature": 1.0}}}
    return report([weighed(pool(folder, name, 6, metadata=metadata), name) for name in ("a", "b")])


def alone(made: Report, table: Table) -> Report:
    """A report of one table on the same pools."""
    return Report(made.studies, [part("main", {"": table})], made.verdicts)


@pytest.mark.parametrize(
    ("cell", "style", "read"),
    [
        (Estimate(72.46, 65.6, 79.4), ".1f", "72.5 [65.6, 79.4]"),
        (Estimate(1.0, float("nan"), float("nan")), "+.1f", "+1.0"),
        (1684.0, ",.0f", "1,684"),
        (0.123456, "", "0.1235"),
        (None, ".1f", "–"),
        (float("nan"), ".1f", "–"),
        ("text", "", "text"),
    ],
)
def test_how_a_cell_is_written(cell: Any, style: str, read: str) -> None:
    assert cell_text(cell, style) == read


def test_csv_is_the_table_with_columns_for_the_ends_of_intervals() -> None:
    lines = list(csv.DictReader(io.StringIO(table_csv(TABLE))))
    assert len(lines) == len(TABLE.rows)
    assert (lines[0]["Accuracy %"], lines[0]["Accuracy % low"], lines[0]["Accuracy % high"]) == (
        "59.44",
        "51.9",
        "66.9",
    )
    assert (lines[0]["Tokens"], "Tokens low" in lines[0]) == ("67.0", False)
    assert lines[3]["Method"] == HOSTILE
    assert (lines[3]["Accuracy %"], lines[3]["Tokens"], lines[3]["Δ to ASC"]) == ("", "", "")
    assert (lines[4]["Accuracy %"], lines[4]["Accuracy % low"]) == ("9.0", "")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", " =HYPERLINK(0)"])
def test_a_spreadsheet_computes_nothing_of_a_text(text: str) -> None:
    table = Table([Column(text), Column("n", "+.1f")], [[text, -1.5]])
    heads, row = csv.reader(io.StringIO(table_csv(table)))
    assert heads == [f"'{text}", "n"]
    assert row == [f"'{text}", "-1.5"], "a number stays a number"


def test_json_has_everything_and_null_for_what_is_not_there(made: Report) -> None:
    data = json.loads(json.dumps(report_data(made), allow_nan=False))
    main, pictures, gone = data["parts"]
    [table] = main["tables"]
    assert table["rows"][0][2] == {"value": 59.44, "low": 51.9, "high": 66.9}
    assert table["rows"][3][2:] == [{"value": None, "low": None, "high": None}, None, None]
    assert [figure["pool"] for figure in pictures["tables"]] == ["a", "b"]
    assert pictures["tables"][0]["rows"] == [["=1", 0.5]]
    assert (gone["problems"], gone["tables"]) == (["No pool has it."], [])
    assert [one["name"] for one in data["pools"]] == ["a", "b"] and data["pools"][0]["questions"] == 6
    assert data["settings"]["seed"] == 0 and data["settings"]["max_samples"] == 8
    assert data["pools"][0]["metadata"]["fingerprint"]["model"] == HOSTILE
    assert {"python", "numpy", "scipy"} <= data["versions"].keys()
    assert data["verdicts"]["a"] == "It works. Well."


def test_markdown_keeps_its_tables_whole(made: Report) -> None:
    text = report_markdown(made, "my figures")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == len(TABLE.rows) + 2
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(TABLE.columns) + 1}
    assert r"72.5 \[65.6, 79.4\]" in text
    assert "<script>" not in text and "\\<script\\>" in text
    assert "- gone: No pool has it." in text
    assert "**a: It works.** Well." in text
    assert text.count("Accuracy %: Share that is right.") == 1


def test_a_page_names_the_files_beside_it(made: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "new" / "my report.md"
    write_report(made, page)
    written = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*") if path.is_file()}
    linked = set(re.findall(r"\]\(<(.*?)>\)", page.read_text(encoding="utf-8")))
    folder = "my report-figures"
    pictures = {f"{folder}/pictures-{number}.{ending}" for number in (1, 2) for ending in ("csv", "png")}
    assert linked == {f"{folder}/main.csv", *pictures}
    assert written == linked | {"my report.md"}, "nothing half written is left"
    assert (page.parent / folder / "pictures-1.png").read_bytes().startswith(b"\x89PNG")
    assert "\x00" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "encoding"), [(50, "utf-8"), (80, "ascii"), (200, "utf-8")])
def test_a_terminal_of_any_width_shows_every_column(made: Report, width: int, encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    short = alone(made, Table(TABLE.columns, ROWS[:3]))
    print_report(short, Console(file=stream, width=width))
    stream.flush()
    shown = raw.getvalue().decode(encoding)
    grid = shown[shown.index("The main") : shown.index("Method: How it decides")]
    assert max(map(len, grid.splitlines())) <= width
    for text in ("59.4 [51.9, 66.9]", "1,684", "-13.1 [-18.8, -7.5]", "Delta to ASC" if encoding == "ascii" else "Δ"):
        assert text in grid
    assert grid.count("pass@1") == (2 if width == 50 else 1), "each part names its rows"


def test_a_terminal_gets_tables_and_no_data_of_figures(made: Report) -> None:
    file = io.StringIO()
    print_report(made, Console(file=file, width=80))
    shown = file.getvalue()
    assert "The main" in shown and "The pictures" not in shown
    assert "Not to be had: gone: No pool has it." in shown
