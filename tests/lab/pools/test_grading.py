"""A pool graded again: what is asked of a grader, what comes of it, and what is written."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from langchain_reasc_lab.pools import Pool, PoolQuestion, PoolResponse, PoolStore, read_pool
from langchain_reasc_lab.pools.graders import Alias, Exact, Numeric
from langchain_reasc_lab.pools.grading import check_writable, grade_pool, labels_from, write_verdicts

from lab.pools.synthetic import question, response, write_lines
from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, PoolError

CALL = json.dumps([{"name": "refund", "args": {"order": 7}}])


@dataclass
class Says:
    """Grades by a function, and remembers what it was asked."""

    verdict: Callable[[str], bool | None]
    name: str = "says"
    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    def __call__(self, question: str, answer: str, references: Sequence[str]) -> bool | None:
        self.asked.append((question, answer, tuple(references)))
        return self.verdict(answer)


def failing(answer: str) -> bool:
    raise ConnectionError("gone")


def a_pool(folder: Path) -> Pool:
    texts = response("7.5", text="so 7.5"), response("7.50001", text="it is")
    first = question("a", *texts, response(None), response("7.5"))
    second = question("b", response("9", text="nine"), response("", text=""), response(CALL), reference="9")
    path = write_lines(
        folder / "p.sqlite",
        {"metadata": {"extraction_version": EXTRACTION_VERSION, "answer": "auto"}},
        first | {"input": "How long?", "reference": "7.5"},
        second | {"input": ["no", "text"]},
    )
    return read_pool(path)


def flags(pool: Pool) -> dict[str, list[bool | None]]:
    return {one.id: [response.correct for response in one.responses] for one in pool.questions}


def test_each_answer_is_graded_once_and_no_answer_is_wrong(tmp_path: Path) -> None:
    by = Says(lambda answer: answer.startswith("7"))
    grading = grade_pool(a_pool(tmp_path), by)
    assert by.asked == [
        ("How long?", "7.5", ("7.5",)),
        ("How long?", "7.50001", ("7.5",)),
        ("", "9", ("9",)),
        ("", CALL, ("9",)),
    ]
    assert dict(grading.verdicts) == {"a": (True, True, False, True), "b": (False, False, False)}
    assert (grading.grader, grading.answers, grading.undecided, grading.notice) == ("says", 4, 0, None)


def test_what_cannot_be_told_counts_as_wrong_and_is_said(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    grading = grade_pool(pool, Says(lambda answer: None if answer == "7.5" else True))
    assert grading.verdicts["a"] == (None, True, False, None)
    assert grading.notice is not None and "1 of 4 answers" in grading.notice and "2 responses" in grading.notice
    write_verdicts(pool, grading)
    assert flags(read_pool(pool.path)) == {"a": [False, True, False, False], "b": [True, False, True]}


def starts_with_seven(question: str, answer: str, references: Sequence[str]) -> bool:
    return answer.startswith("7")


def test_a_function_grades_under_its_own_name(tmp_path: Path) -> None:
    pool, moves = a_pool(tmp_path), []
    grading = grade_pool(pool, starts_with_seven, on_question=lambda done, total: moves.append((done, total)))
    assert grading.verdicts == grade_pool(pool, Says(lambda answer: answer.startswith("7"))).verdicts
    assert (grading.grader, moves) == ("starts_with_seven", [(1, 2), (2, 2)])
    assert grade_pool(pool, partial(starts_with_seven)).grader == "partial"


def test_what_a_grader_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        grade_pool(a_pool(tmp_path), Says(failing))


def test_a_pool_without_any_answer_is_all_wrong_and_a_grader_who_can_tell_nothing_an_error(tmp_path: Path) -> None:
    pool = read_pool(write_lines(tmp_path / "silent.sqlite", question("a", response(None), response(None))))
    assert dict(grade_pool(pool, Says(failing)).verdicts) == {"a": (False, False)}
    with pytest.raises(PoolError, match="4 answers"):
        grade_pool(a_pool(tmp_path), Says(lambda answer: None))


def test_verdicts_are_written_and_read_again(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    write_verdicts(pool, grade_pool(pool, Numeric(0.001)))
    again = read_pool(pool.path)
    assert flags(again) == {"a": [True, True, False, True], "b": [True, False, False]}
    assert again.metadata == pool.metadata | {"grader": "numeric(0.001)"}
    write_verdicts(again, grade_pool(again, Exact()))
    assert flags(read_pool(pool.path)) == flags(pool)


def test_a_pool_that_has_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    grading = grade_pool(pool, Exact())
    store = PoolStore.open(pool.path)
    store.add_question(PoolQuestion("a", ("7.5",), (PoolResponse("8", 1),)))
    with pytest.raises(PoolError, match="has changed"):
        write_verdicts(pool, grading)
    assert "grader" not in store.about()


def test_what_cannot_be_written_is_refused_before_anything_is_graded(tmp_path: Path) -> None:
    old = write_lines(
        tmp_path / "old.sqlite",
        {"metadata": {"extraction_version": 1, "answer": "auto"}},
        question("a", response("7", text="so 7")),
    )
    with pytest.raises(PoolError, match="version 1"):
        check_writable(read_pool(old))
    check_writable(a_pool(tmp_path))


def test_a_question_without_a_right_answer_keeps_its_verdicts_and_of_several_all_are_shown(tmp_path: Path) -> None:
    unknown = question("a", response("7", correct=True), response("8", correct=False)) | {"reference": None}
    several = question("b", response("oslo")) | {"reference": ["Christiania", "Oslo"]}
    pool, by = read_pool(write_lines(tmp_path / "p.sqlite", unknown, several)), Says(lambda answer: False)
    assert dict(grade_pool(pool, by).verdicts) == {"a": (True, False), "b": (False,)}
    assert by.asked == [("", "oslo", ("Christiania", "Oslo"))]
    assert grade_pool(pool, Alias()).verdicts["b"] == (True,)
    assert grade_pool(pool, Exact(), labels={"a": ("8", "9")}).verdicts["a"] == (False, True)


def test_labels_are_found_by_id_or_by_text_count_and_are_written(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    assert labels_from(pool, [LabelledQuestion("a", "How long?", "8")]) == ({"a": ("8",)}, 1)
    other = LabelledQuestion("other", "How long?", "7.50001", ("nothing",))
    labels, missing = labels_from(pool, [other])
    assert (labels, missing) == ({"a": ("7.50001", "nothing")}, 1)
    with pytest.raises(ConfigurationError, match="id 'a'"):
        labels_from(pool, [LabelledQuestion("a", "How wide?", "8")])
    with pytest.raises(ConfigurationError, match="none of the questions"):
        labels_from(pool, [LabelledQuestion("c", "How wide?", "8")])
    write_verdicts(pool, grade_pool(pool, Exact(), labels=labels), labels)
    again = read_pool(pool.path)
    assert flags(again) == {"a": [False, True, False, False], "b": [True, False, False]}
    assert [one.references for one in again.questions] == [("7.50001", "nothing"), ("9",)]
