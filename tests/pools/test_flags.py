"""Answers that are flagged both right and wrong within one question."""

from pathlib import Path

from langchain_reasc.pools import read_pool
from langchain_reasc.pools.flags import Contradiction, contradiction_note, contradictions
from pools.synthetic import question, response, write_lines


def test_each_is_found_with_what_the_first_says(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "p.jsonl",
        question("a", response("7", correct=False), response("8", correct=True), response("7.0", correct=True)),
        question("b", response("7", correct=True), response("7", correct=True), response(None, correct=True)),
        question("c", response("5"), response("5", correct=True), response("5", correct=True)),
    )
    pool = read_pool(path)
    assert list(contradictions(pool)) == [Contradiction("a", "7", 1, 1, False), Contradiction("c", "5", 2, 1, False)]
    note = contradiction_note(pool)
    assert note is not None and "p.jsonl flags equal answers" in note
    assert "question 'a', answer '7': 1 right, 1 wrong; question 'c', answer '5': 2 right, 1 wrong)" in note


def test_a_pool_without_any_has_no_note(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", question("a", response("7"), response("8"), response(None)))
    assert contradiction_note(read_pool(path)) is None


def test_of_many_only_some_are_shown_and_long_answers_in_part(tmp_path: Path) -> None:
    held = [question(f"q{n}", response("x" * 90, correct=True), response("x" * 90, correct=False)) for n in range(7)]
    note = contradiction_note(read_pool(write_lines(tmp_path / "p.jsonl", *held)))
    assert note is not None and "; and 4 more)" in note and "x" * 41 not in note and "'q3'" not in note
