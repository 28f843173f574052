"""``reasc calibrate --unlabelled`` on the model that comes with the package."""

import json
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import embedded_model_path

from cli.test_commands import reasc
from langchain_reasc.calibration import load_calibration
from langchain_reasc.cli.unlabelled import explained_consensus

QUESTIONS = embedded_model_path().with_name("calibration.jsonl")
pytestmark = pytest.mark.skipif(not QUESTIONS.exists(), reason="the shipped model is not built yet")


def test_questions_in_a_text_are_calibrated_on_and_the_file_can_be_used(tmp_path: Path) -> None:
    asked = [json.loads(line)["question"] for line in QUESTIONS.read_text(encoding="utf-8").splitlines()[:40]]
    data, out = tmp_path / "questions.txt", tmp_path / "new" / "calibration.json"
    data.write_text("\n".join(asked) + "\n", encoding="utf-8")
    shown = reasc("calibrate", "--unlabelled", data, "--out", out, "--limit", 36)
    made = load_calibration(out)
    assert (made.method, made.n) == ("consensus", 36)
    assert shown.stdout == "".join(f"{line}\n" for line in explained_consensus(made, asked=36, known=0))
    assert "Questions    36, with no right answer\n" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    assert f"wrote {out}" in shown.stderr
    assert reasc("ask", asked[-1], "--calibration", out, "--seed", 1).stdout.strip()
    assert "fixed" in reasc("ask", asked[-1], "--calibration", out, "--system", "Think.", code=1).stderr


def test_it_says_what_was_known_and_what_was_left_out() -> None:
    made = load_calibration(embedded_model_path().with_name("calibration.json"))
    [first, *_] = explained_consensus(made, asked=made.n + 2, known=5)
    assert first == f"Questions    {made.n}, with the right answers to 5 of them; 2 were left out"


@pytest.mark.parametrize("more", [("data.jsonl",), ("--pool", "pool.jsonl")])
def test_it_goes_with_no_other_questions(tmp_path: Path, more: tuple[str, ...]) -> None:
    assert "--unlabelled" in reasc("calibrate", "--unlabelled", tmp_path / "q.txt", *more, code=2).stderr


def test_what_cannot_be_read_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    missing = reasc("calibrate", "--unlabelled", tmp_path / "q.txt", code=1)
    assert "there is no such file" in missing.stderr
    (tmp_path / "q.txt").write_text("why?\n", encoding="utf-8")
    recorded = reasc("calibrate", "--unlabelled", tmp_path / "q.txt", "--signal", "recorded", code=1)
    assert "--signal recorded goes with --pool" in recorded.stderr
