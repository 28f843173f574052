"""The loop: draw samples, read vote and confidence, decide, go on or stop, and bill.

It is written once, as coroutines, which a synchronous call runs in its own thread: see
:func:`langchain_reasc.threads.blocking`. Everything that needs no waiting is in
:class:`~langchain_reasc.runnable.question.Question`, and the decision itself is the
pure function :func:`langchain_reasc.method.stopping.decide`.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_reasc.answers import says_nothing
from langchain_reasc.calibration import DEFAULT_RACE, Escalation, Shadowed
from langchain_reasc.exceptions import (
    ConfigurationError,
    SamplingError,
    is_control_flow,
)
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.escalation import (
    Asked,
    Escalating,
    Large,
    combined,
    shadowed_row,
)
from langchain_reasc.runnable.failures import both_failed, is_wrong_call, log_failure
from langchain_reasc.runnable.plan import Plan, plan_by_course
from langchain_reasc.runnable.question import (
    CallBudget,
    DeservesVote,
    Question,
    concluded,
)
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.sampling import Cutoff, Sample, Wave, samples, take_slots
from langchain_reasc.threads import in_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def answer(question: Question) -> ReASCResult:
    """Sample until the decision falls; go on from the samples that a question has.

    Raises:
        ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
    """
    try:
        if question.escalating:
            return concluded(
                await _escalated(question, question.escalating),
                question.escalating.request.setup.options,
            )
        await _sample(question)
        return await finish(question)
    finally:
        question.report_spending()


async def answering(question: Question) -> AsyncGenerator[AIMessageChunk | ReASCResult]:
    """Like :func:`answer`, but stream the first response of a ``live`` question. The
    last item is the result.

    Raises:
        Exception: what the response failed with, once a chunk of it was passed on.
        ReASCError: as :func:`answer`.
    """
    try:
        try:
            while (
                question.live
                and not question.has_response
                and (count := question.samples_to_launch)
            ):
                async with aclosing(
                    draw(question, count, live=question.live)
                ) as chunks:
                    async for chunk in chunks:
                        yield chunk
        except Exception as error:
            if not (question.escalating and _other_may_answer(question, error)):
                raise
        yield await answer(question)
    finally:
        question.report_spending()


async def ask(
    request: Request,
    plan: Plan | None = None,
    *,
    first: Sample | None = None,
    deserves_vote: DeservesVote | None = None,
    live: Callable[[Request], PreparedModel | None] = lambda _: None,
    **options: Any,
) -> Question:
    """Begin a question, by the plan for its kind of request, or by another ``plan``.

    Args:
        request: what is asked.
        plan: another plan.
        first: a sample that was drawn before.
        deserves_vote: see :class:`~langchain_reasc.runnable.question.Question`, as for
            the other options.
        live: returns the model of a first response whose text is passed on as it comes.
        **options: the other options of the question.
    """
    if deserves_vote and not request.is_async:
        _refuse_async(deserves_vote)
    if plan is None:
        if online := request.setup.online:
            await _in_thread(
                request, online.restore
            ) if request.is_async else online.restore()
        if large := request.setup.large:
            return await _ask_two(
                request, large, deserves_vote=deserves_vote, live=live, **options
            )
        plan = request.plan()
    request.clock.resume()
    make = partial(
        Question,
        request,
        plan,
        first=first,
        deserves_vote=deserves_vote,
        live=live(request),
        **options,
    )
    return (
        await _in_thread(request, make) if first and request.reads_in_thread else make()
    )


async def _ask_two(request: Request, large: Large, **options: Any) -> Question:
    """Begin a question with the small model, or with the large one: alone, or to learn
    from both.
    """
    choose = partial(large.course, request.kind, request.setup.options.audit)
    course = (
        await _in_thread(request, choose)
        if request.is_async and large.learner
        else choose()
    )
    if large.known and (measured := request.setup.calibration):
        request.setup.require_fit(measured, request.model, request.messages)
    first: Asked = (
        "small" if course is None or (course.rule and not course.shadowed) else "large"
    )
    escalating = Escalating(
        large=large, request=request, first=first, course=course, options=options
    )
    if first == "large":
        question = await ask(request.to_large(), **options)
    else:
        by_course = (
            course
            and course.rule
            and plan_by_course(request.setup.options, course.rule, large.measure)
        )
        question = await ask(request, by_course or request.plan(), **options)
    question.escalating = escalating
    return question


async def _escalated(question: Question, escalating: Escalating) -> ReASCResult:
    """Answer with one of two models: the small one, unless it is contested, or the
    large one, unless it fails.

    Raises:
        Exception: the error of the large model, if the small one has no answer, or with
            ``on_undecided="raise"``; of either model, if the call itself is wrong.
    """
    large, request, raises = (
        escalating.large,
        escalating.request,
        escalating.request.setup.options.on_undecided,
    )
    result, asked = await _tried(question), dict[Asked, list[ReASCResult]]()
    notices, failed = escalating.notices, dict[Asked, Exception]()
    if escalating.first == "small":
        if isinstance(result, Exception):
            failed["small"] = result
        else:
            asked["small"] = [result]
        budget = question.rest_of_budget
        if budget is None and isinstance(result, Exception):
            raise result
        if not isinstance(result, Exception) and not escalating.goes_on(result):
            return combined(
                large, question, asked, "small", notices, escalating.promise
            )
        if budget is None:
            notices = (
                "the large model was not asked: the budget or the time is over",
                *notices,
            )
            return combined(large, question, asked, "small", notices, None)
        result = await _tried(
            await _ask_beside(
                question, request.to_large(), budget, **escalating.options
            )
        )
    elif (
        isinstance(result, Exception)
        and raises != "raise"
        and (budget := question.rest_of_budget)
    ):
        plan = plan_by_course(request.setup.options, DEFAULT_RACE, None)
        small = await _tried(
            await _ask_beside(
                question, request, budget, plan=plan, **escalating.options
            )
        )
        if isinstance(small, Exception):
            failed["small"] = small
        else:
            asked["small"] = [small]
    if isinstance(result, Exception):
        if "small" in failed:
            raise both_failed(failed["small"], result)
        if "small" not in asked or raises == "raise":
            raise result
        log_failure(large, "large", result)
        return combined(
            large, question, asked, "small", notices, None, failed={"large": result}
        )
    if "small" in failed:
        log_failure(large, "small", failed["small"])
    asked["large"] = [result]
    course = escalating.course
    if (
        course
        and course.known
        and course.shadowed
        and result.decision.reason != "alone"
    ):
        try:
            row = await shadow(question, request, large, course.known, asked)
            if row and large.learner:
                learn = partial(large.learner.observe, request.kind, row)
                await _in_thread(request, learn) if request.is_async else learn()
        except Exception as error:  # of what the answer does not rest on
            if is_control_flow(error) or request.cutoff.given_up:
                raise
            logger.warning("a question could not be learned from", exc_info=error)
    shadowed = escalating.first == "large" and "small" in asked
    return combined(
        large,
        question,
        asked,
        "large",
        notices,
        escalating.promise,
        shadowed=shadowed,
        failed=failed,
    )


async def shadow(
    question: Question,
    request: Request,
    large: Large,
    known: Escalation,
    asked: dict[Asked, list[ReASCResult]],
    *,
    grade: Callable[[AIMessage], bool] | None = None,
) -> Shadowed | None:
    """Ask the small model what the large one has answered, to learn from both.

    Args:
        question: the question as the large model was asked.
        request: what is asked of the small model.
        large: the large model.
        known: what is known of the two.
        asked: the large model's result, to which the others are added.
        grade: returns whether a response is right, if that is known.

    Returns:
        The row, if time and budget suffice to play it to its end.
    """
    [of_large] = asked["large"]
    if (budget := question.rest_of_budget) is None:
        return None
    options = request.setup.options
    small = await _ask_beside(
        question,
        request,
        budget,
        plan=plan_by_course(options, DEFAULT_RACE, large.measure),
    )
    read = partial(small.answer_of, of_large.message)
    of_both = (
        None
        if of_large.answer is None
        else await _in_thread(request, read)
        if request.reads_in_thread
        else read()
    )
    small.decide_by(plan_by_course(options, known.shadow_rule(of_both), large.measure))
    result = await _tried(small)
    of_small = None if isinstance(result, Exception) else result
    if of_small is not None:
        asked["small"] = [of_small]
        if of_small.decision.reason not in ("unanimous", "contested"):
            return None
    read_row = partial(shadowed_row, large, small, of_small, asked["large"], grade)
    row = await _in_thread(request, read_row) if request.is_async else read_row()
    if known.asks_again(row) and (budget := question.rest_of_budget) is not None:
        again = await _tried(await _ask_beside(question, request.to_large(), budget))
        if not isinstance(again, Exception):
            asked["large"].append(again)
            row = (
                await _in_thread(request, read_row) if request.is_async else read_row()
            )
    if of_small is not None:  # a judge may have compared the answers
        asked["small"] = [replace(of_small, usage=small.spent()[1])]
    return row


async def _ask_beside(
    question: Question, request: Request, budget: CallBudget, /, **options: Any
) -> Question:
    """Begin the same question with another model, in what is left of its budget."""
    asked = await ask(request, **options | {"budget": budget, "live": lambda _: None})
    question.beside.append(asked)
    return asked


async def _tried(question: Question) -> ReASCResult | Exception:
    """Return the outcome of a question, or what every sample failed with."""
    try:
        await _sample(question)
        outcome = await _outcome(question)
    except Exception as error:
        if not _other_may_answer(question, error):
            raise
        return error
    return outcome


def _other_may_answer(question: Question, error: Exception) -> bool:
    """Return whether the other model may answer, although a question failed with an
    error.
    """
    is_over = question.request.cutoff.given_up or question.passed_on
    return not (is_wrong_call(error) or is_control_flow(error) or is_over)


async def _sample(question: Question) -> None:
    """Sample until the decision falls."""
    while count := question.samples_to_launch:
        async with aclosing(draw(question, count)) as chunks:
            async for _ in chunks:
                pass


async def draw(
    question: Question, count: int, *, live: PreparedModel | None = None
) -> AsyncGenerator[AIMessageChunk]:
    """Draw a wave of up to ``count`` samples, as many as ``max_concurrency`` has room
    for, and decide on each.

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
                raise item.error or SamplingError(
                    "the response was given up before it had ended"
                )
    question.check_limits()


