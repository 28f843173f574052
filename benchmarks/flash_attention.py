"""Why the other measures run without flash attention on a processor: the bare loop with and without it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.bare_loop import BareLoop
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import Settings, open_bare
from benchmarks.table import Row

__all__ = ["off_against_on"]

_PARALLEL: Final = 8


def off_against_on(settings: Settings) -> Iterator[Row]:
    """Decoding and prefill of the bare loop after a prompt of 1,000 tokens."""
    size, tokens = (100 if settings.quick else 1000), settings.tokens_or(16)
    prompt = [300 + i % 1000 for i in range(size)]
    path = settings.model_path
    with (
        open_bare(replace(settings, flash_attn=False), path, sequences=_PARALLEL) as off,
        open_bare(replace(settings, flash_attn=True), path, sequences=_PARALLEL) as on,
    ):
        names = {"off": off, "on": on}
        prefills = interleaved(
            {name: partial(_prefill_rate, bare, prompt) for name, bare in names.items()},
            rounds=settings.rounds_or(2),
        )
        rates = interleaved(
            {name: partial(_decode_rate, bare, tokens) for name, bare in names.items()}, rounds=settings.rounds_or(5)
        )
    name = f"bare loop without flash attention ÷ with, {size:,}-token prompt, {settings.shape_name}"
    yield Row(measure=f"{name}: decode, n = {_PARALLEL}", spread=ratios(rates["off"], rates["on"]))
    yield Row(measure=f"{name}: prefill", spread=ratios(prefills["off"], prefills["on"]))
    for which, found in prefills.items():
        yield Row(measure=f"prefill, flash attention {which}, tokens/s", spread=Spread.of(found))


def _prefill_rate(bare: BareLoop, prompt: list[int]) -> float:
    begun = time.perf_counter()
    bare.prefill(prompt)
    return len(prompt) / (time.perf_counter() - begun)


def _decode_rate(bare: BareLoop, tokens: int) -> float:
    return _PARALLEL * tokens / bare.generate(_PARALLEL, tokens)
