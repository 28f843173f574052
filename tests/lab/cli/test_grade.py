"""``reasc grade``: what it prints, what it writes, and how it fails."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from backends.openai.fake_server import Fake, serving
from cli.test_commands import reasc
from langchain_reasc_lab.pools import read_pool

from lab.pools.synthetic import question, response, write_lines


class Judging(Fake):
    """A server whose model says Correct where the answer that it is shown names Oslo."""

    def said(self, request: dict[str, Any], at: int) -> list[Sequence[str]]:
        shown = re.search(r"<given_answer>\n(.*?)\n</given_answer>", request["messages"][-1]["content"], re.S)
        return [["Correct" if shown and "oslo" in shown[1] else "Incorrect", "."]]


def a_pool(folder: Path, *, copies: int = 1) -> Path:
    """A pool of which the exact grader says that a third of its responses are right."""
    lines = [
        question(f"q{n}", *map(response, ("oslo", "the city of oslo", "bergen")), reference="Oslo")
        | {"input": f"Which town is {n}?"}
        for n in range(copies)
    ]
    lines.append(question("length", response("12.2"), response("12"), response(None), reference="12.1 km"))
    return write_lines(folder / "p.sqlite", *lines)


def right(pool: Path) -> list[list[bool | None]]:
    return [[one.correct for one in held.responses] for held in read_pool(pool).questions]


def test_it_grades_and_says_what_changed(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    shown = reasc("grade", pool, "--grader", "numeric", "--tolerance", "0.05")
    assert re.search(r"exact +16\.7 ", shown.stdout)
    assert re.search(r"numeric\(0\.05\) +50\.0 ", shown.stdout)
    assert re.search(r"difference +\+33\.3 ", shown.stdout)
    for said in (
        "2 of 6 verdicts changed, in 1 question: 2 became right, 0 became wrong",
        "length: 12, given once, is right now (accepted: 12.1 km)",
        "Agreement with exact: 60.0 % [",
        "Cohen's kappa: 0.286 [",
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
    assert data["agreement_with_exact"]["second_only"] == 2 and data["judge"] is None
    assert data["accuracy"]["low"] <= data["accuracy"]["value"] == 0.5 <= data["accuracy"]["high"]


def test_labels_may_come_from_a_file(tmp_path: Path) -> None:
    pool, labels = a_pool(tmp_path), tmp_path / "labels.csv"
    labels.write_text("question,answer\nWhich town is 0?,Bergen\nWhich other?,Rome\n", encoding="utf-8")
    shown = reasc("grade", pool, "--grader", "exact", "--data", labels)
    assert "lacks 1 of the 2 questions" in shown.stderr
    assert "1 became right, 1 became wrong" in shown.stdout and "Agreement" not in shown.stdout
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


def judged(server: Fake, pool: Path, *more: object, code: int = 0) -> Any:
    return reasc("grade", pool, "--grader", "judge", "--url", server.url, "--model", "tiny", *more, code=code)


def test_a_judge_is_asked_once_and_billed(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    with serving(Judging(seed="none")) as server:
        dry = judged(server, pool, "--dry-run")
        assert "judge(tiny) was asked 5 times, for 35 prompt tokens and 10 generated ones" in dry.stderr
        assert right(pool) == [[True, False, False], [False, False, False]]
        paid = len(server.requests)
        shown = judged(server, pool, "--json")
        assert len(server.requests) == paid
    assert "asked 0 times" in shown.stderr and "5 verdicts were there already" in shown.stderr
    assert json.loads(shown.stdout)["judge"]["reused"] == 5
    assert right(pool) == [[True, True, False], [False, False, False]]
    assert read_pool(pool).metadata["grader"] == "judge(tiny)"


def test_a_judge_who_talks_nonsense_changes_nothing(tmp_path: Path) -> None:
    pool = a_pool(tmp_path, copies=3)
    before = right(pool)
    with serving(Fake(words=("Who", " knows?"))) as server:
        refused = judged(server, pool, code=1)
    assert "could not decide whether any of the 11 answers" in refused.stderr and "Who knows?" not in refused.stdout
    assert "that was no verdict ends" in refused.stderr
    assert right(pool) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--grader", "judge"), "which model judges?"),
        (("--grader", "judge", "--judge-model", "nonsense"), "--judge-model nonsense: "),
        (("--grader", "judge", "--judge-model", "a:b", "--model", "c"), "leave out --model"),
        (("--grader", "judge", "--model", "a.gguf", "--judge-prompt", "gone.txt"), "cannot read the judge's prompt"),
        (("--grader", "numeric", "--tolerance", "2"), "tolerance is a share"),
        (("--grader", "exact", "--data", "gone.jsonl"), "no questions at gone.jsonl"),
    ],
)
def test_an_error_is_one_line_and_code_1(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    pool = a_pool(tmp_path)
    result = reasc("grade", pool, *arguments, code=1)
    assert result.stderr.splitlines()[-1].startswith("error: ") and says in result.stderr
    assert result.stdout == "" and "grader" not in read_pool(pool).metadata
