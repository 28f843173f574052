"""Grading again what is recorded: corrected labels, other rules for finding answers, and no new sample."""

import json
import sqlite3
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_lab.pools import PoolScores, PoolStore, message_of, read_pool, record_pool, stored_message

from lab.pools.synthetic import Guesser, labelled, question, response, write_lines
from langchain_reasc.answers import EXTRACTION_VERSION, extractor, vote_of
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.stopping import ReASC

QUESTIONS = labelled(4)
OTHERS = [replace(question, reference="5") for question in QUESTIONS[:2]] + QUESTIONS[2:]


def spent() -> Guesser:
    """A model that must not be asked."""
    return Guesser(hears=lambda *asked: pytest.fail("a sample was paid for"))


def _aged(path: Path, *, extraction_version: int | None) -> None:
    """Makes the pool one that was recorded under other rules."""
    store = PoolStore.open(path)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM about WHERE name = 'extraction_version'")
        database.execute("UPDATE responses SET answer = '0'")
    if extraction_version is not None:
        store.set_about({"extraction_version": extraction_version})


def test_corrected_labels_count_and_nothing_is_drawn(tmp_path: Path) -> None:
    path, said = tmp_path / "p.sqlite", []
    spelled = [replace(one, reference="6.0") for one in QUESTIONS]  # which is no other label
    before = record_pool(Guesser(), spelled, path, samples=8)
    assert before.signals is not None
    signals = repr([before.signals.of_question(one.id) for one in before.questions])
    pool = record_pool(spent(), OTHERS, path, samples=8, on_notice=said.append)
    [notice] = said
    assert f"2 labels have changed since {path}" in notice
    for held, then, asked in zip(pool.questions, before.questions, OTHERS, strict=True):
        assert held.reference in (asked.reference, "6.0")
        assert [one.correct for one in held.responses] == [one.answer == asked.reference for one in then.responses]
    assert read_pool(path) == pool and pool.signals is not None
    assert repr([pool.signals.of_question(one.id) for one in pool.questions]) == signals
    said.clear()
    record_pool(spent(), OTHERS, path, samples=8, on_notice=said.append)
    assert said == []


def test_another_extractor_looks_again_in_the_stored_text(tmp_path: Path) -> None:
    path, said = tmp_path / "p.sqlite", []
    boxed = record_pool(Guesser(), QUESTIONS, path, samples=3, answer="boxed")
    PoolStore.open(path).set_responses("q0", [{"answer_span": (0, 1)}])
    pool = record_pool(spent(), QUESTIONS, path, samples=3, answer="regex:(It)", on_notice=said.append)
    assert {one.answer for held in pool.questions for one in held.responses} == {"It"}
    assert "'boxed'" in said[0] and "12 changed" in said[0] and "record anew" in said[1]
    assert pool.metadata["answer"] == "regex:(It)"
    assert record_pool(spent(), QUESTIONS, path, samples=3, answer="boxed").questions == boxed.questions


@pytest.mark.parametrize("version", [1, None])
def test_answers_found_by_another_version_are_found_again(tmp_path: Path, version: int | None) -> None:
    path = tmp_path / "p.sqlite"
    fresh = record_pool(Guesser(), QUESTIONS, path, samples=2)
    _aged(path, extraction_version=version)
    before = path.read_bytes()
    read = read_pool(path)
    assert path.read_bytes() == before
    if version:  # without one, they are taken as they are
        assert read.questions == fresh.questions
        assert "and 8 changed" in read.notes[0]
    again = record_pool(spent(), QUESTIONS, path, samples=2)
    assert again.questions == fresh.questions
    assert again.metadata["extraction_version"] == EXTRACTION_VERSION
    assert again.metadata["created_at"] == fresh.metadata["created_at"]


def test_a_pattern_that_takes_too_long_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_reasc.answers.extractors._PATTERN_SECONDS", 0.1)
    text, pattern = "a" * 80, r"regex:(?:a|aa)+: (\d+)"
    questions = [question(f"q{at}", *[response("7", text=text, finish_reason="stop")] * 4) for at in range(50)]
    about = {"metadata": {"answer": pattern, "extraction_version": 1}}
    with pytest.raises(PoolError, match=r"3 responses to question 'q0'.*Record it anew"):
        read_pool(write_lines(tmp_path / "p.sqlite", about, *questions))


