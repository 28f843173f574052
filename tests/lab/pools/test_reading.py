"""What the reader of a result is told of a pool."""

import sqlite3
from pathlib import Path
from typing import Any

from langchain_reasc_lab.pools import PoolStore, read_pool, record_pool
from langchain_reasc_lab.pools.graders import Exact
from langchain_reasc_lab.pools.grading import grade_pool, write_verdicts

from lab.pools.synthetic import Guesser, labelled, question, response, write_lines, write_pool


def notes(folder: Path, *questions: dict[str, Any]) -> str:
    return " | ".join(read_pool(write_lines(folder / "p.sqlite", *questions)).notes)


def test_what_cannot_be_computed(tmp_path: Path) -> None:
    note = notes(tmp_path, question("a", response("7")))
    assert "no scores or token signals, so no row weighs votes" in note and "no prompt tokens" in note
    assert read_pool(write_pool(tmp_path / "full.sqlite", questions=2)).notes == ()


def test_answers_found_by_an_unnamed_version_of_the_rules(tmp_path: Path) -> None:
    pool = record_pool(Guesser(), labelled(2), tmp_path / "p.sqlite", samples=2)
    with sqlite3.connect(pool.path) as sql:
        sql.execute("DELETE FROM about WHERE name = 'extraction_version'")
        sql.execute("UPDATE responses SET answer = '0'")
    read = read_pool(pool.path)
    assert {one.answer for one in read.responses} == {"0"}
    assert "does not say by which version of the extraction rules" in read.notes[0]


def test_by_what_it_was_graded(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=3, samples=2)
    PoolStore.open(path).set_about({"grader": "numeric"})
    PoolStore.open(path).set_responses("q0", [{"correct": True}, {"correct": False}])
    [note] = [note for note in read_pool(path).notes if "graded by" in note]
    assert note.startswith("p.sqlite ") and "numeric" in note and "4 responses" in note
    for name in ("q1", "q2"):
        PoolStore.open(path).set_responses(name, [{"correct": True}, {"correct": False}])
    assert "p.sqlite was graded by numeric" in read_pool(path).notes


def test_answers_flagged_both_right_and_wrong(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "p.sqlite",
        question("a", response("7", correct=False), response("8", correct=True), response("7.0", correct=True)),
        question("b", response("7", correct=True), response("7", correct=True), response(None, correct=True)),
        question("c", response("5"), response("5", correct=True), response("5", correct=True)),
    )
    pool = read_pool(path)
    note = pool.notes[0]
    assert "p.sqlite flags equal answers" in note
    assert "question 'a', answer '7': 1 right, 1 wrong; question 'c', answer '5': 2 right, 1 wrong)" in note
    write_verdicts(pool, grade_pool(pool, Exact()))
    assert not any("flags equal answers" in note for note in read_pool(path).notes)
