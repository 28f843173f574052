"""What a report becomes: nothing is lost, nothing is taken for HTML, and the best are marked honestly."""

import csv
import io
import json
import re
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report import (
    Column,
    Made,
    Report,
    Table,
    print_report,
    report_csv,
    report_data,
    report_markdown,
    report_page,
)
from langchain_reasc_lab.report.tables import marks, show
from rich.console import Console

from lab.report.studies import HOSTILE, ROWS, TABLE, pool, report, weighed
from langchain_reasc.cli.console import in_ascii

html5lib = pytest.importorskip("html5lib")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("pools")
    told = {"fingerprint": {"model": HOSTILE, "sampling": {"temperature": 1.0}}}
    return report([weighed(pool(folder, name, 6, metadata=told), name) for name in ("a", "b")])


def alone(made: Report, table: Table) -> Report:
    """A report of one table on the same pools."""
    return Report(made.studies, [Made(made.parts[0].entry, table, [], [], 0.0)])


def printed(report: Report, width: int = 80, **options: Any) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=width, **options))
    return file.getvalue()


@pytest.mark.parametrize(
    ("cell", "style", "read"),
    [
        (Estimate(72.46, 65.6, 79.4), ".1f", "72.5 [65.6, 79.4]"),
        (Estimate(1.0, float("nan"), float("nan")), "+.1f", "+1.0"),
        (1684.0, ",.0f", "1,684"),
        (3.0, "d", "3"),
        (0.123456, "", "0.1235"),
        (None, ".1f", "–"),
        (float("nan"), ".1f", "–"),
        (float("inf"), ".1f", "∞"),
        ("text", "", "text"),
    ],
)
def test_how_a_cell_is_written(cell: object, style: str, read: str) -> None:
    assert str(show(cell, Column("x", style))) == read  # type: ignore[arg-type]


def test_the_best_of_each_pool_are_marked_as_the_numbers_are_written() -> None:
    found = marks(TABLE)
    assert {row: mark for (row, at), mark in found.items() if at == 2} == {1: "best", 2: "best"}, "72.5 both"
    assert {row: mark for (row, at), mark in found.items() if at == 3} == {0: "best", 2: "second"}
    assert not [at for at in found if at[0] > 2 or at[1] == 4], "one number has no rival, and Δ has no best"


def test_csv_has_a_line_for_each_cell(made: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(report_csv(made))))
    assert len(lines) == len(TABLE.rows) * len(TABLE.columns)
    assert lines[2] == dict(table="main", row="0", column="Accuracy %", value="59.44", low="51.9", high="66.9", text="")
    assert lines[16] == dict(table="main", row="3", column="Method", value="", low="", high="", text=HOSTILE)
    assert {line["value"] for line in lines if line["row"] == "3"} == {""}


def test_json_has_everything_and_null_for_what_is_not_there(made: Report) -> None:
    data = json.loads(json.dumps(report_data(made), allow_nan=False))
    main, pictures, gone = data["parts"]
    assert main["table"]["rows"][0][2] == {"value": 59.44, "low": 51.9, "high": 66.9}
    assert main["table"]["rows"][3][2:] == [{"value": None, "low": None, "high": None}, None, None]
    assert pictures["figures"][1] == {"title": None, "text": "Nothing to see.", "notes": ["A remark."]}
    assert gone["problems"] == ["No pool has it."] and "table" not in gone
    assert [one["name"] for one in data["pools"]] == ["a", "b"] and data["pools"][0]["questions"] == 6
    assert data["settings"]["seed"] == 0 and data["settings"]["max_samples"] == 8
    assert data["pools"][0]["metadata"]["fingerprint"]["model"] == HOSTILE
    assert {"python", "numpy", "scipy"} <= data["versions"].keys()


def test_markdown_keeps_its_tables_whole(made: Report) -> None:
    text = report_markdown(made)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == len(TABLE.rows) + 2
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(TABLE.columns) + 1}
    assert "**72.5** [65.6, 79.4]" in text.replace("\\[", "[").replace("\\]", "]")
    assert "<script>" not in text and "\\<script\\>" in text
    assert "- gone: No pool has it." in text and "reasc report" in text


@pytest.mark.parametrize(("width", "encoding"), [(50, "utf-8"), (80, "ascii"), (200, "utf-8")])
def test_a_terminal_of_any_width_shows_every_column(made: Report, width: int, encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    short = alone(made, Table(TABLE.columns, ROWS[:3]))
    print_report(short, Console(file=stream, width=width), spelled=in_ascii)
    stream.flush()
    shown = raw.getvalue().decode(encoding)
    grid = shown[: shown.index("Method: How it decides")]
    assert max(map(len, grid.splitlines()[1:])) <= width
    for text in ("59.4 [51.9, 66.9]", "1,684", "-13.1 [-18.8, -7.5]", "Delta to ASC" if encoding == "ascii" else "Δ"):
        assert text in grid
    assert grid.count("pass@1") == (2 if width == 50 else 1), "each part names its rows"


def test_a_terminal_is_not_told_to_do_anything(made: Report) -> None:
    table = Table([Column("x\x1b[2J")], [["\x1b]0;title\x07 text\x00"]], notes=["\x1b[31mred"])
    text = printed(alone(made, table))
    assert "text" in text and not set("\x1b\x07\x00") & set(text)


def links(page: Element) -> list[str]:
    return [value for one in page.iter() for name, value in one.items() if name in ("src", "href", "action", "srcset")]


def parsed(page: str) -> Element:
    """A page of valid HTML, which names the ids that it has, each of one element, and runs nothing on an event."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    root: Element = parser.parse(page)
    assert not [fault for _, fault, _ in parser.errors]
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert len(set(ids)) == len(ids), "ids are unique"
    assert {name for one in root.iter() for name in one.get("aria-labelledby", "").split()} <= set(ids)
    assert {link[1:] for link in links(root) if link.startswith("#")} <= set(ids)
    assert not [name for one in root.iter() for name, _ in one.items() if name.startswith("on")]
    return root


def test_the_page_is_whole_loads_nothing_and_runs_nothing_but_its_own(made: Report) -> None:
    page = report_page(made)
    root = parsed(page)
    assert [link for link in links(root) if not link.startswith("#")] == ["data:,"]
    assert len(root.findall(".//script")) == 1
    assert "<script>alert" not in page and "\x00" not in page
    shown = " ".join("".join(root.itertext()).split())
    for text in ("A note with <script>", "b: It has none, <script>", "Seen: <script>", "No pool has it.", "Table 1"):
        assert text in shown
    assert page == report_page(made), "the same for the same report"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2", "@SUM(A1)", "\t=1", " =HYPERLINK(0)"])
def test_a_spreadsheet_computes_nothing_of_a_text(made: Report, text: str) -> None:
    table = Table([Column(text), Column("n", "+.1f")], [[text, -1.5]])
    written = list(csv.DictReader(io.StringIO(report_csv(alone(made, table)))))
    assert [line["column"] for line in written] == [f"'{text}", "n"]
    assert written[0]["text"] == f"'{text}" and written[1]["value"] == "-1.5", "a number stays a number"
