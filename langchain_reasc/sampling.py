"""Drawing samples from a chat model: in waves, cancellable, every paid token counted.

A *wave* is a handful of samples of one prompt drawn at once: an iterator over finished samples in order of completion.
Once its ``stop`` flag is set it cuts off those that still run, and hands over what they had produced, so that nothing
paid for goes uncounted.
Models that sample in parallel themselves (:class:`~langchain_reasc.source.ParallelSampler`) are given the whole wave;
any other chat model is streamed once per sample, because a stream can be closed in the middle.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import ContextThreadPoolExecutor

from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.source import FailedSample, Source, to_messages
from langchain_reasc.tracing import AsyncSampleRuns, SampleRuns

__all__ = ["Sample", "adraw", "awave", "draw", "wave"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn sample.

    Attributes:
        index: its place in launch order, from 0.
        message: what the model said; partial when cancelled, None when it failed before the first token.
        status: ``complete``, ``cancelled`` (cut off once the decision had fallen) or ``failed``.
        error: what a failed sample raised.
    """

    index: int
    message: AIMessage | None
    status: Literal["complete", "cancelled", "failed"] = "complete"
    error: Exception | None = None


def wave(
    source: Source, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig, stop: threading.Event
) -> Generator[Sample]:
    """Draw the samples ``indices`` of one prompt; set ``stop`` between two of them to cut off the rest.

    A failing sample comes out with its error and costs only itself.
    """
    draw_them = _parallel if source.sampler else _separate
    return draw_them(source, messages, indices, config, stop)


def awave(
    source: Source, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig, stop: threading.Event
) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`wave`."""
    draw_them = _aparallel if source.sampler else _aseparate
    return draw_them(source, messages, indices, config, stop)


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
    source, messages = Source.of(model, logprobs=True), to_messages(value)
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
    source, messages = Source.of(model, logprobs=True), to_messages(value)
    drawn: list[Sample] = []
    for indices in _batches(first, n, concurrency):
        drawn += [sample async for sample in awave(source, messages, indices, ensure_config(config), threading.Event())]
    return sorted(drawn, key=lambda sample: sample.index)


def _batches(first: int, n: int, size: int) -> list[range]:
    if n < 1 or size < 1:
        raise ConfigurationError(f"at least 1 sample is drawn, at least 1 at a time; got n={n}, concurrency={size}")
    return [range(at, min(at + size, first + n)) for at in range(first, first + n, size)]


def _parallel(
    source: Source, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig, stop: threading.Event
) -> Generator[Sample]:
    runs = SampleRuns(source, messages, indices, config)
    missing = set(indices)
    try:
        assert source.sampler is not None
        stream = source.sampler.sample(messages, n=len(indices), first=indices[0], **source.kwargs)
        with closing(stream):
            for index, outcome in stream:
                missing.discard(index)
                runs.end(index, outcome)
                yield _ended(index, outcome)
                if stop.is_set():
                    stream.cancel()
        if missing and not stop.is_set():
            raise SamplingError(f"the model handed over no sample {min(missing)}")
        runs.fail(SamplingError("cancelled before its first token"))
    except Exception as error:
        runs.fail(error)
        for index in sorted(missing):
            yield Sample(index, None, "failed", error)
    except BaseException as error:
        runs.fail(error)
        raise


async def _aparallel(
    source: Source, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig, stop: threading.Event
) -> AsyncGenerator[Sample]:
    runs = await AsyncSampleRuns.start(source, messages, indices, config)
    missing = set(indices)
    try:
        assert source.sampler is not None
        stream = source.sampler.asample(messages, n=len(indices), first=indices[0], **source.kwargs)
        with closing(stream):
            async for index, outcome in stream:
                missing.discard(index)
                await runs.end(index, outcome)
                yield _ended(index, outcome)
                if stop.is_set():
                    stream.cancel()
        if missing and not stop.is_set():
            raise SamplingError(f"the model handed over no sample {min(missing)}")
        await runs.fail(SamplingError("cancelled before its first token"))
    except Exception as error:
        await runs.fail(error)
        for index in sorted(missing):
            yield Sample(index, None, "failed", error)
    except BaseException as error:
        await runs.fail(error)
        raise


def _separate(
    source: Source, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig, stop: threading.Event
) -> Generator[Sample]:
    finished: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    threads = ContextThreadPoolExecutor(max_workers=len(indices), thread_name_prefix="reasc")

    def one(index: int) -> None:
        finished.put(_one(source, messages, index, config, stop))

    try:
        for index in indices:
            threads.submit(one, index)
        for _ in indices:
            yield finished.get()
    finally:  # also on Ctrl-C: streams end at their next token, and nobody waits for them
        stop.set()
        threads.shutdown(wait=False, cancel_futures=True)


def _one(
    source: Source, messages: list[BaseMessage], index: int, config: RunnableConfig, stop: threading.Event
) -> Sample:
    chunks: list[BaseMessage] = []
    call, arguments = source.call_config(config, index), source.call_kwargs(index)
    try:
        if not source.streams:
            return Sample(index, _merged([source.model.invoke(messages, call, **arguments)]))
        with closing(source.stream(messages, call, **arguments)) as stream:
            for chunk in stream:
                chunks.append(chunk)
                if stop.is_set():
                    return Sample(index, _merged(chunks), "cancelled")
        return Sample(index, _merged(chunks))
    except Exception as error:
        return Sample(index, _merged(chunks) if chunks else None, "failed", error)


async def _aseparate(
    source: Source, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig, stop: threading.Event
) -> AsyncGenerator[Sample]:
    tasks = [asyncio.create_task(_aone(source, messages, index, config, stop)) for index in indices]
    waiting = set(tasks)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=tasks.index):
                # A task cancelled before its first step never reached the handler inside.
                yield Sample(indices[tasks.index(task)], None, "cancelled") if task.cancelled() else task.result()
                if stop.is_set() and source.streams:  # a cancelled `ainvoke` leaves its run open in tracers
                    for other in waiting:
                        other.cancel()
    finally:
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _aone(
    source: Source, messages: list[BaseMessage], index: int, config: RunnableConfig, stop: threading.Event
) -> Sample:
    chunks: list[BaseMessage] = []
    call, arguments = source.call_config(config, index), source.call_kwargs(index)
    try:
        if not source.streams:
            return Sample(index, _merged([await source.model.ainvoke(messages, call, **arguments)]))
        async with aclosing(source.astream(messages, call, **arguments)) as stream:
            async for chunk in stream:
                chunks.append(chunk)
        return Sample(index, _merged(chunks))
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return Sample(index, _merged(chunks) if chunks else None, "cancelled")
    except Exception as error:
        return Sample(index, _merged(chunks) if chunks else None, "failed", error)


def _ended(index: int, outcome: AIMessage | FailedSample) -> Sample:
    if isinstance(outcome, FailedSample):
        return Sample(index, outcome.message, "failed", outcome.error)
    cancelled = outcome.response_metadata.get("finish_reason") == "cancelled"
    return Sample(index, outcome, "cancelled" if cancelled else "complete")


def _merged(chunks: Sequence[Any]) -> AIMessage:
    first = chunks[0] if chunks else None
    if isinstance(first, AIMessageChunk):
        first = message_chunk_to_message(add_ai_message_chunks(first, *chunks[1:]))
    if not isinstance(first, AIMessage):
        raise ConfigurationError(
            f"the model must return AIMessages, got {type(first).__name__}; put ReASCRunnable before the output parser"
        )
    return first
