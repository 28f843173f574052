"""Waves of any chat model: one stream per sample, because a stream can be closed in the middle."""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from contextvars import copy_context

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.sampling.sample import Sample, merged, streamed
from langchain_reasc.sampling.time_limit import TimeLimit

__all__ = ["aseparate", "separate"]

Chunks = list[BaseMessage]


def separate(
    source: PreparedModel,
    messages: list[BaseMessage],
    indices: Sequence[int],
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None,
) -> Generator[Sample]:
    """See :func:`langchain_reasc.sampling.wave`."""
    finished: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    running: dict[int, Chunks] = {index: [] for index in indices}

    def one(index: int, chunks: Chunks) -> None:
        finished.put(_one(source, messages, index, config, stop, chunks))

    ends = None if limit is None else time.monotonic() + limit.seconds
    try:
        for index, chunks in running.items():
            # Nobody waits for a daemon: not a server that hangs, when the time is over, and not the interpreter's end.
            run = (copy_context().run, (one, index, chunks))
            threading.Thread(target=run[0], args=run[1], name=f"reasc-{index}", daemon=True).start()
        while running:
            try:
                sample = finished.get(timeout=None if ends is None else max(0.0, ends - time.monotonic()))
            except queue.Empty:
                break
            del running[sample.index]
            yield sample
        for index, chunks in running.items():
            assert limit is not None
            yield _failed(index, list(chunks), limit.error())
    finally:  # also on Ctrl-C: streams end at their next token
        stop.set()


async def aseparate(
    source: PreparedModel,
    messages: list[BaseMessage],
    indices: Sequence[int],
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None,
) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`separate`."""
    tasks = [asyncio.create_task(_aone(source, messages, index, config, stop, limit)) for index in indices]
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


def _one(
    source: PreparedModel,
    messages: list[BaseMessage],
    index: int,
    config: RunnableConfig,
    stop: threading.Event,
    chunks: Chunks,
) -> Sample:
    call, arguments = source.call_config(config, index), source.call_kwargs(index)
    try:
        if not source.streams:
            return Sample(index, merged([source.invoke(messages, call, **arguments)]))
        with closing(source.stream(messages, call, **arguments)) as stream:
            for chunk in stream:
                chunks.append(chunk)
                if stop.is_set():
                    return Sample(index, merged(chunks), "cancelled")
        return Sample(index, streamed(chunks))
    except Exception as error:
        return _failed(index, chunks, error)


async def _aone(
    source: PreparedModel,
    messages: list[BaseMessage],
    index: int,
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None,
) -> Sample:
    chunks: Chunks = []
    call, arguments = source.call_config(config, index), source.call_kwargs(index)
    timer = asyncio.timeout(limit.seconds if limit else None)
    try:
        async with timer:
            if not source.streams:
                return Sample(index, merged([await source.ainvoke(messages, call, **arguments)]))
            async with aclosing(source.astream(messages, call, **arguments)) as stream:
                async for chunk in stream:
                    chunks.append(chunk)
                    # Python 3.11's `wait_for`, in ChatOpenAI, loses a cancellation that comes together with a token.
                    if stop.is_set():
                        return Sample(index, merged(chunks), "cancelled")
                    ends = timer.when()
                    if limit and ends is not None and asyncio.get_running_loop().time() >= ends:
                        raise limit.error()
            return Sample(index, streamed(chunks))
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return Sample(index, merged(chunks) if chunks else None, "cancelled")
    except Exception as error:
        return _failed(index, chunks, limit.error() if limit and timer.expired() else error)


def _failed(index: int, chunks: Chunks, error: Exception) -> Sample:
    return Sample(index, merged(chunks) if chunks else None, "failed", error)
