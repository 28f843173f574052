"""Waves of models that sample in parallel themselves: they are given the whole wave."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.contract import USAGE_ESTIMATED, FailedSample, is_cancelled
from langchain_reasc.models.usage import estimated_usage, reported_usage
from langchain_reasc.sampling.cutoff import within
from langchain_reasc.sampling.wave import Sample, Wave
from langchain_reasc.threads import AsyncWorkers, Workers, each

__all__ = ["draw_in_parallel"]


async def draw_in_parallel(wave: Wave, workers: Workers | AsyncWorkers) -> AsyncGenerator[Sample]:
    """Draw as :func:`langchain_reasc.sampling.samples` does."""
    missing, cutoff = set(wave.indices), wave.cutoff
    error: Exception | None = None
    try:
        async with aclosing(_outcomes(wave, workers)) as outcomes:
            async for index, outcome in outcomes:
                missing.discard(index)
                wave.ended()
                yield _sample(wave, index, outcome)
    except Exception as failure:
        error = cutoff.error if cutoff.given_up else failure
    for index in sorted(missing):
        lost = SamplingError(f"the model handed over no sample {index}")
        # What was cut off before its first token without a fault cost nothing, and is left out.
        if why := error or (cutoff.error if cutoff.stopped else lost):
            yield Sample(index, None, "failed", why)


async def _outcomes(
    wave: Wave, workers: Workers | AsyncWorkers
) -> AsyncGenerator[tuple[int, AIMessage | FailedSample]]:
    """Yield what the model hands over; give the wave up when its time is over."""
    model, cutoff, limit = wave.model, wave.cutoff, wave.limit
    timer = limit and workers.call_later(limit.seconds, partial(cutoff.give_up, limit.error))
    try:
        sample: Any = model.sampler.asample if workers.is_async else model.sampler.sample  # type: ignore[union-attr]
        begin = partial(sample, wave.messages, n=len(wave.indices), first=wave.indices[0], **model.kwargs)
        # To begin may take long: a server is asked what it supports, a model is loaded.
        stream: Any = begin() if workers.is_async else within(None, begin, cutoff)
        with closing(stream), cutoff.notifying(stream.cancel):
            async with aclosing(each(stream if workers.is_async else iter(stream))) as outcomes:
                async for outcome in outcomes:
                    yield outcome
    finally:
        if timer:
            timer.cancel()


def _sample(wave: Wave, index: int, outcome: AIMessage | FailedSample) -> Sample:
    if isinstance(outcome, FailedSample):
        return Sample(index, outcome.message and _with_usage(wave, outcome.message), "failed", outcome.error)
    if is_cancelled(outcome):
        error = wave.cutoff.error
        return Sample(index, _with_usage(wave, outcome), "failed" if error else "cancelled", error)
    usage = reported_usage(outcome)
    wave.cutoff.prompt_tokens = usage["input_tokens"] if usage else None
    return Sample(index, outcome)


def _with_usage(wave: Wave, message: AIMessage) -> AIMessage:
    if message.usage_metadata is not None:
        return message
    usage = estimated_usage(message, prompt_tokens=wave.cutoff.prompt_tokens or 0)
    metadata = message.response_metadata | {USAGE_ESTIMATED: True}
    return message.model_copy(update={"usage_metadata": usage, "response_metadata": metadata})
