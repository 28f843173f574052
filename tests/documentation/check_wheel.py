"""Checks a wheel as its users get it: installed with each extra in a fresh environment, and what the README shows.

``python tests/documentation/check_wheel.py dist/NAME.whl`` does both; ``make dist`` calls it. The README's requests go
to the shipped model behind ``reasc serve``, in place of a provider.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXTRAS: Final = {
    "": "from langchain_reasc import ReASCRunnable, calibrate",
    "llama-cpp": "from langchain_reasc_llama_cpp import ChatLlamaCpp; ChatLlamaCpp().close()",
    "huggingface": "import huggingface_hub",
    "openai": "from langchain_reasc_openai import ChatOpenAICompatible",
    "serve": "import langchain_reasc_server.command, langchain_reasc_server.app",
    "otel": "import opentelemetry.exporter.otlp.proto.http, opentelemetry.instrumentation.asgi",
    "agents": "from langchain_reasc import ChatReASC, ReASCMiddleware",
    "math": "import math_verify; from langchain_reasc import ReASCRunnable",
    "lab": "import langchain_reasc_lab.replay.plots, langchain_reasc_lab.report",
    "data": "import datasets, langchain_reasc_lab.data",
    "all": "import langchain_reasc_server.app, langchain_reasc_lab.report",
}
"""Each extra, and what works with it."""
COMPILED: Final = {"llama-cpp", "all"}
SCHEMAS: Final = """
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_reasc import ReASCRunnable

values = iter(["seven", 7, "eight", "seven", "seven", None, 7])

class Calling(BaseChatModel):
    @property
    def _llm_type(self):
        return "calling"

    def _generate(self, messages, stop=None, run_manager=None, **options):
        call = {"name": "f", "args": {"a": next(values)}, "id": "1"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])

parameters = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
message = ReASCRunnable(model=Calling().bind(tools=[tool]), max_samples=7, concurrency=1).invoke("q")
[call] = message.tool_calls
assert call["args"] == {"a": 7}, call
"""
"""What works with each: calls that break their schema do not win, however many agree."""


def installed(wheel: Path, extra: str, folder: Path) -> Path:
    """Install a wheel with an extra; returns the folder of the environment's commands."""
    commands = folder / "bin"
    subprocess.run(["uv", "venv", "--quiet", "--seed", "--python", sys.executable, folder], check=True)
    if extra in COMPILED:
        [needed] = re.findall(r'^llama-cpp = \["([^"]+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
        subprocess.run(["bash", ROOT / "backends" / "llama_cpp_build.sh", folder, needed], check=True)
    wanted = f"langchain-reasc[{extra}] @ {wheel.resolve().as_uri()}" if extra else str(wheel)
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", commands / "python", wanted], check=True)
    return commands


@contextmanager
def served_model(commands: Path, *options: str) -> Iterator[str]:
    """Serve a model, by default the shipped one, as a provider of OpenAI's API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [commands / "reasc", "serve", "--port", str(port), *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live")
                    break
                except OSError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def check_readme(commands: Path, folder: Path) -> None:
    """Run the README's blocks of Python and its commands, and compare what the commands print."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with served_model(commands) as address:
        told = os.environ | {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none", "PATH": f"{commands}:{os.defpath}"}
        for code in re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE):
            subprocess.run([commands / "python", "-c", code], cwd=folder, env=told, check=True)
        for command, printed in re.findall(r"^\$ (.+)\n((?:(?!```|\$ ).*\n)*)", readme, re.MULTILINE):
            done = subprocess.run(
                command, shell=True, cwd=folder, env=told, text=True, stdout=subprocess.PIPE, check=True
            )
            assert done.stdout == printed, f"{command} printed {done.stdout!r}, not {printed!r}"


def main(wheel: Path) -> None:
    """Check one wheel."""
    with TemporaryDirectory() as place:
        for extra, code in EXTRAS.items():
            folder = Path(place) / (extra or "core")
            commands = installed(wheel, extra, folder)
            for works in (code, SCHEMAS):
                subprocess.run([commands / "python", "-c", works], cwd=place, check=True)
            subprocess.run([commands / "reasc", "--help"], cwd=place, stdout=subprocess.DEVNULL, check=True)
            print(f"langchain-reasc{f'[{extra}]' if extra else ''} works", flush=True)
        check_readme(commands, folder)
        print("what the README shows works")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
