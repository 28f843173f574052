"""Draw a wave of samples, from any chat model or from one that samples in parallel."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from langchain_reasc.concurrency import Workers
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.langchain_internals import is_handlers
from langchain_reasc.models.calls import checked_calls
from langchain_reasc.models.chunks import has_ended, message_of, refuse_failed, salvaged
from langchain_reasc.models.contract import (
    RECEIVED_TOKENS,
    USAGE_ESTIMATED,
    FailedSample,
    is_cancelled,
)
from langchain_reasc.models.prepared import prepare_model, to_messages
from langchain_reasc.models.stated import read_stated_confidence
from langchain_reasc.models.usage import estimated_usage, reported_usage, tokens_written
from langchain_reasc.sampling.cutoff import CUTOFF, as_failure, within
from langchain_reasc.sampling.cuttable import copy_for_sample
from langchain_reasc.sampling.response import SampledResponse, Status
from langchain_reasc.sampling.tracing import suppress_tracing, traced
from langchain_reasc.sampling.wave import Wave
from langchain_reasc.threads import blocking_items, each, result_of

_GRACE: Final = 1.0
"""Seconds in which samples that were given up may end by themselves. Chat models need
but a moment.
"""
_LATE: Final = 0.15
"""The same if their time is over."""


def samples(
    wave: Wave, *, live: bool = False
) -> AsyncGenerator[SampledResponse | AIMessageChunk]:
    """Yield the samples of a wave as they end, until it is stopped (``wave.cutoff``).

    Those that still run are then cut off and yielded with what they had produced, so
    that nothing paid for goes uncounted. A failing sample, or one that takes longer
    than the limit, comes out with its error and costs only itself. A model that samples
    in parallel itself (:class:`~langchain_reasc.models.contract.ParallelSampler`) is
    given the whole wave; any other chat model is streamed once per sample, because a
    stream can be cut off in the middle. A model that is asked to state its confidence
    is asked beside the prompt, and what it stated comes in the message's metadata
    instead of its text. With ``live``, the chunks of the wave's only sample come before
    the sample.
    """
    workers = wave.io.workers()
    model = wave.model
    if model.ask_confidence:
        wave = replace(wave, messages=model.prompt(wave.messages))
    is_parallel = (
        model.sampler is not None and not live and not _shows_text(wave.config)
    )
    drawing: AsyncGenerator[Any]
    if is_parallel:
        drawing = _draw_in_parallel(wave, workers)
    else:
        drawing = _draw_separately(wave, workers, live=live)
    if model.quiet or is_parallel:
        # Otherwise LangChain traces the call of each sample.
        drawing = traced(wave, drawing)
    if model.ask_confidence:
        return _with_stated_confidence(drawing)
    return drawing


def _shows_text(config: RunnableConfig) -> bool:
    """Return whether a handler, such as the live line of ``reasc ask``, shows text as
    it comes.
    """
    callbacks: Any = config.get("callbacks") or ()
    return any(
        getattr(handler, "shows_text", False)
        for handler in getattr(callbacks, "handlers", callbacks)
    )


async def _with_stated_confidence(
    drawing: AsyncGenerator[Any],
) -> AsyncGenerator[SampledResponse | AIMessageChunk]:
    async with aclosing(drawing) as items:
        async for item in items:
            if isinstance(item, SampledResponse) and item.message is not None:
                item = replace(item, message=read_stated_confidence(item.message))
            yield item


def draw_samples(
    model: Runnable[LanguageModelInput, Any],
    value: LanguageModelInput,
    n: int,
    *,
    first: int = 0,
    concurrency: int = 8,
    config: RunnableConfig | None = None,
) -> list[SampledResponse]:
    """Draw ``n`` samples, ``concurrency`` at a time, deciding nothing; timed, and in
    launch order.

    Raises:
        ConfigurationError: fewer than one sample, or fewer than one at a time.
    """
    if n < 1 or concurrency < 1:
        raise ConfigurationError(
            f"at least 1 sample is drawn, at least 1 at a time; got {n=}, "
            f"{concurrency=}"
        )
    messages = to_messages(value)
    config = ensure_config(config)
    prepared = prepare_model(model, logprobs=True).resolved(config)
    samples_so_far: list[SampledResponse] = []
    for begin in range(first, first + n, concurrency):
        begun = time.perf_counter()
        wave = Wave(
            prepared,
            messages,
            range(begin, min(begin + concurrency, first + n)),
            config,
        )
        with closing(blocking_items(samples(wave))) as items:
            for item in items:
                if isinstance(item, SampledResponse):
                    seconds = time.perf_counter() - begun
                    samples_so_far.append(replace(item, seconds=seconds))
    return sorted(samples_so_far, key=lambda sample: sample.index)


async def _draw_separately(
    wave: Wave, workers: Workers, *, live: bool = False
) -> AsyncGenerator[SampledResponse | AIMessageChunk]:
    """Draw one stream per sample, as a stream can be cut off in the middle.

    Each sample has a worker of its own; this generator collects what they hand over.
    """
    running: dict[int, list[BaseMessage]] = {}

    async def draw(index: int, chunks: list[BaseMessage]) -> None:
        try:
            workers.put(await _draw_sample(wave, index, chunks, workers, live=live))
        except BaseException as error:
            # Whoever waits for this worker must hear of its end.
            failure = as_failure(error)
            if is_handlers(error) or not isinstance(failure, Exception):
                workers.put(failure)
            else:
                workers.put(SampledResponse(index, None, "failed", failure))
        finally:
            wave.ended()

    cutoff = wave.cutoff
    limit = wave.limit
    # Samples are given up at the time limit; then they have a grace to end.
    grace = None
    until = None
    if limit is not None:
        until = time.monotonic() + limit.seconds
    try:
        with cutoff.notifying(workers.wake):
            for index in wave.indices:
                running[index] = []
                workers.start(partial(draw, index, running[index]), f"reasc-{index}")
            while running:
                item = await workers.get(until)
                if isinstance(item, BaseException):
                    raise item
                if isinstance(item, SampledResponse):
                    chunks = running.pop(item.index)
                    # What a failed sample had said is paid for.
                    item = replace(item, message=item.message or salvaged(chunks))
                if item is not None:
                    yield item
                    continue
                # The wait was woken, or its time is over.
                if until is not None and time.monotonic() >= until:
                    if grace is not None:
                        grace = 0.0
                        break
                    assert limit is not None
                    cutoff.give_up(limit.error)
                if cutoff.given_up and grace is None:
                    grace = _LATE if cutoff.error else _GRACE
                    until = time.monotonic() + grace
            # These did not end, and are left behind.
            error = cutoff.error
            status: Status = "failed" if error else "cancelled"
            for index, chunks in running.items():
                yield SampledResponse(index, salvaged([*chunks]), status, error)
    finally:
        # Also on Ctrl-C.
        cutoff.give_up()
        await workers.join(_GRACE if grace is None else grace)


async def _draw_sample(
    wave: Wave,
    index: int,
    chunks: list[BaseMessage],
    workers: Workers,
    *,
    live: bool,
) -> SampledResponse:
    CUTOFF.set(wave.cutoff)
    model = wave.model
    copy = copy_for_sample(model.model)
    config = model.call_config(wave.config, index)
    arguments = model.call_kwargs(index)
    with suppress_tracing() if model.quiet else nullcontext():
        if model.streams:
            stream = wave.io.method(copy, "stream")
            chunks_of_model = each(stream(wave.messages, config, **arguments))
            async with aclosing(chunks_of_model) as items:
                async for chunk in items:
                    chunks.append(chunk)
                    if live and isinstance(chunk, AIMessageChunk):
                        workers.put(chunk)
            chunks_of_sample: Sequence[Any] = chunks
        else:
            invoke = wave.io.method(copy, "invoke")
            message = await result_of(invoke(wave.messages, config, **arguments))
            chunks_of_sample = [message]
    return _ended(wave, index, chunks_of_sample)


def _ended(wave: Wave, index: int, parts: Sequence[Any]) -> SampledResponse:
    """Return the sample that consists of a stream's chunks, or of one whole message."""
    model = wave.model
    message = parts[0] if parts else None
    if isinstance(message, AIMessageChunk):
        message = message_of(parts)
    elif not isinstance(message, AIMessage):
        name = type(message).__name__
        raise ConfigurationError(
            f"the model must return AIMessages, got {name}; put ReASCRunnable before "
            "the output parser"
        )
    else:
        message = checked_calls(message)
    refuse_failed(message.response_metadata)
    if model.streams and model.names_end and not has_ended(parts):
        # HTTP has ended in good order, and half an answer would count as a whole one.
        raise SamplingError(
            "the stream ended without a finish reason (finish_reason, stop_reason, "
            "status), so the response may have been cut off"
        )
    if is_cancelled(message):
        return SampledResponse(index, message, "cancelled")
    has_usage = _note_prompt_tokens(wave, message)
    if not has_usage and model.streams:
        message.response_metadata[RECEIVED_TOKENS] = tokens_written(
            (chunk, chunk.response_metadata) for chunk in parts
        )
    return SampledResponse(index, message)


