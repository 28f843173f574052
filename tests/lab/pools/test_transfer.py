"""Out of a pool and back: exactly the same, whatever it holds."""

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools.json_lines import read_json_lines, write_json_lines
from langchain_reasc_lab.pools.merging import new_pool
from langchain_reasc_lab.pools.parquet import read_parquet, write_folder, write_parquet
from pools.synthetic import Guesser, question, response, write_lines, write_pool

from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, PoolError
from langchain_reasc.pools import PoolStore, record_pool

pytest.importorskip("pyarrow")
TABLES = ("about", "questions", "responses", "messages", "signals")


def tables(path: Path) -> dict[str, list[Any]]:
    """All that is in a pool, times included, to the last bit."""
    connection = sqlite3.connect(path)
    try:
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in TABLES}
    finally:
        connection.close()


@pytest.fixture(params=["recorded", "odd"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "pool.sqlite"
    if request.param == "recorded":
        questions = [LabelledQuestion(f"q{at}", f"question {at}", "6", ("six", "VI")) for at in range(5)]
        record_pool(Guesser(), questions, path, samples=3)
        return path
    call = {"name": "refund", "args": {"euros": 5}, "id": "1", "type": "tool_call"}
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11, "output_token_details": {"reasoning": 1}}
    lines = write_lines(
        path,
        {"metadata": {"by": "Zoë ½ 😀", "extraction_version": EXTRACTION_VERSION, "answer": "auto", "nothing": None}},
        question("half an answer", response(None, 0, cut_off=True, finish_reason="length"), reference="7"),
        {
            "id": "a list is asked",
            "input": [{"role": "user", "content": "What?\n\u2028"}],
            "reference": ["7", "sieben"],
            "responses": [
                response('refund({"euros": 5})', 12, text="", message={"tool_calls": [call]}, usage=usage),
                response("7", 3, score=0.1 + 0.2, seconds=1e-9, correct=False, answer_span=[1, 2], last_step=[0, 1]),
            ],
        },
        {"id": "nobody knows", "reference": None, "responses": [response("8", correct=True, token_lengths=[1, 2])]},
        {"id": "without anything", "input": None, "reference": [], "responses": [response("", 10)]},
    )
    return lines


def test_parquet_and_back(pool: Path, tmp_path: Path) -> None:
    write_parquet(PoolStore.open(pool), tmp_path / "p.parquet")
    with new_pool(tmp_path / "again.sqlite") as made:
        read_parquet(tmp_path / "p.parquet", made)
    assert tables(tmp_path / "again.sqlite") == tables(pool)


def test_a_folder_and_back(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_reasc_lab.pools.parquet._IN_A_FILE", 2)
    files = write_folder(PoolStore.open(pool), tmp_path / "folder")
    assert files == len(list((tmp_path / "folder").iterdir())) >= 2
    with new_pool(tmp_path / "again.sqlite") as made:
        read_parquet(tmp_path / "folder", made)
    assert tables(tmp_path / "again.sqlite") == tables(pool)
    (tmp_path / "folder" / "responses-00001.parquet").unlink()
    with pytest.raises(PoolError, match="some of its files are missing"), new_pool(tmp_path / "c.sqlite") as made:
        read_parquet(tmp_path / "folder", made)
    assert not (tmp_path / "c.sqlite").exists()


def test_json_lines_and_back(pool: Path, tmp_path: Path) -> None:
    files = write_json_lines(PoolStore.open(pool), tmp_path / "p.jsonl")
    with new_pool(tmp_path / "again.sqlite") as made:
        read_json_lines(tmp_path / "p.jsonl", made)
    assert tables(tmp_path / "again.sqlite") == tables(pool)
    assert sorted(files) == sorted(path for path in tmp_path.iterdir() if path.name.startswith("p."))
    assert json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])["metadata"]


def test_pandas_sees_a_row_for_each_response(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = write_pool(tmp_path / "old.sqlite", questions=4, samples=3)
    write_parquet(PoolStore.open(path), tmp_path / "p.parquet")
    frame = pandas.read_parquet(tmp_path / "p.parquet")
    assert len(frame) == 12 and list(frame["number"][:4]) == [0, 1, 2, 0]
    assert (frame["signal.self_certainty"].map(len) == frame["completion_tokens"]).all()


@pytest.mark.slow  # its import alone takes seconds
def test_datasets_load_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets")
    path = write_pool(tmp_path / "old.sqlite", questions=4, samples=3)
    write_folder(PoolStore.open(path), tmp_path / "folder")
    loaded = datasets.load_dataset(str(tmp_path / "folder"), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(loaded) == 12 and loaded[0]["id"] == "q0" and loaded[0]["signal.token_logprob"]


@pytest.mark.parametrize("write", [write_parquet, write_folder, write_json_lines])
def test_nothing_is_written_over(write: Any, tmp_path: Path) -> None:
    store = PoolStore.open(write_pool(tmp_path / "old.sqlite", questions=2, samples=1))
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigurationError, match="there is something at"):
        write(store, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"old.sqlite", "old.signals.gz", "out"}


@pytest.mark.parametrize("write", [write_parquet, write_folder, write_json_lines])
def test_what_is_damaged_leaves_nothing_behind(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "pool.sqlite"
    write_pool(path, questions=2, samples=2)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE signals SET tokens = x'00000000' WHERE question = 2")
    connection.commit()
    connection.close()
    before = set(tmp_path.iterdir())
    with pytest.raises(PoolError, match="signal 'self_certainty' of question 'q1' has 1 values for"):
        write(PoolStore.open(path), tmp_path / "out.jsonl")
    assert set(tmp_path.iterdir()) == before


def test_what_is_no_pool(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "empty").mkdir()
    for name, says in {
        "other.parquet": "was not written by `reasc pool export`",
        "damaged.parquet": "cannot be read as a pool",
        "missing.parquet": "cannot be read as a pool",
        "empty": "holds no .parquet file",
    }.items():
        with pytest.raises(PoolError, match=says), new_pool(tmp_path / "p.sqlite") as made:
            read_parquet(tmp_path / name, made)
    assert not (tmp_path / "p.sqlite").exists()


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PoolStore.open(write_pool(tmp_path / "old.sqlite", questions=2, samples=1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (write_parquet, write_folder):
        with pytest.raises(MissingExtraError, match=r'pip install "\.\[data\]"'):
            call(store, tmp_path / "out.parquet")
    with pytest.raises(MissingExtraError):
        read_parquet(tmp_path / "p.parquet", store)
