"""The real llama-server, on loopback, as a context manager; and problems that the shipped model was made for."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from langchain_reasc_llama_cpp import embedded_model_path

from langchain_reasc.data import LabelledQuestion, read_questions

__all__ = ["LlamaServer", "brief", "llama_server", "problems"]

PROCESS = Path(__file__).with_name("llama_server_process.py")
NAME = "word-problems"


@dataclass(frozen=True)
class LlamaServer:
    """A running server, and what it counts.

    Attributes:
        url: base URL for OpenAI's clients.
        pid: its process.
        build: what it says of its llama.cpp.
        name: of its model.
    """

    url: str
    pid: int
    build: str
    name: str = NAME

    def generated(self) -> int:
        """Tokens of all requests that are over, cut off or not."""
        return self._metric("tokens_predicted_total")

    def prefilled(self) -> int:
        """Prompt tokens that were computed, and not taken from a cache."""
        return self._metric("prompt_tokens_total")

    def generating(self) -> tuple[int, int]:
        """Requests that run, and the tokens that they have generated."""
        slots = [slot for slot in json.loads(self._get("/slots")) if slot["is_processing"]]
        return len(slots), sum(part["n_decoded"] for slot in slots for part in slot["next_token"])

    def wait_until_idle(self, seconds: float = 30) -> None:
        """Return when no request runs."""
        until = time.monotonic() + seconds
        while busy := self.generating()[0]:
            assert time.monotonic() < until, f"still {busy} slots busy after {seconds} s"
            time.sleep(0.001)

    def _metric(self, name: str) -> int:
        text = self._get("/metrics").decode()
        found = re.search(rf"^llamacpp:{name} (\S+)$", text, re.MULTILINE)
        assert found, text
        return int(float(found[1]))

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + path, timeout=30) as reply:
            body: bytes = reply.read()
        return body


@contextmanager
def llama_server(path: Path, **options: Any) -> Iterator[LlamaServer]:
    """Start one on a GGUF; the options are those of ``llama_server_process.py``."""
    usual = {"name": NAME, "cache": "F16", "slots": 8, "cells": 8192, "threads": 1, "http_threads": 32}
    usual |= {"path": str(path), "n_gpu_layers": 0, "flash_attn": "off", "watched": True}
    process = subprocess.Popen(
        [sys.executable, str(PROCESS), json.dumps(usual | options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        answer = process.stdout.readline()
        assert answer, f"llama-server ended with code {process.wait()}"
        about = json.loads(answer)
        yield LlamaServer(f"{about['address']}/v1", process.pid, about["build"].strip().rstrip(" |"))
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def running_server(command: Sequence[object], url: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Start any server, and wait until it answers at an address.

    Raises:
        RuntimeError: it does not come up.
    """
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([str(part) for part in command], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        until = time.monotonic() + 120
        while not _answers(url):
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError(f"{process.args!r} did not come up (code {process.poll()})")
            time.sleep(0.2)
        yield process
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


@cache
def problems(split: str, count: int) -> list[LabelledQuestion]:
    return read_questions(embedded_model_path().with_name(f"{split}.jsonl"), limit=count)


@cache
def brief(count: int) -> list[LabelledQuestion]:
    """The shortest of the test problems, whose answers are short too."""
    return sorted(problems("test", 64), key=lambda problem: len(problem.input))[:count]
