"""The loop: draw samples, read vote and confidence, decide, go on or stop, and bill.

It is written once, as coroutines, which a synchronous call runs in its own thread: see
:func:`langchain_reasc.threads.blocking`. Everything that needs no waiting is in
:class:`~langchain_reasc.runnable.question.Question`, and the decision itself is the pure function
:func:`langchain_reasc.method.stopping.decide`.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from langchain_core.messages import AIMessageChunk

from langchain_reasc.answers import says_nothing
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.question import DeservesVote, Question
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.sampling import Sample, Wave, samples, take_slots
from langchain_reasc.threads import in_thread

__all__ = ["answer", "answering", "begin", "draw", "finish"]

T = TypeVar("T")


async def answer(question: Question) -> ReASCResult:
    """Sample until the decision falls; go on from where a question has begun.

    Raises:
        ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
    """
    if not question.begun:
        await begin(question)
    try:
        while count := question.samples_to_launch:
            async with aclosing(draw(question, count)) as chunks:
                async for _ in chunks:
                    pass
        return await finish(question)
    finally:
        question.report_spending()


async def answering(question: Question) -> AsyncGenerator[AIMessageChunk | ReASCResult]:
    """Like :func:`answer`, but stream the first response of a ``live`` question. The last item is the result.

    Raises:
        Exception: what the response failed with, once a chunk of it was passed on.
        ReASCError: as :func:`answer`.
    """
    await begin(question)
    try:
        while question.live and not question.has_response and (count := question.samples_to_launch):
            async with aclosing(draw(question, count, live=question.live)) as chunks:
                async for chunk in chunks:
                    yield chunk
        yield await answer(question)
    finally:
        question.report_spending()


async def begin(question: Question, *learned: Any) -> None:
    """Choose the stopping rule: from ``learned``, a calibration and its notices, or from the calibration in use."""
    if question.deserves_vote and not question.is_async:
        _refuse_async(question.deserves_vote)
    if online := question.setup.online:
        await _in_thread(question, online.restore) if question.is_async else online.restore()
    learned = learned or (question.learned,)
    if question.reads_in_thread:  # it reads a first response that was drawn before
        await _in_thread(question, partial(question.begin, *learned))
    else:
        question.begin(*learned)


async def draw(question: Question, count: int, *, live: PreparedModel | None = None) -> AsyncGenerator[AIMessageChunk]:
    """Draw a wave of up to ``count`` samples, as many as ``max_concurrency`` has room for, and decide on each.

    With a ``live`` model, yield the chunks of the wave's only sample as they come.
    """
    question.clock.pause()
    origin, config = question.setup.model.origin, question.config
    slots = await take_slots(origin, config, count, question.cutoff, is_async=question.is_async)
    question.clock.resume()
    if not slots.count:
        raise SamplingError("given up, because the call was interrupted or another input of its batch failed")
    indices, model = question.launch(slots.count), live or question.model
    wave = Wave(model, question.messages, indices, config, question.clock.wave(), ended=slots.give_back)
    wave.cutoff.prompt_tokens = question.prompt_tokens
    try:
        with question.cutoff.notifying(wave.cutoff.give_up):
            async with aclosing(samples(wave, is_async=question.is_async, live=live is not None)) as items:
                async for item in items:
                    if isinstance(item, AIMessageChunk):
                        yield item
                        continue
                    if (asks := question.asks) and item.status == "complete":
                        await _judge(question, asks, item)
                    if question.is_async and not question.setup.prepared.is_set():
                        await _in_thread(question, question.setup.prepare)
                    if question.reads_in_thread:
                        await _in_thread(question, partial(question.add, item))
                    else:
                        question.add(item)
                    if question.decision:
                        wave.cutoff.stop()
                    if live and question.passed_on and item.status != "complete":
                        # No other response can go on from its beginning.
                        raise item.error or SamplingError("the response was given up before it had ended")
    finally:
        slots.give_back(slots.count)
        question.prompt_tokens = wave.cutoff.prompt_tokens
    question.check_limits()


async def finish(question: Question) -> ReASCResult:
    """Return the result."""
    if question.is_async and question.setup.mixture:  # which may be fitted anew
        return await _in_thread(question, question.result)
    return question.result()


async def _judge(question: Question, deserves_vote: DeservesVote, first: Sample) -> None:
    """Ask whether the first response is put to the vote; where that fails, it is."""
    assert first.message is not None
    if says_nothing(first.message) and not question.passed_on:  # then the model is asked again
        return
    try:
        deserved = deserves_vote(first.message)
        if not question.is_async:
            _refuse_async(deserved)
        question.taken_alone = not (await deserved if inspect.isawaitable(deserved) else deserved)
    except Exception as error:  # of the user's function, asked about a response that is paid for
        question.vote_anyway(error)


async def _in_thread(question: Question, function: Callable[[], T]) -> T:
    """Call a function that would hold up the event loop."""
    try:
        return await in_thread(function)
    except asyncio.CancelledError:
        question.cutoff.give_up()  # or its thread would go on comparing answers
        raise


def _refuse_async(function: Any) -> None:
    """Refuse an async function, or what it returned, in a synchronous call.

    Raises:
        ConfigurationError: it is one.
    """
    if inspect.iscoroutine(function):
        function.close()
    if inspect.iscoroutinefunction(function) or inspect.isawaitable(function):
        raise ConfigurationError(
            "when= is an async function, which only asynchronous calls can await: call ainvoke, astream or abatch, or "
            "give a function that is not async"
        )
