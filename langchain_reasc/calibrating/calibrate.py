"""Calibrating a chat model in two lines: a few responses to each labelled question, then Algorithm 1."""

import asyncio
import os
from functools import partial
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig, ensure_config

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibrating.labelled import FirstResponses, Labelled, LabelledInput, LabelledQuestions
from langchain_reasc.calibrating.recorded import Recorded
from langchain_reasc.calibration import Calibration, FixedPrompt
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.prepared import ModelOrName
from langchain_reasc.runnable.batch import Progress, shown
from langchain_reasc.sampling import Cutoff, Sample
from langchain_reasc.threads import DaemonExecutor, as_they_end

__all__ = ["LabelledInput", "acalibrate", "calibrate"]


def calibrate(
    model: ModelOrName,
    questions: LabelledQuestions,
    *,
    samples: int = 4,
    pool: str | os.PathLike[str] | None = None,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    tool_votes: ToolVotes | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    p_target: float = 0.9,
    concurrency: int = 8,
    seed: int = 0,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """Ask each question a few times, and calibrate on what came (Algorithm 1). 128 questions are a good number.

    A response that fails, because its question is too long, say, is left out with a warning. The first response is
    looked at before the others are asked for: a model that gives no confidence costs one response.

    Args:
        model: the chat model that will be sampled, or its name, as :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: pairs of an input, asked as it will be in use, and its right answer, or a list of those that are
            accepted. Or a file of them: JSON, JSON Lines, CSV or Parquet, see
            :func:`langchain_reasc.data.read_questions`.
        samples: responses to each question. The first of each sets the gate. Several show whether the confidence
            separates the responses to one question, so that Stage 2 may weigh votes by it, and how likely an answer is
            right (``p_correct``).
        pool: a file in which the responses are kept as they come, an SQLite database as ``reasc record`` writes it.
            Where it holds some already, from a call that was interrupted, only the others are asked for. It keeps
            responses as they are, and goes without ``ask_confidence``, ``tool_votes`` and ``free_text``.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`. With
            :func:`~langchain_reasc.answers.free_text` a response is right that means the same as the right answer; a
            question where that cannot be told is left out, too.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        tool_votes: how calls of tools are compared with the right ones.
        ask_confidence: whether the model is asked to state its confidence, see
            :attr:`langchain_reasc.ReASCRunnable.ask_confidence`.
        measure: how a response is scored; ``"auto"`` chooses on the responses, cross-validated, among the signals that
            all of them carry.
        p_target: accuracy asked of what the gate accepts.
        concurrency: questions in flight at once, each with all its samples.
        seed: the seed of everything random in the calibration.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar, or a function called with (questions asked, questions).

    Raises:
        CalibrationDataError: no question, or responses that determine no calibration.
        ConfigurationError: a file that cannot be read, or options that do not go together.
        LogprobsUnavailable: the model returns no log-probabilities.
        PoolError: the pool was recorded from another model, prompt or seed, or cannot be written.
        SamplingError: with ``pool``, a question failed; what is complete is kept, and the same call goes on.

    Example:
        >>> calibration = calibrate(llm, "labelled.csv", pool="calibration-pool.sqlite")
        >>> calibration = calibrate(llm, [("What is 2 + 2?", "4"), ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    asked = Labelled.of(
        model,
        questions,
        samples,
        concurrency,
        ensure_config(config),
        measure,
        ask_confidence=ask_confidence,
        tool_votes=tool_votes,
    )
    fitting: dict[str, Any] = {"p_target": p_target, "seed": seed}
    if pool is not None:
        recorded = Recorded(asked, model, pool, answer, fixed_prompt, ask_confidence=ask_confidence)
        with shown(progress, len(asked.prompts)) as move:
            recorded.record(move)
        return recorded.calibration(measure, **fitting)
    cutoff, first = Cutoff(), FirstResponses(stated=ask_confidence)
    with DaemonExecutor(concurrency, "calibrate") as threads, shown(progress, len(asked.prompts)) as move:
        try:
            alone = threads.submit(asked.drawn, cutoff, 0, samples=1)
            for _ in as_they_end([alone]):
                first.check(alone.result())
            others = [(at, alone.result() if at == 0 else ()) for at in range(len(asked.prompts))]
            drawing = [threads.submit(asked.drawn, cutoff, at, held) for at, held in others]
            for done in as_they_end(drawing):
                first.check(done.result())
                move()
            responses = [one.result() for one in drawing]
        finally:  # after Ctrl-C nobody waits for the others
            cutoff.give_up()
            threads.shutdown(wait=False, cancel_futures=True)
    return asked.calibration(responses, answer, fixed_prompt, measure, Cutoff(), **fitting)


async def acalibrate(
    model: ModelOrName,
    questions: LabelledQuestions,
    *,
    samples: int = 4,
    pool: str | os.PathLike[str] | None = None,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    tool_votes: ToolVotes | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    p_target: float = 0.9,
    concurrency: int = 8,
    seed: int = 0,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """The asynchronous :func:`calibrate`."""
    asked = Labelled.of(
        model,
        questions,
        samples,
        concurrency,
        ensure_config(config),
        measure,
        ask_confidence=ask_confidence,
        tool_votes=tool_votes,
    )
    fitting: dict[str, Any] = {"p_target": p_target, "seed": seed}
    if pool is not None:
        recorded = Recorded(asked, model, pool, answer, fixed_prompt, ask_confidence=ask_confidence)
        with shown(progress, len(asked.prompts)) as move:
            await recorded.arecord(move)
        return await asyncio.to_thread(partial(recorded.calibration, measure, **fitting))
    places, first = asyncio.Semaphore(concurrency), FirstResponses(stated=ask_confidence)
    alone = await asked.adrawn(0, samples=1)
    first.check(alone)
    with shown(progress, len(asked.prompts)) as move:

        async def one(at: int) -> list[Sample]:
            async with places:
                responses = await asked.adrawn(at, alone if at == 0 else ())
            first.check(responses)
            move()
            return responses

        try:
            async with asyncio.TaskGroup() as tasks:
                drawing = [tasks.create_task(one(at)) for at in range(len(asked.prompts))]
        except ExceptionGroup as group:  # of the first that has no confidence
            raise group.exceptions[0] from None
    samples_drawn, cutoff = [task.result() for task in drawing], Cutoff()
    fit = partial(asked.calibration, samples_drawn, answer, fixed_prompt, measure, cutoff, **fitting)
    try:
        return await asyncio.to_thread(fit)
    finally:
        cutoff.give_up()
