"""Drawing samples from a chat model: in waves, cancellable, every paid token counted.

A :class:`Wave` is a handful of samples of one prompt drawn at once; :func:`samples` yields them in order of completion.
It is written once, as coroutines; a synchronous call runs them in its own thread: see
:func:`langchain_reasc.threads.blocking`.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.models.stated import read_stated_confidence
from langchain_reasc.sampling.cutoff import Cutoff, within
from langchain_reasc.sampling.limits import QuestionClock, checked_limit, take_slots
from langchain_reasc.sampling.parallel import draw_in_parallel
from langchain_reasc.sampling.separate import draw_separately
from langchain_reasc.sampling.tracing import Run, traced
from langchain_reasc.sampling.wave import Sample, Wave
from langchain_reasc.threads import AsyncWorkers, Workers, blocking_items

__all__ = [
    "Cutoff",
    "QuestionClock",
    "Run",
    "Sample",
    "Wave",
    "checked_limit",
    "draw",
    "samples",
    "take_slots",
    "within",
]


def samples(wave: Wave, *, is_async: bool, live: bool = False) -> AsyncGenerator[Sample | AIMessageChunk]:
    """Yield the samples of a wave as they end, until it is stopped (``wave.cutoff``).

    Those that still run are then cut off and yielded with what they had produced, so that nothing paid for goes
    uncounted. A failing sample, or one that takes longer than the limit, comes out with its error and costs only
    itself. A model that samples in parallel itself (:class:`~langchain_reasc.models.contract.ParallelSampler`) is given
    the whole wave; any other chat model is streamed once per sample, because a stream can be cut off in the middle.
    A model that is asked to state its confidence is asked beside the prompt, and what it stated comes in the message's
    metadata instead of its text.

    Args:
        wave: what is drawn.
        is_async: whether in tasks of the running event loop, or in threads, for whom this never awaits anything.
        live: whether the chunks of the wave's only sample are yielded as they come, before the sample.
    """
    workers = AsyncWorkers() if is_async else Workers()
    model = wave.model
    if live:
        assert model.live is not None
        model = model.live
        wave = replace(wave, model=model)
    if model.ask_confidence:
        wave = replace(wave, messages=model.prompt(wave.messages))
    is_parallel = model.sampler is not None and not live
    drawing: AsyncGenerator[Any]
    drawing = draw_in_parallel(wave, workers) if is_parallel else draw_separately(wave, workers, live=live)
    if model.quiet or is_parallel:  # else LangChain traces the call of each sample
        drawing = traced(wave, drawing, workers)
    return _with_stated_confidence(drawing) if model.ask_confidence else drawing


async def _with_stated_confidence(drawing: AsyncGenerator[Any]) -> AsyncGenerator[Sample | AIMessageChunk]:
    async with aclosing(drawing) as items:
        async for item in items:
            stated = isinstance(item, Sample) and item.message is not None
            yield replace(item, message=read_stated_confidence(item.message)) if stated else item


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
    drawn: list[Sample] = []
    for at in range(first, first + n, concurrency):
        begun = time.perf_counter()
        wave = Wave(prepared, messages, range(at, min(at + concurrency, first + n)), config)
        with closing(blocking_items(samples(wave, is_async=False))) as items:
            drawn += (replace(item, seconds=time.perf_counter() - begun) for item in items if isinstance(item, Sample))
    return sorted(drawn, key=lambda sample: sample.index)
