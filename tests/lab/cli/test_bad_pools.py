"""``reasc replay`` on what reality sends: each with a message that names file and place, or with the rest evaluated."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import PoolQuestion, PoolResponse, PoolStore

from lab.pools.synthetic import append_signals, question, response, write_lines, write_pool


def replayed(path: Path, *options: object) -> dict[str, Any]:
    """What is printed as data, with the notes in one text."""
    data: dict[str, Any] = json.loads(reasc("replay", path, "--json", *options).stdout)
    return {**data, "told": " | ".join(data["notes"])}


def refused(path: Path, *options: object) -> str:
    """What is said where nothing can be replayed: one line that names the file."""
    ended = reasc("replay", path, *options, code=1)
    assert ended.stdout == "" and ended.stderr.startswith("error: ") and path.name in ended.stderr
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def stored(path: Path, *questions: tuple[str, list[dict[str, Any]], list[dict[str, Any]]]) -> Path:
    """A pool in SQLite: id, columns of each response, signals of each."""
    store = PoolStore.create(path)
    for name, columns, signals in questions:
        responses = tuple(PoolResponse(**one) for one in columns)
        store.add_question(PoolQuestion(name, ("7",), responses, "?"), signals=signals)
    store.close()
    return path


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    good = question("a", response("7"), response("8"))
    unlabelled = (good | {"reference": None}, good | {"id": "b", "reference": []})
    assert "no question" in refused(write_lines(tmp_path / "p.sqlite", *unlabelled))
    assert "record some" in refused(write_lines(tmp_path / "empty.jsonl"))
    one = write_pool(tmp_path / "one.sqlite", questions=1)
    assert "holds 1 question; a calibration on 8 leaves none to test" in refused(one, "--calibration-size", 8)


def test_different_numbers_of_responses_are_told(tmp_path: Path) -> None:
    lines = [question(f"q{n}", *[response("7")] * (1 + 15 * (n % 2))) for n in range(6)]
    seen = replayed(write_lines(tmp_path / "p.sqlite", *lines))
    assert "3 of 6 questions" in seen["told"]
    [sc] = [row for row in seen["rows"] if row["method"] == "SC@16"]
    assert sc["accuracy"]["value"] == 1 and sc["samples"]["value"] == pytest.approx(8.5)


@pytest.mark.full
@pytest.mark.parametrize("answer", ["7", "1", None])
def test_all_right_all_wrong_and_no_answer_at_all_count_votes(tmp_path: Path, answer: str | None) -> None:
    lines = [question(f"q{n}", *[response(answer, 3 + i) for i in range(8)]) for n in range(30)]
    path = write_lines(tmp_path / "p.sqlite", *lines)
    for n in range(30):
        held = [{"token_logprob": [-0.1 * (n + i + 1)] * (3 + i)} for i in range(8)]
        append_signals(path, f"q{n}", held)
    options = ("--calibration-size", 15, "--max-samples", 8)
    seen = replayed(path, *options)
    assert {row["accuracy"]["value"] for row in seen["rows"]} == {float(answer == "7")}
    assert "ReASC (offline)" in reasc("replay", path, *options).stdout


def test_a_missing_score_counts_as_a_vote_and_an_infinite_one_is_refused(tmp_path: Path) -> None:
    columns = [{"answer": "7", "completion_tokens": 1, "score": score} for score in (float("nan"), None, 1.5, 2.5)]
    rows = [(f"q{n}", columns, [{}] * 4) for n in range(40)]
    path = stored(tmp_path / "p.sqlite", *rows)
    seen = replayed(path, "--calibration-size", 20)
    assert "80 responses" in seen["told"]
    with sqlite3.connect(path) as sql:
        sql.execute("UPDATE responses SET score = 9e999 WHERE score IS NULL")
    assert "the file is damaged (question 'q0' cannot be read: score is inf)" in refused(path)


@pytest.mark.full
def test_signals_that_only_some_questions_have_are_left_out_with_a_note(tmp_path: Path) -> None:
    one = {"answer": "7", "completion_tokens": 2}
    rows = [(f"q{n}", [one] * 4, [{"token_logprob": [-0.1, -n]}] * 4) for n in range(20)]
    rows += [(f"r{n}", [one] * 4, [{"top_k": [1.0, n], "token_logprob": [-0.2, -n]}, {}, {}, {}]) for n in range(20)]
    seen = replayed(stored(tmp_path / "p.sqlite", *rows), "--calibration-size", 10, "--signal", "token_logprob")
    assert "only 20 questions of p.sqlite have signal 'top_k'" in seen["told"]
    assert "60 responses" in seen["told"]
