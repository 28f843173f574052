"""Calibrating a chat model without right answers: each question is asked until the votes on it are clear."""

import asyncio
import os
from functools import partial
from typing import Literal

from langchain_core.runnables import RunnableConfig, ensure_config

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibrating.unlabelled import Drawn, Questions, Unlabelled
from langchain_reasc.calibration import DEFAULT_AGREEMENT, Calibration, FixedPrompt
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc.models.prepared import ModelOrName
from langchain_reasc.runnable.batch import Progress, shown
from langchain_reasc.sampling import Cutoff
from langchain_reasc.threads import DaemonExecutor, as_they_end

__all__ = ["acalibrate_unlabelled", "calibrate_unlabelled"]


def calibrate_unlabelled(
    model: ModelOrName,
    questions: Questions,
    *,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    tool_votes: ToolVotes | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    threshold: float = DEFAULT_AGREEMENT,
    max_samples: int = DEFAULT_BUDGET,
    concurrency: int = 8,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """Ask each question until the votes on it are clear (ASC), and calibrate on how far its responses agree.

    64 questions are a good number; they cost no more than counting votes on them. No right answer is needed, and no
    logprobs: without them answers alone are learned from. A question that fails is left out with a warning.

    Args:
        model: the chat model that will be sampled, or its name, as :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: inputs, asked as they will be in use; where the right answer to one is known, the pair of both. Or a
            file of them, such as a text with a question a line: see
            :func:`langchain_reasc.data.read_unlabelled`.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        tool_votes: how calls of tools are compared.
        ask_confidence: whether the model is asked to state its confidence, see
            :attr:`langchain_reasc.ReASCRunnable.ask_confidence`.
        measure: how a response is scored; ``"auto"`` chooses among all that the responses carry, or none.
        threshold: the probability asked of an answer that all ``max_samples`` responses would give the same.
        max_samples: responses to a question at most, in use as here.
        concurrency: questions in flight at once, each with up to 4 responses.
        seed: the seed of everything random in the calibration.
        checkpoint: a file that keeps what each question taught, without any text, until all are asked: a call that was
            interrupted goes on from there.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar, or a function called with (questions asked, questions).

    Raises:
        CalibrationDataError: no question, or responses that determine no calibration.
        ConfigurationError: a file that cannot be read, or options that do not go together.

    Example:
        >>> calibration = calibrate_unlabelled(llm, "questions.txt")
        >>> calibration = calibrate_unlabelled(llm, ["What is 12 times 17?", ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    asked = Unlabelled.of(
        model,
        questions,
        concurrency,
        ensure_config(config),
        measure,
        checkpoint,
        answer=answer,
        fixed_prompt=fixed_prompt,
        tool_votes=tool_votes or ToolVotes(),
        ask_confidence=ask_confidence,
        max_samples=max_samples,
    )
    cutoff = Cutoff()
    with DaemonExecutor(concurrency, "calibrate") as threads, shown(progress, len(asked.prompts)) as move:
        try:
            asking = {at: threads.submit(asked.drawn, cutoff, at) for at in asked.missing}
            for _ in range(len(asked.prompts) - len(asking)):
                move()
            for _ in as_they_end(asking.values()):
                move()
            drawn = {at: one.result() for at, one in asking.items()}
        finally:  # after Ctrl-C nobody waits for the others
            cutoff.give_up()
            threads.shutdown(wait=False, cancel_futures=True)
    return asked.calibration(drawn, Cutoff(), threshold=threshold, seed=seed)


async def acalibrate_unlabelled(
    model: ModelOrName,
    questions: Questions,
    *,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    tool_votes: ToolVotes | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    threshold: float = DEFAULT_AGREEMENT,
    max_samples: int = DEFAULT_BUDGET,
    concurrency: int = 8,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """The asynchronous :func:`calibrate_unlabelled`."""
    asked = Unlabelled.of(
        model,
        questions,
        concurrency,
        ensure_config(config),
        measure,
        checkpoint,
        answer=answer,
        fixed_prompt=fixed_prompt,
        tool_votes=tool_votes or ToolVotes(),
        ask_confidence=ask_confidence,
        max_samples=max_samples,
    )
    places = asyncio.Semaphore(concurrency)
    with shown(progress, len(asked.prompts)) as move:

        async def one(at: int) -> Drawn | Exception:
            async with places:
                drawn = await asked.adrawn(at)
            move()
            return drawn

        async with asyncio.TaskGroup() as tasks:
            asking = {at: tasks.create_task(one(at)) for at in asked.missing}
            for _ in range(len(asked.prompts) - len(asking)):
                move()
    drawn, cutoff = {at: one.result() for at, one in asking.items()}, Cutoff()
    fit = partial(asked.calibration, drawn, cutoff, threshold=threshold, seed=seed)
    try:
        return await asyncio.to_thread(fit)
    finally:
        cutoff.give_up()
