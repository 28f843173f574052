"""What a report can hold is what the page on the paper says, and a part that cannot be made leaves a sentence."""

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.report import CONTENTS, Entry, Study, make_report

from lab.report.studies import TABLE, pool, weighed
from langchain_reasc.exceptions import ConfigurationError, PoolError


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Study]:
    folder = tmp_path_factory.mktemp("three")
    return [weighed(pool(folder, name, 6), name) for name in ("a", "b", "c")]


def test_what_one_pool_cannot_give_is_said_and_the_others_are_shown(three: list[Study]) -> None:
    def make(study: Study) -> Any:
        if study.name == "b":
            raise PoolError("it has no scores;\n record some")
        return TABLE

    steps: list[tuple[int, int]] = []
    entry = Entry("part", "A part", make, each_pool=True)
    [part] = make_report(three, [entry], on_progress=lambda *at: steps.append(at)).parts
    assert steps == [(0, 1), (1, 1)]
    assert part.tables == {"a": TABLE, "c": TABLE}
    assert part.problems == ["b: it has no scores; record some."]


def test_after_a_part_that_no_pool_can_give_the_next_is_made(three: list[Study]) -> None:
    def fails(studies: list[Study]) -> Any:
        raise PoolError("there are no scores.")

    entries = [Entry("gone", "A part", fails), Entry("there", "A part", lambda studies: TABLE)]
    gone, there = make_report(three, entries).parts
    assert (gone.tables, gone.problems) == ({}, ["there are no scores."])
    assert (there.tables, there.problems) == ({"": TABLE}, [])


def test_pools_need_names_of_their_own(three: list[Study]) -> None:
    for studies in ([], [three[0], three[0]]):
        with pytest.raises(ConfigurationError):
            make_report(studies, [])


PAGE = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8").split("## How we read")[0]
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith(("| Table", "| Figure"))
]


def names_in(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def places(label: str) -> set[str]:
    """Tables and figures, each with its kind: ``Tables 1 and 12`` are Table 1 and Table 12."""
    found = set()
    for kind, numbers in re.findall(r"(Table|Figure)s? (\d+(?: and \d+)?)", label):
        found |= {f"{kind} {number}" for number in numbers.split(" and ")}
    return found


def test_the_page_on_the_paper_lists_what_there_is() -> None:
    listed: dict[str, set[str]] = {}
    for label, *_, names in ROWS:
        for name in names_in(names):
            listed.setdefault(name, set()).update(places(label))
    assert listed == {entry.name: places(entry.paper) for entry in CONTENTS if entry.paper}
    _, _, others = " ".join(PAGE.split()).partition("Not in the paper: ")
    assert sorted(names_in(others)) == sorted(entry.name for entry in CONTENTS if not entry.paper)
    tables = [label for label, *_ in ROWS if label.startswith("Table")]
    assert tables == [f"Table {number}" for number in range(1, 15)]
