"""Two bare loops side by side: flash attention or none, idle prompts in the cache or none, two builds of llama.cpp."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.bare_loop import BareLoop
from benchmarks.rounds import Spread, interleaved, ratios
from benchmarks.settings import Settings, open_bare
from benchmarks.table import Row

__all__ = ["attention", "builds"]

_PARALLEL: Final = 8


def attention(settings: Settings) -> Iterator[Row]:
    """Why the other measures run without flash attention on a processor, and what keeping old prompts costs."""
    size = 100 if settings.quick else 1000
    name = f"bare loop without flash attention ÷ with, {size:,}-token prompt, {settings.shape_name}"
    off, on = (replace(settings, flash_attn=flash) for flash in (False, True))
    path = settings.model_path
    with open_bare(off, path, sequences=_PARALLEL) as without, open_bare(on, path, sequences=_PARALLEL) as with_it:
        yield from _prefill(without, with_it, size, settings, name, ("flash attention off", "flash attention on"))
        yield _decode(without, with_it, _PARALLEL, settings, name)
    yield from _idle(settings)


def _idle(settings: Settings) -> Iterator[Row]:
    """llama.cpp's attention reads the cache up to the last cell in use, whosever they are."""
    size, path = (200 if settings.quick else 2000), settings.model_path
    name = f"bare loop with {size:,} idle tokens in the cache ÷ without, 50-token prompt, {settings.shape_name}"
    with (
        open_bare(settings, path, sequences=_PARALLEL) as crowded,
        open_bare(settings, path, sequences=_PARALLEL) as alone,
    ):
        crowded.prefill_rate(_prompt(50), idle=_prompt(size))
        alone.prefill_rate(_prompt(50))
        yield _decode(crowded, alone, _PARALLEL, settings, name)


def builds(settings: Settings) -> Iterator[Row]:
    """Another build of llama.cpp beside the one that is installed: with AMX, say, or for an older processor."""
    if settings.other_build is None:
        yield Row("another build of llama.cpp ÷ this one", None, note="give its libraries by --other-build FOLDER")
        return
    size = 100 if settings.quick else 500
    for quantization in ("Q4_0", "Q8_0"):
        own = replace(settings, quantization=quantization)
        other = replace(own, libraries=settings.other_build.resolve())
        name = f"the other build ÷ this one, {own.shape_name}"
        path = own.model_path
        with open_bare(other, path, sequences=_PARALLEL) as theirs, open_bare(own, path, sequences=_PARALLEL) as ours:
            note = f"this build: {ours.build()}; the other: {theirs.build()}" if quantization == "Q4_0" else ""
            long = f"{name}, {size}-token prompt"
            yield from _prefill(theirs, ours, size, own, long, ("other build", "this build"), note)
            for n in (1, _PARALLEL):
                yield _decode(theirs, ours, n, own, name)


def _prefill(
    one: BareLoop, other: BareLoop, size: int, settings: Settings, name: str, called: tuple[str, str], note: str = ""
) -> Iterator[Row]:
    turns = {loop: partial(loop.prefill_rate, _prompt(size)) for loop in (one, other)}
    rates = interleaved(turns, rounds=settings.rounds_or(2))
    yield Row(f"{name}: prefill", ratios(rates[one], rates[other]), note=note)
    for loop, what in zip((one, other), called, strict=True):
        yield Row(f"prefill, {what}, tokens/s", Spread.of(rates[loop]))


def _decode(one: BareLoop, other: BareLoop, n: int, settings: Settings, name: str) -> Row:
    turns = {loop: partial(loop.rate, n, settings.tokens_or(16)) for loop in (one, other)}
    rates = interleaved(turns, rounds=settings.rounds_or(5))
    return Row(f"{name}: decode, n = {n}", ratios(rates[one], rates[other]))


def _prompt(size: int) -> list[int]:
    return [300 + i % 1000 for i in range(size)]
