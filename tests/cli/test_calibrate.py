"""reasc calibrate: what it makes of a pool or of questions, what it says of it, and what it refuses."""

import json
from pathlib import Path

import pytest
from pools.synthetic import question, response, write_lines, write_pool

from cli.interrupted import interrupted
from cli.test_commands import reasc
from langchain_reasc.calibration import load_calibration

MODEL = ("--model-class", "characterization.guesser.Guesser")


def test_a_wrong_extractor_or_label_is_seen_beside_the_answers(tmp_path: Path) -> None:
    lines = [question(f"q{at}", response("4", text="so 4", score=float(at))) for at in range(6)]
    measure = {"signal": "top_k", "score": "mean", "window": 128}
    path = write_lines(tmp_path / "p.sqlite", {"metadata": {"measure": measure}}, *lines)
    arguments = ("calibrate", "--pool", path, "--out", tmp_path / "new" / "c.json", "--signal")
    shown = reasc(*arguments, "recorded")
    assert "none of the 6 first responses is right" in shown.stderr
    assert shown.stderr.count("label '7', answer '4', in a response that ends 'so 4'") == 3
    assert "Gate         closed" in shown.stdout
    assert "answer '4'" in reasc(*arguments, "auto", code=1).stderr


def test_it_from_a_pool(tmp_path: Path) -> None:
    path, out = write_pool(tmp_path / "p.sqlite", questions=80, samples=4, separation=1.5), tmp_path / "c.json"
    done = reasc("calibrate", "--pool", path, "--out", out, "--limit", 60)
    shown, made = " ".join(done.stdout.split()), load_calibration(out)
    assert "60 of 80 questions are taken at random (--seed 0)" in done.stderr
    assert made.n == 60 and made.rejected and made.within is not None
    assert "AUROC" in shown and "within a question" in shown, "the pool has several responses"
    assert made.by_agreement() and "sampling stops as soon as the answer is unlikely to change" in shown
    assert "agreement is not correctness" in shown
    told = made.p_correct
    assert told is not None and (told.rule, told.n) == (made.rule().name, 60)
    assert told.probability(0.5) < told.right < told.probability(0.9)
    assert "P(correct)" in shown and "by labels of 60 questions" in shown
    one = write_pool(tmp_path / "one.sqlite", 40, samples=1)
    reasc("calibrate", "--pool", one, "--out", out, "--signal", "token_logprob", "--score", "mean")
    assert str(load_calibration(out).measure) == "token_logprob/mean" and load_calibration(out).p_correct is None


def test_a_sorted_pool_is_sampled_and_its_order_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        question(f"q{at}", response(right, score=float(at % 7), correct=right == "7")) | {"reference": "7"}
        for at, right in enumerate(["7"] * 100 + ["4"] * 100)
    ]
    measure = {"signal": "top_k", "score": "mean", "window": 128}
    path, out = write_lines(tmp_path / "p.sqlite", {"metadata": {"measure": measure}}, *lines), tmp_path / "c.json"
    given = ("calibrate", "--pool", path, "--out", out, "--signal", "recorded", "--limit")
    reasc(*given, 100)
    assert load_calibration(out).accuracy == pytest.approx(0.5, abs=0.15), "the first 100 are all right"
    assert not caplog.messages
    reasc(*given, 200)
    assert caplog.messages[0].startswith("the questions come easy ones first")


def test_it_refuses_scores_of_unknown_making(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=20, signals=False, scores=True)
    result = reasc("calibrate", "--pool", path, "--signal", "recorded", "--out", tmp_path / "c.json", code=1)
    assert "does not say how its scores were made" in result.stderr
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(
    "given",
    [
        ("q.jsonl", "--pool", "p.sqlite"),
        ("--unlabelled", "q.txt", "q.jsonl"),
        ("--pool", "p.sqlite", "--format", "gsm8k"),
    ],
)
def test_it_takes_questions_or_a_pool_but_not_both(given: tuple[str, ...]) -> None:
    said = " ".join(reasc("calibrate", *given, code=2).stderr.replace("│", "").split())
    assert "--preset and --format" in said if len(given) == 4 and given[0] == "--pool" else "give either DATA" in said


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


def test_recorded_scores_come_from_a_pool(tmp_path: Path) -> None:
    recorded = reasc("calibrate", "--unlabelled", unlabelled(tmp_path), "--signal", "recorded", code=1)
    assert "--signal recorded goes with --pool" in recorded.stderr


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
