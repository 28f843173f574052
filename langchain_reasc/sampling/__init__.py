"""Drawing samples from a chat model: in waves, cancellable, every paid token counted.

A *wave* is a handful of samples of one prompt drawn at once: an iterator over finished samples in order of completion.
Once its ``stop`` flag is set it cuts off those that still run, and hands over what they had produced, so that nothing
paid for goes uncounted.
Models that sample in parallel themselves (:class:`~langchain_reasc.models.contract.ParallelSampler`) are given a whole
wave; any other chat model is streamed once per sample, because a stream can be closed in the middle.
"""

import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.sampling.parallel import aparallel, parallel
from langchain_reasc.sampling.sample import Sample
from langchain_reasc.sampling.separate import aseparate, separate
from langchain_reasc.sampling.time_limit import TimeLimit

__all__ = ["Sample", "adraw", "awave", "draw", "wave"]


def wave(
    source: PreparedModel,
    messages: list[BaseMessage],
    indices: Sequence[int],
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None = None,
) -> Generator[Sample]:
    """Draw the samples ``indices`` of one prompt; set ``stop`` between two of them to cut off the rest.

    A failing sample, or one that takes longer than the limit, comes out with its error and costs only itself.
    """
    draw_them = parallel if source.sampler else separate
    return draw_them(source, messages, indices, config, stop, limit)


def awave(
    source: PreparedModel,
    messages: list[BaseMessage],
    indices: Sequence[int],
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None = None,
) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`wave`."""
    draw_them = aparallel if source.sampler else aseparate
    return draw_them(source, messages, indices, config, stop, limit)


def draw(
    model: Runnable[LanguageModelInput, Any],
    value: LanguageModelInput,
    n: int,
    *,
    first: int = 0,
    concurrency: int = 8,
    config: RunnableConfig | None = None,
) -> list[Sample]:
    """Draw ``n`` samples, ``concurrency`` at a time, deciding nothing; in launch order."""
    source, messages = PreparedModel.of(model, logprobs=True), to_messages(value)
    drawn: list[Sample] = []
    for indices in _batches(first, n, concurrency):
        drawn += wave(source, messages, indices, ensure_config(config), threading.Event())
    return sorted(drawn, key=lambda sample: sample.index)


async def adraw(
    model: Runnable[LanguageModelInput, Any],
    value: LanguageModelInput,
    n: int,
    *,
    first: int = 0,
    concurrency: int = 8,
    config: RunnableConfig | None = None,
) -> list[Sample]:
    """The asynchronous :func:`draw`."""
    source, messages = PreparedModel.of(model, logprobs=True), to_messages(value)
    drawn: list[Sample] = []
    for indices in _batches(first, n, concurrency):
        drawn += [sample async for sample in awave(source, messages, indices, ensure_config(config), threading.Event())]
    return sorted(drawn, key=lambda sample: sample.index)


def _batches(first: int, n: int, size: int) -> list[range]:
    if n < 1 or size < 1:
        raise ConfigurationError(f"at least 1 sample is drawn, at least 1 at a time; got n={n}, concurrency={size}")
    return [range(at, min(at + size, first + n)) for at in range(first, first + n, size)]
