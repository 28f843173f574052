"""Tokens per second beside the bare loop, how they grow with n, and what a step spends outside ``llama_decode``."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, check_tokens, open_bare, open_ours, prompt_ids
from benchmarks.table import Goal, Row

__all__ = ["large_model", "our_rate", "our_share", "tiny_model"]

_PARALLEL: Final = (1, 2, 4, 8, 16)
_SAMPLES: Final = 8


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


def tiny_model(settings: Settings) -> Iterator[Row]:
    """The same on the shipped model, where our own code weighs most."""
    own, tokens = settings.for_shipped_model(), settings.tokens_or(200)
    yield from _against_bare(own, own.endless_shipped_path, "shipped model", tokens=tokens, rounds=15)


def _against_bare(settings: Settings, path: Path, name: str, *, tokens: int, rounds: int) -> Any:
    """Yields rows; returns the rates by who and n."""
    most = max(_PARALLEL)
    with (
        open_ours(settings, path, n_parallel=most, n_ctx=1024, n_cells=CELLS) as model,
        open_bare(settings, path, sequences=most) as bare,
    ):
        bare.prefill_rate(prompt_ids(model, QUESTION))
        turns = {}
        for n in _PARALLEL:
            turns["ours", n] = partial(our_rate, model, n, tokens, signals=("self_certainty",))
            turns["bare", n] = partial(bare.rate, n, tokens)
        rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    note = f"{tokens} tokens per response, {settings.threads} threads; prompt cached on both sides"
    for n in _PARALLEL:
        row = f"with self-certainty ÷ bare llama_decode + sample loop, n = {n}, {name}"
        yield Row(row, ratios(rates["ours", n], rates["bare", n]), Goal("≥", 0.97), note if n == 1 else "")
    for n in _PARALLEL:
        yield Row(f"ours, n = {n}, {name}, tokens/s", Spread.of(rates["ours", n]))
    return rates


def our_share(settings: Settings) -> Iterator[Row]:
    """Share of the wall time of n = 8 samples that ``llama_decode`` does not have."""
    own, tokens = settings.for_shipped_model(), settings.tokens_or(200)
    steps: list[float] = []
    with open_ours(own, own.endless_shipped_path, n_ctx=1024, n_cells=CELLS) as model:

        def share() -> float:
            before = model._engine.context.decode_seconds
            took = _SAMPLES * tokens / our_rate(model, _SAMPLES, tokens)
            outside = took - (model._engine.context.decode_seconds - before)
            steps.append(outside / tokens * 1e6)
            return outside / took * 100

        shares = interleaved({"ours": share}, rounds=settings.rounds_or(15))["ours"]
    yield Row(
        f"our Python per decode step at n = {_SAMPLES}, shipped model, % of the step",
        Spread.of(shares),
        Goal("<", 15, " %"),
        f"wall time outside llama_decode; five signals, {tokens} tokens per response, all of a call included",
    )
    # Those of the rounds alone: one more has warmed up.
    yield Row(f"outside llama_decode, µs per step of {_SAMPLES} tokens", Spread.of(steps[1:]))
