"""Answer many inputs at once, with one limit on calls in flight."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list

from langchain_reasc.concurrency import Concurrency, RunEach
from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc.runnable.cascade import Cascade, Solver, voter_of
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.first_responses import plan_by_firsts
from langchain_reasc.runnable.outcome import concluded
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.solve import (
    begin,
    draw,
    draw_first,
    finish,
)
from langchain_reasc.runnable.solve_two_models import start
from langchain_reasc.runnable.total_budget import TotalBudget
from langchain_reasc.sampling import Cutoff, SampledResponse, TracedRun, checked_limit

Outcome = tuple[int, AIMessage | Exception]
ONE_INPUT_ONLY: Final = (
    "on_response goes with solve() and asolve(), one input at a time; batch() takes "
    "progress=..., and batch_as_completed() gives each answer as it is found"
)


class _Input:
    """An input of a batch.

    Attributes:
        index: its place among the inputs.
        value: the input.
        config: the config of its run.
        run: its run, once that is open.
        request: what is asked, once its run is open.
        first: a sample that was drawn before the others, if any.
        question: the question, if inputs are sampled in rounds.
        is_decided: whether the question takes no more samples.
        outcome: the winning response, or an error.
    """

    def __init__(
        self, index: int, value: LanguageModelInput, config: RunnableConfig
    ) -> None:
        self.index = index
        self.value = value
        self.config = config
        self.run: TracedRun | None = None
        self.request: Request | None = None
        self.first: SampledResponse | None = None
        self.question: Question | None = None
        self.is_decided = False
        self.outcome: AIMessage | Exception | None = None


_Step = Callable[[_Input, Request], Coroutine[Any, Any, Any]]
"""Does something below the run of an input."""


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
        solver: Solver,
        name: str,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None,
        io: Concurrency,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> None:
        if "on_response" in kwargs:
            raise ConfigurationError(ONE_INPUT_ONLY)
        self._solver = solver
        self._voter = voter_of(solver)
        self._name = name
        self._kwargs = kwargs
        self._return_exceptions = return_exceptions
        self._progress = progress
        self._io = io
        self._cutoff = Cutoff()
        configs = get_config_list(config, len(inputs))
        self._limit = checked_limit(configs[0]) if configs else None
        self._inputs = []
        for index, (value, own_config) in enumerate(zip(inputs, configs, strict=True)):
            # LangChain would bound each input by its own number.
            limited = {**own_config, "max_concurrency": self._limit}
            self._inputs.append(_Input(index, value, cast(RunnableConfig, limited)))
        self._budget: TotalBudget | None = None
        if total_tokens is not None or total_samples is not None:
            self._check_one_model()
            self._budget = TotalBudget(
                total_tokens,
                total_samples,
                inputs=len(inputs),
                together=self._limit,
                concurrency=self._voter.options.concurrency,
            )

    def _check_one_model(self) -> None:
        """Refuse a total budget for what does not divide it."""
        if isinstance(self._solver, Cascade):
            raise ConfigurationError(
                "total_tokens and total_samples divide the samples of one model "
                "between the inputs; with escalate_to, bound each input with "
                "max_samples"
            )
        if self._voter.learner is not None:
            raise ConfigurationError(
                "total_tokens and total_samples go with a calibration that is "
                "there before the batch, or with none: calibration='mixture' "
                "decides on each input from the first responses to all"
            )

    async def completed(self) -> AsyncGenerator[Outcome]:
        """Yield (index, winning response) in order of completion."""
        if not self._inputs:
            return
        try:
            with show_progress(self._progress, len(self._inputs)) as advance:
                async with (
                    self._io.jobs(self._limit, self._cutoff.give_up) as run_each,
                    aclosing(self._answered(run_each)) as answered,
                ):
                    async for item in answered:
                        outcome = item.outcome
                        assert outcome is not None
                        if not self._return_exceptions and isinstance(
                            outcome, Exception
                        ):
                            raise outcome
                        advance()
                        yield item.index, outcome
        finally:
            unanswered = SamplingError(
                "not answered, because the batch was interrupted or another input of "
                "it failed"
            )
            for item in self._inputs:
                if item.run is not None:
                    await item.run.fail(unanswered)

    def _answered(self, run_each: RunEach[_Input, _Input]) -> AsyncGenerator[_Input]:
        if self._budget is not None:
            return self._in_rounds(self._budget, run_each)
        return self._one_by_one(run_each)

    async def _one_by_one(
        self, run_each: RunEach[_Input, _Input]
    ) -> AsyncGenerator[_Input]:
        plan: DecisionPlan | None = None
        if self._voter.mixture is not None:
            plan = await self._plan_by_firsts(run_each)
        step = partial(self._step, partial(self._answer, plan), is_last=True)
        async with aclosing(run_each(step, self._inputs)) as answered:
            async for item in answered:
                yield item

    async def _plan_by_firsts(
        self, run_each: RunEach[_Input, _Input]
    ) -> DecisionPlan | None:
        """Draw the first sample of each input, and calibrate on these."""
        step = partial(self._step, _draw_first)
        async with aclosing(run_each(step, self._inputs)) as samples:
            async for _ in samples:
                pass
        firsts = [item.first for item in self._inputs if item.first is not None]
        if not firsts:
            return None
        return await self._io.run(partial(plan_by_firsts, firsts, self._voter))

    async def _in_rounds(
        self, budget: TotalBudget, run_each: RunEach[_Input, _Input]
    ) -> AsyncGenerator[_Input]:
        while True:
            indices = budget.next_inputs()
            if not indices:
                break
            inputs = [self._inputs[index] for index in indices]
            async with aclosing(run_each(self._sample, inputs)) as sampled:
                async for item in sampled:
                    is_answered = item.outcome is not None
                    if item.question is not None:
                        state = item.question.sampled(ended=is_answered)
                        budget.note_sample(item.index, state)
                    if is_answered:
                        yield item
        # What is undecided when the budget is spent has its best answer so far.
        for item in self._inputs:
            if item.outcome is None:
                yield await self._finish(item, budget)

    async def _finish(self, item: _Input, budget: TotalBudget) -> _Input:
        if item.question is not None:
            await self._step(_finish_question, item, is_last=True)
        if item.outcome is None:
            item.outcome = budget.error_unsampled()
        return item

    async def _sample(self, item: _Input) -> _Input:
        """Draw a sample of an input, and answer it where that decides."""
        await self._step(_draw_next, item)
        if item.outcome is None and item.is_decided:
            await self._step(_finish_question, item, is_last=True)
        return item

    async def _answer(
        self, plan: DecisionPlan | None, item: _Input, request: Request
    ) -> AIMessage:
        options: dict[str, Any] = {}
        if item.first is not None:
            options = {"plan": plan, "first": item.first}
        solving = await start(self._solver, request, **options)
        return (await solving.answer()).message

    async def _step(
        self, step: _Step, item: _Input, *, is_last: bool = False
    ) -> _Input:
        """Take a step below the run of an input. Its outcome is an error, or the result
        of the last step.
        """

        async def below(config: RunnableConfig) -> Any:
            if item.request is None:
                item.request = Request(
                    self._voter,
                    item.value,
                    config,
                    self._kwargs,
                    io=self._io,
                    cutoff=self._cutoff,
                )
            return await step(item, item.request)

        if item.outcome is not None:
            return item
        if item.run is None:
            item.run = TracedRun(self._name, item.value, item.config, self._io)
        try:
            if is_last:
                item.outcome = await item.run.last(below)
            else:
                item.is_decided = await item.run.step(below) is True
        except Exception as error:
            item.outcome = error
        return item


async def _draw_first(item: _Input, request: Request) -> None:
    item.first = await draw_first(request)


async def _draw_next(item: _Input, request: Request) -> bool:
    """Draw a sample of a question that has waited for the others of its round; return
    whether that decides.
    """
    if item.question is None:
        item.question = await begin(request)
    request.clock.resume()
    async with aclosing(draw(item.question, 1)) as chunks:
        async for _ in chunks:
            pass
    request.clock.pause()
    return item.question.samples_to_launch == 0


async def _finish_question(item: _Input, request: Request) -> AIMessage:
    assert item.question is not None
    result = await finish(item.question)
    return concluded(result, item.question.voter.options).message
