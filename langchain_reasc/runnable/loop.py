"""The loop: draw samples, read what they vote for and with what confidence, decide, go on or stop, and bill.

It is written once, as coroutines; :mod:`.concurrency` says how a synchronous call runs them. Everything that needs no
waiting is in :class:`~langchain_reasc.runnable.question.Question`, and the decision itself is the pure function
:func:`langchain_reasc.method.stopping.decide`.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from langchain_core.messages import AIMessageChunk

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.runnable.concurrency import (
    Concurrency,
    EventLoop,
    Threads,
    refuse_async,
)
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.sampling import Places, Sample, Slots, Wave, samples
from langchain_reasc.threads import blocking, blocking_items

__all__ = ["answer", "asolve", "astream", "draw", "draw_first", "finish", "solve", "stream"]

T = TypeVar("T")


def solve(question: Question) -> ReASCResult:
    """Sample until the decision falls.

    Raises:
        ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
    """
    refuse_async(question.deserves_vote)
    result: ReASCResult = blocking(answer(question, Threads))
    return result


async def asolve(question: Question) -> ReASCResult:
    """Sample until the decision falls, in an event loop."""
    return await answer(question, EventLoop)


def stream(question: Question) -> Generator[AIMessageChunk | ReASCResult]:
    """Yield the chunks of a ``live`` question's first response as they come; last the result.

    Raises:
        Exception: what the response failed with, once a chunk of it was passed on.
        ReASCError: as :func:`solve`.
    """
    refuse_async(question.deserves_vote)
    return blocking_items(answering(question, Threads, live=question.live))


def astream(question: Question) -> AsyncGenerator[AIMessageChunk | ReASCResult]:
    """Yield the chunks and the result in an event loop."""
    return answering(question, EventLoop, live=question.live)


async def answer(question: Question, io: Concurrency, *, first: Sample | None = None) -> ReASCResult:
    """Answer a question; with ``first``, a sample that is already drawn, it has begun."""
    async with aclosing(answering(question, io, first=first)) as items:
        return [item async for item in items if isinstance(item, ReASCResult)][-1]


async def answering(
    question: Question, io: Concurrency, *, first: Sample | None = None, live: bool = False
) -> AsyncGenerator[AIMessageChunk | ReASCResult]:
    """Draw and decide until the decision falls; yield the chunks of a live first response, and the result."""
    if first is None:
        await begin(question, io)
    try:
        if first is not None:
            if first.status == "complete":
                await _decide(question, first, io)
            else:
                question.lose(first)
        while count := question.samples_to_launch:
            async with aclosing(draw(question, count, io, live=live and not question.has_response)) as chunks:
                async for chunk in chunks:
                    yield chunk
        yield await finish(question, io)
    finally:
        question.report_spending()


async def begin(question: Question, io: Concurrency) -> None:
    """Settle the rule by which a question is decided, by what has been learned up to now."""
    if online := question.setup.online:
        await io.in_thread(online.restore)
    question.begin(question.setup.learned)


async def draw(
    question: Question, count: int, io: Concurrency, *, live: bool = False
) -> AsyncGenerator[AIMessageChunk]:
    """Draw up to ``count`` samples, and decide on each as it ends; yield the chunks of a live one."""
    passed_on = False
    async with aclosing(_wave(question, count, io, live=live)) as items:
        async for item, wave in items:
            if isinstance(item, AIMessageChunk):
                passed_on = True
                yield item
                continue
            await _judge(question, item, io)
            if await _decide(question, item, io):
                wave.cutoff.stop()
            if passed_on and item.status != "complete":  # no other response can go on from its beginning
                raise item.error or SamplingError("the response was given up before it had ended")
    question.check_limits()


async def draw_first(question: Question, io: Concurrency) -> Sample:
    """Draw the first sample alone, without a decision, and pause the question's clock."""
    async with aclosing(_wave(question, 1, io)) as items:
        [sample] = [item async for item, _ in items if isinstance(item, Sample)]
    question.clock.pause()
    return sample


async def finish(question: Question, io: Concurrency) -> ReASCResult:
    """Return the result; in a thread where it may fit a mixture."""
    return await io.in_thread(question.result) if question.setup.mixture else question.result()


async def _wave(
    question: Question, count: int, io: Concurrency, *, live: bool = False
) -> AsyncGenerator[tuple[Sample | AIMessageChunk, Wave]]:
    """Draw a wave of up to ``count`` samples, as many as there are places for in ``max_concurrency``."""
    question.clock.pause()
    slots = Slots.of(question.setup.model.origin, question.config, is_async=io.is_async)
    taken = await slots.take(count, question.cutoff)
    question.clock.resume()
    if not taken:
        raise SamplingError("given up, because the call was interrupted or another input of its batch failed")
    indices = question.launch(taken)
    places = Places(slots, indices)
    wave = Wave(
        question.model, question.messages, indices, question.config, question.clock.wave(), ended=places.give_back
    )
    wave.cutoff.prompt_tokens = question.prompt_tokens
    try:
        with question.cutoff.heard_by(wave.cutoff.give_up):
            async with aclosing(samples(wave, is_async=io.is_async, live=live)) as items:
                async for item in items:
                    if isinstance(item, Sample):
                        places.give_back(item.index)
                    yield item, wave
    finally:
        places.close()
        question.prompt_tokens = wave.cutoff.prompt_tokens


async def _judge(question: Question, sample: Sample, io: Concurrency) -> None:
    """Ask of the first response whether it is put to the vote; where that fails, it is."""
    if question.deserves_vote is None or question.has_response or sample.message is None or sample.status != "complete":
        return
    try:
        deserved = await io.result_of(question.deserves_vote(sample.message))
    except Exception as error:  # of the user's function, asked about a response that is paid for
        question.vote_anyway(error)
    else:
        question.taken_alone = not deserved


async def _decide(question: Question, sample: Sample, io: Concurrency) -> bool:
    """Take a sample that has ended; return whether the decision has fallen."""
    await io.import_deferred()
    if not question.setup.extract.blocks:
        return question.add(sample)
    try:
        return await io.in_thread(partial(question.add, sample))
    except asyncio.CancelledError:
        question.cutoff.give_up()  # or its thread would go on comparing answers
        raise
