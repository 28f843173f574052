"""Tokens per second beside processes that keep cores busy: our number of threads
against each fixed one.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, Final

from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.bare_loop import SAMPLING
from benchmarks.random_gguf import Shape, cached_model
from benchmarks.settings import QUESTION, Settings, default_threads
from benchmarks.table import Goal, Row, Spread, interleaved, ratios

SMALL: Final = Shape(
    layers=30, width=576, heads=9, kv_heads=3, hidden=1536, vocabulary=49_152
)
"""SmolLM2-135M."""
_SETTLING: Final = 0.3  # seconds; the turns before kept cores busy
_SECONDS: Final = 0.8


class Contender:
    """Our model with some number of threads."""

    def __init__(self, path: Path, n_threads: int | None) -> None:
        self._model = ChatLlamaCpp(
            model_path=path,
            n_threads=n_threads,
            n_ctx=1024,
            seed=1,
            signals=(),
            **SAMPLING,
        )

    def rate(self, seconds: float, settling: float) -> float:
        """Tokens per second of one response that is cut off after some seconds, after
        others that are not counted.
        """
        begun = time.perf_counter()
        while time.perf_counter() - begun < settling:
            self._model.invoke(QUESTION, max_tokens=4)
        begun, before = time.perf_counter(), self._model.engine.context.decoded
        for _ in self._model.stream(QUESTION, max_tokens=800):
            if time.perf_counter() - begun > seconds:
                break
        return (self._model.engine.context.decoded - before) / (
            time.perf_counter() - begun
        )


class _Process(BaseManager):
    """Runs a :class:`Contender` by itself: OpenMP's threads spin for less long if there
    are two teams.
    """


_Process.register("Contender", Contender)


def small_model(settings: Settings) -> Iterator[Row]:
    """Beside busy processes, at the shape of a small model."""
    path = cached_model(
        settings.folder, shape=SMALL, quantization=settings.quantization
    )
    return _beside_busy_processes(settings, path, "135 M shape")


def large_model(settings: Settings) -> Iterator[Row]:
    """The same at the shape that the other measures use."""
    return _beside_busy_processes(settings, settings.model_path, settings.shape_name)


def shipped_model(settings: Settings) -> Iterator[Row]:
    """The same on the shipped model, which has one thread by default."""
    return _beside_busy_processes(
        settings, settings.endless_shipped_path, "shipped model"
    )


def _beside_busy_processes(settings: Settings, path: Path, name: str) -> Iterator[Row]:
    """Nothing busy, half as many processes as cores, as many and twice as many; the
    goal is the best fixed number.
    """
    most, seconds, settling = (
        default_threads(),
        *((0.1, 0.0) if settings.quick else (_SECONDS, _SETTLING)),
    )
    with ExitStack() as stack:
        contenders: dict[int | None, Any] = {}
        for n_threads in (1, most, None):
            process = stack.enter_context(_Process(ctx=get_context("spawn")))
            contenders[n_threads] = process.Contender(path, n_threads)  # type: ignore[attr-defined]
        for busy in (
            (0, most) if settings.quick else (0, most // 2 or 1, most, 2 * most)
        ):
            with _busy_processes(busy):
                turns = {
                    n: partial(contenders[n].rate, seconds, settling)
                    for n in contenders
                }
                rates = interleaved(turns, rounds=settings.rounds_or(5))
            best = max((1, most), key=lambda n: statistics.median(rates[n]))
            row = (
                f"default threads ÷ {best} fixed, {name}, beside {busy} busy processes"
            )
            yield Row(
                row, ratios(rates[None], rates[best]), Goal("≥", 0.8 if busy else 0.98)
            )
            for n_threads, found in rates.items():
                yield Row(
                    f"the same, {n_threads or 'default'} threads, tokens/s",
                    Spread.of(found),
                )


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
