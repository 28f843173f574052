"""The commands in this process: what they print, and with which code they end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab.pools.synthetic import write_pool
from typer.main import get_command
from typer.testing import CliRunner, Result

from cli.chat_models import OBEYED
from langchain_reasc.cli import app
from langchain_reasc.cli.console import in_options


def reasc(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="reasc")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)  # no traceback
    return result


def test_help_teaches_with_examples() -> None:
    shown = reasc("--help").stdout
    assert "reasc calibrate data.jsonl --model my.gguf" in shown and "reasc pool show" in shown
    for command in ("ask", "record", "pool import"):
        shown = reasc(*command.split(), "--help").stdout
        assert "Examples" in shown and f"reasc {command} " in shown
    assert reasc("--version").stdout.startswith("reasc 0.")


def test_ask_shows_ten_options_and_all_stand_on_their_page() -> None:
    shown = reasc("ask", "--help").stdout
    page = (Path(__file__).parents[2] / "docs" / "ask.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^│ --", shown, re.MULTILINE)) <= 10 and "<bool>" not in shown
    hidden = get_command(app).commands["ask"].params  # type: ignore[attr-defined]
    for option in (name for param in hidden for name in param.opts if name.startswith("--")):
        assert f"`{option}`" in page, option


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        asked = {"_REASC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return CliRunner().invoke(app, [], prog_name="reasc", env=asked).stdout.split()

    assert completed("reasc re") == ["record", "replay", "report"]
    assert {"--model", "--model-kwargs"} <= {*completed("reasc ask --mod")}
    assert "import" in completed("reasc pool ")


@pytest.mark.full
def test_a_command_of_another_package_says_what_to_install_where_that_is_missing() -> None:
    script = """
import importlib.metadata, sys
found = importlib.metadata.entry_points
ours = {"group": "langchain_reasc.commands"}
importlib.metadata.entry_points = lambda **chosen: () if chosen == ours else found(**chosen)
from langchain_reasc.cli import app
for arguments in (["record", "q.jsonl", "--out", "p.sqlite"], ["serve", "--port", "1"], ["-h"]):
    print(app(arguments, standalone_mode=False))"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = 'error: `reasc {}` is not installed. Install it with: pip install "langchain-reasc[{}]"\n'
    assert ended.stderr == said.format("record", "lab") + said.format("serve", "serve")
    assert ended.stdout.startswith("1\n1\n") and "calibrate" in ended.stdout
    assert "langchain-reasc[serve]" in ended.stdout and "langchain-reasc[lab]" in ended.stdout


@pytest.mark.parametrize("name", ["ask", "calibrate"])
def test_without_llama_cpp_a_command_names_a_model_that_can_be_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("How much is 6 times 7?")
    command = (name, "?" if name == "ask" else questions)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    refused = reasc(*command, code=1).stderr
    assert "--model openai:gpt-4o-mini, or" in refused and "langchain-reasc[llama-cpp]" in refused
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    refused = reasc(*command, code=1).stderr
    assert '--model openai:gpt-4o-mini (pip install "langchain-reasc[openai]")' in refused


@pytest.mark.full
def test_replay_draws_and_calls_no_method_by_a_budget_that_the_pool_does_not_hold(tmp_path: Path) -> None:
    path, plot = write_pool(tmp_path / "p.sqlite", questions=6, samples=5, signals=False), tmp_path / "new" / "a.svg"
    shown = reasc("replay", path, "--calibration-size", 4, "--plot", plot).stdout
    assert "no scores or token signals" in shown and plot.exists()
    assert "SC@5" in shown and "SC@16" not in shown
    refused = reasc("replay", path, "--max-samples", 6, code=1)
    assert "--max-samples 6" in refused.stderr and "all 5" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--signal vibes", "'vibes'"),
        ("--signal auto --window 8", "--signal auto"),
        ("--calibration-size 300", "none to test"),
    ],
)
def test_an_error_is_one_line_and_code_1(tmp_path: Path, arguments: str, says: str) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=3, samples=2)
    result = reasc("replay", path, *arguments.split(), code=1)
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ") and says in line and result.stdout == ""


