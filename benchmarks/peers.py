"""Ours beside llama-server and llama-cpp-python, both of which give log-probabilities
of 20 tokens.
"""

import importlib.util
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import llama_cpp
from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.gguf_file import read_header
from langchain_reasc_llama_cpp.native.safe_kernels import may_repack

from benchmarks.bare_loop import SAMPLING
from benchmarks.decoding import our_rate
from benchmarks.settings import CELLS, QUESTION, Settings, check_tokens, open_ours
from benchmarks.table import Goal, Row, Spread, interleaved, ratios
from tests.servers.llama_server import llama_server, running_server

_TOP: Final = 20
_REQUESTS: Final = 8


def against_llama_server(settings: Settings) -> Iterator[Row]:
    """Eight samples with signals beside eight parallel chat requests with
    ``top_logprobs=20``.
    """
    measure = f"ours, n = 8 with signals ÷ llama-server, 8 requests with top_logprobs=20, {settings.shape_name}"
    goal = Goal("≥", 1.1)
    if not (settings.llama_server or importlib.util.find_spec("xllamacpp")):
        why = "no llama-server here: pip install --group bench (the xllamacpp wheel), or --llama-server EXECUTABLE"
        yield Row(measure, None, goal, why)
        return
    tokens = settings.tokens_or(32)
    path = settings.model_path
    with (
        open_ours(
            settings, path, n_parallel=_REQUESTS, n_ctx=1024, n_cells=CELLS
        ) as model,
        _open_server(settings, path) as server,
    ):
        rates = interleaved(
            {
                "ours, five signals": partial(our_rate, model, _REQUESTS, tokens),
                "ours, logprobs": partial(
                    our_rate, model, _REQUESTS, tokens, logprobs=True, top_logprobs=_TOP
                ),
                "server": partial(server.rate, tokens=tokens, top_logprobs=_TOP),
                "server, plain": partial(server.rate, tokens=tokens, top_logprobs=None),
            },
            rounds=settings.rounds_or(5),
        )
        build = server.build
    ours = rates["ours, five signals"]
    note = f"all five signals; prompt cached on both sides, {tokens} tokens each; the server's build: {build}"
    yield Row(measure, ratios(ours, rates["server"]), goal, note)
    yield Row(
        "the same, ours with top_logprobs=20 too",
        ratios(rates["ours, logprobs"], rates["server"]),
    )
    yield Row(
        "the same, llama-server without logprobs", ratios(ours, rates["server, plain"])
    )
    yield Row(
        "llama-server, 8 requests with top_logprobs=20, tokens/s",
        Spread.of(rates["server"]),
    )


def against_llama_cpp_python(settings: Settings) -> Iterator[Row]:
    """Logprobs beside ``create_chat_completion``, which sorts the vocabulary in Python
    for every token.
    """
    name = f"ours with logprobs ÷ llama-cpp-python create_chat_completion(logprobs=True, top_logprobs={_TOP})"
    if not may_repack(library(), read_header(settings.model_path)):
        yield Row(
            name,
            None,
            note="not run: it has no use_extra_bufts, and AMX kernels are not safe here",
        )
        return
    tokens = settings.tokens_or(16)
    peer = llama_cpp.Llama(
        str(settings.model_path),
        n_ctx=512,
        n_threads=settings.threads,
        n_threads_batch=settings.threads,
        n_gpu_layers=settings.n_gpu_layers,
        flash_attn=bool(settings.flash_attn),
        logits_all=True,
        verbose=False,
    )
    options = {"logprobs": True, "top_logprobs": _TOP, "signals": ()}
    with (
        closing(peer),
        open_ours(
            settings, settings.model_path, n_parallel=_REQUESTS, n_ctx=512
        ) as model,
    ):
        rates = interleaved(
            {
                1: partial(our_rate, model, 1, tokens, **options),
                8: partial(our_rate, model, 8, tokens, **options),
                0: partial(_peer_rate, peer, tokens),
            },
            rounds=settings.rounds_or(5),
        )
    for n, goal, note in (
        (
            8,
            Goal("≥", 10),
            (
                "8 samples of one question; the peer can only give them one after the "
                "other"
            ),
        ),
        (
            1,
            None,
            (
                "one response each: the peer's own decoding is part of its time, which "
                "bounds this ratio"
            ),
        ),
    ):
        yield Row(
            f"{name}, n = {n}, {settings.shape_name}",
            ratios(rates[n], rates[0]),
            goal,
            note,
        )
    yield Row("llama-cpp-python with logprobs, tokens/s", Spread.of(rates[0]))


