"""Calibrating a chat model in two lines: one response to each labelled question, then Algorithm 1."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Literal

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, ensure_config

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibration import Calibration
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.daemons import DaemonExecutor
from langchain_reasc.models.named import ModelOrName
from langchain_reasc.models.waiting import as_they_end
from langchain_reasc.runnable.labelled import Labelled, LabelledInput
from langchain_reasc.runnable.progress import Progress, shown
from langchain_reasc.sampling import Sample

__all__ = ["LabelledInput", "acalibrate", "calibrate"]


def calibrate(
    model: ModelOrName,
    questions: Iterable[LabelledInput],
    *,
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
    """Ask each question once, and calibrate on what came (Algorithm 1). 128 questions are a good number.

    A question that fails, because it is too long, say, is left out with a warning. One response to each cannot show
    whether the confidence separates the responses to one question, so that under the safeguard Stage 2 counts votes;
    several can, with ``reasc calibrate --samples 4``.

    Args:
        model: the chat model that will be sampled, or its name, as :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: pairs of an input, asked as it will be in use, and its right answer.
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
        concurrency: questions in flight at once.
        seed: the seed of everything random in the calibration.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar, or a function called with (questions asked, questions).

    Raises:
        CalibrationDataError: no question, or responses that determine no calibration.
        LogprobsUnavailable: the model returns no log-probabilities.

    Example:
        >>> calibration = calibrate(llm, [("What is 2 + 2?", "4"), ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    asked = Labelled.of(
        model,
        questions,
        concurrency,
        ensure_config(config),
        measure,
        ask_confidence=ask_confidence,
        tool_votes=tool_votes,
    )
    cutoff = Cutoff()
    with DaemonExecutor(concurrency, "calibrate") as threads, shown(progress, len(asked.prompts)) as move:
        try:
            drawing = [threads.submit(asked.first, cutoff, prompt) for prompt in asked.prompts]
            for _ in as_they_end(drawing):
                move()
            samples = [one.result() for one in drawing]
        finally:  # after Ctrl-C nobody waits for the others
            cutoff.give_up()
            threads.shutdown(wait=False, cancel_futures=True)
    return asked.calibration(samples, answer, fixed_prompt, measure, Cutoff(), p_target=p_target, seed=seed)


async def acalibrate(
    model: ModelOrName,
    questions: Iterable[LabelledInput],
    *,
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
        concurrency,
        ensure_config(config),
        measure,
        ask_confidence=ask_confidence,
        tool_votes=tool_votes,
    )
    places = asyncio.Semaphore(concurrency)
    with shown(progress, len(asked.prompts)) as move:

        async def one(prompt: list[BaseMessage]) -> Sample:
            async with places:
                sample = await asked.afirst(prompt)
            move()
            return sample

        async with asyncio.TaskGroup() as tasks:
            drawing = [tasks.create_task(one(prompt)) for prompt in asked.prompts]
    samples = [task.result() for task in drawing]
    cutoff = Cutoff()
    fit = partial(asked.calibration, samples, answer, fixed_prompt, measure, cutoff, p_target=p_target, seed=seed)
    try:
        return await asyncio.to_thread(fit)
    finally:
        cutoff.give_up()
