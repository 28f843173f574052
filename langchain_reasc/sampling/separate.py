"""Waves of any chat model: one stream per sample, because a stream can be cut off in the middle."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from langchain_reasc.answers import says_how_it_ended
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.chunks import message_of, salvaged
from langchain_reasc.models.contract import is_cancelled
from langchain_reasc.models.usage import reported_usage
from langchain_reasc.sampling.cuttable import CUTOFF, failure_of, own_copy
from langchain_reasc.sampling.tracing import untraced
from langchain_reasc.sampling.wave import Sample, Wave
from langchain_reasc.threads import AsyncWorkers, Workers, each, result_of

__all__ = ["separate"]

_GRACE: Final = 1.0  # seconds in which samples that were given up end by themselves; chat models need but a moment
Chunks = list[BaseMessage]


async def separate(
    wave: Wave, workers: Workers | AsyncWorkers, *, live: bool = False
) -> AsyncGenerator[Sample | AIMessageChunk]:
    """Draw as :func:`langchain_reasc.sampling.drawn`; with ``live``, as :func:`~langchain_reasc.sampling.passed_on`.

    Each sample has a worker of its own; this generator collects what they hand over, and keeps the time.
    """
    running, patience = {index: Chunks() for index in wave.indices}, _Patience(wave)

    async def draw(index: int, chunks: Chunks) -> None:
        try:
            workers.put(await _sample(wave, index, chunks, workers, live=live))
        except BaseException as error:  # the worker must not end before it has reported
            failure = failure_of(error)
            workers.put(_failed(index, chunks, failure) if isinstance(failure, Exception) else failure)
        finally:
            wave.ended(index)

    try:
        with wave.cutoff.notifying(workers.wake):
            for index, chunks in running.items():
                workers.start(partial(draw, index, chunks), f"reasc-{index}")
            while running:
                item = await workers.get(patience.until)
                if isinstance(item, KeyboardInterrupt):
                    raise item
                if isinstance(item, Sample):
                    del running[item.index]
                if item is not None:
                    yield item
                elif patience.over():
                    break
            for index, chunks in running.items():
                yield _given_up(wave, index, list(chunks))
    finally:  # also on Ctrl-C
        wave.cutoff.give_up()
        await workers.join(_GRACE)


class _Patience:
    """How long a wave is waited for: until its limit, and then a little for samples to end that were given up."""

    def __init__(self, wave: Wave) -> None:
        self._wave, self._given_up = wave, False
        self.until = None if wave.limit is None else time.monotonic() + wave.limit.seconds

    def over(self) -> bool:
        """Give the wave up once its time is over; return whether even those that were given up are left behind."""
        expired = self.until is not None and time.monotonic() >= self.until
        if self._given_up:
            return expired
        if expired and self._wave.limit:
            self._wave.cutoff.give_up(self._wave.limit.error())
        self._given_up = self._wave.cutoff.given_up
        if self._given_up:
            self.until = time.monotonic() + _GRACE
        return False


async def _sample(wave: Wave, index: int, chunks: Chunks, workers: Workers | AsyncWorkers, *, live: bool) -> Sample:
    CUTOFF.set(wave.cutoff)
    model, asynchronous = wave.model, workers.is_async
    arguments: dict[str, Any] = {"config": model.call_config(wave.config, index), **model.call_kwargs(index)}
    with untraced() if model.quiet else nullcontext(), own_copy(model.model) as own:
        if not model.streams:
            invoke: Any = own.ainvoke if asynchronous else own.invoke
            return _ended(wave, index, _merged([await result_of(invoke(wave.messages, **arguments))]))
        stream: Any = own.astream if asynchronous else own.stream
        async with aclosing(each(stream(wave.messages, **arguments))) as items:
            async for chunk in items:
                chunks.append(chunk)
                if live and isinstance(chunk, AIMessageChunk):
                    workers.put(chunk)
    message = _merged(chunks)
    if model.names_end and not says_how_it_ended(message.response_metadata):
        # It was cut off in good order for HTTP, and half an answer would be taken for a whole one.
        raise SamplingError(
            "the stream ended without a finish reason (finish_reason, stop_reason, status), so the response may have "
            "been cut off"
        )
    return _ended(wave, index, message)


def _merged(chunks: Sequence[Any]) -> AIMessage:
    """Return the message that a stream's chunks make, or the one message itself."""
    first = chunks[0] if chunks else None
    if isinstance(first, AIMessageChunk):
        return message_of(chunks)
    if not isinstance(first, AIMessage):
        raise ConfigurationError(
            f"the model must return AIMessages, got {type(first).__name__}; put ReASCRunnable before the output parser"
        )
    return first


def _ended(wave: Wave, index: int, message: AIMessage) -> Sample:
    if is_cancelled(message):
        return Sample(index, message, "cancelled")
    if (usage := reported_usage(message)) is not None:
        wave.cutoff.prompt_tokens = usage["input_tokens"]
    return Sample(index, message)


def _given_up(wave: Wave, index: int, chunks: Chunks) -> Sample:
    if wave.cutoff.error is None:
        return Sample(index, salvaged(chunks), "cancelled")
    return _failed(index, chunks, wave.cutoff.error)


def _failed(index: int, chunks: Chunks, error: Exception) -> Sample:
    return Sample(index, salvaged(chunks), "failed", error)
