"""Pools: what is read, what is tolerated, and what is refused with which words."""

import json
from pathlib import Path
from typing import Any

import pytest

from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools import read_pool
from pools.synthetic import question, response, write_lines, write_pool

GOOD = question("a", response("7"))


def test_everything_recorded_is_read_back(tmp_path: Path) -> None:
    full = response(
        "7", 12, text="so 7", score=1.5, prompt_tokens=9, finish_reason="length", cut_off=True, correct=True
    )
    full |= {"message": {"tool_calls": [{"name": "f", "args": {}, "id": "1"}]}}
    full |= {"answer_span": (10, 12), "last_step": (3, 10)}
    path = write_lines(tmp_path / "p.jsonl", {"metadata": {"model": "m"}}, question("a", full) | {"input": "3 + 4?"})

    pool = read_pool(path)

    assert pool.metadata == {"model": "m"}
    assert pool.notes == ()
    [held] = pool.questions
    assert (held.id, held.input, held.reference) == ("a", "3 + 4?", "7")
    [read] = held.responses
    assert {name: getattr(read, name) for name in full if hasattr(read, name)} == {
        name: value for name, value in full.items() if name not in ("text", "message")
    }
    [message] = pool.messages("a")
    assert (message.text, message.beside) == ("so 7", full["message"])


def test_a_pool_needs_no_metadata_and_may_carry_what_we_do_not_know(tmp_path: Path) -> None:
    extra = question("a", response("7") | {"logits": [1]}) | {"topic": "sums", "metadata": {"by": "others"}}
    pool = read_pool(write_lines(tmp_path / "p.jsonl", extra, "", question("b", response("7"))))
    assert [held.id for held in pool.questions] == ["a", "b"]
    assert pool.metadata == {}


@pytest.mark.parametrize(
    ("answer", "reference", "correct"),
    [
        ("1,000", "1000.0", True),
        ("$7", "7", True),
        ("8", "7", False),
        (None, "7", False),
        (" ", "7", False),
        (7, 7, True),
    ],
)
def test_correct_follows_from_answer_and_reference(tmp_path: Path, answer: Any, reference: Any, correct: bool) -> None:
    line = question("a", response(answer)) | {"reference": reference}
    [held] = read_pool(write_lines(tmp_path / "p.jsonl", line)).questions
    assert held.responses[0].correct is correct


def test_a_recorded_correct_wins_over_the_comparison(tmp_path: Path) -> None:
    line = question("a", response("eight", correct=True), response(None, correct=True), reference="8")
    [held] = read_pool(write_lines(tmp_path / "p.jsonl", line)).questions
    assert [one.correct for one in held.responses] == [True, False]  # no answer is never right


def test_one_message_says_what_cannot_be_computed(tmp_path: Path) -> None:
    [note] = read_pool(write_lines(tmp_path / "p.jsonl", GOOD)).notes
    assert "no scores or token signals, so ReASC cannot be replayed" in note
    assert "no prompt tokens" in note


def test_the_line_a_kill_cut_off_is_dropped_and_reported(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=3, signals=False, scores=True)
    path.write_bytes(path.read_bytes()[:-40])
    pool = read_pool(path)
    assert [held.id for held in pool.questions] == ["q0", "q1"]
    assert "cut off" in pool.notes[0]


def test_a_cut_inside_a_character_is_a_cut_off_line_too(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", GOOD)
    path.write_bytes(path.read_bytes() + '{"id": "é'.encode()[:-1])
    assert [held.id for held in read_pool(path).questions] == ["a"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["", " "], "holds no question"),
        ([{"metadata": {}}], "holds no question"),
        ([{"metadata": 3}, GOOD], "line 1: metadata must be a JSON object, got 3"),
        (["{not json", GOOD], "line 1 is not valid JSON"),
        (["What is 1 + 1?", "What is 2 + 2?"], "if it holds questions, `reasc record` makes a pool of them"),
        ([{"id": "a", "question": "1 + 1?", "answer": "2"}], "responses is missing; `reasc record` makes a pool of"),
        ([GOOD, "[1, 2]"], "line 2: a question is a JSON object"),
        ([GOOD, GOOD], "line 2: id 'a' appears a second time"),
        ([GOOD | {"id": None}], "line 1: id: Input should be a valid string, got None"),
        ([{k: v for k, v in GOOD.items() if k != "id"}], "line 1: id is missing"),
        ([{k: v for k, v in GOOD.items() if k != "reference"}], "line 1: reference is missing"),
        ([{k: v for k, v in GOOD.items() if k != "responses"}], "line 1: responses is missing"),
        ([question("a")], "line 1: responses is empty"),
        ([question("a", {"completion_tokens": 3})], "responses[0].answer is missing; write null"),
        ([question("a", {"answer": "7"})], "responses[0].completion_tokens is missing"),
        ([question("a", response("7"), response("7", -1))], "responses[1].completion_tokens: Input should be greater"),
        ([question("a", response("7", score="high"))], "responses[0].score: Input should be a valid number"),
        ([question("a", response("7", score=float("nan")))], "responses[0].score: Input should be a finite number"),
        ([question("a", response("7", correct="perhaps"))], "responses[0].correct: Input should be a valid boolean"),
        ([GOOD, json.dumps(GOOD)[:-9], GOOD], "line 2 is not valid JSON: Invalid control"),
        ([question("a", response("7", 10**30))], "line 1: responses[0].completion_tokens: "),
        ([question("a", response("7", seconds="long"))], "line 1: responses[0].seconds: "),
        ([GOOD | {"id": "half \ud83d"}], r"line 1: id 'half \ud83d' has half a character in it"),
        (["[" * 100_000], "line 1 is no JSON that can be read: it is nested more than 100 levels deep"),
        (['{"id": ' + "1" * 5000 + "}"], "line 1 is no JSON that can be read: it holds an integer of thousands"),
    ],
)
def test_a_malformed_pool_is_refused_with_line_and_field(tmp_path: Path, lines: list[Any], says: str) -> None:
    with pytest.raises(PoolError) as refused:
        read_pool(write_lines(tmp_path / "p.jsonl", *lines))
    assert says in str(refused.value)
    assert "p.jsonl" in str(refused.value)


def test_files_that_are_no_pool_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="no pool at"):
        read_pool(tmp_path / "missing.jsonl")
    with pytest.raises(PoolError, match="is a folder; name a pool in it"):
        read_pool(tmp_path)
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "caf\xe9"}\n')
    with pytest.raises(PoolError, match="line 1 is not UTF-8"):
        read_pool(tmp_path / "latin.jsonl")


def test_pools_add_up_unless_they_share_a_question(tmp_path: Path) -> None:
    first = read_pool(write_pool(tmp_path / "a.jsonl", questions=2))
    second = read_pool(write_lines(tmp_path / "b.jsonl", question("other", response("7"))))
    assert [held.id for held in (first + second).questions] == ["q0", "q1", "other"]
    with pytest.raises(PoolError, match="both hold question 'q0'"):
        first + first


@pytest.mark.parametrize(
    ("metadata", "right"), [({}, False), ({"answer": "auto", "extraction_version": EXTRACTION_VERSION}, True)]
)
def test_labels_are_spelled_as_by_the_rules_that_found_the_answers(tmp_path: Path, metadata: Any, right: bool) -> None:
    line = question("a", response("18", 5, text="It costs 18 dollars."), reference="18 dollars")
    path = write_lines(tmp_path / "pool.jsonl", {"metadata": metadata}, line)
    assert read_pool(path).questions[0].responses[0].correct is right
