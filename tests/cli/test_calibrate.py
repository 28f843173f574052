"""reasc calibrate: what it makes of questions, what it says of the result, and what it refuses."""

import json
from pathlib import Path

from lab.pools.synthetic import write_lines

from cli.interrupted import interrupted
from cli.test_commands import reasc
from langchain_reasc.calibration import load_calibration

MODEL = ("--model-class", "characterization.guesser.Guesser")


def test_a_wrong_extractor_or_label_is_told(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "q.jsonl", *({"question": f"What is {at}?", "answer": "never"} for at in range(6)))
    shown = reasc("calibrate", data, "--out", tmp_path / "new" / "c.json", *MODEL)
    assert "none of the 6 first responses is right" in shown.stderr and "--answer-field" in shown.stderr
    assert load_calibration(tmp_path / "new" / "c.json").accuracy == 0


def test_it_takes_questions_of_one_kind_and_no_pool() -> None:
    said = reasc("calibrate", "--unlabelled", "q.txt", "q.jsonl", code=2).stderr
    assert "give either DATA" in " ".join(said.replace("│", "").split())
    assert "reasc pool calibrate p.sqlite" in reasc("calibrate", "p.sqlite", code=1).stderr


def unlabelled(folder: Path, count: int = 24) -> Path:
    path = folder / "questions.txt"
    path.write_text("".join(f"What is {at}?\n" for at in range(count)), encoding="utf-8")
    return path


def test_questions_without_labels_are_calibrated_on_and_the_file_can_be_used(tmp_path: Path) -> None:
    labels = [{"question": f"What is {at}?", "answer": "7" if at < 5 else ""} for at in range(26)]
    data, out = write_lines(tmp_path / "q.jsonl", *labels), tmp_path / "new" / "calibration.json"
    shown = reasc("calibrate", "--unlabelled", data, "--answer-field", "answer", "--out", out, "--limit", 24, *MODEL)
    made = load_calibration(out)
    assert (made.method, made.n) == ("consensus", 24)
    assert shown.stdout.startswith("Questions    24, with the right answers to 4 of them\n")
    assert f"wrote {out}" in shown.stderr and all(len(line) <= 80 for line in shown.stdout.splitlines())
    assert reasc("ask", "What is 3?", "--calibration", out, "--seed", 1, *MODEL).stdout == "7\n"
    assert "fixed" in reasc("ask", "What is 3?", "--calibration", out, "--system", "Think.", *MODEL, code=1).stderr


def test_ctrl_c_without_labels_keeps_what_was_learned(tmp_path: Path) -> None:
    questions, out, unfinished = unlabelled(tmp_path), tmp_path / "c.json", tmp_path / "c.json.unfinished"

    def learned() -> int:
        return len(unfinished.read_text(encoding="utf-8").splitlines()) if unfinished.exists() else 0

    scripted = ("--model-class", "cli.chat_models.Scripted", "--model-kwargs")
    command = ("calibrate", "--unlabelled", questions, "--concurrency", 1, "--out", out, *scripted)
    said = interrupted(*command, "seconds=0.02", begun=lambda: learned() >= 2)
    assert f"is in {unfinished}" in " ".join(said.split()) and not out.exists()
    half = unfinished.read_text(encoding="utf-8")
    assert "What is" not in half
    unfinished.write_text(half + json.dumps({"key": "half a line"})[:-4], encoding="utf-8")  # as a crash may leave it
    reasc(*command, "seconds=0")
    assert not unfinished.exists() and load_calibration(out).n == 24
