"""Tokens per second beside the bare loop, how they grow with n, and what a step spends outside ``llama_decode``."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.bare_loop import BareLoop
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, check_tokens, open_bare, open_ours, prompt_ids
from benchmarks.table import Goal, Row

__all__ = ["large_model", "left_over", "our_rate", "our_share", "tiny_model"]

_PARALLEL: Final = (1, 2, 4, 8, 16)
_LEFT_OVER: Final = (3, 6, 7, 10, 11, 14, 15)  # rows that kernels which work on four at a time leave two or three of
_SHARES: Final = {1: 25, 8: 8}
"""Samples together -> percent of a step on the shipped model that may be ours."""


def our_rate(model: ChatLlamaCpp, n: int, tokens: int, **options: Any) -> float:
    """Tokens per second of n samples, from the call to the last message.

    Raises:
        RuntimeError: a response has another length.
    """
    begun = time.perf_counter()
    with model.sample(QUESTION, n=n, max_tokens=tokens, **options) as samples:
        usage = [message.usage_metadata for _, message in samples]
    took = time.perf_counter() - begun
    check_tokens("our model", [use["output_tokens"] if use else 0 for use in usage], tokens)
    return n * tokens / took


def large_model(settings: Settings) -> Iterator[Row]:
    """Exact self-certainty beside the bare loop, at a real model's shape."""
    name = settings.shape_name
    rates = yield from _against_bare(settings, settings.model_path, name, tokens=settings.tokens_or(32), rounds=11)
    yield Row(f"ours, n = 8 ÷ n = 1 tokens/s, {name}", ratios(rates["ours", 8], rates["ours", 1]), Goal("≥", 1.8))


def left_over(settings: Settings) -> Iterator[Row]:
    """Numbers of samples that repacked kernels leave rows over of: we decode idle rows beside them."""
    path, name, tokens = settings.model_path, settings.shape_name, settings.tokens_or(24)
    rates = yield from _against_bare(settings, path, name, tokens=tokens, rounds=5, samples=_LEFT_OVER, least=1.1)
    yield Row(f"bare loop, n = 15, {name}, tokens/s", Spread.of(rates["bare", 15]))


def tiny_model(settings: Settings) -> Iterator[Row]:
    """The same on the shipped model, where our own code weighs most."""
    own, tokens = settings.for_shipped_model(), settings.tokens_or(200)
    yield from _against_bare(own, own.endless_shipped_path, "shipped model", tokens=tokens, rounds=15)


def _against_bare(
    settings: Settings,
    path: Path,
    name: str,
    *,
    tokens: int,
    rounds: int,
    samples: tuple[int, ...] = _PARALLEL,
    least: float = 0.97,
) -> Any:
    """Yields rows; returns the rates by who and n."""
    most = 16
    with (
        open_ours(settings, path, n_parallel=most, n_ctx=1024, n_cells=CELLS) as model,
        open_bare(settings, path, sequences=most) as bare,
    ):
        bare.prefill_rate(prompt_ids(model, QUESTION))
        turns = {}
        for n in samples:
            turns["ours", n] = partial(our_rate, model, n, tokens, signals=("self_certainty",))
            turns["bare", n] = partial(bare.rate, n, tokens)
        rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    note = f"{tokens} tokens per response, {settings.threads} threads; prompt cached on both sides"
    for n in samples:
        row = f"with self-certainty ÷ bare llama_decode + sample loop, n = {n}, {name}"
        yield Row(row, ratios(rates["ours", n], rates["bare", n]), Goal("≥", least), note if n == samples[0] else "")
    for n in samples:
        yield Row(f"ours, n = {n}, {name}, tokens/s", Spread.of(rates["ours", n]))
    return rates


def our_share(settings: Settings) -> Iterator[Row]:
    """What a step on the shipped model costs beyond llama.cpp's own decoding and sampling, with all five signals."""
    own, tokens = settings.for_shipped_model(), settings.tokens_or(200)
    path = own.endless_shipped_path
    outside: dict[int, list[float]] = {n: [] for n in _SHARES}
    with open_ours(own, path, n_ctx=1024, n_cells=CELLS) as model, open_bare(own, path, sequences=8) as bare:
        bare.prefill_rate(prompt_ids(model, QUESTION))

        def ours(n: int) -> float:
            before = model._engine.context.decode_seconds
            took = n * tokens / our_rate(model, n, tokens)
            outside[n].append((took - model._engine.context.decode_seconds + before) / took * 100)
            return took

        turns = {("ours", n): partial(ours, n) for n in _SHARES}
        turns |= {("bare", n): partial(_bare_seconds, bare, n, tokens) for n in _SHARES}
        took = interleaved(turns, rounds=settings.rounds_or(15))
    for n, most in _SHARES.items():
        shares = [(1 - floor / all_) * 100 for all_, floor in zip(took["ours", n], took["bare", n], strict=True)]
        row = f"step at n = {n}, shipped model, five signals: % beyond the bare loop's llama_decode and sampling"
        note = f"{tokens} tokens per response, all of a call included" if n == 1 else ""
        yield Row(row, Spread.of(shares), Goal("≤", most, " %"), note)
        row = f"the same, n = {n}: % outside llama_decode, llama.cpp's sampling included"
        yield Row(row, Spread.of(outside[n][1:]))  # without the round that warms up


def _bare_seconds(bare: BareLoop, n: int, tokens: int) -> float:
    return n * tokens / bare.rate(n, tokens)