async def draw_first(request: Request) -> Sample | None:
    """Draw the first sample of a request before anything is decided. Its clock then
    stops, to wait for others.
    """
    async with _wave(request, 1, range, None) as (_, items):
        drawn = [item async for item in items if isinstance(item, Sample)]
    request.clock.pause()
    return drawn[0] if drawn else None


async def finish(question: Question) -> ReASCResult:
    """Return the result."""
    return concluded(await _outcome(question), question.setup.options)


async def _outcome(question: Question) -> ReASCResult:
    if question.request.is_async and question.setup.mixture:  # which may be fitted anew
        return await _in_thread(question.request, question.outcome)
    return question.outcome()


@asynccontextmanager
async def _wave(
    request: Request,
    count: int,
    launch: Callable[[int], range],
    live: PreparedModel | None,
) -> AsyncGenerator[tuple[Cutoff, AsyncGenerator[Sample | AIMessageChunk]]]:
    """Launch up to ``count`` samples, and yield what cuts them off, and the samples as
    they end.

    ``launch`` returns the indices of as many samples as there is room for. With a
    ``live`` model the chunks are passed on.
    """
    request.clock.pause()
    slots = await take_slots(
        request.setup.model.origin,
        request.config,
        count,
        request.cutoff,
        is_async=request.is_async,
    )
    request.clock.resume()
    if not slots.count:
        raise SamplingError(
            "given up, because the call was interrupted or another input of its batch "
            "failed"
        )
    indices, model = launch(slots.count), live or request.model
    wave = Wave(
        model,
        request.messages,
        indices,
        request.config,
        request.clock.wave(),
        ended=slots.give_back,
    )
    wave.cutoff.prompt_tokens = request.prompt_tokens
    try:
        with request.cutoff.notifying(wave.cutoff.give_up):
            async with aclosing(
                samples(wave, is_async=request.is_async, live=live is not None)
            ) as items:
                yield wave.cutoff, items
    finally:
        slots.give_back(slots.count)
        request.prompt_tokens = wave.cutoff.prompt_tokens


async def _judge(
    question: Question, deserves_vote: DeservesVote, first: Sample
) -> None:
    """Ask whether the first response is put to the vote; where that fails, it is."""
    assert first.message is not None
    if (
        says_nothing(first.message) and not question.passed_on
    ):  # then the model is asked again
        return
    try:
        deserved = deserves_vote(first.message)
        if not question.request.is_async:
            _refuse_async(deserved)
        question.not_voted = not (
            await deserved if inspect.isawaitable(deserved) else deserved
        )
    except (
        Exception
    ) as error:  # of the user's function, asked about a response that is paid for
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
            "when= is an async function, which only asynchronous calls can await: call "
            "ainvoke, astream or abatch, or give a function that is not async"
        )
