"""reasc calibrate: what it makes of questions, what it says of the result, and what it refuses."""

from pathlib import Path

import pytest
from lab.pools.synthetic import write_lines

from cli.interrupted import interrupted
from cli.test_commands import reasc
from langchain_reasc.calibration import ObservationStore, load_calibration
from langchain_reasc.exceptions import CalibrationFileError

MODEL = ("--model-class", "characterization.guesser.Guesser")


@pytest.mark.full  # computes for long
def test_a_wrong_extractor_or_label_is_told(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "q.jsonl", *({"question": f"What is {at}?", "answer": "never"} for at in range(6)))
    shown = reasc("calibrate", data, "--out", tmp_path / "new" / "c.json", *MODEL)
    said = " ".join(shown.stdout.split())
    assert said.startswith("This calibration is of little use: none of the 6 first responses is right. Next: say where")
    assert "(--answer)" in said and "(--answer-field)" in said
    assert load_calibration(tmp_path / "new" / "c.json").accuracy == 0


def test_it_takes_questions_and_no_pool() -> None:
    assert "reasc pool calibrate p.sqlite" in reasc("calibrate", "p.sqlite", code=1).stderr


def unlabelled(folder: Path, count: int = 24) -> Path:
    path = folder / "questions.txt"
    path.write_text("".join(f"What is {at}?\n" for at in range(count)), encoding="utf-8")
    return path


@pytest.mark.full  # computes for long
def test_questions_without_labels_are_calibrated_on_and_the_file_can_be_used(tmp_path: Path) -> None:
    labels = [{"question": f"What is {at}?", "answer": "7" if at < 5 else ""} for at in range(26)]
    data, out = write_lines(tmp_path / "q.jsonl", *labels), tmp_path / "new" / "calibration.json"
    shown = reasc("calibrate", data, "--unlabelled", "--answer-field", "answer", "--out", out, "--limit", 24, *MODEL)
    made = load_calibration(out)
    assert (made.method, made.n) == ("consensus", 24)
    sentence, more, advice, empty, first = shown.stdout.splitlines()[:5]
    assert sentence.startswith("Expect about ") and "without" in sentence and more.startswith("this calibration it ")
    assert (advice, empty) == (f"Next: reasc ask --calibration {out}", "")
    assert first == "Questions    24, with no right answer"
    assert f"wrote {out}" in shown.stderr and all(
        len(line) <= 80 for line in shown.stdout.splitlines() if line != advice
    )
    assert reasc("ask", "What is 3?", "--calibration", out, "--seed", 1, *MODEL).stdout == "7\n"
    assert "fixed" in reasc("ask", "What is 3?", "--calibration", out, "--system", "Think.", *MODEL, code=1).stderr


@pytest.mark.full
def test_ctrl_c_keeps_what_was_paid_for_and_inspect_reads_it(tmp_path: Path) -> None:
    questions, out, rows = unlabelled(tmp_path), tmp_path / "c.json", tmp_path / "c.rows.sqlite"

    def learned() -> int:
        try:
            return len(ObservationStore.open(rows).rows([]))
        except CalibrationFileError:
            return 0

    scripted = ("--model-class", "cli.chat_models.Scripted", "--model-kwargs")
    command = ("calibrate", questions, "--concurrency", 1, "--out", out, *scripted)
    said = interrupted(*command, "seconds=0.02", begun=lambda: learned() >= 2)
    assert f"is in {rows}" in " ".join(said.split()) and not out.exists()
    assert 2 <= learned() < 24 and b"What is" not in rows.read_bytes()
    reasc(*command, "seconds=0")
    assert load_calibration(out).n == learned() == 24
    assert "24 questions; 24 kept" in reasc("inspect", rows).stdout
