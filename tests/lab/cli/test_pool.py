"""`reasc pool`: what it shows, what it makes of pools, and the calibrations that it makes of them."""

import json
from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import PoolQuestion, PoolResponse, PoolStore, record_pool

from lab.pools.synthetic import Guesser, labelled, question, response, write_lines, write_pool
from langchain_reasc.calibration import load_calibration

QUESTIONS = labelled(4)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    record_pool(Guesser(), QUESTIONS, tmp_path / "pool.sqlite", samples=3)
    return tmp_path / "pool.sqlite"


def test_show_counts_tokens(pool: Path) -> None:
    tokens = json.loads(reasc("pool", "show", pool, "--json").stdout)["tokens"]
    assert (tokens["responses"], tokens["prompt"], tokens["without_usage"]) == (12, 48, 0)


def test_show_what_others_made(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "other.jsonl",
        {"id": "a", "reference": None, "responses": [response("5"), response(None, cut_off=True)]},
        {"id": "b", "reference": None, "responses": [response("6", 0)]},
    )
    shown = reasc("pool", "show", path).stdout
    assert "Questions  2, with 1 to 2 responses each" in shown
    assert "Answers    not graded, 1 without one, 1 cut off" in shown
    assert "3 responses came without usage" in shown and "Model" not in shown
    signalled = write_pool(tmp_path / "signalled.sqlite", questions=2, samples=2)
    unsignalled = PoolQuestion("x", ("7",), (PoolResponse("7", 1), PoolResponse("7", 1)))
    PoolStore.open(signalled).add_question(unsignalled)
    assert "2 responses have none" in reasc("pool", "show", signalled).stdout


def test_a_pool_goes_on_recording_after_it_is_imported(tmp_path: Path) -> None:
    record_pool(Guesser(), QUESTIONS[:2], tmp_path / "new.sqlite", samples=1)
    reasc("pool", "export", tmp_path / "new.sqlite", tmp_path / "old.jsonl")
    for command in (("show",), ("export", "a.jsonl")):
        refused = reasc("pool", command[0], tmp_path / "old.jsonl", *command[1:], code=1).stderr
        assert "`reasc pool import" in refused and len(refused.splitlines()) == 1
    reasc("pool", "import", tmp_path / "old.jsonl", tmp_path / "again.sqlite")
    assert len(record_pool(Guesser(), QUESTIONS, tmp_path / "again.sqlite", samples=1).questions) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("show", "none.sqlite"), 1, "no pool at none.sqlite"),
        (("export", "none.sqlite", "out.xlsx"), 2, "name a .jsonl file"),
        (("import", "a.jsonl", "out.jsonl"), 2, "name it .sqlite"),
        (("import", "none.jsonl", "out.sqlite"), 1, "no pool at none.jsonl"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = " ".join(reasc("pool", *arguments, code=code).stderr.replace("│", " ").split())
    assert says in said
    assert not list(tmp_path.iterdir())


def test_an_empty_pool(tmp_path: Path) -> None:
    (tmp_path / "empty.sqlite").touch()
    assert "holds no question" in reasc("pool", "show", tmp_path / "empty.sqlite", code=1).stderr


def test_calibrate_shows_a_wrong_extractor_or_label_beside_the_answers(tmp_path: Path) -> None:
    lines = [question(f"q{at}", response("4", text="so 4", score=float(at))) for at in range(6)]
    measure = {"signal": "top_k", "score": "mean", "window": 128}
    path = write_lines(tmp_path / "p.sqlite", {"metadata": {"measure": measure}}, *lines)
    arguments = ("pool", "calibrate", path, "--out", tmp_path / "new" / "c.json", "--signal")
    shown = reasc(*arguments, "recorded")
    assert "6 first responses" in shown.stderr
    assert shown.stderr.count("label '7', answer '4'") == 3
    assert "Gate         closed" in shown.stdout
    twice = [question(f"q{at}", *[response("4", text="so 4")] * 2) for at in range(6)]
    path = write_lines(tmp_path / "twice.sqlite", *twice)
    assert "answer '4'" in reasc("pool", "calibrate", path, "--out", tmp_path / "c.json").stderr


@pytest.mark.full
def test_calibrate(tmp_path: Path) -> None:
    path, out = write_pool(tmp_path / "p.sqlite", questions=80, samples=4, separation=1.5), tmp_path / "c.json"
    done = reasc("pool", "calibrate", path, "--out", out, "--limit", 60)
    shown, made = " ".join(done.stdout.split()), load_calibration(out)
    assert "60 of 80 questions" in done.stderr
    assert (made.n, str(made.measure), made.by_agreement) == (60, "token_logprob/mean", True)
    assert "sampling stops" in shown and "AUROC" not in shown and "if it scores" in shown
    told = made.p_correct
    assert told is not None and (told.rule, told.n) == (made.rule().name, 60)
    assert told.probability(0.2) < told.right < told.probability(0.9)
    assert "P(correct)" in shown and "60 questions" in shown
    shown = " ".join(reasc("pool", "calibrate", path, "--out", out, "--limit", 60, "--method", "paper").stdout.split())
    papers = load_calibration(out)
    assert papers.n == 60 and papers.rejected and papers.within is not None and not papers.by_agreement
    assert "AUROC" in shown and "within a question" in shown, "the pool has several responses"
    one = write_pool(tmp_path / "one.sqlite", 40, samples=1)
    reasc("pool", "calibrate", one, "--out", out, "--signal", "token_logprob", "--score", "mean")
    assert str(load_calibration(out).measure) == "token_logprob/mean" and load_calibration(out).p_correct is None


def test_calibrate_samples_a_sorted_pool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        question(f"q{at}", response(right, score=float(at % 7), correct=right == "7")) | {"reference": "7"}
        for at, right in enumerate(["7"] * 100 + ["4"] * 100)
    ]
    measure = {"signal": "top_k", "score": "mean", "window": 128}
    path, out = write_lines(tmp_path / "p.sqlite", {"metadata": {"measure": measure}}, *lines), tmp_path / "c.json"
    given = ("pool", "calibrate", path, "--out", out, "--signal", "recorded", "--limit")
    reasc(*given, 100)
    assert load_calibration(out).accuracy == pytest.approx(0.5, abs=0.15), "the first 100 are all right"
    assert not caplog.messages
    reasc(*given, 200)
    assert "easy ones first" in caplog.messages[0]


def test_scores_of_unknown_making_are_not_calibrated_on(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=20, signals=False, scores=True)
    result = reasc("pool", "calibrate", path, "--signal", "recorded", "--out", tmp_path / "c.json", code=1)
    assert "does not say how its scores were made" in result.stderr
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize("scores", [False, True])
def test_a_pool_without_signals_is_calibrated_by_how_answers_agree(tmp_path: Path, scores: bool) -> None:
    path = write_pool(tmp_path / "pool.sqlite", 40, 6, signals=False, scores=scores)
    told = reasc("pool", "calibrate", path, "--out", tmp_path / "c.json").stderr
    calibration = load_calibration(tmp_path / "c.json")
    assert calibration.method == "consensus" and calibration.measure is None and calibration.by_agreement
    assert calibration.p_correct is not None and calibration.expected is not None
    assert f"{path} has no token signals" in told and ("--signal recorded" in told) is scores
    refused = reasc("pool", "calibrate", path, "--signal", "top_k", "--out", tmp_path / "d.json", code=1).stderr
    assert "'top_k'" in refused and not (tmp_path / "d.json").exists()
