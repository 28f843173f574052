"""``reasc grade``: what it prints, what it writes, and how it fails."""

import json
from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import read_pool

from lab.pools.synthetic import question, response, write_lines


def a_pool(folder: Path) -> Path:
    """A pool of which the exact grader says that a third of its responses are right."""
    towns = question("q0", *map(response, ("oslo", "the city of oslo", "bergen")), reference="Oslo")
    lengths = question("length", response("12.2"), response("12"), response(None), reference="12.1 km")
    return write_lines(folder / "p.sqlite", towns | {"input": "Which town is 0?"}, lengths)


def right(pool: Path) -> list[list[bool | None]]:
    return [[one.correct for one in held.responses] for held in read_pool(pool).questions]


@pytest.mark.full
def test_it_grades_and_says_what_changed(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    shown = reasc("grade", pool, "--grader", "numeric", "--tolerance", "0.05")
    for said in (
        "before, by exact: 16.7% of the responses right",
        "now, by numeric(0.05): 50.0%",
        "2 of 6 verdicts changed, in 1 question: 2 became right, 0 became wrong",
        "length: 12, given once, is right now (accepted: 12.1 km)",
    ):
        assert said in shown.stdout
    assert "could not decide whether 2 of 5 answers" in shown.stderr and f"the verdicts are in {pool}" in shown.stderr
    assert right(pool) == [[True, False, False], [True, True, False]]
    assert read_pool(pool).metadata["grader"] == "numeric(0.05)"
    again = reasc("grade", pool, "--grader", "numeric", "--tolerance", "0.05")
    assert "No verdict changed." in again.stdout and "before, by numeric(0.05)" in again.stdout


def test_a_dry_run_prints_data_and_writes_nothing(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    before = pool.read_bytes()
    shown = reasc("grade", pool, "--grader", "numeric", "--tolerance", 0.05, "--json", "--dry-run")
    assert "nothing was written" in shown.stderr and pool.read_bytes() == before
    data = json.loads(shown.stdout)
    assert (data["grader_before"], data["grader"]) == ("exact", "numeric(0.05)")
    assert (data["responses"], data["answers"], data["changed_responses"]) == (6, 5, 2)
    assert data["changes"][0]["references"] == ["12.1 km"]
    assert (data["answers_undecided"], data["responses_undecided"]) == (2, 2)
    assert (data["accuracy_before"], data["accuracy"]) == (1 / 6, 0.5)


def test_labels_may_come_from_a_file(tmp_path: Path) -> None:
    pool, labels = a_pool(tmp_path), tmp_path / "labels.csv"
    labels.write_text("question,answer\nWhich town is 0?,Bergen\nWhich other?,Rome\n", encoding="utf-8")
    shown = reasc("grade", pool, "--grader", "exact", "--data", labels)
    assert "lacks 1 of the 2 questions" in shown.stderr
    assert "1 became right, 1 became wrong" in shown.stdout
    assert right(pool)[0] == [False, False, True]
    assert [one.references for one in read_pool(pool).questions] == [("Bergen",), ("12.1 km",)]


def test_a_pool_without_labels_gets_them(tmp_path: Path) -> None:
    unlabelled = (question("a", response("5"), response("6")), question("b", response("5")))
    pool = write_lines(tmp_path / "p.sqlite", *(one | {"reference": None} for one in unlabelled))
    labels = write_lines(tmp_path / "l.jsonl", {"id": "a", "question": "?", "answer": "5"})
    assert "no question with a reference" in reasc("grade", pool, "--grader", "exact", code=1).stderr
    shown = reasc("grade", pool, "--grader", "exact", "--data", labels)
    assert "1 questions had no right answer before" in shown.stderr and "1 became right" in shown.stdout
    assert "1 of 2 questions" in shown.stderr  # the other one is left out still
    assert right(pool) == [[True, False]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--grader", "numeric", "--tolerance", "2"), "tolerance is a share"),
        (("--grader", "exact", "--data", "gone.jsonl"), "no questions at gone.jsonl"),
    ],
)
def test_an_error_is_one_line_and_code_1(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    pool = a_pool(tmp_path)
    result = reasc("grade", pool, *arguments, code=1)
    assert result.stderr.splitlines()[-1].startswith("error: ") and says in result.stderr
    assert result.stdout == "" and "grader" not in read_pool(pool).metadata