def _note_prompt_tokens(wave: Wave, message: AIMessage) -> bool:
    """Keep the reported length of the prompt, for estimates of other samples. Return
    whether usage was reported.
    """
    usage = reported_usage(message)
    if usage is not None and usage["input_tokens"]:
        wave.cutoff.prompt_tokens = usage["input_tokens"]
    return usage is not None


async def _draw_in_parallel(
    wave: Wave, workers: Workers
) -> AsyncGenerator[SampledResponse]:
    """Give the whole wave to a model that samples in parallel itself."""
    missing = set(wave.indices)
    cutoff = wave.cutoff
    error: Exception | None = None
    try:
        async with aclosing(_outcomes(wave, workers)) as outcomes:
            async for index, outcome in outcomes:
                missing.discard(index)
                wave.ended()
                yield _handed_over(wave, index, outcome)
    except Exception as failure:
        error = cutoff.error if cutoff.given_up else failure
    for index in sorted(missing):
        lost = SamplingError(f"the model handed over no sample {index}")
        reason = error or (cutoff.error if cutoff.stopped else lost)
        # A sample that was cut off before its first token, without a fault, cost
        # nothing, and is left out.
        if reason is not None:
            yield SampledResponse(index, None, "failed", reason)


async def _outcomes(
    wave: Wave, workers: Workers
) -> AsyncGenerator[tuple[int, AIMessage | FailedSample]]:
    """Yield what the model hands over; give the wave up when its time is over."""
    model = wave.model
    cutoff = wave.cutoff
    limit = wave.limit
    timer = None
    if limit is not None:
        give_up = partial(cutoff.give_up, limit.error)
        timer = workers.call_later(limit.seconds, give_up)
    try:
        assert model.sampler is not None
        begin = partial(
            wave.io.method(model.sampler, "sample"),
            wave.messages,
            n=len(wave.indices),
            first=wave.indices[0],
            **model.kwargs,
        )
        if wave.io.blocks:
            # To begin may take long: a server is asked what it supports, a model is
            # loaded. The asynchronous stream does that when it is read.
            stream = within(None, begin, cutoff)
            handed_over = each(iter(stream))
        else:
            stream = begin()
            handed_over = each(stream)
        with closing(stream), cutoff.notifying(stream.cancel):
            async with aclosing(handed_over) as outcomes:
                async for outcome in outcomes:
                    yield outcome
    finally:
        if timer is not None:
            timer.cancel()


def _handed_over(
    wave: Wave, index: int, outcome: AIMessage | FailedSample
) -> SampledResponse:
    cutoff = wave.cutoff
    message: AIMessage | None
    status: Status
    error: Exception | None
    if isinstance(outcome, FailedSample):
        message = outcome.message
        status = "failed"
        error = outcome.error
    elif is_cancelled(outcome):
        message = outcome
        status = "failed" if cutoff.error else "cancelled"
        error = cutoff.error
    else:
        _note_prompt_tokens(wave, outcome)
        return SampledResponse(index, checked_calls(outcome))
    if message is not None and message.usage_metadata is None:
        # The sampler has counted nothing of a sample that did not end.
        prompt = cutoff.prompt_tokens or wave.model.prompt_tokens(wave.messages)
        estimated = estimated_usage(message, prompt_tokens=prompt)
        metadata = message.response_metadata | {USAGE_ESTIMATED: True}
        message = message.model_copy(
            update={"usage_metadata": estimated, "response_metadata": metadata}
        )
    return SampledResponse(index, message, status, error)