@pytest.mark.parametrize(
    "command",
    [
        *("replay", "replay p --shuffles many", "replay p --p-target nan", "replay p --signals some"),
        *("replay p --plot a.foo", f"demo --out {__file__}", "record d.jsonl", "record d.jsonl --out /"),
        *("calibrate d.jsonl --p-target 0", "calibrate d.jsonl --out .", f"calibrate d.jsonl --out {__file__}/c.json"),
        *("grade p", "grade p --grader alias --tolerance 0.1", "grade p --grader judge"),
        *("report p --out /", "report p --csv p", "report p --json - --markdown -", "report p --parameters 0"),
    ],
)
def test_wrong_usage_is_code_2_before_anything_is_read(command: str) -> None:
    assert "Usage: reasc" in reasc(*command.split(), code=2).stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("ask", "?", "--answer", "vibes"), "'vibes'"),
        (("record", "q.jsonl", "--out", "p.sqlite", "--answer", "regex:("), "invalid answer pattern"),
        (("calibrate", "q.jsonl", "--template", "nope.txt"), "'nope.txt'"),
        (("ask", "?", "--template", str(Path(__file__).with_name("__init__.py"))), "no {question}"),
        (("ask", "?", "--rule", "vibes"), "'vibes'"),
        (("ask", "?", "--rule", "reasc"), "esc:window=3"),
        (("ask", "?", "--rule", "reasc:mean"), "name=value"),
        (("ask", "?", "--rule", "lead:k=0"), "got 0"),
    ],
)
def test_what_is_asked_wrongly_is_said_before_a_model_is_loaded(
    command: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_reasc_llama_cpp", None)
    assert says in reasc(*command, code=1).stderr


@pytest.mark.full
def test_output_in_ascii(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=6, samples=4, metadata={"by": "Zoë ½ Δ 😀"})
    replay = f"replay {path} --calibration-size 4 --signal token_logprob --score mean"
    table, data, shown = (
        CliRunner(charset="ascii").invoke(app, command.split()).stdout_bytes.decode("ascii")
        for command in (replay, f"pool show {path} --json", "ask --help")
    )
    assert "Delta acc. to ASC" in table and "-----" in table and "Examples" in shown
    assert json.loads(data)["metadata"]["by"] == "Zoë ½ Δ 😀"


def test_what_cannot_be_encoded_is_spelled_out() -> None:
    assert "Δ é \ud83d".encode("utf-8", "langchain_reasc.spelled_out") == "Δ é \\ud83d".encode()
    spelled = "Δ ± 1 … ≥ é \ud83d 😀".encode("ascii", "langchain_reasc.spelled_out")
    assert spelled == b"Delta +- 1 ... >= \\xe9 \\ud83d \\U0001f600"


def test_messages_speak_of_options() -> None:
    for said, shown in {
        "override with allow_fingerprint_mismatch=True": "override with --allow-mismatch",
        "rename the field, or name it with read_questions(..., id_field=...)": "name it with --id-field",
        "shorten the prompt, or load the model with n_ctx=1,300 or more": "shorten the prompt",
    }.items():
        assert in_options(said) == shown


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "nope.gguf" in reasc("ask", "2 + 2?", "--model", tmp_path / "nope.gguf", code=1).stderr
    for name in ("hf:nope", "hf:owner//file.gguf", "hf:owner/repository"):
        assert "hf:OWNER/REPOSITORY/FILE.gguf" in reasc("ask", "2 + 2?", "--model", name, code=1).stderr


@pytest.mark.parametrize("command", [("record",), ("calibrate",), ("pool", "calibrate")])
def test_what_is_read_is_not_written_over(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = write_pool(tmp_path / "p.sqlite", questions=2)
    before = path.read_bytes()
    refused = reasc(*command, path, "--out", tmp_path / "elsewhere" / ".." / "p.sqlite", code=2)
    assert "would overwrite" in " ".join(refused.stderr.replace("│", "").split())
    assert path.read_bytes() == before


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="no file may be called so")
def test_nothing_that_a_terminal_obeys_is_printed(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    lines = (json.dumps({"question": f"{at} and 3?{OBEYED}", "answer": "5"}) + "\n" for at in range(20))
    questions.write_text("".join(lines))
    name = OBEYED.replace("/", "")
    pool = tmp_path / f"pool{name}.sqlite"
    model = ("--model-class", "cli.chat_models.Escaping", "--model", f"m{OBEYED}")
    asked = ("ask", f"2 and 3?{OBEYED}", "--answer", "text", "--max-samples", 4, *model)
    shown = [
        reasc(*asked, "--trace"),
        reasc(*asked, "--json"),
        reasc("record", questions, "--out", pool, "--samples", 4, *model),
        reasc("pool", "show", pool),
        reasc("report", pool, "--shuffles", 1, "--calibration-size", 8),
        reasc("pool", "show", tmp_path / f"none{name}", code=1),
        reasc("ask", "?", "--model", f"none{OBEYED}.gguf", code=1),
    ]
    for result in shown:
        assert not set(OBEYED) & set(result.output) - set("]52;c;aGk=2J"), ascii(result.output)
        assert "Traceback" not in result.output
    assert "␛]52;c;aGk=" in shown[0].stdout
    assert OBEYED in json.loads(shown[1].stdout)["answer"]


def test_colours_are_printed_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    failed = reasc("pool", "show", "none\x1b[2J", code=1).stderr
    assert "\x1b[1;31merror:" in failed and "\x1b[2J" not in failed
