"""Waves of any chat model: one stream per sample, because a stream can be cut off in the middle."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from langchain_reasc.answers import has_finish_reason
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.chunks import message_of, salvaged
from langchain_reasc.models.contract import is_cancelled
from langchain_reasc.models.usage import reported_usage
from langchain_reasc.sampling.cutoff import CUTOFF, as_failure
from langchain_reasc.sampling.cuttable import Copies, copy_for_sample, refuse_counting_models
from langchain_reasc.sampling.tracing import suppress_tracing
from langchain_reasc.sampling.wave import Sample, Wave
from langchain_reasc.threads import AsyncWorkers, Workers, each, result_of

__all__ = ["draw_separately"]

_GRACE: Final = 1.0  # seconds in which samples that were given up end by themselves; chat models need but a moment


async def draw_separately(
    wave: Wave, workers: Workers | AsyncWorkers, *, live: bool = False
) -> AsyncGenerator[Sample | AIMessageChunk]:
    """Draw as :func:`langchain_reasc.sampling.samples` does.

    Each sample has a worker of its own; this generator collects what they hand over.
    """
    running: dict[int, list[BaseMessage]] = {}

    async def draw(index: int, chunks: list[BaseMessage]) -> None:
        try:
            workers.put(await _sample(wave, index, chunks, workers, live=live))
        except BaseException as error:  # the worker must not end before it has reported
            failure = as_failure(error)
            failed = Sample(index, salvaged(chunks), "failed", failure) if isinstance(failure, Exception) else failure
            workers.put(failed)
        finally:
            wave.ended()

    cutoff, limit, is_grace = wave.cutoff, wave.limit, False
    until = time.monotonic() + limit.seconds if limit else None
    try:
        with cutoff.notifying(workers.wake):
            for index in wave.indices:
                running[index] = []
                workers.start(partial(draw, index, running[index]), f"reasc-{index}")
            while running:
                item = await workers.get(until)
                if isinstance(item, KeyboardInterrupt):
                    raise item
                if isinstance(item, Sample):
                    del running[item.index]
                if item is not None:
                    yield item
                    continue
                if until is not None and time.monotonic() >= until:
                    if is_grace:
                        break
                    cutoff.give_up(limit.error)  # type: ignore[union-attr]
                if cutoff.given_up and not is_grace:
                    is_grace, until = True, time.monotonic() + _GRACE
            error = cutoff.error
            for index, chunks in running.items():
                yield Sample(index, salvaged([*chunks]), "failed" if error else "cancelled", error)
    finally:  # also on Ctrl-C
        cutoff.give_up()
        await workers.join(_GRACE)


async def _sample(
    wave: Wave, index: int, chunks: list[BaseMessage], workers: Workers | AsyncWorkers, *, live: bool
) -> Sample:
    CUTOFF.set(wave.cutoff)
    model, copies = wave.model, Copies()
    own = copy_for_sample(model.model, copies)
    config, arguments = model.call_config(wave.config, index), model.call_kwargs(index)
    with suppress_tracing() if model.quiet else nullcontext():
        if model.streams:
            stream: Any = own.astream if workers.is_async else own.stream
            async with aclosing(each(stream(wave.messages, config, **arguments))) as items:
                async for chunk in items:
                    chunks.append(chunk)
                    if live and isinstance(chunk, AIMessageChunk):
                        workers.put(chunk)
            message = _message(chunks)
        else:
            invoke: Any = own.ainvoke if workers.is_async else own.invoke
            message = _message([await result_of(invoke(wave.messages, config, **arguments))])
    refuse_counting_models(copies)
    return _ended(wave, index, message)


def _ended(wave: Wave, index: int, message: AIMessage) -> Sample:
    model = wave.model
    if model.streams and model.names_end and not has_finish_reason(message.response_metadata):
        # It was cut off in good order for HTTP, and half an answer would be taken for a whole one.
        raise SamplingError(
            "the stream ended without a finish reason (finish_reason, stop_reason, status), so the response may have "
            "been cut off"
        )
    if is_cancelled(message):
        return Sample(index, message, "cancelled")
    if usage := reported_usage(message):
        wave.cutoff.prompt_tokens = usage["input_tokens"]
    return Sample(index, message)


def _message(chunks: Sequence[Any]) -> AIMessage:
    """Return the message that a stream's chunks make, or the one message itself."""
    first = chunks[0] if chunks else None
    if isinstance(first, AIMessageChunk):
        return message_of(chunks)
    if not isinstance(first, AIMessage):
        raise ConfigurationError(
            f"the model must return AIMessages, got {type(first).__name__}; put ReASCRunnable before the output parser"
        )
    return first
