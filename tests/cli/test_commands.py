"""The commands in this process: what they print, and with which code they end."""

import json
from pathlib import Path

import pytest
from evaluation.pools import question, response, write_lines, write_pool
from typer.testing import CliRunner, Result

from langchain_reasc.calibration import load_calibration
from langchain_reasc.cli import app


def reasc(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="reasc")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)  # no traceback
    return result


def test_help_teaches_with_examples() -> None:
    assert "reasc calibrate data.jsonl --model my.gguf" in reasc("--help").stdout
    for command in ("demo", "ask", "calibrate", "record", "replay"):
        shown = reasc(command, "--help").stdout
        assert "Examples" in shown
        assert f"reasc {command} " in shown


def test_version() -> None:
    assert reasc("--version").stdout.startswith("reasc 0.")


def test_replay_prints_a_table(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=30, signals=False)
    shown = reasc("replay", path)
    for name in ("pass@1", "SC@16", "ESC (w=4)", "ASC", "no scores or token signals"):
        assert name in shown.stdout


def test_replay_prints_data(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=60)
    arguments = ("replay", path, "--json", "--calibration-size", 40, "--shuffles", 2, "--seed", 4, "--signals", "all")
    data = json.loads(reasc(*arguments).stdout)
    assert (data["seed"], data["shuffles"], data["tested"]) == (4, 2, 20)
    offline = [row["measure"] for row in data["rows"] if row["method"] == "ReASC (offline)"]
    assert [measure if measure == "auto" else measure["signal"] for measure in offline] == [
        "auto",
        "self_certainty",
        "token_logprob",
    ]
    assert json.loads(reasc(*arguments).stdout) == data  # the same seed, the same numbers


def test_replay_takes_the_pools_own_scores_where_there_are_no_signals(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=60, signals=False, scores=True)
    data = json.loads(reasc("replay", path, "--json", "--calibration-size", 40).stdout)
    assert {row["measure"] for row in data["rows"] if row["method"].startswith("ReASC")} == {"recorded"}


def test_replay_draws(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=10, signals=False)
    reasc("replay", path, "--plot", tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--signal", "vibes"), "unknown signal 'vibes'"),
        (("--signal", "auto", "--window", "8"), "--signal auto settles score and window too"),
        (("--signal", "top_k", "--calibration-size", "2"), "has no 'top_k' signal"),
        (("--calibration-size", "300"), "leaves none to test"),
    ],
)
def test_an_error_is_one_line_and_code_1(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    result = reasc("replay", write_pool(tmp_path / "p.jsonl", questions=3, samples=2), *arguments, code=1)
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay",),
        ("replay", "p.jsonl", "--nonsense"),
        ("replay", "p.jsonl", "--shuffles", "-1"),
        ("replay", "p.jsonl", "--shuffles", "many"),
        ("nonsense",),
        ("calibrate",),
        ("record", "data.jsonl"),
        ("ask", " "),
    ],
)
def test_wrong_usage_is_code_2(arguments: tuple[str, ...]) -> None:
    assert "Usage: reasc" in reasc(*arguments, code=2).stderr


def test_calibrate_from_a_pool(tmp_path: Path) -> None:
    path, out = write_pool(tmp_path / "p.jsonl", questions=80), tmp_path / "c.json"
    shown = reasc("calibrate", "--pool", path, "--out", out, "--limit", 60)
    calibration = load_calibration(out)
    assert calibration.n == 60
    assert calibration.rejected
    assert "AUROC" in shown.stdout
    assert f"accepts a first response scoring {calibration.gate.threshold:.4g}" in shown.stdout
    reasc("calibrate", "--pool", path, "--out", out, "--signal", "token_logprob", "--score", "mean")
    assert str(load_calibration(out).measure) == "token_logprob/mean"


def test_calibrate_refuses_scores_of_unknown_making(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=20, signals=False, scores=True)
    result = reasc("calibrate", "--pool", path, "--signal", "recorded", "--out", tmp_path / "c.json", code=1)
    assert "does not say how its scores were made" in result.stderr
    assert not (tmp_path / "c.json").exists()


def test_calibrate_takes_data_or_a_pool_but_not_both(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", question("a", response("7")))
    reasc("calibrate", path, "--pool", path, code=2)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "nope.gguf" in reasc("ask", "2 + 2?", "--model", tmp_path / "nope.gguf", code=1).stderr
    assert "hf:OWNER/REPOSITORY/FILE.gguf" in reasc("ask", "2 + 2?", "--model", "hf:nope", code=1).stderr
