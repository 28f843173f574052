"""Waves of any chat model: one stream per sample, because a stream can be cut off in the middle."""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, aclosing, closing, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from langchain_reasc.models.contract import is_cancelled
from langchain_reasc.models.cutoff import CUTOFF, failure_of
from langchain_reasc.models.daemons import start_daemon
from langchain_reasc.models.merging import salvaged
from langchain_reasc.models.usage import reported_usage
from langchain_reasc.models.waiting import taken_from
from langchain_reasc.sampling.quiet import unheard
from langchain_reasc.sampling.sample import Sample, merged, streamed
from langchain_reasc.sampling.wave import Wave

__all__ = ["aseparate", "separate"]

_GRACE: Final = 1.0  # seconds in which samples that were given up end by themselves; chat models need but a moment
Chunks = list[BaseMessage]
PassOn = Callable[[AIMessageChunk], object]
"""Is given each chunk of a sample as it comes."""


def separate(wave: Wave, *, live: bool = False) -> Generator[Sample | AIMessageChunk]:
    """See :func:`langchain_reasc.sampling.drawn`; with ``live``, :func:`~langchain_reasc.sampling.passed_on`."""
    came: queue.SimpleQueue[Sample | AIMessageChunk | KeyboardInterrupt | None] = queue.SimpleQueue()
    running: dict[int, Chunks] = {index: [] for index in wave.indices}

    def one(index: int, chunks: Chunks) -> None:
        try:
            came.put(_one(wave, index, chunks, came.put if live else None))
        except BaseException as error:  # the thread must not end before it has reported
            failure = failure_of(error)
            came.put(_failed(index, chunks, failure) if isinstance(failure, Exception) else failure)
        finally:
            wave.ended(index)

    ends = None if wave.limit is None else time.monotonic() + wave.limit.seconds
    threads: list[threading.Thread] = []
    try:
        with wave.cutoff.heard_by(lambda: came.put(None)):
            for index, chunks in running.items():
                threads.append(start_daemon(partial(copy_context().run, one, index, chunks), f"reasc-{index}"))
            while running:
                try:
                    item = taken_from(came, until=ends)
                except queue.Empty:
                    if wave.cutoff.given_up:
                        break
                    assert wave.limit is not None
                    wave.cutoff.give_up(wave.limit.error())
                    continue
                if isinstance(item, KeyboardInterrupt):
                    raise item
                if item is None:
                    ends = time.monotonic() + _GRACE if wave.cutoff.given_up else ends
                elif isinstance(item, AIMessageChunk) or running.pop(item.index, None) is not None:
                    yield item
            for index, chunks in running.items():
                yield _given_up(wave, index, list(chunks))
    finally:  # also on Ctrl-C
        wave.cutoff.give_up()
        gone = time.monotonic() + _GRACE
        for thread in threads:
            thread.join(max(0.0, gone - time.monotonic()))


async def aseparate(wave: Wave, *, live: bool = False) -> AsyncGenerator[Sample | AIMessageChunk]:
    """The asynchronous :func:`separate`."""
    loop = asyncio.get_running_loop()
    came: asyncio.Queue[asyncio.Task[Sample] | AIMessageChunk] = asyncio.Queue()
    pass_on = came.put_nowait if live else None
    tasks = [asyncio.create_task(_aone(wave, index, pass_on), name=f"reasc-{index}") for index in wave.indices]
    for task in tasks:
        task.add_done_callback(came.put_nowait)

    def heard() -> None:
        if wave.cutoff.given_up:
            for task in tasks:
                loop.call_later(_GRACE, task.cancel)

    expire = None
    if wave.limit is not None:
        expire = loop.call_later(wave.limit.seconds, wave.cutoff.give_up, wave.limit.error())
    waiting = set(tasks)
    try:
        with wave.cutoff.heard_by(lambda: loop.call_soon_threadsafe(heard)):
            while waiting:
                item = await came.get()
                if isinstance(item, AIMessageChunk):
                    yield item
                else:
                    waiting.discard(item)
                    yield item.result()
    finally:
        if expire:
            expire.cancel()
        wave.cutoff.give_up()
        if waiting:
            await asyncio.wait(waiting, timeout=_GRACE)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _one(wave: Wave, index: int, chunks: Chunks, pass_on: PassOn | None) -> Sample:
    CUTOFF.set(wave.cutoff)
    model, call, arguments = wave.model, wave.model.call_config(wave.config, index), wave.model.call_kwargs(index)
    with _told(wave):
        if not model.streams:
            return _ended(wave, index, merged([model.invoke(wave.messages, call, **arguments)]))
        with closing(model.stream(wave.messages, call, **arguments)) as stream:
            for chunk in stream:
                chunks.append(chunk)
                if pass_on and isinstance(chunk, AIMessageChunk):
                    pass_on(chunk)
    return _ended(wave, index, streamed(chunks, names_end=model.names_end))


async def _aone(wave: Wave, index: int, pass_on: PassOn | None) -> Sample:
    CUTOFF.set(wave.cutoff)
    chunks: Chunks = []
    try:
        model, call, arguments = wave.model, wave.model.call_config(wave.config, index), wave.model.call_kwargs(index)
        with _told(wave):
            if not model.streams:
                return _ended(wave, index, merged([await model.ainvoke(wave.messages, call, **arguments)]))
            async with aclosing(model.astream(wave.messages, call, **arguments)) as stream:
                async for chunk in stream:
                    chunks.append(chunk)
                    if pass_on and isinstance(chunk, AIMessageChunk):
                        pass_on(chunk)
        return _ended(wave, index, streamed(chunks, names_end=model.names_end))
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            if not wave.cutoff.given_up:
                raise
            return _given_up(wave, index, chunks)
        failure = failure_of(error)
        if not isinstance(failure, Exception):
            raise
        return _failed(index, chunks, failure)
    finally:
        wave.ended(index)


def _told(wave: Wave) -> AbstractContextManager[None]:
    return unheard() if wave.model.quiet else nullcontext()


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
