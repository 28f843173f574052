"""``calibrate(model, questions)``: draw responses to questions, with right answers or without, and learn from them."""

import inspect
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, Literal, ParamSpec

from langchain_core.runnables import RunnableConfig, ensure_config

from langchain_reasc.answers import AnswerSpec, ToolVotes
from langchain_reasc.calibrating.labelled import Labelled
from langchain_reasc.calibrating.questions import Questions, UnlabelledQuestions, read, read_unlabelled_questions
from langchain_reasc.calibrating.unlabelled import Unlabelled
from langchain_reasc.calibration import DEFAULT_AGREEMENT, Calibration, FixedPrompt
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc.models.prepared import ModelOrName
from langchain_reasc.runnable.concurrency import Concurrency, EventLoop, Threads
from langchain_reasc.runnable.progress import Progress
from langchain_reasc.sampling import Cutoff
from langchain_reasc.threads import blocking

__all__ = ["acalibrate", "acalibrate_unlabelled", "calibrate", "calibrate_unlabelled"]

P = ParamSpec("P")


async def _calibrate(  # noqa: D417
    io: Concurrency,
    model: ModelOrName,
    questions: Questions,
    *,
    samples: int = 4,
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
    """Ask each question a few times, and calibrate on the responses. 128 questions are a good number.

    The default rule is learned from how the responses agree. The labels add how likely an answer is right, and
    Algorithm 1 with ``rule(safeguard="paper")``.

    A response that fails (because its question is too long, say) is left out with a warning. The first response is
    checked before the others are requested, so a model without confidence costs only one response.

    Without any right answer this is :func:`calibrate_unlabelled` with its defaults.

    Args:
        model: the chat model that will be sampled, or its name, as :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: pairs of an input, exactly as your application will ask it, and its right answer (or a list of
            accepted answers); or only inputs. Or a file: JSON, JSON Lines, CSV or Parquet with right answers, see
            :func:`langchain_reasc.data.read_questions`, or a text with one question per line.
        samples: responses to each question. With one response, agreement is unknown, and Algorithm 1 decides as far as
            its data support it.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`. With
            :func:`~langchain_reasc.answers.free_text`, a response is right if it means the same as the right answer. A
            question for which this cannot be decided is left out.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        tool_votes: how tool calls are compared with the right ones.
        ask_confidence: whether the model is asked to state its confidence, see
            :attr:`langchain_reasc.ReASCRunnable.ask_confidence`.
        measure: how a response is scored. ``"auto"`` chooses by cross-validation among the signals of all responses.
        p_target: required accuracy of answers that the gate accepts.
        concurrency: questions in flight at once, each with all its samples.
        seed: the seed of everything random in the calibration.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar, or a function called with (questions asked, questions).

    Raises:
        CalibrationDataError: there is no question, or a calibration cannot be made from the responses.
        ConfigurationError: a file cannot be read, options contradict each other, or only some questions have right
            answers.
        LogprobsUnavailable: the model returns no log-probabilities.

    Example:
        >>> calibration = calibrate(llm, "labelled.csv")
        >>> calibration = calibrate(llm, [("What is 2 + 2?", "4"), ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    given = read(questions)
    missing = sum(one.references is None for one in given)
    asking: dict[str, Any] = {
        "answer": answer,
        "fixed_prompt": fixed_prompt,
        "tool_votes": tool_votes or ToolVotes(),
        "ask_confidence": ask_confidence,
        "measure": measure,
        "concurrency": concurrency,
    }
    if given and missing == len(given):
        inputs = [one.input for one in given]
        return await _calibrate_unlabelled(io, model, inputs, seed=seed, config=config, progress=progress, **asking)
    if missing:
        raise ConfigurationError(
            f"{missing} of {len(given)} questions have no right answer; calibrate_unlabelled takes both kinds"
        )
    labelled = Labelled(model, given, samples=samples, config=ensure_config(config), **asking)
    drawn = await labelled.draw_all(io, progress)
    return await _fitted(io, partial(labelled.fit, drawn, p_target=p_target, seed=seed))


async def _fitted(io: Concurrency, fit: Callable[[Cutoff], Calibration]) -> Calibration:
    cutoff = Cutoff()
    try:
        return await io.in_thread(partial(fit, cutoff))
    finally:
        cutoff.give_up()


async def _calibrate_unlabelled(  # noqa: D417
    io: Concurrency,
    model: ModelOrName,
    questions: UnlabelledQuestions,
    *,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    tool_votes: ToolVotes | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    threshold: float = DEFAULT_AGREEMENT,
    worth: float | None = None,
    max_samples: int = DEFAULT_BUDGET,
    concurrency: int = 8,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """Ask each question until its votes are clear (ASC), and calibrate on how its responses agree.

    64 questions are a good number, and cost no more than answering them by counting votes. Right answers and logprobs
    are optional. A question that fails is left out with a warning.

    Args:
        model: the chat model that will be sampled, or its name, as :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: inputs, exactly as your application will ask them, or pairs of an input and its right answer. Or a
            file, such as a text with one question per line: see :func:`langchain_reasc.data.read_unlabelled`.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        tool_votes: how tool calls are compared.
        ask_confidence: whether the model is asked to state its confidence, see
            :attr:`langchain_reasc.ReASCRunnable.ask_confidence`.
        measure: how a response is scored. ``"auto"`` chooses among the signals of the responses, or none.
        threshold: the required probability that all ``max_samples`` responses would give the same answer.
        worth: the most samples that one more point of agreement may cost, see
            :attr:`langchain_reasc.ReASCRunnable.worth`; 0 for any number, None for 10.
        max_samples: the most responses to a question, here and in your application.
        concurrency: questions in flight at once, each with up to 4 responses.
        seed: the seed of everything random in the calibration.
        checkpoint: a file that keeps the results of each question, without texts, until all are asked, so that an
            interrupted call can be continued.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar, or a function called with (questions asked, questions).

    Raises:
        CalibrationDataError: there is no question, or a calibration cannot be made from the responses.
        ConfigurationError: a file cannot be read, or options contradict each other.

    Example:
        >>> calibration = calibrate_unlabelled(llm, "questions.txt")
        >>> calibration = calibrate_unlabelled(llm, ["What is 12 times 17?", ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    unlabelled = Unlabelled(
        model,
        read_unlabelled_questions(questions),
        concurrency=concurrency,
        config=ensure_config(config),
        measure=measure,
        checkpoint=checkpoint,
        answer=answer,
        fixed_prompt=fixed_prompt,
        tool_votes=tool_votes or ToolVotes(),
        ask_confidence=ask_confidence,
        max_samples=max_samples,
    )
    drawn = await unlabelled.draw_all(io, progress)
    return await _fitted(io, partial(unlabelled.fit, drawn, threshold=threshold, worth=worth, seed=seed))


def _forms(
    name: str, function: Callable[Concatenate[Concurrency, P], Coroutine[Any, Any, Calibration]]
) -> tuple[Callable[P, Calibration], Callable[P, Coroutine[Any, Any, Calibration]]]:
    """Return the synchronous function of this name and its asynchronous form, with one signature and docstring."""

    def call(*args: P.args, **kwargs: P.kwargs) -> Calibration:
        made: Calibration = blocking(function(Threads, *args, **kwargs))
        return made

    async def acall(*args: P.args, **kwargs: P.kwargs) -> Calibration:
        return await function(EventLoop, *args, **kwargs)

    signature = inspect.signature(function)
    forms: tuple[tuple[Any, str, str | None], ...] = (
        (call, name, function.__doc__),
        (acall, f"a{name}", f"The asynchronous :func:`{name}`."),
    )
    for form, named, doc in forms:
        form.__name__ = form.__qualname__ = named
        form.__doc__ = doc
        form.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return call, acall


calibrate, acalibrate = _forms("calibrate", _calibrate)
calibrate_unlabelled, acalibrate_unlabelled = _forms("calibrate_unlabelled", _calibrate_unlabelled)
