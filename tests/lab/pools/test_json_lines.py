"""Pools as JSON Lines: what is imported, what is tolerated, what is refused, and the signals beside them."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.pools import Message, Pool, read_pool
from langchain_reasc_lab.pools.copying import new_pool
from langchain_reasc_lab.pools.json_lines import read_json_lines, signals_in, signals_path, write_json_lines
from langchain_reasc_lab.pools.store import PoolStore

from lab.pools.synthetic import append_signals, json_lines, question, response
from langchain_reasc.exceptions import PoolError

GOOD = question("a", response("7"))


def imported(lines: Path) -> tuple[Pool, list[str]]:
    out = lines.with_suffix(".sqlite")
    out.unlink(missing_ok=True)
    with new_pool(out) as made:
        notes = read_json_lines(lines, made)
    return read_pool(out), notes


def test_everything_is_imported(tmp_path: Path) -> None:
    beside = {"tool_calls": [{"name": "f", "args": {}, "id": "1"}]}
    columns = response("7", 12, score=1.5, prompt_tokens=9, finish_reason="length", cut_off=True, correct=True)
    columns |= {"answer_span": (10, 12), "last_step": (3, 10), "seconds": 0.5}
    line = question("a", columns | {"text": "so 7", "message": beside, "logits": [1]}) | {"input": "3 + 4?", "topic": 1}
    pool, notes = imported(json_lines(tmp_path / "p.jsonl", {"metadata": {"model": "m"}}, "", line))
    assert (pool.metadata, notes) == ({"model": "m"}, [])
    [held] = pool.questions
    assert (held.id, held.input, held.reference) == ("a", "3 + 4?", "7")
    assert {name: getattr(held.responses[0], name) for name in columns} == columns
    assert pool.messages("a") == [Message("so 7", beside)]


@pytest.mark.parametrize(
    ("given", "held", "note"),
    [
        ({"completion_tokens": None, "text": "It is 7, so I say 7."}, 5, "1 responses of p.jsonl do not report comp"),
        ({"completion_tokens": None, "text": "\u00e9" * 8}, 4, "they are estimated from the text"),
        ({"completion_tokens": None}, 1, "without a text each counts as 1"),
        ({"completion_tokens": 64.0}, 64, None),
        ({"completion_tokens": "64"}, 64, None),
        ({"completion_tokens": 0, "text": "7"}, 0, None),
    ],
)
def test_tokens_that_were_not_reported_are_estimated_and_it_says_so(
    tmp_path: Path, given: dict[str, Any], held: int, note: str | None
) -> None:
    pool, notes = imported(json_lines(tmp_path / "p.jsonl", question("a", {"answer": "7", **given})))
    assert pool.questions[0].responses[0].completion_tokens == held
    assert len(notes) == (note is not None) and (note is None or note in notes[0])


@pytest.mark.parametrize("end", [b'{"id": "b", "respo', '{"id": "é'.encode()[:-1]])
def test_the_line_a_kill_cut_off_is_left_out_and_reported(tmp_path: Path, end: bytes) -> None:
    path = json_lines(tmp_path / "p.jsonl", GOOD)
    path.write_bytes(path.read_bytes() + end)
    pool, [note] = imported(path)
    assert [held.id for held in pool.questions] == ["a"] and "cut off" in note


def test_a_line_cut_off_at_any_byte_is_left_out(tmp_path: Path) -> None:
    last = json_lines(tmp_path / "last.jsonl", question("b", response("7é", score=-1.5, cut_off=True))).read_bytes()
    path = json_lines(tmp_path / "p.jsonl", GOOD)
    whole = path.read_bytes()
    for size in range(1, len(last.rstrip())):
        path.write_bytes(whole + last[:size])
        pool, [note] = imported(path)
        assert [held.id for held in pool.questions] == ["a"] and "line 2" in note


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize(
    "faulty",
    [
        '{"id": "b", oops}',
        '{"id": "b",}',
        '{"id": "b" "reference": "7"}',
        '{"id": "b", "responses": [{]}',
        '{"id": "b"}}',
        '{"id": tru}',
        "oops",
        '"a text that does not end',
    ],
)
def test_a_faulty_line_is_an_error_with_or_without_an_end(tmp_path: Path, faulty: str, end: str) -> None:
    path = json_lines(tmp_path / "p.jsonl", GOOD)
    path.write_bytes(path.read_bytes() + (faulty + end).encode())
    with pytest.raises(PoolError, match=r"p\.jsonl, line 2 is not valid JSON"):
        imported(path)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_may_end_as_on_any_system(tmp_path: Path, end: bytes) -> None:
    path = json_lines(tmp_path / "p.jsonl", GOOD, question("b", response("7")))
    lines = path.read_bytes().splitlines()
    for text in (end.join(lines), end.join(lines) + end, b"\xef\xbb\xbf" + end.join(lines)):
        path.write_bytes(text)
        pool, notes = imported(path)
        assert [held.id for held in pool.questions] == ["a", "b"] and not notes


def test_half_a_character_is_exported_and_imported_as_it_is(tmp_path: Path) -> None:
    half = question("a", response("7 \ud83d")) | {"input": "half \ud800 and é", "reference": ["7", "\udc00"]}
    path = json_lines(tmp_path / "p.jsonl", half, question("é", response("7")))
    pool, _ = imported(path)
    [again] = write_json_lines(PoolStore.open(pool.path), tmp_path / "again.jsonl")
    assert '"id": "é"' in again.read_text(encoding="utf-8"), "whole characters are readable"
    held, _ = imported(again)
    assert [one.input for one in held.questions] == ["half \ud800 and é", None]
    assert held.questions == pool.questions


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"metadata": {}}], "holds no question"),
        ([{"metadata": 3}, GOOD], "line 1: metadata must be a JSON object, got 3"),
        (["{not json", GOOD], "line 1 is not valid JSON"),
        (["What is 1 + 1?", "What is 2 + 2?"], "`reasc record`"),
        ([{"id": "a", "question": "1 + 1?", "answer": "2"}], "responses is missing; `reasc record`"),
        ([GOOD, "[1, 2]"], "line 2: "),
        ([GOOD, GOOD], "line 2: id 'a'"),
        ([{k: v for k, v in GOOD.items() if k != "reference"}], "line 1: reference is missing"),
        ([question("a")], "line 1: responses is empty"),
        ([question("a", {"completion_tokens": 3})], "responses[0].answer"),
        ([question("a", response("7"), response("7", -1))], "responses[1].completion_tokens"),
        ([question("a", response("7", score=float("nan")))], "responses[0].score"),
        ([question("a", response("7", 10**30))], "line 1: responses[0].completion_tokens: "),
        ([question("a", response("7", 1.5))], "responses[0].completion_tokens"),
        ([question("a", response("7", "many"))], "responses[0].completion_tokens"),
        ([question("a", response("7", float("nan")))], "responses[0].completion_tokens: "),
        ([question("a", {"answer": "7"})], "responses[0].completion_tokens is missing"),
        ([GOOD | {"id": "half \ud83d"}], r"line 1: id 'half \ud83d'"),
        (["[" * 100_000], "line 1 is not JSON"),
        (['{"id": ' + "1" * 5000 + "}"], "line 1 is not JSON"),
        (None, "line 1 is not UTF-8"),
    ],
)
def test_malformed_lines_are_refused_with_line_and_field(tmp_path: Path, lines: list[Any] | None, says: str) -> None:
    path = json_lines(tmp_path / "p.jsonl", *(lines or ()))
    if lines is None:
        path.write_bytes(b'{"id": "caf\xe9"}\n')
    with pytest.raises(PoolError) as refused:
        imported(path)
    assert says in str(refused.value) and "p.jsonl" in str(refused.value)
    assert [one.name for one in tmp_path.iterdir()] == ["p.jsonl"]


def test_a_cut_at_any_byte_loses_only_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "p.signals.gz"
    ends = []
    for number in range(3):
        append_signals(path, f"q{number}", [{"top_k": np.arange(number + 1.0)}])
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        found = [(id, one["top_k"].tolist()) for id, [one] in signals_in(path)]
        assert found == [(f"q{number}", list(range(number + 1))) for number in range(len(found))]
        assert len(found) >= sum(end <= cut for end in ends)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "is damaged"),
        (b"[]\n", "member 1"),
        (b'{"id": "a", "lengths": [1], "signals": {"top_k": "?"}}\n', "member 1"),
        (b'{"id": "a", "lengths": [2], "signals": {"top_k": "AAAAAA=="}}\n', "1 values for 2 tokens"),
    ],
)
def test_what_is_no_line_of_signals_is_refused(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "p.signals.gz"
    append_signals(path, "q", [{"top_k": np.random.default_rng(0).normal(size=20)}])
    whole = path.read_bytes()
    path.write_bytes(gzip.compress(line) if line else whole[:-8] + bytes(4) + whole[-4:])
    with pytest.raises(PoolError, match=says):
        list(signals_in(path))


def test_signals_beside_another_pool_are_refused(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "p.jsonl", question("a", response("7"), response("7")))
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}])
    with pytest.raises(PoolError, match=r"1 responses .*'a', .* 2"):
        imported(path)
    signals_path(path).unlink()
    append_signals(signals_path(path), "a", [{"top_k": [1.0]}] * 2)
    json_lines(path, question("a", response("7"), response("7")), question("b", response("7")))
    with pytest.raises(PoolError, match="question 'b'"):
        imported(path)
