"""Answer many inputs at once, with one limit on calls in flight."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, Final, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list

from langchain_reasc.answers import Vote, places_of, vote_of
from langchain_reasc.calibration import Calibration, calibrate_mixture
from langchain_reasc.exceptions import (
    CalibrationDataError,
    ConfidenceError,
    ConfigurationError,
    LogprobsUnavailable,
    SamplingError,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.logprobs import Provenance, SignalReading, read_signals
from langchain_reasc.runnable.concurrency import Concurrency, Each
from langchain_reasc.runnable.loop import answer, begin, draw, finish
from langchain_reasc.runnable.question import Question
from langchain_reasc.runnable.setup import Setup
from langchain_reasc.runnable.total_budget import TotalBudget
from langchain_reasc.sampling import Cutoff, Run, Sample, checked_limit

__all__ = ["Batch", "Outcome", "Progress", "show_progress"]

Outcome = tuple[int, AIMessage | Exception]
Progress = bool | Callable[[int, int], None] | None
"""Whether a bar is shown, on stderr in a terminal or below the cell of a notebook; or a function that is called with
(inputs answered, inputs)."""
ONE_INPUT_ONLY: Final = (
    "on_response goes with solve() and asolve(), one input at a time; batch() takes progress=..., and "
    "batch_as_completed() gives each answer as it is found"
)
_PAUSE: Final = 0.1  # seconds between two pictures in a notebook


class _Input:
    """An input, its traced run once that is open, and its outcome, an answer or an error, once there is one.

    It is ``decided`` where the last step below the run has said so.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.run: Run | None = None
        self.question: Question | None = None
        self.decided = False
        self.outcome: AIMessage | Exception | None = None


class Batch:
    """The inputs of one call.

    ``max_concurrency`` of the first config bounds the inputs at work, and the samples in flight of all together. To
    learn a mixture the first sample of every input is drawn, below its own run, before any is decided (Algorithm 2).
    With a total budget it is decided anew after each round which inputs are sampled.

    Args:
        setup: how each is answered.
        name: the name of each input's run, where its config has none.
        inputs: whatever the chat model takes.
        config: one config for all inputs, or one for each.
        return_exceptions: whether an input that fails comes out with its error; else the error ends the batch, and
            nothing more is paid for.
        progress: see :data:`Progress`.
        total_tokens: what all inputs may cost together.
        total_samples: samples that all inputs may take together.
        **kwargs: passed to every call of the model.

    Raises:
        ConfigurationError: the budget is too small, or the first responses to all inputs are to calibrate.
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
        self._setup, self._name, self._values, self._kwargs = setup, name, inputs, kwargs
        configs = get_config_list(config, len(inputs))
        self._limit = checked_limit(configs[0]) if configs else None
        self._configs = [cast(RunnableConfig, {**one, "max_concurrency": self._limit}) for one in configs]
        self._return_exceptions, self._progress = return_exceptions, progress
        self._cutoff, self._is_async = Cutoff(), False
        self._inputs = [_Input(index) for index in range(len(inputs))]
        self._budget: TotalBudget | None = None
        if total_tokens is not None or total_samples is not None:
            if setup.calibrator is not None:
                raise ConfigurationError(
                    "total_tokens and total_samples go with a calibration that is there before the batch, or with "
                    "none: calibration='mixture' decides on each input from the first responses to all"
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
                method = partial(self._in_rounds, self._budget) if self._budget else partial(self._one_by_one, io)
                async with io.workers(self._limit, self._cutoff) as each, aclosing(method(each)) as done:
                    async for one in done:
                        assert one.outcome is not None
                        if isinstance(one.outcome, Exception) and not self._return_exceptions:
                            raise one.outcome
                        advance()
                        yield one.index, one.outcome
        finally:
            unanswered = SamplingError("not answered, because the batch was interrupted or another input of it failed")
            for one in self._inputs:
                if one.run:
                    await one.run.fail(unanswered)

    async def _one_by_one(self, io: Concurrency, each: Each[_Input, _Input]) -> AsyncGenerator[_Input]:
        calibrated: tuple[Any, ...] = ()
        if self._setup.mixture:
            async with aclosing(each(partial(self._step, _draw_one), self._inputs)) as drawn:
                async for _ in drawn:
                    pass
            firsts = [one.question.first for one in self._inputs if one.question and one.question.first]
            if firsts:
                calibrated = await io.in_thread(partial(calibrate_first, firsts, self._setup))
        answered = partial(_answer_input, calibrated)
        async with aclosing(each(partial(self._step, answered, last=True), self._inputs)) as ended:
            async for one in ended:
                yield one

    async def _in_rounds(self, budget: TotalBudget, each: Each[_Input, _Input]) -> AsyncGenerator[_Input]:
        while indices := budget.next():
            async with aclosing(each(self._sample, [self._inputs[index] for index in indices])) as sampled:
                async for one in sampled:
                    if one.question and one.question.begun:
                        budget.sampled(one.index, one.question.sampled(ended=one.outcome is not None))
                    if one.outcome is not None:
                        yield one
        for one in self._inputs:
            if one.outcome is None:  # what is undecided when the budget is spent has its best answer so far
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
        self, what: Callable[[Question], Coroutine[Any, Any, Any]], one: _Input, *, last: bool = False
    ) -> _Input:
        """Do something below the run of an input; its outcome is an error, or the result of the ``last`` step."""

        async def below(config: RunnableConfig) -> Any:
            if one.question is None:
                one.question = Question(
                    self._setup, value, config, self._kwargs, is_async=self._is_async, cutoff=self._cutoff
                )
            return await what(one.question)

        if one.outcome is not None:
            return one
        value = self._values[one.index]
        if one.run is None:
            one.run = Run(self._name, value, self._configs[one.index], is_async=self._is_async)
        try:
            result = await (one.run.last if last else one.run.step)(below)
            one.decided, one.outcome = result is True, result if last else None
        except Exception as error:
            one.outcome = error
        return one


async def _draw_one(question: Question) -> None:
    """Draw a sample, and pause the question's clock: it then waits for others."""
    async with aclosing(draw(question, 1)) as chunks:
        async for _ in chunks:
            pass
    question.clock.pause()


