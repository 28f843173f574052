"""Out of a pool and back: exactly the same, whatever it holds, in every format."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import record_pool

from lab.pools.synthetic import Guesser, question, response, write_lines, write_pool
from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.data import LabelledQuestion

pytest.importorskip("pyarrow")
TABLES = ("about", "questions", "responses", "messages", "signals")
FORMATS = pytest.mark.parametrize("name", ["p.parquet", "folder", "p.jsonl"])


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
    return write_lines(
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


@FORMATS
def test_out_and_back(pool: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_reasc_lab.pools.parquet._IN_A_FILE", 2)
    exported, again = tmp_path / name, tmp_path / "again.sqlite"
    assert f"wrote {exported}" in reasc("pool", "export", pool, exported).stderr
    assert f"wrote {again}" in reasc("pool", "import", exported, again).stderr
    assert tables(again) == tables(pool)
    if name == "p.jsonl":
        assert json.loads(exported.read_text().splitlines()[0])["metadata"]
    if name == "folder":
        (exported / "responses-00001.parquet").unlink()
        refused = reasc("pool", "import", exported, tmp_path / "c.sqlite", code=1)
        assert "some of its files are missing" in refused.stderr and not (tmp_path / "c.sqlite").exists()


def test_parquet_has_a_row_for_each_response(tmp_path: Path) -> None:
    from pyarrow import parquet

    reasc("pool", "export", write_pool(tmp_path / "p.sqlite", questions=4, samples=3), tmp_path / "p.parquet")
    rows = parquet.read_table(tmp_path / "p.parquet").to_pylist()
    assert [row["number"] for row in rows] == [0, 1, 2] * 4
    assert all(len(row["signal.self_certainty"]) == row["completion_tokens"] for row in rows)


@FORMATS
def test_nothing_is_written_over_and_what_is_damaged_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    pool, out = write_pool(tmp_path / "pool.sqlite", questions=2, samples=2), tmp_path / name
    out.mkdir()
    assert "there is something at" in reasc("pool", "export", pool, out, code=1).stderr
    out.rmdir()
    connection = sqlite3.connect(pool)
    connection.execute("UPDATE signals SET tokens = x'00000000' WHERE question = 2")
    connection.commit()
    connection.close()
    before = set(tmp_path.iterdir())
    refused = reasc("pool", "export", pool, out, code=1).stderr
    assert "signal 'self_certainty' of question 'q1' has 1 values for" in refused
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
        "empty": "holds no .parquet file",
    }.items():
        assert says in reasc("pool", "import", tmp_path / name, tmp_path / "p.sqlite", code=1).stderr
    assert not (tmp_path / "p.sqlite").exists()


@pytest.mark.slow  # its import alone takes seconds
def test_datasets_load_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets")
    reasc("pool", "export", write_pool(tmp_path / "p.sqlite", questions=4, samples=3), tmp_path / "folder")
    loaded = datasets.load_dataset(str(tmp_path / "folder"), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(loaded) == 12 and loaded[0]["id"] == "q0" and loaded[0]["signal.token_logprob"]