def _peer_rate(peer: Any, tokens: int) -> float:
    begun = time.perf_counter()
    answer = peer.create_chat_completion(
        [{"role": "user", "content": QUESTION}],
        max_tokens=tokens,
        logprobs=True,
        top_logprobs=_TOP,
        repeat_penalty=1.0,
        seed=1,
        **SAMPLING,
    )
    took = time.perf_counter() - begun
    check_tokens("llama-cpp-python", [answer["usage"]["completion_tokens"]], tokens)
    return tokens / took


@contextmanager
def _open_server(settings: Settings, path: Path) -> Iterator["_Sleeper"]:
    flash = {None: "auto", True: "on", False: "off"}[settings.flash_attn]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        if settings.llama_server:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            options = {
                "--model": path,
                "--parallel": _REQUESTS,
                "--ctx-size": CELLS,
                "--threads": settings.threads,
                "--n-gpu-layers": settings.n_gpu_layers,
                "--flash-attn": flash,
                "--cache-ram": 0,
                "--host": "127.0.0.1",
                "--port": port,
            }
            command = [
                settings.llama_server.resolve(),
                "--kv-unified",
                *(part for pair in options.items() for part in pair),
            ]
            with running_server(command, f"http://127.0.0.1:{port}/health") as process:
                yield _Sleeper(
                    process.pid,
                    f"http://127.0.0.1:{port}/v1",
                    f"of {settings.llama_server}",
                    pool,
                )
        else:
            options = {
                "threads": settings.threads,
                "n_gpu_layers": settings.n_gpu_layers,
                "flash_attn": flash,
            }
            with llama_server(path, slots=_REQUESTS, cells=CELLS, **options) as server:
                yield _Sleeper(server.pid, server.url, server.build, pool)


class _Sleeper:
    """A llama-server that is stopped between its turns, so that its threads take no
    one's time.
    """

    def __init__(
        self, pid: int, url: str, build: str, pool: ThreadPoolExecutor
    ) -> None:
        self.build, self._pid, self._url, self._pool = build, pid, url, pool
        self._signal("SIGSTOP")

    def rate(self, *, tokens: int, top_logprobs: int | None) -> float:
        """Ask the question in all slots at once; returns tokens per second.

        The clock runs from the first request to the last byte of the last answer;
        reading the JSON is not counted.

        Raises:
            RuntimeError: an answer has another length.
        """
        wanted = (
            {}
            if top_logprobs is None
            else {"logprobs": True, "top_logprobs": top_logprobs}
        )
        body = {
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": tokens,
            "samplers": ["top_k", "top_p", "min_p", "temperature"],
            **SAMPLING,
            **wanted,
        }
        bodies = [
            json.dumps({**body, "seed": slot}).encode() for slot in range(_REQUESTS)
        ]
        self._signal("SIGCONT")
        begun = time.perf_counter()
        answers = list(self._pool.map(self._post, bodies))
        took = time.perf_counter() - begun
        self._signal("SIGSTOP")
        read = [json.loads(answer) for answer in answers]
        check_tokens(
            "llama-server", [one["usage"]["completion_tokens"] for one in read], tokens
        )
        if wanted:
            given = [len(one["choices"][0]["logprobs"]["content"]) for one in read]
            check_tokens("llama-server, with logprobs,", given, tokens)
        return _REQUESTS * tokens / took

    def _signal(self, name: str) -> None:
        if hasattr(signal, name):
            os.kill(self._pid, getattr(signal, name))

    def _post(self, body: bytes) -> bytes:
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/chat/completions", body, head)
        with urllib.request.urlopen(request, timeout=600) as answer:
            text: bytes = answer.read()
        return text
