"""The study of three difficulties: its problems are new, and its table has every method on every pool."""

import json
from pathlib import Path

import pytest
from lab.pools.synthetic import write_pool
from langchain_reasc_llama_cpp import embedded_model_path

from benchmarks.difficulty import DIFFICULTIES, main, recorded, word_problems


def test_problems_are_new_all_different_and_the_same_again() -> None:
    shipped = [embedded_model_path().with_name(f"{name}.jsonl") for name in ("calibration", "test")]
    known = {json.loads(line)["question"] for path in shipped for line in path.read_text("utf-8").splitlines()}
    made = {name: word_problems(name, 60) for name in DIFFICULTIES}
    asked = [question.input for questions in made.values() for question in questions]
    assert len({*asked}) == len(asked) == 180 and not known & {*asked}
    assert word_problems("easy", 20) == made["easy"][:20]
    assert word_problems("easy", 20, seed=1) != made["easy"][:20]
    lengths = [sum(len(one.input) for one in made[name]) for name in ("easy", "medium", "hard")]
    assert lengths == sorted(lengths)


def test_the_shipped_model_is_recorded_once(tmp_path: Path) -> None:
    pool = recorded("easy", 3, tmp_path, samples=2)
    assert [len(question.responses) for question in pool.questions] == [2, 2, 2]
    assert [question.input for question in pool.questions] == [one.input for one in word_problems("easy", 3)]
    assert pool.signals is not None
    before = (tmp_path / "easy-0.sqlite").read_bytes()
    assert recorded("easy", 2, tmp_path, samples=2).questions == pool.questions[:2]
    assert (tmp_path / "easy-0.sqlite").read_bytes() == before


@pytest.mark.slow  # replays two pools by every method
def test_the_table_has_every_method_on_every_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scored = write_pool(tmp_path / "scored.sqlite", questions=60, samples=6)
    plain = write_pool(tmp_path / "plain.sqlite", questions=60, samples=6, signals=False)
    assert main([str(scored), str(plain), "--calibration", "20", "--shuffles", "1"]) == 0
    told = capsys.readouterr().out
    assert f"{scored}: 60 questions; pass@1 " in told
    head, _, *rows = told.split("\n\n")[1].splitlines()
    assert head == f"| method | {scored}: tokens ÷ ASC | Δ, points | {plain}: tokens ÷ ASC | Δ, points |"
    cells = {name: row for name, *row in (line.strip("| ").split(" | ") for line in rows)}
    assert cells["ASC"] == ["1.00", "+0.0 [+0.0, +0.0]"] * 2
    assert cells["ReASC (offline)"][2:] == ["-", "-"]  # without scores none calibrates
    for pool in (0, 2):
        assert float(cells["Lead of 2"][pool]) < float(cells["Lead of 3"][pool])
