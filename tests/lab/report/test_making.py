"""What a report can hold is what the page on the paper says, and a part that cannot be made leaves a sentence."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from langchain_reasc_lab.replay.methods import MethodSettings
from langchain_reasc_lab.report import Entry, Figure, Study, StudySettings, Table, contents, make_report
from langchain_reasc_lab.report.report import command_for

from lab.report.studies import SETTINGS, TABLE, pool, report, weighed
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Measure


def made_by(make: object, kind: str = "table") -> Entry:
    return Entry("part", "A part", "", kind, make)  # type: ignore[arg-type]


def test_what_one_pool_cannot_give_is_said_and_the_others_are_shown(tmp_path: Path) -> None:
    studies = [weighed(pool(tmp_path, name, 6), name) for name in ("a", "b", "c")]
    asked: list[list[str]] = []

    def make(some: Sequence[Study]) -> Table:
        asked.append([one.name for one in some])
        if any(one.name == "b" for one in some):
            raise PoolError("it has no scores")
        return TABLE

    steps: list[tuple[int, int]] = []
    [part] = make_report(studies, [made_by(make)], on_progress=lambda *at: steps.append(at)).parts
    assert steps == [(0, 1), (1, 1)]
    assert part.table is TABLE and part.problems == ["b: it has no scores."]
    assert asked[-1] == ["a", "c"]


def test_what_no_pool_can_give_is_said_once_and_the_next_part_is_made(tmp_path: Path) -> None:
    def fails(some: Sequence[Study]) -> Table:
        raise PoolError("there are no scores;\n record some")

    drawn = Figure("<p>x</p>", "x")
    for names in (["a"], ["a", "b"]):
        studies = [weighed(pool(tmp_path, name, 6), name) for name in names]
        made = make_report(
            studies, [made_by(fails), made_by(lambda _: [drawn], "figure"), made_by(lambda _: [], "figure")]
        )
        assert [part.is_empty for part in made.parts] == [True, False, True]
        assert made.parts[0].problems == ["there are no scores; record some."]
        assert made.parts[1].figures == [drawn]


def test_the_command_prints_a_part_with_the_same_settings(tmp_path: Path) -> None:
    path = pool(tmp_path, "a b", 6)
    usual = weighed(path, settings=StudySettings(), measure="auto")
    assert command_for(report([usual]), "main") == f"reasc report '{path}' --only main"
    settings = replace(
        SETTINGS, seed=3, parameters=3e9, tokens_per_second=12.5, methods=MethodSettings(max_samples=8, p_target=0.95)
    )
    told = command_for(report([weighed(path, settings=settings, measure=Measure("top_k", "mean", 8))]), "main")
    assert told.endswith(
        "--only main --shuffles 1 --seed 3 --calibration-size 24 --max-samples 8 --p-target 0.95 "
        "--parameters 3000000000 --tokens-per-second 12.5 --signal top_k --score mean --window 8"
    )


PAGE = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8").split("## How we read")[0]
LINES = [line for line in PAGE.splitlines() if line.startswith(("| Table", "| Figure"))]
LISTED = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES]


def names_in(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def test_the_page_on_the_paper_lists_what_there_is() -> None:
    known = contents().values()
    listed = {name: label for label, *_, names in LISTED for name in names_in(names)}
    assert listed == {entry.name: entry.paper for entry in known if entry.paper}
    told = " ".join(PAGE.split()).partition("Not in the paper: ")[2]
    assert sorted(names_in(told)) == sorted(entry.name for entry in known if not entry.paper)
    labels = [label for label, *_ in LISTED]
    assert all(re.fullmatch(r"(Table|Figure) \d+|Figures \d+ and \d+", label) for label in labels)
    assert [label for label in labels if label.startswith("Table")] == [f"Table {at}" for at in range(1, 15)]
    assert all(entry.kind == "table" for entry in known if entry.paper.startswith("Table"))
