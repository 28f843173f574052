"""The commands in this process: what they print, and with which code they end."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pools.synthetic import write_pool
from typer.testing import CliRunner, Result

from cli.chat_models import OBEYED
from langchain_reasc.cli import app
from langchain_reasc.cli.console import in_options


def reasc(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="reasc")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)  # no traceback
    return result


def test_help_names_the_commands() -> None:
    shown = reasc("--help").stdout
    assert "reasc calibrate data.jsonl --model my.gguf" in shown and "reasc pool show" in shown
    assert all(name in reasc("pool", "--help").stdout for name in ("show", "merge", "export", "import"))


COMMANDS = ["demo", "ask", "calibrate", "record", "replay", "grade"]
OF_POOLS = ["pool show", "pool merge", "pool export", "pool import"]


@pytest.mark.parametrize("command", [*COMMANDS, *OF_POOLS])
def test_help_teaches_with_examples(command: str) -> None:
    shown = reasc(*command.split(), "--help").stdout
    assert "Examples" in shown and f"reasc {command} " in shown


def test_without_the_laboratory_one_line_says_what_to_install() -> None:
    script = """
import importlib.metadata
found = importlib.metadata.entry_points
ours = {"group": "langchain_reasc.commands"}
importlib.metadata.entry_points = lambda **chosen: () if chosen == ours else found(**chosen)
from langchain_reasc.cli import main
main()"""
    for arguments, code in (
        (["record", "q.jsonl", "--out", "p.sqlite"], 1),
        (["pool", "show", "--json"], 1),
        (["-h"], 0),
    ):
        ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
        assert ended.returncode == code
        said = f'error: `reasc {arguments[0]}` is part of the laboratory: pip install "langchain-reasc[lab]"\n'
        assert ended.stderr == (said if code else "") and ("calibrate" in ended.stdout) == (code == 0)


def test_version() -> None:
    assert reasc("--version").stdout.startswith("reasc 0.")


def test_replay_prints_a_table(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=30, signals=False)
    shown = reasc("replay", path)
    for name in ("pass@1", "SC@16", "ESC (w=4)", "ASC", "no scores or token signals"):
        assert name in shown.stdout


def test_replay_prints_data(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=30)
    arguments = ("replay", path, "--json", "--calibration-size", 20, "--shuffles", 2, "--seed", 4, "--signals", "all")
    data = json.loads(reasc(*arguments).stdout)
    assert (data["seed"], data["shuffles"], data["tested"]) == (4, 2, 10)
    offline = [row["measure"] for row in data["rows"] if row["method"] == "ReASC (offline)"]
    assert [measure if measure == "auto" else measure["signal"] for measure in offline] == [
        "auto",
        "self_certainty",
        "token_logprob",
    ]
    assert json.loads(reasc(*arguments).stdout) == data  # the same seed, the same numbers


def test_replay_has_rows_of_controls_and_other_rules_where_asked_to(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=60)
    shown = reasc(
        "replay", path, "--json", "--calibration-size", 40, "--controls", "--rules", "all", "--max-samples", 4
    )
    data = json.loads(shown.stdout)
    controls = {row["method"]: row["confidences"] for row in data["rows"] if row["confidences"]}
    assert list(controls) == [f"ASC at equal cost ({name})" for name in ("offline", "online", "mixture")]
    assert all(0.5 < confidence < 1 for [confidence] in controls.values())
    assert {"ASC (4 at once)", "L = 3", "Cannot catch up", "CISC"} <= {row["method"] for row in data["rows"]}


@pytest.mark.parametrize("command", ["replay", "report"])
def test_no_method_is_called_by_a_budget_that_the_pool_does_not_hold(tmp_path: Path, command: str) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=30, samples=5, signals=False)
    only = ("--only", "main") if command == "report" else ()
    shown = reasc(command, path, *only).stdout
    assert "SC@5" in shown and "SC@16" not in shown
    assert "SC@3" in reasc(command, path, *only, "--max-samples", 3).stdout
    refused = reasc(command, path, *only, "--max-samples", 6, code=1)
    assert "--max-samples 6 is more than any question of" in refused.stderr and "to take all 5" in refused.stderr


def test_replay_draws_into_a_new_folder_too(tmp_path: Path) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=10, signals=False)
    reasc("replay", path, "--plot", tmp_path / "new" / "a.svg")
    assert (tmp_path / "new" / "a.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--signal", "vibes"), "unknown signal 'vibes'"),
        (("--signal", "auto", "--window", "8"), "--signal auto settles score and window too"),
        (("--signal", "vibes", "--plot", "a.png"), "unknown signal 'vibes'"),
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
        ("replay", "p.jsonl", "--p-target", "90"),
        ("replay", "p.jsonl", "--p-target", "nan"),
        ("replay", "p.jsonl", "--signals", "some"),
        ("replay", "p.jsonl", "--signals", "all", "--signal", "top_k"),
        ("replay", "p.jsonl", "--plot", "a.foo"),
        ("replay", "p.jsonl", "--plot", "picture"),
        ("replay", "p.jsonl", "--plot", f"{__file__}/a.png"),
        ("demo", "--signals", "some"),
        ("demo", "--p-target", "1"),
        ("demo", "--out", __file__),
        ("calibrate", "data.jsonl", "--p-target", "0"),
        ("calibrate", "data.jsonl", "--out", "."),
        ("calibrate", "data.jsonl", "--out", f"{__file__}/c.json"),
        ("record", "data.jsonl", "--out", "/"),
        ("nonsense",),
        ("calibrate",),
        ("record", "data.jsonl"),
        ("ask", " "),
        ("grade", "p.sqlite"),
        ("grade", "p.sqlite", "--grader", "vibes"),
        ("grade", "p.sqlite", "--grader", "alias", "--tolerance", "0.1"),
        ("grade", "p.sqlite", "--grader", "alias", "--model", "a.gguf"),
        ("grade", "p.sqlite", "--grader", "exact", "--timeout", "5"),
        ("grade", "p.sqlite", "--grader", "judge", "--model", "a.gguf", "--concurrency", "0"),
        ("grade", "p.sqlite", "--grader", "judge", "--model", "a.gguf", "--judge-reads", "all"),
        ("report",),
        ("report", "p.jsonl", "--out", "/"),
        ("report", "p.jsonl", "--out", f"{__file__}/a.html"),
        ("report", "p.jsonl", "--json", "a.json", "--markdown", "a.json"),
        ("report", "p.jsonl", "--json", "-", "--markdown", "-"),
        ("report", "p.jsonl", "--csv", "p.jsonl"),
        ("report", "p.jsonl", "--p-target", "90"),
        ("report", "p.jsonl", "--parameters", "0"),
        ("report", "p.jsonl", "--tokens-per-second", "-1"),
        ("report", "p.jsonl", "--calibration-size", "1"),
    ],
)
def test_wrong_usage_is_code_2_before_anything_is_read(arguments: tuple[str, ...]) -> None:
    assert "Usage: reasc" in reasc(*arguments, code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--answer", "vibes"), "unknown answer extractor 'vibes'; choose auto"),
        (("--answer", "regex:("), "invalid answer pattern"),
        (("--template", "nope.txt"), "no template at 'nope.txt'"),
        (("--template", str(Path(__file__).with_name("__init__.py"))), "no {question} in it"),
    ],
)
@pytest.mark.parametrize("command", [("ask", "?"), ("calibrate", "q.jsonl"), ("record", "q.jsonl", "--out", "p.jsonl")])
def test_what_is_asked_wrongly_is_said_before_a_model_is_loaded(
    command: tuple[str, ...], arguments: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_reasc_llama_cpp", None)
    assert says in reasc(*command, *arguments, code=1).stderr


def test_a_rule_that_there_is_not_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_reasc_llama_cpp", None)
    for name, says in {
        "vibes": "no stopping rule is called 'vibes'; there are",
        "reasc": "needs the parameter 'mean', 'std'; parameters follow the name, as in --rule esc:window=3",
        "reasc:mean": "'mean' is no parameter of a rule, which is given as name=value",
        "esc:w=3": "the rule esc has no parameter 'w'; it has window",
        "esc:window=0": "an ESC window holds at least 1 response",
        "l_aggregated:priors=[2, 3]": "priors",
    }.items():
        assert says in reasc("ask", "?", "--rule", name, code=1).stderr


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.slow)])
def test_output_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=24, metadata={"by": "Zoë ½ Δ 😀"})
    measure = ("--signal", "token_logprob", "--score", "mean")
    replay = ["replay", str(path), "--calibration-size", "16", "--shuffles", "1", *measure]
    script = f"""
