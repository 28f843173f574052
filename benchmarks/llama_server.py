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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.bare_loop import SAMPLING
from benchmarks.settings import CELLS, Settings, check_tokens

__all__ = ["LlamaServer"]

_START: Final = 120.0  # seconds


class LlamaServer:
    """One server process.

    Between :meth:`answer` calls the process is stopped by SIGSTOP, so that its threads take no one's time.

    Attributes:
        build: what the server says of its processor support.
    """

    def __init__(self, path: Path, *, slots: int, settings: Settings) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: it does not come up.
        """
        self._slots = slots
        self._pool = ThreadPoolExecutor(slots)
        options = {
            "path": str(path),
            "slots": slots,
            "cells": CELLS,
            "threads": settings.threads,
            "n_gpu_layers": settings.n_gpu_layers,
            "flash_attn": {None: "auto", True: "on", False: "off"}[settings.flash_attn],
        }
        try:
            if settings.llama_server:
                self._start_executable(settings.llama_server, options)
            else:
                self._start_wheel(options)
        except BaseException:
            self.close()
            raise
        self._sleep()

    @staticmethod
    def missing(settings: Settings) -> str:
        """Why there is no server to measure; empty where there is one."""
        if settings.llama_server or importlib.util.find_spec("xllamacpp"):
            return ""
        return "no llama-server here: pip install --group bench (the xllamacpp wheel), or --llama-server EXECUTABLE"

    def answer(self, question: str, *, tokens: int, top_logprobs: int | None) -> float:
        """Ask the question in all slots at once; returns tokens per second.

        The clock runs from the first request to the last byte of the last answer; reading the JSON is not counted.

        Raises:
            RuntimeError: an answer has another length.
        """
        bodies = [self._body(question, tokens, top_logprobs, seed=slot) for slot in range(self._slots)]
        self._wake()
        begun = time.perf_counter()
        answers = list(self._pool.map(self._post, bodies))
        took = time.perf_counter() - begun
        self._sleep()
        read = [json.loads(answer) for answer in answers]
        check_tokens("llama-server", [one["usage"]["completion_tokens"] for one in read], tokens)
        if top_logprobs is not None:
            given = [len(one["choices"][0]["logprobs"]["content"]) for one in read]
            check_tokens("llama-server, with logprobs,", given, tokens)
        return self._slots * tokens / took

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        process: subprocess.Popen[str] | None = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_wheel(self, options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "benchmarks.llama_server_process", json.dumps(options)]
        root = str(Path(__file__).parents[1])
        self._process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the llama-server of xllamacpp ended with code {self._process.wait()}")
        said = json.loads(line)
        self._address, self.build = said["address"], said["build"].strip().rstrip(" |")

    def _start_executable(self, executable: Path, options: dict[str, Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        names = {
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
        command = [str(executable), *(str(part) for pair in names.items() for part in pair), "--kv-unified"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )
        self._address, self.build = f"http://127.0.0.1:{port}", f"of {executable}"
        self._wait_until_healthy(executable)

    def _wait_until_healthy(self, executable: Path) -> None:
        until = time.monotonic() + _START
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._address}/health", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        raise RuntimeError(f"{executable} did not come up in {_START:.0f} s (code {self._process.poll()})")

    def _wake(self) -> None:
        if hasattr(signal, "SIGCONT"):
            os.kill(self._process.pid, signal.SIGCONT)

    def _sleep(self) -> None:
        if hasattr(signal, "SIGSTOP"):
            os.kill(self._process.pid, signal.SIGSTOP)

    def _body(self, question: str, tokens: int, top_logprobs: int | None, *, seed: int) -> bytes:
        logprobs = {} if top_logprobs is None else {"logprobs": True, "top_logprobs": top_logprobs}
        body = {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "seed": seed,
            "samplers": ["top_k", "top_p", "min_p", "temperature"],
            **SAMPLING,
            **logprobs,
        }
        return json.dumps(body).encode()

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(
            f"{self._address}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            text: bytes = answer.read()
        return text
