"""The command line: every command's help, its output on small pools, its files and its exit codes."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from langchain_reasc.cli import app

from .fakes import values_in
from .test_calibrations import numbers

Golden = Callable[..., None]
COMMANDS = ["", "ask", "calibrate", "record", "grade", "replay", "report", "demo", "probe", "pool", "inspect"]
OF_POOLS = [f"pool {one}" for one in ("show", "calibrate", "export", "import")]
MODEL = ("--model-class", "characterization.guesser.Guesser")


def reasc(*arguments: object) -> Any:
    """The outcome of a command in a terminal of 80 columns."""
    environment = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "TERM": "dumb", "NO_COLOR": "1"}
    result = CliRunner().invoke(app, [str(one) for one in arguments], prog_name="reasc", env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def plain(text: str) -> list[str]:
    """Lines without frames, and without how far apart words are."""
    lines = (" ".join(re.sub("[─│╭╮╰╯━]+", " ", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def shown(result: Any, *folders: Path) -> dict[str, Any]:
    """The values in what it printed, without what differs from run to run."""

    def values(text: str) -> str:
        for folder in folders:
            text = text.replace(str(folder), "TMP")
        text = re.sub(r"\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?\S*", "WHEN", text)
        text = re.sub(r"\d+(\.\d+)? ?(seconds|s|ms)\b", "TIME", text)
        return values_in(" ".join(plain(text)))

    return {"code": result.exit_code, "out": values(result.stdout), "err": values(result.stderr)}


@pytest.mark.parametrize("command", [*COMMANDS, *OF_POOLS])
def test_help(command: str, golden: Golden) -> None:
    """Every option by name, and every default; the words about them may change."""
    result = reasc(*command.split(), "--help")
    assert result.exit_code == 0
    text = " ".join(plain(result.stdout))
    options = sorted(set(re.findall(r"--[a-z][a-z-]+", text)))
    golden({"options": options, "defaults": re.findall(r"\[default: [^\]]+\]", text)})


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pool as JSON Lines (scores, no signals), questions, and a pool recorded from a model."""
    folder = tmp_path_factory.mktemp("pools")
    rng = random.Random(7)
    lines = []
    for number in range(40):
        ability, responses = rng.betavariate(2, 1.3), []
        for _ in range(8):
            right = rng.random() < ability
            answer = "7" if right else rng.choice("1234")
            score = round(rng.gauss(1.5 * right, 1.0), 4)
            tokens = rng.randint(20, 60)
            response = {"text": f"so {answer}", "answer": answer, "completion_tokens": tokens, "prompt_tokens": 10}
            responses.append(response | {"score": score})
        lines.append({"id": f"q{number}", "input": f"what is {number}?", "reference": "7", "responses": responses})
    (folder / "scored.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert reasc("pool", "import", folder / "scored.jsonl", folder / "scored.sqlite").exit_code == 0
    questions = [{"question": f"What is {number}?", "answer": "7"} for number in range(24)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)) + "\n")
    (folder / "questions.txt").write_text("\n".join(one["question"] for one in questions) + "\n")
    return folder


@pytest.mark.full
def test_record_grade_replay_report(pools: Path, golden: Golden, tmp_path: Path) -> None:
    """A pool recorded from a model by its class, and all that is made of it."""
    pool = tmp_path / "pool.sqlite"
    record = ("record", pools / "questions.jsonl", "--out", pool, "--samples", 6, *MODEL)
    steps: dict[str, tuple[object, ...]] = {
        "record": record,
        "record again": record,
        "record, another seed": (*record, "--seed", 5),
        "show": ("pool", "show", pool),
        "replay": ("replay", pool, "--calibration-size", 12, "--rules", "all"),
        "replay shuffled": ("replay", pool, "--calibration-size", 12, "--shuffles", 3, "--signals", "all"),
        "export": ("pool", "export", pool, tmp_path / "out.jsonl"),
        "import": ("pool", "import", tmp_path / "out.jsonl", tmp_path / "back.sqlite"),
        "grade": ("grade", tmp_path / "back.sqlite", "--grader", "numeric"),
        "replay what came back": ("replay", tmp_path / "back.sqlite", "--calibration-size", 12),
    }
    golden({name: shown(reasc(*step), tmp_path, pools) for name, step in steps.items()})
    about = json.loads(reasc("pool", "show", pool, "--json").stdout)
    golden({key: value for key, value in about.items() if key not in ("seconds", "metadata")}, "show as JSON")
    report = reasc("report", pool, "--calibration-size", 12, "--json", "-")
    assert report.exit_code == 0
    golden(numbers(json.loads(report.stdout)["parts"][0]), "report")


