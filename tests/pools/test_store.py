"""A pool's file: everything comes back, everything or nothing is written, and what is no pool is told apart."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools import database, read_pool
from langchain_reasc.pools.store import PoolStore, StoredMessage, StoredQuestion, StoredResponse

COLUMNS: dict[str, Any] = {"answer": "7", "completion_tokens": 3, "cut_off": False}


def response(answer: str | None = "7", **signals: Any) -> StoredResponse:
    tokens = len(next(iter(signals.values()), [0, 0, 0]))
    return StoredResponse({**COLUMNS, "answer": answer, "completion_tokens": tokens}, StoredMessage("so 7"), signals)


def question(name: str, *responses: StoredResponse) -> StoredQuestion:
    return StoredQuestion(name, f"What is {name}?", ["7"], responses or (response(),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PoolStore]:
    opened = PoolStore.create(tmp_path / "p.sqlite")
    yield opened
    opened.close()


def filled(path: Path, questions: int = 20) -> Path:
    made = PoolStore.create(path)
    for number in range(questions):
        made.add(question(f"q{number}", *[response(token_logprob=[-0.5] * 40, top_k=[1.5] * 40)] * 3))
    made.close()
    return path


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", None),
        ("a\0b", "nul \0"),
        ("🌹 ½ π\u2028\r\n", "half \ud83d"),
        ("x" * 200_000, {"a": [1, None, "\ud800"]}),
        ('"quoted" \\u0000', [["human", "x"]]),
        (None, "What?"),
    ],
)
def test_texts_come_back_as_they_were(store: PoolStore, text: str | None, asked: Any) -> None:
    beside = {"tool_calls": [{"name": "f", "args": {"x": "\ud83d\0"}}]}
    message = StoredMessage(text, beside, {"output_tokens": 3}, [1, 2, 0])
    store.add(StoredQuestion("q\0🌹", asked, ["7", "", "sieben\0"], [StoredResponse(COLUMNS, message)]))
    [held] = PoolStore.open(store.path).questions()
    assert (held.id, held.input, held.accepted) == ("q\0🌹", asked, ["7", "", "sieben\0"])
    assert store.messages("q\0🌹") == [message]


def test_half_a_character_in_a_text_is_marked_and_whole_ones_are_joined(store: PoolStore) -> None:
    message = StoredMessage("a\ud83d b \ud83c\udf39")
    store.add(StoredQuestion("q", "?", [], [StoredResponse({**COLUMNS, "answer": "\udc00"}, message)]))
    [held] = store.questions()
    assert held.responses[0].columns["answer"] == "\ufffd"
    assert store.messages("q")[0].text == "a\ufffd b 🌹"


def test_every_column_comes_back_with_its_type(store: PoolStore) -> None:
    full = {
        **{"answer": "7", "correct": True, "score": -1e-300, "completion_tokens": 2**40, "prompt_tokens": 0},
        **{"finish_reason": "length", "cut_off": True, "answer_span": (10, 12), "last_step": (0, 10)},
        **{"seconds": 0.25, "signal_tokens": 0},
    }
    bare = dict.fromkeys(full) | {"completion_tokens": 0, "cut_off": False, "signal_tokens": 0}
    store.add(StoredQuestion("q", None, [], [StoredResponse(full), StoredResponse({**bare, "correct": False})]))
    [held] = store.questions()
    assert [one.columns for one in held.responses] == [full, {**bare, "correct": False}]
    assert held.responses[1].columns["correct"] is False


def test_metadata_comes_back_and_can_be_changed(store: PoolStore) -> None:
    said = {"system": "half \ud83d", "seed": None, "fingerprint": {"model": "m", "π": [1.5, True]}}
    store.set_about(said)
    store.set_about({"seed": 3})
    assert store.about() == {**said, "seed": 3}


def test_signals_come_back_bit_for_bit(store: PoolStore) -> None:
    values = np.array([np.nan, -np.inf, 1e-45, -0.0, 3.4e38], dtype=np.float32)
    store.add(question("q", response(top_k=values), response(), response(top_k=[], token_logprob=[])))
    assert store.signals("top_k", ["q"])["q"].tobytes() == values.tobytes()
    [held] = store.questions()
    assert [one.columns["signal_tokens"] for one in held.responses] == [5, 0, 0]


@pytest.mark.parametrize(
    ("first", "then", "names", "lengths"),
    [
        ([{"a": [1, 2]}], [{"a": [3]}], ["a"], [2, 1]),
        ([{"a": [1, 2]}], [{}], ["a"], [2, 0]),
        ([{}], [{"a": [3], "b": [4]}], ["a", "b"], [0, 1]),
        ([{"a": [1], "b": [2]}], [{"b": [3, 4]}], ["b"], [1, 2]),
        ([{"b": [2]}], [{"a": [9], "b": [3]}], ["b"], [1, 1]),
        ([{"a": [1], "b": [2]}, {}], [{"c": [3]}], [], [0, 0, 0]),
        ([{"a": [1]}, {"b": [2]}], [{"c": [3]}], ["c"], [0, 0, 1]),
    ],
)
def test_later_responses_join_with_the_signals_that_all_have(
    store: PoolStore, first: list[Any], then: list[Any], names: list[str], lengths: list[int]
) -> None:
    store.add(question("q", *(response(**one) for one in first)))
    store.add(question("q", *(response(**one) for one in then)))
    pool = read_pool(store.path)
    assert [one.signal_tokens for one in pool.questions[0].responses] == lengths
    assert list(pool.signals.names if pool.signals else ()) == names
    each = [*first, *then]
    for name in names:
        assert pool.signals is not None
        for held, given, length in zip(pool.signals.of("q"), each, lengths, strict=True):
            assert held[name].tolist() == (given[name] if length else [])


def test_signals_of_different_lengths_are_refused_before_they_mislead(store: PoolStore) -> None:
    with pytest.raises(PoolError, match=r"p\.sqlite: signals of question 'q' are of different numbers of tokens"):
        store.add(question("q", response(a=[1.0, 2.0], b=[1.0])))
    assert store.ids() == {}


def test_a_transaction_is_all_or_nothing(store: PoolStore) -> None:
    store.add(question("kept"))
    with pytest.raises(KeyboardInterrupt), store.transaction():
        store.add(question("lost"))
        store.set_about({"seed": 1})
        store.set_verdicts("kept", [True])
        raise KeyboardInterrupt
    assert store.ids() == {"kept": 1} and store.about() == {}
    assert next(store.questions()).responses[0].columns["correct"] is None
    store.add(question("next"))
    assert list(store.ids()) == ["kept", "next"]


def test_a_question_that_cannot_be_written_leaves_nothing(store: PoolStore) -> None:
    with pytest.raises(PoolError, match=r"p\.sqlite: .*completion_tokens"):
        store.add(question("q", response(), StoredResponse({"answer": "7", "cut_off": False})))
    assert store.ids() == {} and store.messages("q") == []


def test_new_labels_drop_the_verdicts_by_the_old_ones(store: PoolStore) -> None:
    for name in "ab":
        store.add(question(name))
        store.set_verdicts(name, [True])
    store.set_question("a", ["8", "9"])
    held = {one.id: one for one in store.questions()}
    assert held["a"].accepted == ["8", "9"] and held["a"].responses[0].columns["correct"] is None
    assert held["b"].responses[0].columns["correct"] is True


def test_another_recorder_of_the_same_questions_is_noticed(store: PoolStore) -> None:
    store.add(question("q"), behind=0)
    with pytest.raises(PoolError, match="has 1 responses to question 'q' where 0 were expected: another process"):
        store.add(question("q"), behind=0)
    store.add(question("q"), behind=1)
    assert store.ids() == {"q": 2}


def test_two_that_write_at_once_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_WAIT", 0.05)
    path = filled(tmp_path / "p.sqlite", 1)
    one, other = PoolStore.open(path), PoolStore.create(path)
    with one.transaction():
        one.add(question("by one"))
        with pytest.raises(PoolError, match=r"p\.sqlite: another process has been writing it for .*locked"):
            other.add(question("by the other"))
        assert list(PoolStore.open(path).ids()) == ["q0"], (
            "what is being written is not seen, and does not stop readers"
        )
    other.add(question("by the other"))
    assert list(one.ids()) == ["q0", "by one", "by the other"]


def test_who_reads_slowly_stops_no_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_WAIT", 0.05)
    path = filled(tmp_path / "p.sqlite", 3)
    reading = PoolStore.open(path).questions()
    assert next(reading).id == "q0"
    PoolStore.open(path).add(question("new"))
    assert [one.id for one in reading] == ["q1", "q2", "new"]


def test_a_pool_with_no_question_yet_says_so(tmp_path: Path) -> None:
    PoolStore.create(tmp_path / "p.sqlite").close()
    with pytest.raises(PoolError, match="holds no question; record some"):
        read_pool(tmp_path / "p.sqlite")
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(PoolError, match="holds no question"):
        read_pool(tmp_path / "empty.sqlite")
    with pytest.raises(PoolError, match="no pool at"):
        read_pool(tmp_path / "missing.sqlite")
    assert not (tmp_path / "missing.sqlite").exists()


def test_a_closed_pool_is_not_read(store: PoolStore) -> None:
    store.close()
    with pytest.raises(PoolError, match="closed"):
        store.ids()


@pytest.mark.parametrize("name", ["with space ?#%.sqlite", "päge🌹.sqlite", ":memory:", "file:x?mode=memory"])
def test_any_name_is_a_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(Path(name), 2)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(read_pool(name).questions) == 2


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at open files as Linux shows them")
def test_a_temporary_pool_is_in_a_file_that_has_no_name() -> None:
    store = PoolStore.temporary(Path("p.jsonl"))
    store.add(question("q", response(a=np.zeros(3_000_000))))
    files = _temporary_files()
    assert sum(file.stat().st_size for file in files) > 10_000_000
    assert all("(deleted)" in _target(file) for file in files)
    store.close()
    assert not _temporary_files()


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # that of the listing itself
        return ""


def _temporary_files() -> list[Path]:
    return [link for link in Path("/proc/self/fd").iterdir() if "etilqs" in _target(link)]


FOREVER = "SELECT 1 AS number, 'q' AS id, 'null' AS input, '[]' AS accepted"


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (
            "questions",
            f"CREATE VIEW questions AS WITH RECURSIVE n AS ({FOREVER} UNION ALL SELECT * FROM n) SELECT * FROM n",
        ),
        ("questions", f"CREATE VIEW questions AS {FOREVER} UNION ALL SELECT * FROM questions"),
        ("about", "CREATE VIEW about AS SELECT 'name' AS name, '1' AS value"),
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
    with pytest.raises(PoolError, match=r"p\.sqlite: its (view|table|trigger) '\w+' is nothing that a recording wrote"):
        read_pool(path)


def test_views_and_indexes_of_ones_own_do_no_harm(tmp_path: Path) -> None:
    path = filled(tmp_path / "p.sqlite", 1)
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE VIEW mine AS SELECT * FROM questions")
        sql.execute("CREATE INDEX quick ON responses (answer)")
    assert len(read_pool(path).questions) == 1


@pytest.mark.parametrize(
    ("table", "column", "value", "says"),
    [
        ("questions", "accepted", '"Paris"', "the accepted answers are 'Paris', which is no list of texts"),
        ("questions", "accepted", '{"a": 1}', "which is no list of texts"),
        ("questions", "accepted", "[1, 2]", "which is no list of texts"),
        ("questions", "accepted", '["7", null]', "which is no list of texts"),
        ("questions", "accepted", "[" * 5000, "it is nested more than 100 levels deep"),
        ("questions", "input", "9" * 6000, "it holds an integer of thousands of digits"),
        ("responses", "answer", b"\x00", "answer is b'"),
        ("responses", "prompt_tokens", "many", "prompt_tokens is 'many'"),
        ("responses", "answer_span", "[" * 5000, "it is nested more than 100 levels deep"),
        ("about", "value", "[" * 5000, "it is nested more than 100 levels deep"),
    ],
)
def test_a_value_that_no_recording_wrote_is_named(
    tmp_path: Path, table: str, column: str, value: Any, says: str
) -> None:
    path = filled(tmp_path / "p.sqlite", 1)
    with sqlite3.connect(path) as sql:
        sql.execute("INSERT OR IGNORE INTO about VALUES ('name', 'null')")
        sql.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(PoolError, match="the file is damaged") as raised:
        read_pool(path)
    assert says in str(raised.value)


@pytest.mark.parametrize(("column", "value"), [("usage", "[1]"), ("token_lengths", '"abc"'), ("beside", "[" * 5000)])
def test_so_is_what_is_kept_of_a_message(tmp_path: Path, column: str, value: str) -> None:
    path = filled(tmp_path / "p.sqlite", 1)
    with sqlite3.connect(path) as sql:
        sql.execute(f"UPDATE messages SET {column} = ?", (value,))
    pool = read_pool(path)
    with pytest.raises(PoolError, match="the file is damaged"):
        pool.texts("q0")
