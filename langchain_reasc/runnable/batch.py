"""Answer many inputs at once, with one limit on calls in flight."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list

from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.runnable.concurrency import Concurrency, Each
from langchain_reasc.runnable.first_responses import plan_by_firsts
from langchain_reasc.runnable.loop import answer, ask, draw, draw_first, finish
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.setup import Setup
from langchain_reasc.runnable.total_budget import TotalBudget
from langchain_reasc.sampling import Cutoff, Sample, TracedRun, checked_limit

Outcome = tuple[int, AIMessage | Exception]
ONE_INPUT_ONLY: Final = (
    "on_response goes with solve() and asolve(), one input at a time; batch() takes "
    "progress=..., and batch_as_completed() gives each answer as it is found"
)


class _Input:
    """An input of a batch: its run and request once that is open, a first sample where
    it has one, its outcome.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.run: TracedRun | None = None
        self.request: Request | None = None
        self.first: Sample | None = None
        self.question: Question | None = None
        self.decided = False
        self.outcome: AIMessage | Exception | None = None


class Batch:
    """The inputs of one call; ``max_concurrency`` of the first config bounds the
    samples in flight of all together.

    To learn a mixture the first sample of every input is drawn, below its own run,
    before any is decided (Algorithm 2). With a total budget it is decided anew after
    each round which inputs are sampled. The arguments are those of
    :meth:`ReASCRunnable.batch <langchain_reasc.ReASCRunnable.batch>`, and ``name`` is
    the name of each input's run.

    Raises:
        ConfigurationError: the budget is too small, or the first responses to all
            inputs are to calibrate.
    """

    def __init__(
        self,
        setup: Setup,
        name: str,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> None:
        if "on_response" in kwargs:
            raise ConfigurationError(ONE_INPUT_ONLY)
        self._setup, self._name, self._values, self._kwargs = (
            setup,
            name,
            inputs,
            kwargs,
        )
        configs = get_config_list(config, len(inputs))
        self._limit = checked_limit(configs[0]) if configs else None
        self._configs = [
            cast(RunnableConfig, {**one, "max_concurrency": self._limit})
            for one in configs
        ]
        self._return_exceptions, self._progress = return_exceptions, progress
        self._cutoff, self._is_async = Cutoff(), False
        self._inputs = [_Input(index) for index in range(len(inputs))]
        self._budget: TotalBudget | None = None
        if total_tokens is not None or total_samples is not None:
            if setup.large is not None:
                raise ConfigurationError(
                    "total_tokens and total_samples divide the samples of one model "
                    "between the inputs; with escalate_to, bound each input with "
                    "max_samples"
                )
            if setup.learner is not None:
                raise ConfigurationError(
                    "total_tokens and total_samples go with a calibration that is "
                    "there before the batch, or with none: calibration='mixture' "
                    "decides on each input from the first responses to all"
                )
            self._budget = TotalBudget(
                total_tokens,
                total_samples,
                inputs=len(inputs),
                together=self._limit,
                concurrency=setup.options.concurrency,
            )

    async def completed(self, io: Concurrency) -> AsyncGenerator[Outcome]:
        """Yield (index, winning response) in order of completion."""
        if not self._inputs:
            return
        self._is_async = io.is_async
        try:
            with show_progress(self._progress, len(self._inputs)) as advance:
                method = (
                    partial(self._in_rounds, self._budget)
                    if self._budget
                    else partial(self._one_by_one, io)
                )
                async with (
                    io.workers(self._limit, self._cutoff) as each,
                    aclosing(method(each)) as done,
                ):
                    async for one in done:
                        assert one.outcome is not None
                        if (
                            isinstance(one.outcome, Exception)
                            and not self._return_exceptions
                        ):
                            raise one.outcome
                        advance()
                        yield one.index, one.outcome
        finally:
            unanswered = SamplingError(
                "not answered, because the batch was interrupted or another input of "
                "it failed"
            )
            for one in self._inputs:
                if one.run:
                    await one.run.fail(unanswered)

    async def _one_by_one(
        self, io: Concurrency, each: Each[_Input, _Input]
    ) -> AsyncGenerator[_Input]:
        plan: Plan | None = None
        if self._setup.mixture:
            async with aclosing(
                each(partial(self._step, _draw_first), self._inputs)
            ) as drawn:
                async for _ in drawn:
                    pass
            firsts = [one.first for one in self._inputs if one.first]
            if firsts:
                plan = await io.in_thread(partial(plan_by_firsts, firsts, self._setup))
        answered = partial(_answer_input, plan)
        async with aclosing(
            each(partial(self._step, answered, last=True), self._inputs)
        ) as ended:
            async for one in ended:
                yield one

    async def _in_rounds(
        self, budget: TotalBudget, each: Each[_Input, _Input]
    ) -> AsyncGenerator[_Input]:
        while indices := budget.next_inputs():
            async with aclosing(
                each(self._sample, [self._inputs[index] for index in indices])
            ) as sampled:
                async for one in sampled:
                    if one.question:
                        budget.note_sample(
                            one.index,
                            one.question.sampled(ended=one.outcome is not None),
                        )
                    if one.outcome is not None:
                        yield one
        for one in self._inputs:
            if (
                one.outcome is None
            ):  # what is undecided when the budget is spent has its best answer so far
                yield await self._finish(one, budget)

    async def _finish(self, one: _Input, budget: TotalBudget) -> _Input:
        if one.question:
            await self._step(_finish_input, one, last=True)
        one.outcome = one.outcome or budget.error_unsampled()
        return one

    async def _sample(self, one: _Input) -> _Input:
        """Draw a sample of an input, and answer it where that decides."""
        await self._step(_draw_next, one)
        if one.outcome is None and one.decided:
            await self._step(_finish_input, one, last=True)
        return one

    async def _step(
        self,
        what: Callable[[_Input, Request], Coroutine[Any, Any, Any]],
        one: _Input,
        *,
        last: bool = False,
    ) -> _Input:
        """Do something below the run of an input; its outcome is an error, or the
        result of the ``last`` step.
        """

        async def below(config: RunnableConfig) -> Any:
            if one.request is None:
                own: dict[str, Any] = {
                    "is_async": self._is_async,
                    "cutoff": self._cutoff,
                }
                one.request = Request(self._setup, value, config, self._kwargs, **own)
            return await what(one, one.request)

        if one.outcome is not None:
            return one
        value = self._values[one.index]
        if one.run is None:
            one.run = TracedRun(
                self._name, value, self._configs[one.index], is_async=self._is_async
            )
        try:
            result = await (one.run.last if last else one.run.step)(below)
            one.decided, one.outcome = result is True, result if last else None
        except Exception as error:
            one.outcome = error
        return one


async def _draw_first(one: _Input, request: Request) -> None:
    one.first = await draw_first(request)


async def _draw_next(one: _Input, request: Request) -> bool:
    """Draw a sample of a question that has waited for the others of its round; return
    whether that decides.
    """
    one.question = one.question or await ask(request)
    request.clock.resume()
    async with aclosing(draw(one.question, 1)) as chunks:
        async for _ in chunks:
            pass
    request.clock.pause()
    return one.question.samples_to_launch == 0


async def _answer_input(plan: Plan | None, one: _Input, request: Request) -> AIMessage:
    question = await ask(request, plan if one.first else None, first=one.first)
    return (await answer(question)).message


async def _finish_input(one: _Input, request: Request) -> AIMessage:
    assert one.question is not None
    return (await finish(one.question)).message