EVERY_RULE = ("--controls", "--rules", "all")


@pytest.mark.full
@pytest.mark.parametrize(
    "options", [(), pytest.param(EVERY_RULE, marks=pytest.mark.slow), ("--max-samples", 4, "--p-target", 0.7)]
)
def test_replay_to_the_digit(options: tuple[object, ...], pools: Path, golden: Golden) -> None:
    result = reasc("replay", pools / "scored.sqlite", "--calibration-size", 20, "--shuffles", 2, "--json", *options)
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    rows = {f"{row['method']} ({row.get('measure')})": numbers(row) for row in data["rows"]}
    golden(rows)


@pytest.mark.full
def test_calibrate_and_ask(pools: Path, golden: Golden, tmp_path: Path) -> None:
    made = tmp_path / "calibration.json"
    steps: dict[str, tuple[object, ...]] = {
        "calibrate": ("calibrate", pools / "questions.jsonl", "--out", made, "--max-samples", 4, *MODEL),
        "ask": ("ask", "What is 3?", "--calibration", made, *MODEL),
        "ask, traced": ("ask", "What is 3?", "--calibration", made, "--trace", "--seed", 4, *MODEL),
        "ask as JSON": ("ask", "What is 3?", "--json", *MODEL),
        "ask, undecided": ("ask", "What is 4?", "--max-samples", 2, "--rule", "fixed_budget", *MODEL),
        "unlabelled": ("calibrate", pools / "questions.txt", "--out", tmp_path / "u.json", *MODEL),
    }
    golden({name: shown(reasc(*step), tmp_path, pools) for name, step in steps.items()})
    for name in ("calibration.json", "u.json"):
        golden(numbers(json.loads((tmp_path / name).read_text())), name)


WRONG: dict[str, tuple[object, ...]] = {
    "no command": ("vibes",),
    "no option": ("ask", "q", "--vibes"),
    "ask nothing": ("ask", " "),
    "ask a missing model": ("ask", "q", "--model", "nowhere.gguf"),
    "ask by no rule": ("ask", "q", "--rule", "vibes", *MODEL),
    "ask by no answer": ("ask", "q", "--answer", "vibes", *MODEL),
    "calibrate nothing": ("calibrate",),
    "calibrate a missing file": ("calibrate", "nowhere.jsonl", *MODEL),
    "calibrate for certain": ("calibrate", "questions.jsonl", "--p-target", "1", *MODEL),
    "record without a pool": ("record", "questions.jsonl"),
    "record a class that is none": ("record", "q.jsonl", "--out", "p.sqlite", "--model-class", "json.JSONDecoder"),
    "grade by none": ("grade", "scored.sqlite", "--grader", "vibes"),
    "replay nothing": ("replay", "nowhere.sqlite"),
    "replay too few": ("replay", "scored.sqlite", "--calibration-size", 300),
    "replay by no signal": ("replay", "scored.sqlite", "--signal", "vibes"),
    "report nothing": ("report", "nowhere.sqlite"),
    "report into a folder": ("report", "scored.sqlite", "--out", "/"),
    "show no pool": ("pool", "show", "questions.txt"),
    "probe nobody": ("probe", "http://127.0.0.1:9"),
    "demo of nothing": ("demo", "--problems", "0"),
}


@pytest.mark.full
def test_wrong_calls(pools: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pools)
    before = sorted(one.name for one in pools.iterdir())
    golden({name: reasc(*arguments).exit_code for name, arguments in WRONG.items()})
    assert sorted(one.name for one in pools.iterdir()) == before
