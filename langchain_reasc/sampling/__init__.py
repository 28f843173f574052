"""Drawing samples from a chat model: in waves, cancellable, every paid token counted.

A :class:`Wave` is a handful of samples of one prompt drawn at once; :func:`drawn` gives them in order of completion,
:func:`passed_on` gives one while it comes.
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
from langchain_reasc.sampling.parallel import aparallel, parallel
from langchain_reasc.sampling.quiet import asteps, steps
from langchain_reasc.sampling.sample import Sample
from langchain_reasc.sampling.separate import aseparate, separate
from langchain_reasc.sampling.wave import Wave

__all__ = ["Sample", "Wave", "adrawn", "apassed_on", "draw", "drawn", "passed_on"]


def drawn(wave: Wave) -> Generator[Sample]:
    """The samples of a wave as they end, until it is stopped (``wave.cutoff``).

    Those that still run are then cut off and handed over with what they had produced, so that nothing paid for goes
    uncounted. A failing sample, or one that takes longer than the limit, comes out with its error and costs only
    itself. A model that samples in parallel itself (:class:`~langchain_reasc.models.contract.ParallelSampler`) is given
    the whole wave; any other chat model is streamed once per sample, because a stream can be cut off in the middle.
    A model that is asked to state its confidence is given that wish beside the prompt, and what it stated comes in the
    message's metadata instead of its text.
    """
    return _asking(wave) if wave.model.ask_confidence else _drawn(wave)


def adrawn(wave: Wave) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`drawn`."""
    return _aasking(wave) if wave.model.ask_confidence else _adrawn(wave)


def passed_on(wave: Wave) -> Generator[Sample | AIMessageChunk]:
    """The chunks of a wave's only sample as they come, and then the sample, which is stopped as in :func:`drawn`."""
    wave = _live(wave)
    samples = separate(wave, live=True)
    return steps(wave, samples) if wave.model.quiet else samples


def apassed_on(wave: Wave) -> AsyncGenerator[Sample | AIMessageChunk]:
    """The asynchronous :func:`passed_on`."""
    wave = _live(wave)
    samples = aseparate(wave, live=True)
    return asteps(wave, samples) if wave.model.quiet else samples


def draw(
    model: Runnable[LanguageModelInput, Any],
    value: LanguageModelInput,
    n: int,
    *,
    first: int = 0,
    concurrency: int = 8,
    config: RunnableConfig | None = None,
) -> list[Sample]:
    """Draw ``n`` samples, ``concurrency`` at a time, deciding nothing; timed, and in launch order."""
    messages, config = to_messages(value), ensure_config(config)
    prepared = PreparedModel.of(model, logprobs=True).resolved(config)
    samples: list[Sample] = []
    for indices in _batches(first, n, concurrency):
        begun = time.perf_counter()
        with closing(drawn(Wave(prepared, messages, indices, config))) as wave:
            samples += (replace(sample, seconds=time.perf_counter() - begun) for sample in wave)
    return sorted(samples, key=lambda sample: sample.index)


def _drawn(wave: Wave) -> Generator[Sample]:
    samples = parallel(wave) if wave.model.sampler else cast("Generator[Sample]", separate(wave))
    return steps(wave, samples) if wave.model.quiet else samples


def _adrawn(wave: Wave) -> AsyncGenerator[Sample]:
    samples = aparallel(wave) if wave.model.sampler else cast("AsyncGenerator[Sample]", aseparate(wave))
    return asteps(wave, samples) if wave.model.quiet else samples


def _live(wave: Wave) -> Wave:
    assert wave.model.live is not None
    return replace(wave, model=wave.model.live)


def _asking(wave: Wave) -> Generator[Sample]:
    with closing(_drawn(replace(wave, messages=wave.model.asked(wave.messages)))) as samples:
        for sample in samples:
            yield _heard(sample)


async def _aasking(wave: Wave) -> AsyncGenerator[Sample]:
    async with aclosing(_adrawn(replace(wave, messages=wave.model.asked(wave.messages)))) as samples:
        async for sample in samples:
            yield _heard(sample)


def _heard(sample: Sample) -> Sample:
    return sample if sample.message is None else replace(sample, message=read_stated_confidence(sample.message))


def _batches(first: int, n: int, size: int) -> list[range]:
    if n < 1 or size < 1:
        raise ConfigurationError(f"at least 1 sample is drawn, at least 1 at a time; got n={n}, concurrency={size}")
    return [range(at, min(at + size, first + n)) for at in range(first, first + n, size)]
