"""Many inputs at once, bounded together, and given up together."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.daemons import DaemonExecutor
from langchain_reasc.models.waiting import as_they_end
from langchain_reasc.runnable.mixture_batch import starts
from langchain_reasc.runnable.progress import Progress, shown
from langchain_reasc.runnable.question import Question, Start
from langchain_reasc.runnable.solver import Solver
from langchain_reasc.sampling import Sample
from langchain_reasc.sampling.runs import AsyncRun, Run
from langchain_reasc.sampling.slots import checked_limit

__all__ = ["Batch"]

Outcome = tuple[int, AIMessage | Exception]
T = TypeVar("T")
RunT = TypeVar("RunT", Run, AsyncRun)


@dataclass(slots=True)
class _Begun:
    """An input whose run is open and whose first sample is drawn."""

    run: Any
    question: Question
    sample: Sample


class Batch:
    """The inputs of one call.

    ``max_concurrency`` of the first config bounds the inputs at work, and the samples in flight of all together.
    To learn a mixture the first sample of every input is drawn, below its own run, before any is decided (Algorithm 2).

    Args:
        solver: what answers each of them.
        name: the name of each input's run, where its config has none.
        inputs: whatever the chat model takes.
        config: one config for all inputs, or one for each.
        kwargs: passed to every call of the model.
        return_exceptions: whether an input that fails comes out with its error; else the error ends the batch, and
            nothing more is paid for.
        progress: see :class:`~langchain_reasc.runnable.progress.Progress`.
    """

    def __init__(
        self,
        solver: Solver,
        name: str,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None,
        kwargs: Mapping[str, Any],
        *,
        return_exceptions: bool,
        progress: Progress,
    ) -> None:
        self._solver, self._name, self._inputs, self._kwargs = solver, name, inputs, kwargs
        configs = get_config_list(config, len(inputs))
        self._limit = checked_limit(configs[0]) if configs else None
        self._configs = [cast(RunnableConfig, {**one, "max_concurrency": self._limit}) for one in configs]
        self._return_exceptions, self._progress = return_exceptions, progress
        self._cutoff = Cutoff()
        self._runs: list[Any] = []

    def completed(self) -> Iterator[Outcome]:
        """(index, winning response) in order of completion."""
        if not self._configs:
            return
        begun = self._nothing_begun()
        try:
            with DaemonExecutor(self._limit) as threads, shown(self._progress, len(begun)) as move:
                try:
                    if self._solver.mixture:
                        beginning = [threads.submit(self._begin, index) for index in range(len(begun))]
                        for _ in as_they_end(beginning):
                            pass
                        begun = [one.result() for one in beginning]
                    pairs = enumerate(zip(begun, self._starts(begun), strict=True))
                    running = {threads.submit(self._decide, index, *pair): index for index, pair in pairs}
                    for done in as_they_end(running):
                        move()
                        yield running[done], done.result()
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
        begun = self._nothing_begun()
        gate = asyncio.Semaphore(self._limit or len(begun))
        tasks: list[asyncio.Task[Outcome]] = []
        with shown(self._progress, len(begun)) as move:
            try:
                if self._solver.mixture:
                    beginning = (_gated(gate, partial(self._abegin, index)) for index in range(len(begun)))
                    begun = await _all([asyncio.ensure_future(one) for one in beginning])
                starts = await asyncio.to_thread(self._starts, begun)  # fits mixtures
                tasks = [
                    asyncio.create_task(_gated(gate, partial(self._adecide, index, *pair)))
                    for index, pair in enumerate(zip(begun, starts, strict=True))
                ]
                for done in asyncio.as_completed(tasks):
                    outcome = await done
                    move()
                    yield outcome
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for run in self._runs:
                    await run.fail(unanswered())

    def _nothing_begun(self) -> list[_Begun | Exception | None]:
        return [None] * len(self._inputs)

    def _starts(self, begun: Sequence[_Begun | Exception | None]) -> Sequence[Start | None]:
        """Algorithm 2 on the first samples that came; inputs that could not be begun are left out."""
        samples = {index: one.sample for index, one in enumerate(begun) if isinstance(one, _Begun)}
        if not samples or self._solver.mixture is None:
            return [None] * len(begun)
        made = dict(zip(samples, starts(list(samples.values()), self._solver), strict=True))
        return [made.get(index) for index in range(len(begun))]

    def _begin(self, index: int) -> _Begun | Exception:
        run = self._opened(Run, index)
        try:
            question = run.step(partial(self._question, index))
            return _Begun(run, question, run.step(lambda config: self._solver.first(question, config)))
        except Exception as error:
            return error

    async def _abegin(self, index: int) -> _Begun | Exception:
        run = self._opened(AsyncRun, index)
        try:
            question, sample = await run.step(partial(self._afirst, index))
            return _Begun(run, question, sample)
        except Exception as error:
            return error

    async def _afirst(self, index: int, config: RunnableConfig) -> tuple[Question, Sample]:
        question = self._question(index, config)
        return question, await self._solver.afirst(question, config)

    def _decide(self, index: int, begun: _Begun | Exception | None, start: Start | None) -> Any:
        def answer(config: RunnableConfig) -> AIMessage:
            question = begun.question if isinstance(begun, _Begun) else self._question(index, config)
            return self._solver.solve(question, config, start=start).message

        try:
            if isinstance(begun, Exception):
                raise begun
            run = begun.run if begun else self._opened(Run, index)
            return run.last(answer)
        except Exception as error:
            if not self._return_exceptions:
                raise
            return error

    async def _adecide(self, index: int, begun: _Begun | Exception | None, start: Start | None) -> Outcome:
        async def answer(config: RunnableConfig) -> AIMessage:
            question = begun.question if isinstance(begun, _Begun) else self._question(index, config)
            return (await self._solver.asolve(question, config, start=start)).message

        try:
            if isinstance(begun, Exception):
                raise begun
            run = begun.run if begun else self._opened(AsyncRun, index)
            return index, await run.last(answer)
        except Exception as error:
            if not self._return_exceptions:
                raise
            return index, error

    def _opened(self, kind: type[RunT], index: int) -> RunT:
        run = kind(self._name, self._inputs[index], self._configs[index])
        self._runs.append(run)
        return run

    def _question(self, index: int, config: RunnableConfig) -> Question:
        return self._solver.question(self._inputs[index], config, self._kwargs, cutoff=self._cutoff)


async def _gated(gate: asyncio.Semaphore, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine gives that begins when there is room; one that is cancelled before was never made."""
    async with gate:
        return await begin()


async def _all(tasks: "list[asyncio.Future[Any]]") -> list[Any]:
    """The results of tasks; where one is cancelled, so are the others."""
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def unanswered() -> SamplingError:
    return SamplingError("not answered, because the batch was interrupted or another input of it failed")
