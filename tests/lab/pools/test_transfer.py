"""Out of a pool and back: exactly the same, whatever it holds."""

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


def test_out_and_back(pool: Path, tmp_path: Path) -> None:
    exported, again = tmp_path / "p.jsonl", tmp_path / "again.sqlite"
    assert f"wrote {exported}" in reasc("pool", "export", pool, exported).stderr
    assert f"wrote {again}" in reasc("pool", "import", exported, again).stderr
    assert tables(again) == tables(pool)
    assert json.loads(exported.read_text().splitlines()[0])["metadata"]


def test_nothing_is_written_over_and_what_is_damaged_leaves_nothing_behind(tmp_path: Path) -> None:
    pool, out = write_pool(tmp_path / "pool.sqlite", questions=2, samples=2), tmp_path / "p.jsonl"
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