from langchain_reasc.cli import app
for arguments in ({replay}, {[*replay, "--json"]}, ["replay", "--help"]):
    app(arguments, standalone_mode=False)
    print(chr(12))
"""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, check=True)
    table, data, helped, _ = done.stdout.decode(encoding).split(chr(12))
    assert "Delta acc. to ASC" in table and "-----" in table
    assert json.loads(data)["metadata"]["by"] == "Zoë ½ Δ 😀"
    assert "Examples" in helped


def test_what_cannot_be_encoded_is_spelled_out() -> None:
    assert "Δ é \ud83d".encode("utf-8", "langchain_reasc.spelled_out") == "Δ é \\ud83d".encode()
    spelled = "Δ ± 1 … ≥ é \ud83d 😀".encode("ascii", "langchain_reasc.spelled_out")
    assert spelled == b"Delta +- 1 ... >= \\xe9 \\ud83d \\U0001f600"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("override with allow_fingerprint_mismatch=True", "override with --allow-mismatch"),
        ("rename the field, or name it with read_questions(..., id_field=...)", "name it with --id-field"),
        ("accept plain counting with on_missing_confidence='count'", "accept plain counting with --calibration none"),
        ("make one, or pass calibration=None to count votes", "make one, or count votes with --calibration none"),
        ("shorten the prompt, or load the model with n_ctx=1,300 or more", "shorten the prompt"),
        ("it asks for a key (api_key=...)", "it asks for a key (--key-variable NAME)"),
    ],
)
def test_messages_speak_of_options(said: str, shown: str) -> None:
    assert in_options(said) == shown


@pytest.mark.parametrize("missing", ["calibration", "answer"])
def test_the_errors_of_the_library_speak_of_options(tmp_path: Path, missing: str) -> None:
    said = reasc("ask", "2 + 2?", f"--{missing}", tmp_path / "nope", code=1).stderr
    assert "=" not in said.replace(str(tmp_path), "") and "function" not in said


def test_make_demo_ends_by_saying_where_the_command_is() -> None:
    root = Path(__file__).parents[2]
    if shutil.which("make") is None or not (root / "Makefile").exists():
        pytest.skip("there is no make here")
    command = ["make", "--no-print-directory", "--dry-run", "demo"]
    above = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, env=above).stdout
    end = shown[shown.index(".venv/bin/reasc demo --plot") :].partition("printf")[2]
    printed = subprocess.run(["bash", "-c", f"printf {end}"], capture_output=True, text=True, check=True).stdout
    assert "The command is .venv/bin/reasc" in printed and ".venv/bin/reasc ask" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "nope.gguf" in reasc("ask", "2 + 2?", "--model", tmp_path / "nope.gguf", code=1).stderr
    assert "hf:OWNER/REPOSITORY/FILE.gguf" in reasc("ask", "2 + 2?", "--model", "hf:nope", code=1).stderr


@pytest.mark.parametrize("command", [("record",), ("calibrate",), ("calibrate", "--pool")])
def test_what_is_read_is_not_written_over(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = write_pool(tmp_path / "p.jsonl", questions=60)
    before = path.read_bytes()
    refused = reasc(*command, path, "--out", tmp_path / "." / "p.jsonl", code=2)
    assert "is the file that is read" in " ".join(refused.stderr.replace("│", "").split())
    assert path.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="no file may be called so")
def test_nothing_that_a_terminal_obeys_is_printed(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    lines = (json.dumps({"question": f"{at} and 3?{OBEYED}", "answer": "5"}) + "\n" for at in range(20))
    questions.write_text("".join(lines))
    name = OBEYED.replace("/", "")
    pool = tmp_path / f"pool{name}.sqlite"
    model = ("--model-class", "cli.chat_models.Escaping", "--model", f"m{OBEYED}")
    asked = ("ask", f"2 and 3?{OBEYED}", "--answer", "text", "--max-samples", 4, *model)
    short = ("--only", "main", "--shuffles", 1, "--calibration-size", 8, "--max-samples", 4)
    shown = [
        reasc(*asked),
        reasc(*asked, "--trace"),
        reasc(*asked, "--json"),
        reasc("record", questions, "--out", pool, "--samples", 4, *model),
        reasc("pool", "show", pool),
        reasc("pool", "show", pool, "--json"),
        reasc("report", pool, *short, "--markdown", "-"),
        reasc("report", pool, *short, "--json", "-"),
        reasc("pool", "show", tmp_path / f"none{name}", code=1),
        reasc("ask", "?", "--model", f"none{OBEYED}.gguf", code=1),
    ]
    for result in shown:
        assert not set(OBEYED) & set(result.output) - set("]52;c;aGk=2J"), ascii(result.output)
        assert "Traceback" not in result.output
    assert "␛]52;c;agk=" in shown[0].stdout
    assert OBEYED.lower() in json.loads(shown[2].stdout)["answer"]


def test_colours_are_printed_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    failed = reasc("pool", "show", "none\x1b[2J", code=1).stderr
    assert "\x1b[1;31merror:" in failed and "\x1b[2J" not in failed