def test_without_its_text_a_response_of_another_version_is_refused(tmp_path: Path) -> None:
    about = {"metadata": {"answer": "auto", "extraction_version": 1}}
    path = write_lines(tmp_path / "p.sqlite", about, question("a", response("7")))
    with pytest.raises(PoolError, match=r"version 1 .*Record it"):
        read_pool(path)


def test_what_a_function_found_cannot_be_found_again(tmp_path: Path) -> None:
    def mine(text: str) -> str:
        return text[-3]

    path = tmp_path / "p.sqlite"
    record_pool(Guesser(), QUESTIONS[:2], path, samples=2, answer=mine)
    assert len(record_pool(Guesser(), QUESTIONS, path, samples=2, answer=mine).questions) == 4
    record_pool(Guesser(), QUESTIONS, tmp_path / "other.sqlite", samples=2, answer="boxed")
    with pytest.raises(PoolError, match=r"'boxed' .*function 'mine'"):
        record_pool(spent(), QUESTIONS, tmp_path / "other.sqlite", samples=2, answer=mine)
    _aged(path, extraction_version=1)
    with pytest.raises(PoolError, match="no extractor"):
        read_pool(path)
    with pytest.raises(PoolError, match="A function may"):
        record_pool(spent(), QUESTIONS, path, samples=2, answer=mine)
    found = record_pool(spent(), QUESTIONS, path, samples=2, answer="boxed")
    assert {one.answer for held in found.questions for one in held.responses} <= {"5", "6", "7"}


def test_a_question_under_another_name_is_not_paid_for_twice(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    record_pool(Guesser(), QUESTIONS, path, samples=1)
    renamed = [replace(QUESTIONS[1], id="other"), *QUESTIONS[2:]]
    with pytest.raises(PoolError, match=r"'question 1' as 'q1', .*'other'"):
        record_pool(spent(), renamed, path, samples=1)
    twin = [*QUESTIONS, replace(QUESTIONS[1], id="twin")]
    assert len(record_pool(Guesser(), twin, path, samples=1).questions) == 5, "the same text may be asked twice"


class Ended(Enum):
    EARLY = "MAX_TOKENS"


CALL = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
BROKEN = {"name": "add", "args": "{", "id": "c2", "error": None, "type": "invalid_tool_call"}


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("<think>5?</think>The answer is 6.", response_metadata={"finish_reason": "length"}),
        AIMessage([{"type": "thinking", "thinking": "5"}, {"type": "text", "text": "The answer is 6."}]),
        AIMessage("", tool_calls=[CALL], response_metadata={"finish_reason": "tool_calls"}),
        AIMessage("", invalid_tool_calls=[BROKEN]),
        AIMessage([{"type": "text", "text": "6? "}, {"type": "refusal", "refusal": "I will not say 7."}]),
        AIMessage("6", response_metadata={"finish_reason": "stop", "native_finish_reason": "MAX_TOKENS"}),
        AIMessage("6", response_metadata={"finishReason": Ended.EARLY}),
        AIMessage([{"type": "text", "text": "5? ", "phase": "commentary"}, {"type": "text", "text": "6"}]),
    ],
)
def test_a_vote_is_the_same_when_it_is_read_from_the_pool(message: AIMessage) -> None:
    reason, kept = stored_message(message)
    again = message_of(replace(kept, beside=json.loads(json.dumps(kept.beside))), reason)
    assert again is not None
    assert vote_of(again, extractor()) == vote_of(message, extractor())
    assert str(again.text) == str(message.text)
    assert (again.tool_calls, again.invalid_tool_calls) == (message.tool_calls, message.invalid_tool_calls)
    ended = {name: getattr(value, "value", value) for name, value in message.response_metadata.items()}
    assert again.response_metadata == ended
    if message.tool_calls or "refusal" in str(message):
        assert again.additional_kwargs == message.additional_kwargs and again.content == message.content


def test_the_gate_does_not_accept_a_recorded_response_that_was_cut_off(tmp_path: Path) -> None:
    line = question("a", response("7", score=9.0, cut_off=True), response("7", score=9.0))
    [[cut_off, whole]] = PoolScores(read_pool(write_lines(tmp_path / "p.jsonl", line))).responses("recorded")
    rule = ReASC(Standardizer(0.0, 10.0), gate=1.0)
    assert (rule([cut_off]).reason, rule([whole]).reason) == (None, "gate")
