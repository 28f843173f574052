"""llama-server as a contender: started on loopback, asked in parallel, asleep while others have their turn."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.bare_loop import SAMPLING
from benchmarks.settings import CELLS, Settings, check_tokens

__all__ = ["LlamaServer", "missing", "open_server"]

_START: Final = 120.0  # seconds


def missing(settings: Settings) -> str:
    """Why there is no server to measure; empty where there is one."""
    if settings.llama_server or importlib.util.find_spec("xllamacpp"):
        return ""
    return "no llama-server here: pip install --group bench (the xllamacpp wheel), or --llama-server EXECUTABLE"


@contextmanager
def open_server(settings: Settings, path: Path, *, slots: int) -> Iterator["LlamaServer"]:
    """A server process of this model; between requests it is stopped, so that its threads take no one's time.

    Raises:
        RuntimeError: it does not come up.
    """
    options = {
        "path": str(path),
        "slots": slots,
        "cells": CELLS,
        "threads": settings.threads,
        "n_gpu_layers": settings.n_gpu_layers,
        "flash_attn": {None: "auto", True: "on", False: "off"}[settings.flash_attn],
    }
    command = [sys.executable, "-m", "benchmarks.llama_server_process", json.dumps(options)]
    port = 0
    if settings.llama_server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = _command(settings.llama_server, port, options)
    root, quiet = Path(__file__).parents[1], subprocess.DEVNULL
    told = quiet if settings.llama_server else subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=told, stderr=quiet) as process:
        try:
            if settings.llama_server:
                address, build = f"http://127.0.0.1:{port}", f"of {settings.llama_server}"
                _wait_until_healthy(process, address)
            else:
                assert process.stdout is not None
                said = json.loads(process.stdout.readline() or "{}")
                if not said:
                    raise RuntimeError(f"the llama-server of xllamacpp ended with code {process.wait()}")
                address, build = said["address"], said["build"].strip().rstrip(" |")
            with ThreadPoolExecutor(slots) as pool:
                yield LlamaServer(process.pid, address, build, slots, pool)
        finally:
            process.kill()


def _command(executable: Path, port: int, options: dict[str, Any]) -> list[str]:
    named = {
        "--model": options["path"],
        "--parallel": options["slots"],
        "--ctx-size": options["cells"],
        "--threads": options["threads"],
        "--n-gpu-layers": options["n_gpu_layers"],
        "--flash-attn": options["flash_attn"],
        "--cache-ram": 0,
        "--host": "127.0.0.1",
        "--port": port,
    }
    return [str(executable.resolve()), "--kv-unified", *(str(part) for pair in named.items() for part in pair)]


def _wait_until_healthy(process: "subprocess.Popen[bytes]", address: str) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise RuntimeError(f"{process.args!r} did not come up in {_START:.0f} s (code {process.poll()})")


class LlamaServer:
    """A server that is there, asleep."""

    def __init__(self, pid: int, address: str, build: str, slots: int, pool: ThreadPoolExecutor) -> None:
        self.build, self._pid, self._address, self._slots, self._pool = build, pid, address, slots, pool
        self._signal("SIGSTOP")

    def rate(self, question: str, *, tokens: int, top_logprobs: int | None) -> float:
        """Ask the question in all slots at once; returns tokens per second.

        The clock runs from the first request to the last byte of the last answer; reading the JSON is not counted.

        Raises:
            RuntimeError: an answer has another length.
        """
        wanted = {} if top_logprobs is None else {"logprobs": True, "top_logprobs": top_logprobs}
        body = {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "samplers": ["top_k", "top_p", "min_p", "temperature"],
            **SAMPLING,
            **wanted,
        }
        bodies = [json.dumps({**body, "seed": slot}).encode() for slot in range(self._slots)]
        self._signal("SIGCONT")
        begun = time.perf_counter()
        answers = list(self._pool.map(self._post, bodies))
        took = time.perf_counter() - begun
        self._signal("SIGSTOP")
        read = [json.loads(answer) for answer in answers]
        check_tokens("llama-server", [one["usage"]["completion_tokens"] for one in read], tokens)
        if wanted:
            given = [len(one["choices"][0]["logprobs"]["content"]) for one in read]
            check_tokens("llama-server, with logprobs,", given, tokens)
        return self._slots * tokens / took

    def _signal(self, name: str) -> None:
        if hasattr(signal, name):
            os.kill(self._pid, getattr(signal, name))

    def _post(self, body: bytes) -> bytes:
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._address}/v1/chat/completions", body, head)
        with urllib.request.urlopen(request, timeout=600) as answer:
            text: bytes = answer.read()
        return text
