"""Solve a question with one model: draw samples, read vote and confidence, decide, go
on or stop, and bill.

This is written once, as coroutines, which a synchronous call runs in its own thread:
see :func:`langchain_reasc.threads.blocking`. Everything that needs no waiting is in
:class:`~langchain_reasc.runnable.question.Question`, and the decision itself is the
pure function :func:`langchain_reasc.method.stopping.decide`.
"""

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from langchain_core.messages import AIMessageChunk

from langchain_reasc.answers import says_nothing
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.outcome import concluded, outcome_of
from langchain_reasc.runnable.question import DeservesVote, Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.sampling import Cutoff, SampledResponse, Wave, samples, take_slots

LiveModel = Callable[[Request], PreparedModel | None]
"""Returns the model of a first response whose text is passed on as it comes; None if it
is not passed on.
"""


class Solving:
    """A question that is being solved by one model.

    Attributes:
        question: the question.
    """

    def __init__(self, question: Question) -> None:
        self.question = question

    @property
    def options(self) -> Options:
        """The options that say what is done with an undecided question."""
        return self.question.voter.options

    async def answer(self) -> ReASCResult:
        """Sample until the decision falls; go on from the samples that there are.

        Raises:
            ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
        """
        try:
            return concluded(await self.outcome(), self.options)
        finally:
            self.report_spending()

    async def stream(self) -> AsyncGenerator[AIMessageChunk | ReASCResult]:
        """Like :meth:`answer`, but stream the first response of a ``live`` question.
        The last item is the result.

        Raises:
            Exception: what the response failed with, once a chunk of it was passed on.
            ReASCError: as :meth:`answer`.
        """
        question = self.question
        try:
            try:
                # A first response that fails before its first chunk is drawn again.
                while question.live and not question.has_response:
                    count = question.samples_to_launch
                    if not count:
                        break
                    chunks = draw(question, count, live=question.live)
                    async with aclosing(chunks):
                        async for chunk in chunks:
                            yield chunk
            except Exception as error:
                if not self.goes_on_after(error):
                    raise
            yield await self.answer()
        finally:
            self.report_spending()

    async def outcome(self) -> ReASCResult:
        """Return the outcome, whether or not it is decided."""
        return await solve(self.question)

    def goes_on_after(self, error: Exception) -> bool:
        """Return whether there may be an answer, although sampling failed."""
        return False

    def report_spending(self) -> None:
        """Report the cost to the listener once, even if the question failed."""
        self.question.report_spending()


async def begin(
    request: Request,
    plan: DecisionPlan | None = None,
    *,
    first: SampledResponse | None = None,
    deserves_vote: DeservesVote | None = None,
    live: LiveModel | None = None,
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
    if deserves_vote is not None and request.io.blocks:
        _refuse_async(deserves_vote)
    if plan is None:
        if request.voter.online is not None:
            await request.run(request.voter.online.restore)
        plan = request.plan()
    request.clock.resume()
    make = partial(
        Question,
        request,
        plan,
        first=first,
        deserves_vote=deserves_vote,
        live=None if live is None else live(request),
        **options,
    )
    if first is not None:
        return await request.read(make)
    return make()


async def solve(question: Question) -> ReASCResult:
    """Sample until the decision falls, and return the outcome."""
    while count := question.samples_to_launch:
        async with aclosing(draw(question, count)) as chunks:
            async for _ in chunks:
                pass
    return await finish(question)


async def finish(question: Question) -> ReASCResult:
    """Return the outcome of the samples that there are, and learn from it."""
    if question.voter.mixture is not None:
        # The mixture may be fitted anew, which takes long.
        return await question.request.run(partial(outcome_of, question))
    return outcome_of(question)


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
            await _judge(question, item)
            # Preparing may take half a second, in which other samples go on.
            if not request.voter.prepared.is_set():
                await request.run(request.voter.prepare)
            await request.read(partial(question.add_sample, item))
            if question.decision:
                cutoff.stop()
            if live and question.passed_on and item.status != "complete":
                # No other response can go on from its beginning.
                raise item.error or SamplingError(
                    "the response was given up before it had ended"
                )
    question.check_limits()


async def draw_first(request: Request) -> SampledResponse | None:
    """Draw the first sample of a request before anything is decided. Its clock then
    stops, to wait for others.
    """
    first = None
    async with _wave(request, 1, range, None) as (_, items):
        async for item in items:
            if isinstance(item, SampledResponse) and first is None:
                first = item
    request.clock.pause()
    return first


@asynccontextmanager
async def _wave(
    request: Request,
    count: int,
    launch: Callable[[int], range],
    live: PreparedModel | None,
) -> AsyncGenerator[tuple[Cutoff, AsyncGenerator[SampledResponse | AIMessageChunk]]]:
    """Launch up to ``count`` samples, and yield what cuts them off, and the samples as
    they end.

    ``launch`` returns the indices of as many samples as there is room for. With a
    ``live`` model the chunks are passed on.
    """
    # The time in which a question waits for others is not its own.
    request.clock.pause()
    slots = await take_slots(
        request.voter.model.origin,
        request.config,
        count,
        request.cutoff,
        request.io,
    )
    request.clock.resume()
    if not slots.count:
        raise SamplingError(
            "given up, because the call was interrupted or another input of its batch "
            "failed"
        )
    wave = Wave(
        live or request.model,
        request.messages,
        launch(slots.count),
        request.config,
        request.clock.wave(),
        ended=slots.give_back,
        io=request.io,
    )
    # What one wave learns of the prompt's length serves the estimates of the next.
    wave.cutoff.prompt_tokens = request.prompt_tokens
    drawing = samples(wave, live=live is not None)
    try:
        with request.cutoff.notifying(wave.cutoff.give_up):
            async with aclosing(drawing) as items:
                yield wave.cutoff, items
    finally:
        slots.give_back(slots.count)
        request.prompt_tokens = wave.cutoff.prompt_tokens


async def _judge(question: Question, first: SampledResponse) -> None:
    """Ask whether the first response is put to the vote; where that fails, it is."""
    deserves_vote = question.undecided_vote
    if deserves_vote is None or first.status != "complete" or first.message is None:
        return
    if says_nothing(first.message) and not question.passed_on:
        # The model is asked again.
        return
    try:
        deserved = deserves_vote(first.message)
        if question.request.io.blocks:
            _refuse_async(deserved)
        if inspect.isawaitable(deserved):
            deserved = await deserved
        question.not_voted = not deserved
    except Exception as error:
        # Of the user's function, asked about a response that is paid for.
        question.vote_anyway(error)


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
