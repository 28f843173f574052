"""Drawing samples from a chat model: in waves, cancellable, every paid token counted.

A :class:`Wave` is a handful of samples of one prompt drawn at once; :func:`drawn` yields them in order of completion,
:func:`passed_on` yields one while it comes. All that follows is written once, as coroutines; a synchronous call runs
them in its own thread: see :func:`langchain_reasc.threads.blocking`.
"""

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.models.stated import read_stated_confidence
from langchain_reasc.sampling.limits import (
    AsyncSlots,
    Cutoff,
    Places,
    QuestionClock,
    Slots,
    TimeLimit,
    checked_limit,
    within,
)
from langchain_reasc.sampling.parallel import parallel
from langchain_reasc.sampling.separate import separate
from langchain_reasc.sampling.tracing import AsyncRun, Run, steps
from langchain_reasc.sampling.wave import Sample, Wave
from langchain_reasc.threads import AsyncWorkers, Workers, blocking_items

__all__ = [
    "AsyncRun",
    "AsyncSlots",
    "Cutoff",
    "Places",
    "QuestionClock",
    "Run",
    "Sample",
    "Slots",
    "TimeLimit",
    "Wave",
    "adrawn",
    "apassed_on",
    "checked_limit",
    "draw",
    "drawn",
    "passed_on",
    "within",
]


def drawn(wave: Wave) -> Generator[Sample]:
    """Yield the samples of a wave as they end, until it is stopped (``wave.cutoff``).

    Those that still run are then cut off and yielded with what they had produced, so that nothing paid for goes
    uncounted. A failing sample, or one that takes longer than the limit, comes out with its error and costs only
    itself. A model that samples in parallel itself (:class:`~langchain_reasc.models.contract.ParallelSampler`) is given
    the whole wave; any other chat model is streamed once per sample, because a stream can be cut off in the middle.
    A model that is asked to state its confidence is asked beside the prompt, and what it stated comes in the message's
    metadata instead of its text.
    """
    return blocking_items(_samples(wave, Workers()))


async def adrawn(wave: Wave) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`drawn`."""
    async with aclosing(_samples(wave, AsyncWorkers())) as samples:
        async for sample in samples:
            yield sample


def passed_on(wave: Wave) -> Generator[Sample | AIMessageChunk]:
    """Yield the chunks of a wave's only sample as they come, and then the sample; it is stopped as in :func:`drawn`."""
    return blocking_items(_live(wave, Workers()))


async def apassed_on(wave: Wave) -> AsyncGenerator[Sample | AIMessageChunk]:
    """The asynchronous :func:`passed_on`."""
    async with aclosing(_live(wave, AsyncWorkers())) as items:
        async for item in items:
            yield item


def draw(
    model: Runnable[LanguageModelInput, Any],
    value: LanguageModelInput,
    n: int,
    *,
    first: int = 0,
    concurrency: int = 8,
    config: RunnableConfig | None = None,
) -> list[Sample]:
    """Draw ``n`` samples, ``concurrency`` at a time, deciding nothing; timed, and in launch order.

    Raises:
        ConfigurationError: fewer than one sample, or fewer than one at a time.
    """
    if n < 1 or concurrency < 1:
        raise ConfigurationError(f"at least 1 sample is drawn, at least 1 at a time; got {n=}, {concurrency=}")
    messages, config = to_messages(value), ensure_config(config)
    prepared = PreparedModel.of(model, logprobs=True).resolved(config)
    samples: list[Sample] = []
    for at in range(first, first + n, concurrency):
        begun = time.perf_counter()
        indices = range(at, min(at + concurrency, first + n))
        with closing(drawn(Wave(prepared, messages, indices, config))) as wave:
            samples += (replace(sample, seconds=time.perf_counter() - begun) for sample in wave)
    return sorted(samples, key=lambda sample: sample.index)


async def _samples(wave: Wave, workers: Workers | AsyncWorkers) -> AsyncGenerator[Sample]:
    model = wave.model
    if model.ask_confidence:
        wave = replace(wave, messages=model.asked(wave.messages))
    drawing = parallel(wave, workers) if model.sampler else separate(wave, workers)
    async with aclosing(steps(wave, drawing, workers) if model.quiet else drawing) as samples:
        async for sample in samples:
            assert isinstance(sample, Sample)
            asked = model.ask_confidence and sample.message is not None
            yield replace(sample, message=read_stated_confidence(cast(Any, sample.message))) if asked else sample


def _live(wave: Wave, workers: Workers | AsyncWorkers) -> AsyncGenerator[Sample | AIMessageChunk]:
    assert wave.model.live is not None
    wave = replace(wave, model=wave.model.live)
    items = separate(wave, workers, live=True)
    return steps(wave, items, workers) if wave.model.quiet else items
