"""The real llama-server, on loopback, as a context manager."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LlamaServer", "llama_server"]

PROCESS = Path(__file__).parents[2] / "benchmarks" / "llama_server_process.py"
NAME = "word-problems"


@dataclass(frozen=True)
class LlamaServer:
    """A running server.

    Attributes:
        url: base URL for OpenAI's clients.
        name: of its model.
    """

    url: str
    name: str = NAME

    def generated(self) -> int:
        """Tokens generated since it started."""
        text = self._get("/metrics").decode()
        found = re.search(r"^llamacpp:tokens_predicted_total (\S+)$", text, re.MULTILINE)
        assert found, text
        return int(float(found[1]))

    def busy(self) -> int:
        """Slots that generate now."""
        slots: list[dict[str, Any]] = json.loads(self._get("/slots"))
        return sum(slot["is_processing"] for slot in slots)

    def wait_until_idle(self, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while self.busy():
            assert time.monotonic() < until, f"still {self.busy()} slots busy after {seconds} s"
            time.sleep(0.005)

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + path, timeout=30) as reply:
            body: bytes = reply.read()
        return body


@contextmanager
def llama_server(path: Path, *, cache: str = "F16", slots: int = 8) -> Iterator[LlamaServer]:
    """Start one on a GGUF; ``cache`` is the type of its KV cache."""
    options = {
        "path": str(path),
        "name": NAME,
        "cache": cache,
        "slots": slots,
        "cells": 8192,
        "threads": 1,
        "n_gpu_layers": 0,
        "flash_attn": "off",
        "http_threads": 32,
        "watched": True,
    }
    process = subprocess.Popen(
        [sys.executable, str(PROCESS), json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        answer = process.stdout.readline()
        assert answer, f"llama-server ended with code {process.wait()}"
        yield LlamaServer(f"{json.loads(answer)['address']}/v1")
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()
