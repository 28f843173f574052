"""Responses to unlabelled questions, drawn until the votes are clear, for a calibration by consensus."""

import hashlib
import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from pydantic import ValidationError

from langchain_reasc.answers import vote_of
from langchain_reasc.calibrating.questions import Graded, grades
from langchain_reasc.calibrating.questions import Question as Input
from langchain_reasc.calibration import (
    Calibration,
    Finished,
    MadeOf,
    Observation,
    ObservedQuestion,
    Record,
    candidate_measures,
    consensus,
    observed,
)
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.files import read_text
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.models.prepared import ModelOrName, to_messages
from langchain_reasc.runnable.concurrency import Concurrency
from langchain_reasc.runnable.loop import answer, ask
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.runnable.request import Request
from langchain_reasc.sampling import Cutoff

__all__ = ["Unlabelled"]

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 4  # samples of a question: what counting votes needs at least
Drawn = tuple[Finished, Sequence[AIMessage | None]]
"""What sampling left of a question, and the responses in the same order."""


class Unlabelled:
    """The questions, and how they are asked. All is checked before anything is paid for.

    Args:
        model: the chat model or its name.
        questions: inputs, with right answers where they are known.
        concurrency: questions in flight at once.
        config: callbacks, tags and metadata of the calls.
        measure: how responses are scored; ``"auto"`` for all candidates.
        checkpoint: a file that keeps what each question leaves to learn from; None keeps nothing.
        options: other options of :class:`~langchain_reasc.ReASCRunnable`.

    Raises:
        CalibrationDataError: there is no question.
        ConfigurationError: an invalid concurrency, measure or number of samples, or a checkpoint that cannot be used.
    """

    def __init__(
        self,
        model: ModelOrName,
        questions: Sequence[Input],
        *,
        concurrency: int,
        config: RunnableConfig,
        measure: Measure | Literal["auto"],
        checkpoint: str | os.PathLike[str] | None,
        **options: Any,
    ) -> None:
        if not questions:
            raise CalibrationDataError("there is no question to calibrate on; 64 are a good number")
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
        if options["max_samples"] < 2:
            raise ConfigurationError(f"max_samples must be 2 or more, got {options['max_samples']}: one agrees alone")
        self._setup = Options(
            model=model,
            calibration="online",  # which asks for logprobs, and while it learns counts votes
            measure=None if measure == "auto" else measure,
            on_missing_confidence="count",
            concurrency=_AT_ONCE,
            sample_timeout=None,
            **options,
        )._setup
        self._measures = candidate_measures([*SIGNALS, VERBALIZED]) if measure == "auto" else [measure]
        self._prompts, self._references = (
            [to_messages(one.input) for one in questions],
            [one.references for one in questions],
        )
        self._config, self._concurrency = config, concurrency
        self._fingerprint = self._setup.model.resolved(config).fingerprint(
            self._prompts[0], prompt=options["fixed_prompt"], answer=options["answer"]
        )
        self._checkpoint = None
        if checkpoint is not None:
            holds_for = f"{self._fingerprint.model_dump_json()} {options['max_samples']}"
            self._checkpoint = _Checkpoint(checkpoint, holds_for, self._measures)

    async def draw_all(self, io: Concurrency, progress: Progress) -> dict[int, Drawn | Exception]:
        """Draw the responses to the questions that the checkpoint does not hold; or why there are none."""
        cutoff, drawn = Cutoff(), dict[int, Drawn | Exception]()
        missing = [
            at
            for at, prompt in enumerate(self._prompts)
            # One whose right answer is known is always asked, to be graded.
            if self._checkpoint is None or self._references[at] is not None or not self._checkpoint.holds(prompt)
        ]
        with show_progress(progress, len(self._prompts)) as move:
            for _ in range(len(self._prompts) - len(missing)):
                move()
            draw = partial(self._draw, io, cutoff)
            async with io.workers(self._concurrency, cutoff) as each, aclosing(each(draw, missing)) as found:
                async for at, one in found:
                    drawn[at] = one
                    move()
        return {at: drawn[at] for at in missing}

    async def _draw(self, io: Concurrency, cutoff: Cutoff, at: int) -> tuple[int, Drawn | Exception]:
        finished: list[Finished] = []
        try:
            request = Request(self._setup, self._prompts[at], self._config, is_async=io.is_async, cutoff=cutoff)
            # Without the calibration that a runnable around the same model may have learned: its rule would ask less.
            result = await answer(await ask(request, None, (), on_finished=finished.append))
        except Exception as error:
            logger.warning("a question is left out of the calibration: %r", error)
            return at, error
        if self._checkpoint and self._references[at] is None:
            await io.in_thread(partial(self._checkpoint.keep, self._prompts[at], finished[0]))
        return at, (finished[0], [response.message for response in result.responses if response.used])

    def fit(self, drawn: Mapping[int, Drawn | Exception], cutoff: Cutoff, **options: Any) -> Calibration:
        """Calibrate by consensus on the responses.

        Args:
            drawn: what :meth:`draw_all` gave.
            cutoff: tells when the call is given up.
            options: those of :func:`~langchain_reasc.calibration.calibrate_consensus`.
        """
        answered = {at: one for at, one in drawn.items() if not isinstance(one, Exception)}
        held = [prompt for at, prompt in enumerate(self._prompts) if at not in drawn]
        if not (answered or held):
            raise CalibrationDataError(f"none of the {len(drawn)} questions gave a response; the first: {drawn[0]!r}")
        made_of: MadeOf = {}
        questions = self._observed(answered, self._grade(answered, cutoff), made_of)
        known = [self._checkpoint.observed(prompt, made_of) for prompt in held] if self._checkpoint else []
        calibration = consensus.calibrate_consensus(
            [*known, *questions],
            self._measures,
            budget=self._setup.options.max_samples,
            made_of=made_of,
            fingerprint=self._fingerprint,
            **options,
        )
        if self._checkpoint:
            self._checkpoint.remove()
        return calibration

    def _observed(
        self, answered: Mapping[int, Drawn], right: Mapping[tuple[int, int | None], bool | None], made_of: MadeOf
    ) -> list[Observation]:
        """Return what was sampled of each question, with its labels where it was graded."""
        graded, questions = {at for at, _ in right}, []
        for at, (finished, _) in answered.items():
            labels = tuple(right.get((at, number), False) for number in finished.answers) if at in graded else ()
            questions.append(replace(observed(finished, self._measures, made_of), right=labels))
        return questions

    def _grade(self, answered: Mapping[int, Drawn], cutoff: Cutoff) -> dict[tuple[int, int | None], bool | None]:
        """Return (question, number of an answer) -> whether it is right, where labels are known.

        Each answer is graded once, by its first response; none at all is wrong.
        """
        setup = self._setup
        tools, schemas = setup.options.tool_votes, setup.model.schemas
        votes: dict[tuple[int, int | None], Graded] = {}
        for at, (finished, messages) in answered.items():
            if (references := self._references[at]) is not None:
                for number, message in zip(finished.answers, messages, strict=True):
                    if number is not None and message is not None and (at, number) not in votes:
                        vote = vote_of(message, setup.extract, tools, schemas)
                        votes[at, number] = Graded(self._prompts[at], vote, references)
        return grades(
            votes,
            setup.extract,
            self._config,
            tools=tools,
            schemas=schemas,
            concurrency=self._concurrency,
            cutoff=cutoff,
        )


