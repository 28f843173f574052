"""Tokens per second beside the bare loop, and how they grow with n."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.bare_loop import BareLoop
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import CELLS, QUESTION, Settings, check_tokens, open_bare, open_ours, prompt_ids
from benchmarks.table import AtLeast, Row

__all__ = ["bare_rate", "large_model", "our_rate", "tiny_model"]

_PARALLEL: Final = (1, 2, 4, 8, 16)
_PARITY: Final = AtLeast(0.97)


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
    tokens = settings.tokens_or(32)
    yield from _against_bare(settings, settings.model_path, settings.shape_name, tokens=tokens, rounds=11, scaling=True)


def tiny_model(settings: Settings) -> Iterator[Row]:
    """The same on the shipped model, where our own code weighs most."""
    tokens = settings.tokens_or(200)
    path = settings.endless_shipped_path
    yield from _against_bare(
        settings.for_shipped_model(), path, "shipped model", tokens=tokens, rounds=15, scaling=False
    )


def _against_bare(
    settings: Settings, path: Path, name: str, *, tokens: int, rounds: int, scaling: bool
) -> Iterator[Row]:
    most = max(_PARALLEL)
    with (
        open_ours(settings, path, n_parallel=most, n_ctx=1024, n_cells=CELLS) as model,
        open_bare(settings, path, sequences=most) as bare,
    ):
        bare.prefill(prompt_ids(model, QUESTION))
        turns = {}
        for n in _PARALLEL:
            turns["ours", n] = partial(our_rate, model, n, tokens, signals=("self_certainty",))
            turns["bare", n] = partial(bare_rate, bare, n, tokens)
        rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    note = f"{tokens} tokens per response, {settings.threads} threads; prompt cached on both sides"
    for n in _PARALLEL:
        row = f"with self-certainty ÷ bare llama_decode + sample loop, n = {n}, {name}"
        yield Row(
            measure=row, spread=ratios(rates["ours", n], rates["bare", n]), goal=_PARITY, note=note if n == 1 else ""
        )
    if scaling:
        yield Row(
            measure=f"ours, n = 8 ÷ n = 1 tokens/s, {name}",
            spread=ratios(rates["ours", 8], rates["ours", 1]),
            goal=AtLeast(1.8),
        )
    for n in _PARALLEL:
        yield Row(measure=f"ours, n = {n}, {name}, tokens/s", spread=Spread.of(rates["ours", n]))


def bare_rate(bare: BareLoop, n: int, tokens: int) -> float:
    """Tokens per second of the bare loop."""
    return n * tokens / bare.generate(n, tokens)
