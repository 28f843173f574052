"""What a report can hold is what the page on the paper says, name by name and label by label."""

import re
from pathlib import Path

from langchain_reasc.lab.contents import contents
from langchain_reasc.lab.parts import Table

PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8").split("## How we read")[0]
LINES = [line for line in PAGE.splitlines() if line.startswith(("| Table", "| Figure"))]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES]


def named(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def test_each_has_the_label_that_the_page_gives_it() -> None:
    listed = {name: label for label, *_, names in ROWS for name in named(names)}
    assert listed == {entry.name: entry.paper for entry in contents().values() if entry.paper}


def test_the_page_names_those_that_the_paper_lacks() -> None:
    told = " ".join(PAGE.split()).partition("Not in the paper: ")[2]
    assert sorted(named(told)) == sorted(entry.name for entry in contents().values() if not entry.paper)


def test_labels_are_plain_and_tables_come_in_their_order() -> None:
    labels = [label for label, *_ in ROWS]
    assert all(re.fullmatch(r"(Table|Figure) \d+|Figures \d+ and \d+", label) for label in labels)
    assert [label for label in labels if label.startswith("Table")] == [f"Table {at}" for at in range(1, 15)]


def test_a_table_of_the_paper_is_a_table() -> None:
    assert all(entry.kind is Table for entry in contents().values() if entry.paper.startswith("Table"))
