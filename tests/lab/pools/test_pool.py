"""Reading a pool: how answers are graded, which questions are left out, and which files are refused."""

from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import PoolStore, read_pool

from lab.pools.synthetic import json_lines, question, response, write_lines, write_pool
from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.exceptions import PoolError


@pytest.mark.parametrize(
    ("answer", "reference", "correct"),
    [
        ("1,000", "1000.0", True),
        ("$7", "7", True),
        ("18", "18 dollars", True),
        ("5 km", "5 m", False),
        (None, "7", False),
        (7, 7, True),
    ],
)
def test_correct_follows_from_answer_and_reference(tmp_path: Path, answer: Any, reference: Any, correct: bool) -> None:
    line = question("a", response(answer)) | {"reference": reference}
    [held] = read_pool(write_lines(tmp_path / "p.sqlite", line)).questions
    assert held.responses[0].correct is correct


def test_a_recorded_correct_wins_over_the_comparison(tmp_path: Path) -> None:
    line = question("a", response("eight", correct=True), response(None, correct=True), reference="8")
    [held] = read_pool(write_lines(tmp_path / "p.sqlite", line)).questions
    assert [one.correct for one in held.responses] == [True, False]  # no answer is never right


@pytest.mark.parametrize(
    ("metadata", "right"), [({}, False), ({"answer": "math", "extraction_version": EXTRACTION_VERSION}, True)]
)
def test_labels_are_read_by_the_rules_that_found_the_answers(tmp_path: Path, metadata: Any, right: bool) -> None:
    line = question("a", response("sqrt(2)/2", 5, text=r"\boxed{\sqrt{2}/2}"), reference=r"\frac{1}{\sqrt{2}}")
    path = write_lines(tmp_path / "p.sqlite", {"metadata": metadata}, line)
    assert read_pool(path).questions[0].responses[0].correct is right


def test_questions_that_cannot_be_graded_are_left_out(tmp_path: Path) -> None:
    unknown = question("b", response("8")) | {"reference": None}
    path = write_lines(tmp_path / "p.sqlite", question("a", response("7")), unknown)
    pool = read_pool(path)
    assert [held.id for held in pool.questions] == ["a"]
    assert pool.notes[0].startswith("1 of 2 questions of p.sqlite ")
    assert len(read_pool(path, labelled=["b"]).questions) == 2
    with pytest.raises(PoolError, match="question 'c'"):
        pool.messages("c")
    with pytest.raises(PoolError, match="no question"):
        read_pool(write_lines(path, unknown))


def test_pools_add_up_unless_they_share_a_question(tmp_path: Path) -> None:
    first = read_pool(write_pool(tmp_path / "a.sqlite", questions=2))
    second = read_pool(write_lines(tmp_path / "b.sqlite", question("other", response("7"))))
    assert [held.id for held in (first + second).questions] == ["q0", "q1", "other"]
    with pytest.raises(PoolError, match="both hold question 'q0'"):
        first + first


def test_files_that_are_no_pool_are_refused(tmp_path: Path) -> None:
    json_lines(tmp_path / "p.jsonl", question("a", response("7")))
    PoolStore.create(tmp_path / "begun.sqlite").close()
    (tmp_path / "empty.sqlite").touch()
    for name, says in {
        "missing.sqlite": "no pool at",
        ".": "is a folder; name a pool in it",
        "begun.sqlite": "holds no question; record some",
        "empty.sqlite": "holds no question; record some",
        "p.jsonl": r"p\.jsonl is not a pool, .*`reasc pool import .*p\.jsonl .*p\.sqlite` makes one of it",
    }.items():
        with pytest.raises(PoolError, match=says):
            read_pool(tmp_path / name)
    assert not (tmp_path / "missing.sqlite").exists()
