"""A batch whose inputs share one budget: after each round it is decided anew which of them are sampled."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.daemons import DaemonExecutor
from langchain_reasc.models.event_loop import aimport_deferred
from langchain_reasc.models.waiting import as_they_end
from langchain_reasc.runnable.batch import Batch, Outcome, RunT, unanswered
from langchain_reasc.runnable.progress import shown
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.session import Session
from langchain_reasc.runnable.total_budget import Total, TotalBudget
from langchain_reasc.sampling.runs import AsyncRun, Run

__all__ = ["SharedBatch"]


@dataclass(slots=True)
class _Asked:
    """An input whose run is open, and what came of it: its answer or error, once it has one."""

    index: int
    run: Any
    question: Question | None = None
    session: Session | None = None
    outcome: AIMessage | Exception | None = None


class SharedBatch(Batch):
    """The inputs of one call, which share a budget; see :class:`~langchain_reasc.runnable.total_budget.TotalBudget`.

    Args:
        total: what they may cost together.

    The others are those of :class:`~langchain_reasc.runnable.batch.Batch`.

    Raises:
        ConfigurationError: the budget is too small, or the first responses to all inputs are to calibrate.
    """

    def __init__(self, *args: Any, total: Total, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._solver.calibrator is not None:
            raise ConfigurationError(
                "total_tokens and total_samples go with a calibration that is there before the batch, or with none: "
                "calibration='mixture' decides on each input from the first responses to all"
            )
        self._budget = TotalBudget(
            total, inputs=len(self._inputs), together=self._limit, concurrency=self._solver.concurrency
        )
        self._asked: dict[int, _Asked] = {}

    def completed(self) -> Iterator[Outcome]:
        """(index, winning response) in order of completion."""
        if not self._configs:
            return
        try:
            with DaemonExecutor(self._limit) as threads, shown(self._progress, len(self._inputs)) as move:
                try:
                    while sampled := self._budget.next():
                        jobs = [threads.submit(self._sample, asked) for asked in self._of(Run, sampled)]
                        for job in as_they_end(jobs):
                            for outcome in self._noted(job.result()):
                                move()
                                yield outcome
                    for asked in self._left():
                        self._end(asked)
                        move()
                        yield from self._noted(asked)
                    for outcome in self._never_asked():
                        move()
                        yield outcome
                finally:  # after a failure, or Ctrl-C, nothing more is begun, and what runs is cut off
                    self._cutoff.give_up()
                    threads.shutdown(wait=False, cancel_futures=True)
        finally:
            for run in self._runs:
                run.fail(unanswered())

    async def acompleted(self) -> AsyncGenerator[Outcome]:
        """The asynchronous :meth:`completed`."""
        if not self._configs:
            return
        await aimport_deferred()
        tasks = list[asyncio.Task[_Asked]]()
        with shown(self._progress, len(self._inputs)) as move:
            try:
                while sampled := self._budget.next():
                    tasks = [asyncio.create_task(self._asample(asked)) for asked in self._of(AsyncRun, sampled)]
                    for done in asyncio.as_completed(tasks):
                        for outcome in self._noted(await done):
                            move()
                            yield outcome
                for asked in self._left():
                    await self._aend(asked)
                    move()
                    for outcome in self._noted(asked):
                        yield outcome
                for outcome in self._never_asked():
                    move()
                    yield outcome
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for run in self._runs:
                    await run.fail(unanswered())

    def _of(self, kind: type[RunT], sampled: Iterable[int]) -> list[_Asked]:
        for index in sampled:
            if index not in self._asked:
                self._asked[index] = _Asked(index, self._opened(kind, index))
        return [self._asked[index] for index in sampled]

    def _sample(self, asked: _Asked) -> _Asked:
        """A sample of an input, and its answer where that decides it."""

        def sampled(config: RunnableConfig) -> bool:
            question, session = self._begun(asked, config)
            self._solver.advance(session, question, 1, config)
            question.clock.pause()
            return session.wanted == 0

        try:
            if asked.run.step(sampled):
                self._end(asked)
        except Exception as error:
            asked.outcome = self._kept(error)
        return asked

    async def _asample(self, asked: _Asked) -> _Asked:
        async def sampled(config: RunnableConfig) -> bool:
            question, session = self._begun(asked, config)
            await self._solver.aadvance(session, question, 1, config)
            question.clock.pause()
            return session.wanted == 0

        try:
            if await asked.run.step(sampled):
                await self._aend(asked)
        except Exception as error:
            asked.outcome = self._kept(error)
        return asked

    def _end(self, asked: _Asked) -> None:
        """The answer by what was sampled."""

        def answer(_: RunnableConfig) -> AIMessage:
            assert asked.session is not None
            return self._solver.result(asked.session).message

        try:
            asked.outcome = asked.run.last(answer)
        except Exception as error:
            asked.outcome = self._kept(error)

    async def _aend(self, asked: _Asked) -> None:
        async def answer(_: RunnableConfig) -> AIMessage:
            assert asked.session is not None
            return (await self._solver.aresult(asked.session)).message

        try:
            asked.outcome = await asked.run.last(answer)
        except Exception as error:
            asked.outcome = self._kept(error)

    def _begun(self, asked: _Asked, config: RunnableConfig) -> tuple[Question, Session]:
        if asked.question is None or asked.session is None:
            asked.question = self._question(asked.index, config)
            asked.session = self._solver.session(asked.question, None, config)
        asked.question.clock.resume()  # it has waited for the others of its round
        return asked.question, asked.session

    def _noted(self, asked: _Asked) -> Iterator[Outcome]:
        self._budget.sampled(asked.index, asked.session, ended=asked.outcome is not None)
        if asked.outcome is not None:
            yield asked.index, asked.outcome

    def _left(self) -> list[_Asked]:
        """The inputs that have no answer when the budget is spent."""
        return [asked for asked in self._asked.values() if asked.outcome is None]

    def _never_asked(self) -> Iterator[Outcome]:
        for index in self._budget.waiting:
            yield index, self._kept(self._budget.unaffordable())

    def _kept(self, error: Exception) -> Exception:
        if self._return_exceptions:
            return error
        raise error
