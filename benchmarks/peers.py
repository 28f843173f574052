"""Ours beside llama-server and llama-cpp-python, both of which give log-probabilities of 20 tokens."""

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final

import llama_cpp
from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.gguf_file import read_header
from langchain_reasc_llama_cpp.native.safe_kernels import may_repack

from benchmarks.bare_loop import SAMPLING
from benchmarks.decode_rate import our_rate
from benchmarks.llama_server import missing, open_server
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, check_tokens, open_ours
from benchmarks.table import Goal, Row

__all__ = ["against_llama_cpp_python", "against_llama_server"]

_TOP: Final = 20
_REQUESTS: Final = 8


def against_llama_server(settings: Settings) -> Iterator[Row]:
    """Eight samples with signals beside eight parallel chat requests with ``top_logprobs=20``."""
    measure = f"ours, n = 8 with signals ÷ llama-server, 8 requests with top_logprobs=20, {settings.shape_name}"
    goal = Goal("≥", 1.1)
    if why := missing(settings):
        yield Row(measure, None, goal, why)
        return
    tokens = settings.tokens_or(32)
    path = settings.model_path
    with (
        open_ours(settings, path, n_parallel=_REQUESTS, n_ctx=1024, n_cells=CELLS) as model,
        open_server(settings, path, slots=_REQUESTS) as server,
    ):
        rates = interleaved(
            {
                "ours, five signals": partial(our_rate, model, _REQUESTS, tokens),
                "ours, logprobs": partial(our_rate, model, _REQUESTS, tokens, logprobs=True, top_logprobs=_TOP),
                "server": partial(server.rate, QUESTION, tokens=tokens, top_logprobs=_TOP),
                "server, plain": partial(server.rate, QUESTION, tokens=tokens, top_logprobs=None),
            },
            rounds=settings.rounds_or(5),
        )
        build = server.build
    ours = rates["ours, five signals"]
    note = f"all five signals; prompt cached on both sides, {tokens} tokens each; the server's build: {build}"
    yield Row(measure, ratios(ours, rates["server"]), goal, note)
    yield Row("the same, ours with top_logprobs=20 too", ratios(rates["ours, logprobs"], rates["server"]))
    yield Row("the same, llama-server without logprobs", ratios(ours, rates["server, plain"]))
    yield Row("llama-server, 8 requests with top_logprobs=20, tokens/s", Spread.of(rates["server"]))


def against_llama_cpp_python(settings: Settings) -> Iterator[Row]:
    """Logprobs beside ``create_chat_completion``, which sorts the vocabulary in Python for every token."""
    name = f"ours with logprobs ÷ llama-cpp-python create_chat_completion(logprobs=True, top_logprobs={_TOP})"
    if not may_repack(library(), read_header(settings.model_path)):
        yield Row(name, None, note="not run: it has no use_extra_bufts, and AMX kernels are not safe here")
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
    with closing(peer), open_ours(settings, settings.model_path, n_parallel=_REQUESTS, n_ctx=512) as model:
        rates = interleaved(
            {
                1: partial(our_rate, model, 1, tokens, **options),
                8: partial(our_rate, model, 8, tokens, **options),
                0: partial(_peer_rate, peer, tokens),
            },
            rounds=settings.rounds_or(5),
        )
    for n, goal, note in (
        (8, Goal("≥", 10), "8 samples of one question; the peer can only give them one after the other"),
        (1, None, "one response each: the peer's own decoding is part of its time, which bounds this ratio"),
    ):
        yield Row(f"{name}, n = {n}, {settings.shape_name}", ratios(rates[n], rates[0]), goal, note)
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
