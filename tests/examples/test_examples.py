"""Each example runs as it stands, on the shipped model or on servers of its kind, or says in one line what it lacks."""

import ast
import contextlib
import importlib.util
import io
import json
import os
import re
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from backends.openai.fake_server import Fake, serving, sglang, vllm
from langchain_reasc_lab.pools import read_pool

from langchain_reasc.calibration import ObservationStore

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVERS = ["llama_server.py", "vllm_server.py", "sglang_server.py", "ollama_chat.py"]
HOSTED = {
    "openai_api.py": "OPENAI_API_KEY",
    "azure_openai.py": "AZURE_OPENAI_ENDPOINT",
    "any_chat_model.py": "OPENAI_API_KEY",
}


def run(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The example in a process of its own, without the keys of whoever runs the tests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "AZURE_"))}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


def run_here(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported already what an example imports: for what ends at once."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
            if isinstance(left.code, str):
                print(left.code, file=sys.stderr)  # as the interpreter does
    return subprocess.CompletedProcess([name, *arguments], code, out.getvalue(), err.getvalue())


def shown(done: "subprocess.CompletedProcess[str]") -> str:
    """What an example printed that came to a good end."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_chain_with_a_local_gguf_prints_an_answer_and_its_account() -> None:
    told = shown(run_here("local_gguf_chain.py"))
    assert "\\boxed{" in told
    assert "samples" in told and "evidence {" in told


@pytest.mark.slow  # 48 questions, up to sixteen responses each
def test_a_chain_with_any_chat_model_answers_every_question(tmp_path: Path) -> None:
    told = shown(run("any_chat_model.py", "--state", "online.sqlite", cwd=tmp_path))
    answered = [line for line in told.splitlines() if " samples, by " in line]
    assert len(answered) == 48
    assert "tokens generated for 48 questions" in told
    assert ObservationStore.open(tmp_path / "online.sqlite").observations().seen >= 32


@pytest.mark.slow  # a whole calibration; make test runs the same steps in tests/cli
def test_calibrate_then_serve_writes_a_calibration_and_uses_it(tmp_path: Path) -> None:
    told = shown(run("calibrate_then_serve.py", "mine.json", cwd=tmp_path))
    written = json.loads((tmp_path / "mine.json").read_text())
    assert written["method"] == "offline" and written["n"] == 128
    assert written["rejected"], "the measures that were not chosen are recorded"
    assert len([line for line in told.splitlines() if ", by " in line]) == 5


@pytest.mark.slow  # a whole calibration; make test runs the same steps in tests/servers
def test_llama_server_calibrates_and_decides(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    told = shown(run("llama_server.py", "--start", "--calibrate", "8", "--questions", "2", cwd=tmp_path))
    first, calibrated, *decided = told.splitlines()
    assert first.startswith("llama-server") and "alternatives per token" in first
    assert calibrated.startswith("This calibration is of little use: 8 questions are too few")
    assert len(decided) == 2 and all(" samples, by " in line for line in decided)


@pytest.mark.parametrize(("name", "make"), [("vllm_server.py", vllm), ("sglang_server.py", sglang)])
def test_it_answers_over_a_server_of_its_kind(name: str, make: Callable[..., Fake]) -> None:
    with serving(make(models=("tiny",))) as one, serving(make(models=("tiny",))) as other:
        told = shown(run_here(name, "--model", "tiny", "--base-url", one.url, other.url))
    assert told.startswith(f"{name.partition('_')[0]} 0.") and ": up to 20 alternatives" in told
    assert "4 " in told and " samples" in told


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("local_gguf_chain.py", "python examples/"),
        ("any_chat_model.py", "python examples/"),
        ("ray_data.py", "ray start --address"),
    ],
)
def test_help_teaches(name: str, says: str) -> None:
    done = run_here(name, "--help")
    assert done.returncode == 0 and says in done.stdout


def check_one_line(done: "subprocess.CompletedProcess[str]", says: str = "") -> None:
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["local_gguf_chain.py", "ray_data.py"])
def test_a_missing_model_is_one_line(name: str) -> None:
    check_one_line(run_here(name, "--model", "absent.gguf"), "absent.gguf")


@pytest.mark.parametrize(("name", "variable"), HOSTED.items())
def test_a_missing_key_is_one_line(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in [key for key in os.environ if key.startswith(("OPENAI_", "AZURE_"))]:
        monkeypatch.delenv(given)
    check_one_line(run_here(name, *(("--model", "any") if name == "any_chat_model.py" else ())), variable)


@pytest.mark.parametrize("name", [*SERVERS, pytest.param("any_chat_model.py", marks=pytest.mark.slow)])  # 48 questions
def test_an_absent_server_is_one_line(name: str) -> None:
    if name == "ollama_chat.py" and not importlib.util.find_spec("langchain_ollama"):
        pytest.skip("langchain-ollama is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = ("--model", "any") if name == "any_chat_model.py" else ()
    check_one_line(run_here(name, *model, "--base-url", f"http://127.0.0.1:{port}" + ("/v1" if model else "")))


@pytest.mark.parametrize("name", [*SERVERS, "openai_api.py", "azure_openai.py"])
def test_it_says_what_needs_to_be_running(name: str) -> None:
    said = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert said is not None and f"python examples/{name}" in said
    assert "to be running" in said and "pip install" in said


@pytest.mark.slow  # a cluster's start
def test_it_records_and_reckons(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = run("ray_data.py", "--questions", "16", "--price", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "Ray keeps quiet"
    pool = read_pool(tmp_path / "ray-pool.sqlite")
    assert [len(question.responses) for question in pool.questions] == [4] * 16
    assert done.stdout.startswith("16 questions of 4 responses by 2 workers; ray-pool.sqlite has 16\n")
    hours, money = re.search(r"   1 replicas: ([\d.,]+) hours, ([\d.,]+) at 2 a replica-hour", done.stdout).groups()  # type: ignore[union-attr]
    assert float(money.replace(",", "")) == pytest.approx(2 * float(hours.replace(",", "")), abs=0.2)
    again = run("ray_data.py", "--questions", "16", cwd=tmp_path)
    assert again.returncode == 1 and again.stderr.startswith("error: nothing was left to measure")