class _Line(Record):
    key: str
    made_of: MadeOf
    question: ObservedQuestion


class _Checkpoint:
    """A file with a line for each question that was asked: integers and scores, and never a text.

    A line is read again only where question, model, sampling and measures are the same; one that a crash cut in half is
    left out.

    Args:
        path: the file; it need not exist.
        holds_for: names model and sampling.
        measures: the candidates for scoring a response, in the order of the rows of scores.

    Raises:
        ConfigurationError: the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], holds_for: str, measures: Sequence[Measure]) -> None:
        self._path, self._measures = Path(path), measures
        self._holds_for = f"{holds_for} {[(one.signal, one.score, one.window) for one in measures]}"
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] = {}
        try:
            text = read_text(self._path) if self._path.exists() else ""
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"cannot read the checkpoint {self._path}: {error}") from None
        self._append("\n" if text and not text.endswith("\n") else "")  # after a line that was cut in half
        for each in text.splitlines():
            try:
                line = _Line.model_validate_json(each)
            except ValidationError:
                continue
            if line.question.fits(len(measures)):
                self._lines[line.key] = line

    def holds(self, prompt: Sequence[BaseMessage]) -> bool:
        """Whether a question was asked."""
        return self._key(prompt) in self._lines

    def observed(self, prompt: Sequence[BaseMessage], made_of: MadeOf) -> Observation:
        """Return what sampling left of a question; scores made of another k or V than others' are left out."""
        line = self._lines[self._key(prompt)]
        fits = {signal: made_of.setdefault(signal, made) == made for signal, made in line.made_of.items()}
        rows = [at if fits.get(one.signal, True) else None for at, one in enumerate(self._measures)]
        return line.question.observed(rows, len(self._measures))

    def keep(self, prompt: Sequence[BaseMessage], finished: Finished) -> None:
        """Write what sampling left of a question."""
        made_of: MadeOf = {}
        question = observed(finished, self._measures, made_of)
        kept = ObservedQuestion.of(question, range(len(self._measures)))
        self._append(_Line(key=self._key(prompt), made_of=made_of, question=kept).model_dump_json() + "\n")

    def remove(self) -> None:
        """Remove the file: all is learned."""
        self._path.unlink(missing_ok=True)

    def _append(self, text: str) -> None:
        try:
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigurationError(f"cannot write the checkpoint {self._path}: {error.strerror}") from None

    def _key(self, prompt: Sequence[BaseMessage]) -> str:
        parts = [self._holds_for, *([message.type, message.content] for message in prompt)]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
