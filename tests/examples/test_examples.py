"""Each example runs as it stands, on the shipped model."""

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from langchain_reasc.pools import read_pool

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The example in a process of its own, without the keys of whoever runs the tests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "AZURE_"))}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


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


def test_a_chain_with_a_local_gguf_prints_an_answer_and_its_account(tmp_path: Path) -> None:
    told = shown(run("local_gguf_chain.py", cwd=tmp_path))
    assert "\\boxed{" in told
    assert "samples" in told and "evidence {" in told


@pytest.mark.slow  # 48 questions, up to sixteen responses each
def test_a_chain_with_any_chat_model_answers_every_question(tmp_path: Path) -> None:
    told = shown(run("any_chat_model.py", "--state", "online.json", cwd=tmp_path))
    answered = [line for line in told.splitlines() if " samples, by " in line]
    assert len(answered) == 48
    assert "tokens generated for 48 questions" in told
    assert json.loads((tmp_path / "online.json").read_text())["seen"] >= 32


@pytest.mark.slow  # a whole calibration; make test runs the same steps in tests/cli
def test_calibrate_then_serve_writes_a_calibration_and_uses_it(tmp_path: Path) -> None:
    told = shown(run("calibrate_then_serve.py", "mine.json", cwd=tmp_path))
    written = json.loads((tmp_path / "mine.json").read_text())
    assert written["method"] == "offline" and written["n"] == 128
    assert written["rejected"], "the measures that were not chosen are recorded"
    assert len([line for line in told.splitlines() if ", by " in line]) == 5


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


@pytest.mark.parametrize("name", ["local_gguf_chain.py", "ray_data.py"])
def test_a_missing_model_is_one_line_without_a_traceback(name: str) -> None:
    done = run_here(name, "--model", "absent.gguf")
    assert done.returncode == 1 and "absent.gguf" in done.stderr and "Traceback" not in done.stderr


def test_a_missing_key_is_one_line_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run_here("any_chat_model.py", "--model", "any")
    assert done.returncode == 1
    assert done.stderr == "error: set OPENAI_API_KEY, or name a server with --base-url\n"


@pytest.mark.slow  # openai's client asks three times for each of 48 questions, four at once
def test_a_dead_server_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = run("any_chat_model.py", "--model", "any", "--base-url", "http://127.0.0.1:9/v1", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


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
