"""An option that a command's output or errors advise is one that the command has, or stands behind one that has it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.test_commands import reasc
from click import Command
from langchain_reasc_lab.pools import PoolQuestion, PoolResponse, PoolStore
from typer.main import get_command
from typer.testing import CliRunner

from lab.pools.synthetic import write_pool
from langchain_reasc.calibration import Calibration, Expectation, load_calibration, save_calibration
from langchain_reasc.cli.app import app

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = {
    name: {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    for name, command in commands(get_command(app))
}
NAMED = re.compile(rf"reasc ({'|'.join(sorted(COMMANDS, key=len, reverse=True))})\b")


def lacking(text: str, command: str) -> list[str]:
    """The options in a text that neither the command has nor the last one that is named before them in a sentence."""
    found = []
    for sentence in re.split(r"[;:.]\s|\n\n", text):
        for option in OPTION.finditer(sentence):
            named = [one[1] for one in NAMED.finditer(sentence, 0, option.start())]
            if option[0] not in COMMANDS[command] | COMMANDS[named[-1] if named else command]:
                found.append(option[0])
    return found


def expected(**fields: Any) -> Expectation:
    usual = {"samples": 3.0, "uncalibrated": 4.0, "budget": 16, "unanswered": 0.0, "cut_off": 0.0, "all_equal": False}
    return Expectation(**usual | fields)


KINDS: dict[str, Callable[[Calibration], dict[str, Any]]] = {
    "cut off": lambda _: {"expected": expected(unanswered=0.5, cut_off=0.5)},
    "unanswered": lambda _: {"expected": expected(unanswered=0.5)},
    "unanswered or cut off": lambda _: {"expected": expected(unanswered=0.5, cut_off=None)},
    "none right": lambda _: {"accuracy": 0.0},
    "few": lambda _: {"n": 3},
    "all equal": lambda _: {"expected": expected(all_equal=True)},
    "one response each": lambda _: {"expected": None, "fallback": "nobody knows"},
    "no gain": lambda _: {"expected": expected(samples=4.0)},
    "gain": lambda _: {"expected": expected()},
}


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    pool = write_pool(tmp_path / "a.sqlite", 40, 6)
    reasc("pool", "calibrate", pool, "--out", tmp_path / "c.json")
    return tmp_path / "c.json"


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_inspect_advises_no_option_that_it_lacks(calibration: Path, kind: str) -> None:
    loaded = load_calibration(calibration)
    save_calibration(loaded.model_copy(update=KINDS[kind](loaded)), calibration)
    shown = reasc("inspect", calibration)
    assert not lacking(shown.stdout + shown.stderr, "inspect"), shown.output


@pytest.mark.full
@pytest.mark.parametrize("answers", [(None, True), (None, False), ("7", False), ("1", False)], ids=str)
def test_pool_calibrate_advises_no_option_that_it_lacks(tmp_path: Path, answers: tuple[str | None, bool]) -> None:
    store = PoolStore.create(tmp_path / "p.sqlite")
    answer, cut_off = answers
    for at in range(20):
        responses = (PoolResponse(answer, 3, cut_off=cut_off), PoolResponse("7", 3))
        store.add_question(PoolQuestion(f"q{at}", ("7",), responses, "?"))
    shown = reasc("pool", "calibrate", store.path, "--out", tmp_path / "c.json")
    assert "Next" in shown.stdout and not lacking(shown.stdout + shown.stderr, "pool calibrate"), shown.output


WRONG: dict[str, bytes] = {
    "missing": b"",
    "empty.json": b" ",
    "list.json": b"[1]",
    "text.txt": b"one?\ntwo?\n",
    "lines.jsonl": b'{"text": "one?"}\n',
    "faulty.jsonl": b'{"question": "1?", "answer": "2"}\n{oops}\n',
    "empty.sqlite": b"",
    "broken.sqlite": b"SQLite format 3\0" + bytes(100),
}
READING = {
    "inspect": ("inspect", "FILE"),
    "ask": ("ask", "why?", "--calibration", "FILE"),
    "calibrate": ("calibrate", "FILE", "--model-class", "cli.chat_models.Scripted", "--out", "out.json"),
    "record": ("record", "FILE", "--model-class", "cli.chat_models.Scripted", "--out", "out.sqlite", "--samples", "1"),
    "grade": ("grade", "FILE", "--grader", "exact"),
    "replay": ("replay", "FILE"),
    "report": ("report", "FILE"),
    "plot": ("plot", "FILE", "out.svg"),
    "pool show": ("pool", "show", "FILE"),
    "pool calibrate": ("pool", "calibrate", "FILE", "--out", "out.json"),
    "pool import": ("pool", "import", "FILE", "made.sqlite"),
    "pool export": ("pool", "export", "FILE", "out.jsonl"),
}


@pytest.mark.full
@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("name", WRONG)
def test_errors_of_wrong_files_advise_no_option_that_the_command_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if name != "missing":
        (tmp_path / name).write_bytes(WRONG[name])
    arguments = [name if argument == "FILE" else argument for argument in READING[command]]
    result = CliRunner().invoke(app, arguments, prog_name="reasc")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert not lacking(re.sub(r"\s*│\s*", " ", result.output), command), result.output


def test_the_search_finds_an_option_that_is_not_there() -> None:
    assert lacking("say where (--answer), and count with `reasc ask --calibration none`", "inspect") == ["--answer"]
    assert COMMANDS["record"] >= {"--samples", "--answer"} and "pool calibrate" in COMMANDS
