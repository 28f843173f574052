"""Examples that need a server: llama-server runs; where none is there, one line says so."""

import ast
import importlib.util
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from backends.openai.fake_server import Fake, serving, sglang, vllm
from test_examples import EXAMPLES, run, run_here, shown

SERVERS = ["llama_server.py", "vllm_server.py", "sglang_server.py", "ollama_chat.py"]
HOSTED = {"openai_api.py": "OPENAI_API_KEY", "azure_openai.py": "AZURE_OPENAI_ENDPOINT"}


@pytest.mark.slow  # a whole calibration; make test runs the same steps in tests/servers
def test_llama_server_calibrates_and_decides(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    told = shown(run("llama_server.py", "--start", "--calibrate", "8", "--questions", "2", cwd=tmp_path))
    first, calibrated, *decided = told.splitlines()
    assert first.startswith("llama-server") and "alternatives per token" in first
    assert calibrated.startswith("offline on 8 responses: top_k/bottom_group/W=16")
    assert len(decided) == 2 and all(" samples, by " in line for line in decided)


@pytest.mark.parametrize(("name", "make"), [("vllm_server.py", vllm), ("sglang_server.py", sglang)])
def test_it_answers_over_a_server_of_its_kind(name: str, make: Callable[..., Fake], tmp_path: Path) -> None:
    with serving(make(models=("tiny",))) as one, serving(make(models=("tiny",))) as other:
        told = shown(run(name, "--model", "tiny", "--base-url", one.url, other.url, cwd=tmp_path))
    assert told.startswith(f"{name.partition('_')[0]} 0.") and ": up to 20 alternatives" in told
    assert "4 " in told and " samples" in told


@pytest.mark.parametrize("name", SERVERS)
def test_an_absent_server_is_one_line_without_a_traceback(name: str) -> None:
    if name == "ollama_chat.py" and not importlib.util.find_spec("langchain_ollama"):
        pytest.skip("langchain-ollama is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = run_here(name, "--base-url", f"http://127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("name", "variable"), HOSTED.items())
def test_a_missing_key_is_one_line_without_a_traceback(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in [key for key in os.environ if key.startswith(("OPENAI_", "AZURE_"))]:
        monkeypatch.delenv(given)
    done = run_here(name)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and variable in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", [*SERVERS, *HOSTED])
def test_it_says_what_needs_to_be_running(name: str) -> None:
    said = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert said is not None and f"python examples/{name}" in said
    assert "to be running" in said and "pip install" in said
