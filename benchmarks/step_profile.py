"""What a decode step of the shipped model spends outside ``llama_decode``, and on what."""

import cProfile
import pstats
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.rounds import Spread, interleaved
from benchmarks.settings import CELLS, QUESTION, Settings, check_tokens, open_ours
from benchmarks.table import Below, Row

__all__ = ["our_share"]

_SAMPLES: Final = 8
_WAITING: Final = "acquire"  # of a lock: the engine has nothing to do
_MODULES: Final = {
    "drawing tokens": ("candidates", "grammar_sampler", "trigger", "sampler", "stages", "top_candidates"),
    "signals": ("measurement", "recorder", "row_statistics", "token_logprobs", "token_signals"),
    "text of tokens": ("text", "model"),
    "batch and logits": ("context", "bindings"),
    "scheduling": ("scheduler", "turns", "job", "decoder", "engine", "kv_cells", "prompt_cache"),
    "events": ("report", "request", "streams", "messages"),
}
_PARTS: Final = {module: part for part, modules in _MODULES.items() for module in modules}
"""What our modules do in a step; others go by their own names."""

Function = tuple[str, int, str]  # file, line, name


def our_share(settings: Settings) -> Iterator[Row]:
    """Share of the wall time of n = 8 samples that ``llama_decode`` does not have; then the same, part by part."""
    own = settings.for_shipped_model()
    tokens = settings.tokens_or(200)
    path = settings.endless_shipped_path
    steps: list[float] = []
    with open_ours(own, path, n_ctx=1024, n_cells=CELLS) as model:

        def share() -> float:
            took, inside = _timed(model, tokens)
            steps.append((took - inside) / tokens * 1e6)
            return (took - inside) / took * 100

        shares = interleaved({"ours": share}, rounds=settings.rounds_or(15))["ours"]
    ours = Spread.of(steps[1:])  # without the round that warms up
    yield Row(
        measure=f"our Python per decode step at n = {_SAMPLES}, shipped model, % of the step",
        spread=Spread.of(shares),
        goal=Below(15, " %"),
        note=f"wall time outside llama_decode; five signals, {tokens} tokens per response, all of a call included",
    )
    yield Row(measure="outside llama_decode, µs per step of 8 tokens", spread=ours)
    yield from _parts(own, path, tokens, ours)


def _timed(model: ChatLlamaCpp, tokens: int) -> tuple[float, float]:
    """Wall seconds of a call, and those of them inside ``llama_decode``."""
    context = model._engine.context
    before, begun = context.decode_seconds, time.perf_counter()
    with model.sample(QUESTION, n=_SAMPLES, max_tokens=tokens) as samples:
        usage = [message.usage_metadata for _, message in samples]
    took = time.perf_counter() - begun
    check_tokens("our model", [use["output_tokens"] if use else 0 for use in usage], tokens)
    return took, context.decode_seconds - before


def _parts(settings: Settings, path: Path, tokens: int, ours: Spread) -> Iterator[Row]:
    """Split what was measured above as a profile of another run splits its own."""
    calls = 1 if settings.quick else 5
    profiler = cProfile.Profile()
    with _profiling_new_thread(profiler), open_ours(settings, path, n_ctx=1024, n_cells=CELLS) as model:
        inside = sum(_timed(model, tokens)[1] for _ in range(calls))
    profile = Profile(pstats.Stats(profiler).stats)  # type: ignore[attr-defined]
    seconds = profile.by_part()
    # cProfile does not see foreign functions: their time is that of the method that calls them.
    seconds[_PARTS["context"]] -= inside
    whole = sum(seconds.values())
    for part, took in sorted(seconds.items(), key=lambda item: -item[1]):
        low, middle, high = (value * took / whole for value in (ours.low, ours.median, ours.high))
        yield Row(measure=f"of that, as a profile splits it: {part}, µs", spread=Spread(low, middle, high))


@contextmanager
def _profiling_new_thread(profiler: cProfile.Profile) -> Iterator[None]:
    """Profile the thread that is started meanwhile: the engine's."""

    def begin(*_: Any) -> None:
        threading.setprofile(None)
        profiler.enable()

    threading.setprofile(begin)
    try:
        yield
    finally:
        threading.setprofile(None)


class Profile:
    """What cProfile saw, by our parts: built-in and library functions count where ours call them from."""

    def __init__(self, stats: dict[Function, Any]) -> None:
        self._stats = stats

    def by_part(self) -> defaultdict[str, float]:
        """Seconds of each part, waiting left out."""
        found: defaultdict[str, float] = defaultdict(float)
        for function, (_, _, own, _, _) in self._stats.items():
            if _WAITING not in function[2]:
                for part, share in self._owners(function, 1.0, depth=8):
                    found[part] += own * share
        return found

    def _owners(self, function: Function, share: float, *, depth: int) -> Iterator[tuple[str, float]]:
        file = Path(function[0])
        if any("reasc" in folder for folder in file.parts[-3:-1]):
            yield _PARTS.get(file.stem, file.stem), share
            return
        callers = self._stats[function][4] if function in self._stats else {}
        whole = sum(entry[3] for entry in callers.values())
        if not whole or not depth:
            yield "elsewhere", share
            return
        for caller, entry in callers.items():
            yield from self._owners(caller, share * entry[3] / whole, depth=depth - 1)
