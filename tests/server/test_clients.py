"""The sessions of docs/clients.md: each client runs as its user would run it, and prints what the page shows."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from .serving import listening
from .test_command import process

pytestmark = pytest.mark.full  # starts clients and servers

ROOT = Path(__file__).parents[2]
SESSIONS = sorted(
    path for path in (ROOT / "examples" / "clients").iterdir() if path.stem != "upstream" and path.is_file()
)
QUICK = ("anthropic_client.py", "curl.sh", "openai_client.py")
RUNS = {".mjs": "node", ".py": "python", ".sh": "bash"}


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """In front of the scripted model."""
    app = runpy.run_path(str(ROOT / "examples" / "clients" / "upstream.py"))["app"]
    with listening(app, log_level="warning") as upstream, process("--url", upstream) as (url, _):
        yield url


@pytest.fixture(scope="module")
def shipped() -> Iterator[str]:
    """The shipped model."""
    pytest.importorskip("llama_cpp")
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    with process() as (url, _):
        yield url


def section(name: str) -> str:
    """What the page says of a session."""
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    [found] = [part for part in page.split("\n## ") if f"](../examples/clients/{name})" in part]
    return found


def blocks(name: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```$", section(name), re.DOTALL | re.MULTILINE)


def settled(name: str, printed: str) -> list[str]:
    """Words of an output without what differs from run to run: how many samples it took, and what they were."""
    if name == "curl.sh":
        varying = r'"(id|content)":"(\\.|[^"\\])*"|"votes":\{[^}]*\}|(date|x-reasc-id): .*|(?<!"answer":")\b\d+'
        printed = re.sub(varying, "_", printed)
    return re.sub(r"\d+(?= (samples|tokens)\b)", "_", printed).split()


def install(name: str, folder: Path) -> None:
    """Install what the page says that a session needs, into a folder."""
    for installer, packages in re.findall(r"`(npm|pip) install ([^`]+)`", section(name)):
        commands = {
            "npm": [["npm", "install", "--no-audit", "--no-fund"]],
            "pip": [[sys.executable, "-m", "venv", "venv"], ["venv/bin/pip", "install", "-q", "--no-compile"]],
        }[installer]
        commands[-1] += packages.split()
        for command in commands:
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
            except FileNotFoundError:
                pytest.skip(f"there is no {command[0]}")
            if done.returncode:
                pytest.skip(f"{packages} cannot be had: {done.stderr[-200:]}")


@pytest.mark.parametrize(
    "session",
    [pytest.param(path, marks=[] if path.name in QUICK else pytest.mark.slow) for path in SESSIONS],
    ids=lambda path: path.name,
)
def test_a_session_prints_what_the_page_shows(session: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    *shown, output = blocks(session.name)
    assert all(part in session.read_text(encoding="utf-8") for block in shown for part in block.split("\n\n"))
    if session.name == "anthropic_client.py":
        pytest.importorskip("anthropic")
    install(session.name, tmp_path)
    program = shutil.copy(session, tmp_path)  # Node looks for packages beside it
    own = [tmp_path / "node_modules" / ".bin", tmp_path / "venv" / "bin", Path(sys.executable).parent]
    url = request.getfixturevalue("shipped" if session.name == "curl.sh" else "shop")
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "any",
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "any",
        "PATH": os.pathsep.join([*map(str, own), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        # None of them asks a machine beyond this one.
        "AIDER_ANALYTICS_DISABLE": "true",
        "AIDER_CHECK_UPDATE": "false",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    }
    printed, complaint = run([RUNS[session.suffix], program], tmp_path, environment)
    assert settled(session.name, printed) == settled(session.name, output), complaint


def run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """What a command says on stdout and on stderr; nothing that it has started is left."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)
    try:
        return started.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
