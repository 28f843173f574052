"""What attention costs the bare loop: with flash attention and without, and with idle prompts in the cache."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.bare_loop import BareLoop
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import Settings, open_bare
from benchmarks.table import Row

__all__ = ["of_bare_loop"]

_PARALLEL: Final = 8


def of_bare_loop(settings: Settings) -> Iterator[Row]:
    """Why the other measures run without flash attention on a processor, and what keeping old prompts costs."""
    yield from _off_against_on(settings)
    yield from _idle_against_none(settings)


def _off_against_on(settings: Settings) -> Iterator[Row]:
    size, tokens = (100 if settings.quick else 1000), settings.tokens_or(16)
    prompt = _prompt(size)
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


def _idle_against_none(settings: Settings) -> Iterator[Row]:
    """llama.cpp's attention reads the cache up to the last cell in use, whosever they are."""
    size, tokens = (200 if settings.quick else 2000), settings.tokens_or(16)
    path = settings.model_path
    with (
        open_bare(settings, path, sequences=_PARALLEL) as crowded,
        open_bare(settings, path, sequences=_PARALLEL) as alone,
    ):
        crowded.prefill(_prompt(50), idle=_prompt(size))
        alone.prefill(_prompt(50))
        rates = interleaved(
            {"crowded": partial(_decode_rate, crowded, tokens), "alone": partial(_decode_rate, alone, tokens)},
            rounds=settings.rounds_or(5),
        )
    name = f"bare loop with {size:,} idle tokens in the cache ÷ without, 50-token prompt, {settings.shape_name}"
    yield Row(measure=f"{name}: decode, n = {_PARALLEL}", spread=ratios(rates["crowded"], rates["alone"]))


def _prompt(size: int) -> list[int]:
    return [300 + i % 1000 for i in range(size)]


def _prefill_rate(bare: BareLoop, prompt: list[int]) -> float:
    begun = time.perf_counter()
    bare.prefill(prompt)
    return len(prompt) / (time.perf_counter() - begun)


def _decode_rate(bare: BareLoop, tokens: int) -> float:
    return _PARALLEL * tokens / bare.generate(_PARALLEL, tokens)
