"""reasc calibrate: what it makes of a pool, what it says of it, and what it refuses."""

from pathlib import Path

import pytest
from pools.synthetic import question, response, write_lines, write_pool
from runnable.fakes import calibration, saying

from cli.test_commands import reasc
from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import SupportCurve, load_calibration


def test_a_wrong_extractor_or_label_is_seen_beside_the_answers(tmp_path: Path) -> None:
    lines = [question(f"q{at}", response("4", text="so 4", score=float(at))) for at in range(6)]
    measure = {"signal": "top_k", "score": "mean", "window": 128}
    path = write_lines(tmp_path / "p.jsonl", {"metadata": {"measure": measure}}, *lines)
    arguments = ("calibrate", "--pool", path, "--out", tmp_path / "new" / "c.json", "--signal")
    shown = reasc(*arguments, "recorded")
    assert "none of the 6 first responses is right" in shown.stderr
    assert shown.stderr.count("label '7', answer '4', in a response that ends 'so 4'") == 3
    assert "Gate         closed" in shown.stdout
    assert "answer '4'" in reasc(*arguments, "auto", code=1).stderr


def test_it_from_a_pool(tmp_path: Path) -> None:
    path, out = write_pool(tmp_path / "p.jsonl", questions=80), tmp_path / "c.json"
    shown = reasc("calibrate", "--pool", path, "--out", out, "--limit", 60)
    calibration = load_calibration(out)
    assert calibration.n == 60
    assert calibration.rejected
    assert "AUROC" in shown.stdout
    assert calibration.within is not None and "within a question" in shown.stdout, "the pool has several responses"
    assert f"accepts a first response scoring {calibration.gate.safe_threshold:.4g}" in shown.stdout
    assert (
        f"of the {calibration.gate.accepted} highest, {calibration.gate.lower_bound:.1%} or more are right, 95 % sure"
        in shown.stdout
    )
    reasc("calibrate", "--pool", path, "--out", out, "--signal", "token_logprob", "--score", "mean")
    assert str(load_calibration(out).measure) == "token_logprob/mean"


def test_several_responses_per_question_tell_how_likely_an_answer_is_right(tmp_path: Path) -> None:
    path, out = write_pool(tmp_path / "p.jsonl", questions=80), tmp_path / "c.json"
    shown = reasc("calibrate", "--pool", path, "--out", out)
    told = load_calibration(out).p_correct
    assert told is not None
    assert (told.rule, told.n) == (load_calibration(out).rule().name, 80)
    assert told.probability(0.5) < told.right < told.probability(0.9)
    assert "P(correct)" in shown.stdout and "by labels of 80 questions" in shown.stdout
    reasc("calibrate", "--pool", write_pool(tmp_path / "one.jsonl", 80, samples=1), "--out", out)
    assert load_calibration(out).p_correct is None


@pytest.mark.parametrize(("name", "promise"), [("p_correct", "is right"), ("p_agree", "agrees with further responses")])
def test_ask_says_how_likely_an_answer_is_right(name: str, promise: str) -> None:
    known = SupportCurve(points=((0.5, 0.25),), n=64, right=0.5)
    told = ReASCRunnable(model=saying("1"), calibration=calibration(**{name: known}, weight="count")).solve("q")
    assert told.summary().endswith(f"; the answer {promise} with a probability of 0.25")
    assert "probability" not in ReASCRunnable(model=saying("1")).solve("q").summary()


def test_it_refuses_scores_of_unknown_making(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=20, signals=False, scores=True)
    result = reasc("calibrate", "--pool", path, "--signal", "recorded", "--out", tmp_path / "c.json", code=1)
    assert "does not say how its scores were made" in result.stderr
    assert not (tmp_path / "c.json").exists()


def test_it_takes_data_or_a_pool_but_not_both(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", question("a", response("7")))
    reasc("calibrate", path, "--pool", path, code=2)
