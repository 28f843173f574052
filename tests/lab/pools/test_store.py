"""A pool's file: everything comes back, everything or nothing is written, and other files are recognized."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_lab.pools import Message, PoolQuestion, PoolResponse, PoolStore, read_pool

from langchain_reasc.exceptions import PoolError


def add(store: PoolStore, name: str, *signals: dict[str, Any], **options: Any) -> None:
    """Add a question with a response for each of the signals, one at least."""
    each = signals or ({},)
    responses = tuple(PoolResponse("7", len(next(iter(one.values()), [0, 0, 0]))) for one in each)
    store.add_question(
        PoolQuestion(name, ("7",), responses, f"What is {name}?"), [Message("so 7")] * len(each), each, **options
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PoolStore]:
    opened = PoolStore.create(tmp_path / "p.sqlite")
    yield opened
    opened.close()


def filled(path: Path, questions: int = 20) -> Path:
    made = PoolStore.create(path)
    for number in range(questions):
        add(made, f"q{number}", *[{"token_logprob": [-0.5] * 40, "top_k": [1.5] * 40}] * 3)
    made.close()
    return path


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", None),
        ("🌹 ½ π\u2028\r\n", "half \ud83d"),
        ("x" * 200_000, {"a": [1, None, "\ud800"]}),
        (None, "What?"),
    ],
)
def test_texts_come_back_as_they_were(store: PoolStore, text: str | None, asked: Any) -> None:
    message = Message(text, {"tool_calls": [{"name": "f", "args": {"x": "\ud83d\0"}}]}, {"output_tokens": 3}, [1, 2, 0])
    question = PoolQuestion("q\0🌹", ("7", "", "sieben\0"), (PoolResponse("7", 3),), asked)
    store.add_question(question, [message])
    store.add_question(PoolQuestion("half", (), (PoolResponse("\udc00", 3),)), [Message("a\ud83d b \ud83c\udf39")])
    first, half = PoolStore.open(store.path).questions()
    assert first == question and half.responses[0].answer == "\ufffd"
    assert store.messages("q\0🌹") == [message] and store.messages("half")[0].text == "a\ufffd b 🌹"


def test_every_column_comes_back_with_its_type(store: PoolStore) -> None:
    full = PoolResponse(
        **{"answer": "7", "correct": True, "score": -1e-300, "completion_tokens": 2**40, "prompt_tokens": 0},
        **{"finish_reason": "length", "cut_off": True, "answer_span": (10, 12), "last_step": (0, 10), "seconds": 0.25},
    )
    question = PoolQuestion("q", (), (full, PoolResponse(None, 0, correct=False)))
    store.add_question(question)
    [held] = store.questions()
    assert held == question and held.responses[1].correct is False and held.responses[0].cut_off is True


def test_signals_come_back_bit_for_bit(store: PoolStore) -> None:
    values = np.array([np.nan, -np.inf, 1e-45, -0.0, 3.4e38], dtype=np.float32)
    add(store, "q", {"top_k": values}, {}, {"top_k": [], "token_logprob": []})
    assert store.signals("top_k", ["q"])["q"].tobytes() == values.tobytes()
    [held] = store.questions()
    assert [one.signal_tokens for one in held.responses] == [5, 0, 0]


@pytest.mark.parametrize(
    ("first", "then", "names", "lengths"),
    [
        ([{"a": [1, 2]}], [{}], ["a"], [2, 0]),
        ([{}], [{"a": [3], "b": [4]}], ["a", "b"], [0, 1]),
        ([{"a": [1], "b": [2]}], [{"b": [3, 4]}], ["b"], [1, 2]),
        ([{"a": [1], "b": [2]}, {}], [{"c": [3]}], [], [0, 0, 0]),
    ],
)
def test_later_responses_join_with_the_signals_that_all_have(
    store: PoolStore, first: list[Any], then: list[Any], names: list[str], lengths: list[int]
) -> None:
    add(store, "q", *first)
    add(store, "q", *then)
    pool = read_pool(store.path)
    assert [one.signal_tokens for one in pool.questions[0].responses] == lengths
    assert list(pool.signals.names if pool.signals else ()) == names
    for name in names:
        assert pool.signals is not None
        for held, given, length in zip(pool.signals.of_question("q"), [*first, *then], lengths, strict=True):
            assert held[name].tolist() == (given[name] if length else [])


def test_signals_of_different_lengths_are_refused_before_they_mislead(store: PoolStore) -> None:
    with pytest.raises(PoolError, match=r"p\.sqlite: .*'q' .*numbers of tokens"):
        add(store, "q", {"a": [1.0, 2.0], "b": [1.0]})
    assert store.ids() == {}


def test_a_transaction_is_all_or_nothing(store: PoolStore) -> None:
    add(store, "kept")
    with pytest.raises(KeyboardInterrupt), store.transaction():
        add(store, "lost")
        store.set_about({"seed": 1})
        store.set_responses("kept", [{"correct": True}])
        raise KeyboardInterrupt
    assert store.ids() == {"kept": 1} and store.about() == {}
    assert next(store.questions()).responses[0].correct is None
    add(store, "next")
    assert list(store.ids()) == ["kept", "next"]


def test_a_question_that_cannot_be_written_leaves_nothing(store: PoolStore) -> None:
    broken = PoolResponse("7", None)  # type: ignore[arg-type]
    with pytest.raises(PoolError, match=r"p\.sqlite: .*completion_tokens"):
        store.add_question(PoolQuestion("q", (), (PoolResponse("7", 3), broken)))
    assert store.ids() == {} and store.messages("q") == []


def test_another_recorder_of_the_same_questions_is_noticed(store: PoolStore) -> None:
    add(store, "q", expected=0)
    with pytest.raises(PoolError, match=r"1 responses .*'q' .* 0 "):
        add(store, "q", expected=0)
    add(store, "q", expected=1)
    assert store.ids() == {"q": 2}


def test_two_that_write_at_once_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_reasc_lab.pools.PoolStore.WAIT", 0.05)
    path = filled(tmp_path / "p.sqlite", 1)
    one, other = PoolStore.open(path), PoolStore.create(path)
    reading = PoolStore.open(path).questions()
    assert next(reading).id == "q0", "who reads slowly stops no recorder"
    with one.transaction():
        add(one, "by one")
        with pytest.raises(PoolError, match=r"p\.sqlite: .*locked"):
            add(other, "by the other")
        seen = list(PoolStore.open(path).ids())
        assert seen == ["q0"], "what is being written is not seen, and does not stop readers"
    add(other, "by the other")
    assert list(one.ids()) == ["q0", "by one", "by the other"]


@pytest.mark.parametrize("name", ["päge 🌹?#%.sqlite", ":memory:"])
def test_any_name_is_a_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(Path(name), 2)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(read_pool(name).questions) == 2


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("questions", "CREATE VIEW questions AS SELECT 1 AS number, 'q' AS id, 'null' AS input, '[]' AS accepted"),
        ("signals", "CREATE VIRTUAL TABLE signals USING fts5(name, question, tokens)"),
        ("", "CREATE TRIGGER t AFTER INSERT ON questions BEGIN DELETE FROM responses; END"),
    ],
)
def test_what_only_looks_like_a_table_is_not_read(tmp_path: Path, table: str, statement: str) -> None:
    path = filled(tmp_path / "p.sqlite", 1)
    with sqlite3.connect(path) as sql:
        if table:
            sql.execute(f"ALTER TABLE {table} RENAME TO kept")
        sql.execute(statement)
    with pytest.raises(PoolError, match=r"p\.sqlite: its (view|table|trigger) '\w+'"):
        read_pool(path)


@pytest.mark.parametrize(
    ("table", "column", "value", "says"),
    [
        ("questions", "accepted", '"Paris"', "accepted answers are 'Paris'"),
        ("questions", "accepted", '["7", null]', "list of strings"),
        ("questions", "input", "9" * 6000, "integer with thousands"),
        ("responses", "answer", b"\x00", "answer is b'"),
        ("responses", "prompt_tokens", "many", "prompt_tokens is 'many'"),
        ("responses", "completion_tokens", -1, "completion_tokens is -1"),
        ("messages", "token_lengths", '"abc"', "token_lengths is 'abc'"),
        ("messages", "beside", "[" * 100_000, "100 levels"),
    ],
)
def test_a_value_that_no_recording_wrote_is_named(
    tmp_path: Path, table: str, column: str, value: Any, says: str
) -> None:
    path = filled(tmp_path / "p.sqlite", 1)
    with sqlite3.connect(path) as sql:
        sql.execute("INSERT OR IGNORE INTO about VALUES ('name', 'null')")
        sql.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(PoolError, match="damaged") as raised:
        read_pool(path).texts("q0")
    assert says in str(raised.value)