async def _draw_next(question: Question) -> bool:
    """Draw a sample of a question that has waited for the others of its round; return whether that decides."""
    if not question.begun:
        await begin(question)
    question.clock.resume()
    await _draw_one(question)
    return question.samples_to_launch == 0


async def _answer_input(calibrated: tuple[Any, ...], question: Question) -> AIMessage:
    if question.first:
        await begin(question, *calibrated)
    return (await answer(question)).message


async def _finish_input(question: Question) -> AIMessage:
    return (await finish(question)).message


def calibrate_first(firsts: Sequence[Sample], setup: Setup) -> tuple[Calibration | None, tuple[str, ...]]:
    """Calibrate on the first samples of a batch (Algorithm 2); None, with the reason, where votes must be counted."""
    assert setup.mixture is not None
    measure, notices = setup.mixture.measure, tuple[str, ...]()
    kept, most = _comparable(list(_first_scores(firsts, setup, measure)))
    shorter = sum(short for _, short in kept)
    if measure.windowed and measure.signal != VERBALIZED and 2 * shorter > len(kept) > 0:
        notices = (
            f"{shorter} of {len(kept)} first responses are shorter than the window ({measure.window} tokens) and are "
            "scored by their plain mean; pass a measure with a smaller window",
        )
    scores = [score for score, _ in kept]
    try:
        calibration = calibrate_mixture(scores, measure=measure, fingerprint=setup.fingerprint, **most)
    except CalibrationDataError as error:
        return None, (*notices, f"counting votes (ASC), because calibrating by mixture was not possible: {error}")
    return calibration, (*notices, *calibration.notices(setup.options.safeguard))


def _comparable(scored: list[tuple[float, bool, Provenance]]) -> tuple[list[tuple[float, bool]], Provenance]:
    """Leave out scores made of another k or V than most, as their own decisions report; return the others', too."""
    most = Provenance(
        top_k=_most_common(made["top_k"] for *_, made in scored),
        vocabulary_size=_most_common(made["vocabulary_size"] for *_, made in scored),
    )
    kept = [
        (score, short)
        for score, short, made in scored
        if made["top_k"] in (None, most["top_k"])
        if made["vocabulary_size"] in (None, most["vocabulary_size"])
    ]
    return kept, most


def _first_scores(firsts: Sequence[Sample], setup: Setup, measure: Measure) -> Iterator[tuple[float, bool, Provenance]]:
    """Yield the score of each response that has one, whether it is shorter than the window, and what it is made of."""
    for sample in firsts:
        if sample.status == "complete" and sample.message is not None:
            with suppress(LogprobsUnavailable, ConfidenceError):  # its own decision reports that
                reading = _first_reading(sample.message, setup, measure)
                short = len(reading.signals.get(measure.signal, ())) < measure.window
                yield reading.score(measure), short, reading.provenance(measure.signal)


def _first_reading(message: AIMessage, setup: Setup, measure: Measure) -> SignalReading:
    """Read the signals of a response; its vote is looked for only where they depend on it."""
    vote = Vote(None)
    if message.tool_calls or measure.of_span:
        with suppress(Exception):  # the user's extractor: its own decision reports that
            vote = vote_of(message, setup.extract, setup.options.tool_votes, setup.model.schemas)
    places = places_of(message, setup.extract, vote) if measure.of_span else None
    return read_signals(message, of_calls=vote.calls, places=places)


def _most_common(values: Iterable[int | None]) -> int | None:
    known = Counter(value for value in values if value is not None)
    return max(known, key=known.__getitem__, default=None)


@contextmanager
def show_progress(progress: Progress, total: int) -> Iterator[Callable[[], None]]:
    """Show how far a batch has come; yield what is called for each input that has been answered."""
    if progress is True:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        if not console.is_jupyter:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
                task = bar.add_task("Answering", total=total)
                yield lambda: bar.advance(task)
            return
        progress = _notebook_bar(total)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if callable(progress):
            progress(done, total)

    yield advance


def _notebook_bar(total: int) -> Callable[[int, int], None]:
    """Show a bar below the cell, by HTML alone: rich's own needs ipywidgets, and is not kept with the notebook."""
    display = import_module("IPython.display").display
    began = last = time.monotonic()

    def picture(done: int) -> dict[str, str]:
        text = f"Answering {done}/{total} {timedelta(seconds=round(time.monotonic() - began))}"
        return {"text/plain": text, "text/html": f"<progress value='{done}' max='{total}'></progress> {text}"}

    handle: Any = display(picture(0), raw=True, display_id=True)

    def update(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            handle.update(picture(done), raw=True)

    return update
