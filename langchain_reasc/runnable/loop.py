"""The loop: draw samples, read vote and confidence, decide, go on or stop, and bill.

It is written once, as coroutines, which a synchronous call runs in its own thread: see
:func:`langchain_reasc.threads.blocking`. Everything that needs no waiting is in
:class:`~langchain_reasc.runnable.question.Question`, and the decision itself is the pure function
:func:`langchain_reasc.method.stopping.decide`.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from langchain_core.messages import AIMessageChunk

from langchain_reasc.answers import says_nothing
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.question import DeservesVote, Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.sampling import Cutoff, Sample, Wave, samples, take_slots
from langchain_reasc.threads import in_thread

T = TypeVar("T")


async def answer(question: Question) -> ReASCResult:
    """Sample until the decision falls; go on from the samples that a question has.

    Raises:
        ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
    """
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
    try:
        while question.live and not question.has_response and (count := question.samples_to_launch):
            async with aclosing(draw(question, count, live=question.live)) as chunks:
                async for chunk in chunks:
                    yield chunk
        yield await answer(question)
    finally:
        question.report_spending()


async def ask(
    request: Request,
    plan: Plan | None = None,
    *,
    first: Sample | None = None,
    deserves_vote: DeservesVote | None = None,
    **options: Any,
) -> Question:
    """Begin a question, by the plan for its kind of request, or by another ``plan``.

    Args:
        request: what is asked.
        plan: another plan.
        first: a sample that was drawn before.
        deserves_vote: see :class:`~langchain_reasc.runnable.question.Question`, as for the other options.
        **options: the other options of the question.
    """
    if deserves_vote and not request.is_async:
        _refuse_async(deserves_vote)
    if plan is None:
        if online := request.setup.online:
            await _in_thread(request, online.restore) if request.is_async else online.restore()
        plan = request.plan()
    request.clock.resume()
    make = partial(Question, request, plan, first=first, deserves_vote=deserves_vote, **options)
    return await _in_thread(request, make) if first and request.reads_in_thread else make()


async def draw(question: Question, count: int, *, live: PreparedModel | None = None) -> AsyncGenerator[AIMessageChunk]:
    """Draw a wave of up to ``count`` samples, as many as ``max_concurrency`` has room for, and decide on each.

    With a ``live`` model, yield the chunks of the wave's only sample as they come.
    """
    request = question.request
    async with _wave(request, count, question.launch, live) as (cutoff, items):
        async for item in items:
            if isinstance(item, AIMessageChunk):
                yield item
                continue
            if (asks := question.asks) and item.status == "complete":
                await _judge(question, asks, item)
            if request.is_async and not request.setup.prepared.is_set():
                await _in_thread(request, request.setup.prepare)
            if request.reads_in_thread:
                await _in_thread(request, partial(question.add_sample, item))
            else:
                question.add_sample(item)
            if question.decision:
                cutoff.stop()
            if live and question.passed_on and item.status != "complete":
                # No other response can go on from its beginning.
                raise item.error or SamplingError("the response was given up before it had ended")
    question.check_limits()


async def draw_first(request: Request) -> Sample | None:
    """Draw the first sample of a request before anything is decided. Its clock then stops, to wait for others."""
    async with _wave(request, 1, range, None) as (_, items):
        drawn = [item async for item in items if isinstance(item, Sample)]
    request.clock.pause()
    return drawn[0] if drawn else None


async def finish(question: Question) -> ReASCResult:
    """Return the result."""
    if question.request.is_async and question.setup.mixture:  # which may be fitted anew
        return await _in_thread(question.request, question.result)
    return question.result()


@asynccontextmanager
async def _wave(
    request: Request, count: int, launch: Callable[[int], range], live: PreparedModel | None
) -> AsyncGenerator[tuple[Cutoff, AsyncGenerator[Sample | AIMessageChunk]]]:
    """Launch up to ``count`` samples, and yield what cuts them off, and the samples as they end.

    ``launch`` returns the indices of as many samples as there is room for. With a ``live`` model the chunks are passed
    on.
    """
    request.clock.pause()
    slots = await take_slots(
        request.setup.model.origin, request.config, count, request.cutoff, is_async=request.is_async
    )
    request.clock.resume()
    if not slots.count:
        raise SamplingError("given up, because the call was interrupted or another input of its batch failed")
    indices, model = launch(slots.count), live or request.model
    wave = Wave(model, request.messages, indices, request.config, request.clock.wave(), ended=slots.give_back)
    wave.cutoff.prompt_tokens = request.prompt_tokens
    try:
        with request.cutoff.notifying(wave.cutoff.give_up):
            async with aclosing(samples(wave, is_async=request.is_async, live=live is not None)) as items:
                yield wave.cutoff, items
    finally:
        slots.give_back(slots.count)
        request.prompt_tokens = wave.cutoff.prompt_tokens


async def _judge(question: Question, deserves_vote: DeservesVote, first: Sample) -> None:
    """Ask whether the first response is put to the vote; where that fails, it is."""
    assert first.message is not None
    if says_nothing(first.message) and not question.passed_on:  # then the model is asked again
        return
    try:
        deserved = deserves_vote(first.message)
        if not question.request.is_async:
            _refuse_async(deserved)
        question.not_voted = not (await deserved if inspect.isawaitable(deserved) else deserved)
    except Exception as error:  # of the user's function, asked about a response that is paid for
        question.vote_anyway(error)


async def _in_thread(request: Request, function: Callable[[], T]) -> T:
    """Call a function that would hold up the event loop."""
    try:
        return await in_thread(function)
    except asyncio.CancelledError:
        request.cutoff.give_up()  # or its thread would go on comparing answers
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
