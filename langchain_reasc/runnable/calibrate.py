"""``calibrate(model, questions)``: ask questions, with or without right answers, and
fit a calibration.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Literal, TypedDict, Unpack

import numpy as np
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, ensure_config

from langchain_reasc.answers import (
    AnswerSpec,
    ToolVotes,
    Vote,
    ending_of,
    question_text,
    vote_of,
)
from langchain_reasc.calibration import (
    READ_SCORES,
    AnsweredQuestion,
    Calibration,
    Observation,
    ObservationFile,
    SignalProvenance,
    candidate_measures,
    fit,
    with_expectation,
)
from langchain_reasc.calibration.algorithm1 import check_target
from langchain_reasc.complaints import Repeated
from langchain_reasc.concurrency import EVENT_LOOP, THREADS, Concurrency
from langchain_reasc.exceptions import (
    CalibrationDataError,
    ConfigurationError,
    FingerprintMismatch,
    LogprobsUnavailable,
)
from langchain_reasc.method.confidence import SPAN_SCORES, Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, check_probability
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.models.fingerprint import Fingerprint, FixedPrompt
from langchain_reasc.models.named import ModelOrName
from langchain_reasc.models.prepared import to_messages
from langchain_reasc.runnable.calibrate_two_models import LEFT_OUT, calibrate_two_models
from langchain_reasc.runnable.face import Face
from langchain_reasc.runnable.labels import (
    LabelledInput,
    Questions,
    graded,
    id_of,
    read_inputs,
)
from langchain_reasc.runnable.options import Escalation, Online
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.solve import Solving, begin
from langchain_reasc.runnable.voter import running_fingerprint
from langchain_reasc.sampling import Cutoff
from langchain_reasc.threads import blocking

_NO_LABEL: Final = (
    "a question has no label, as its answers could not be compared with the right one"
)
_AT_ONCE: Final = 4  # samples of a question: what counting votes needs at least


class CalibrateOptions(TypedDict, total=False):
    """The types of the options of :func:`calibrate` and :func:`acalibrate`."""

    answer: AnswerSpec
    fixed_prompt: FixedPrompt | None
    tool_votes: ToolVotes | None
    ask_confidence: bool
    measure: Measure | Literal["auto"]
    method: Literal["paper"] | None
    p_target: float
    threshold: float | None
    max_samples: int
    checkpoint: str | os.PathLike[str] | None
    concurrency: int
    seed: int
    escalate_to: ModelOrName | Escalation | None
    config: RunnableConfig | None
    progress: Progress


def calibrate(
    model: ModelOrName, questions: Questions, **options: Unpack[CalibrateOptions]
) -> Calibration:
    """Ask each question until the votes on it are clear, and calibrate on the answers.

    64 questions are a good number; they cost no more than counting votes on them. How
    far the responses agree, and what their log-probabilities tell of that, decides when
    sampling stops. Questions may have right answers. 16 of these add the probability
    that an answer is right (``p_correct``), and change nothing else, unless the scores
    are higher for wrong responses than for right ones. Without logprobs, only answers
    are learned from.

    A question that fails, for example because it is too long, is left out with a
    warning.

    Args:
        model: the chat model that will be sampled, or its name, as
            :class:`~langchain_reasc.ReASCRunnable` takes it.
        questions: inputs as they will be asked in use, or pairs of an input and its
            right answer (or a list of accepted answers, or None if unknown). True and
            False stand for yes and no. Or a file: JSON, JSON Lines, CSV or Parquet with
            right answers, see :func:`langchain_reasc.data.read_questions`, or a text
            with one question per line.
        answer: where the answer is in a response, by default ``"auto"``; see
            :func:`langchain_reasc.answers.extractor`. With
            :func:`~langchain_reasc.answers.free_text` answers are compared by meaning,
            with one another and with the right answer.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        tool_votes: how calls of tools are compared.
        ask_confidence: whether the model is asked to state its confidence (by default
            not), see :attr:`langchain_reasc.ReASCRunnable.confidence`.
        measure: how a response is scored. ``"auto"``, the default, is the confidence
            that the model states if it is asked, and else the mean log-probability of
            the tokens, if there are any; with ``method="paper"`` the measure that tells
            right responses best.
        method: ``"paper"`` makes the paper's ReASC (Algorithm 1), which takes right
            answers and logprobs, and needs only the first response to each question
            (``max_samples=1``). None, the default, learns from how the responses agree.
        p_target: accuracy asked of what the paper's gate accepts, by default 0.9.
        threshold: the probability asked of an answer that further responses would not
            change it, by default 0.975; with log-probabilities 0.95, of twice as many
            responses (24 at most).
        max_samples: responses to a question at most, here and in use; by default 16.
            With one, nothing shows how responses agree, and Algorithm 1 decides as far
            as its data support it.
        checkpoint: an SQLite file to which each question is appended as a row of
            numbers, without text. The same call continues from there. ``reasc inspect``
            reads the file, and
            ``ReASCRunnable(calibration=Online(state=...))`` can learn from it.
        concurrency: questions in flight at once (by default 8), each with up to 4
            responses.
        seed: the seed of the calibration, and of the order of the questions with
            ``escalate_to``, by default 0.
        escalate_to: a larger model, or :class:`~langchain_reasc.Escalation` with what
            is promised and what the models cost. Both models are then asked, and the
            calibration says only when an answer of ``model`` may stand, see
            :attr:`langchain_reasc.ReASCRunnable.escalate_to`. It takes 76 questions
            without a contradiction, and 200 to 300 with some. The promise holds for
            questions in random order, so they are shuffled. With right answers to all
            questions, a contradiction is a question on which ``model`` is wrong and the
            larger model is right.
        config: callbacks, tags and metadata of the calls.
        progress: True for a bar, or a function called with (questions asked,
            questions).

    Raises:
        CalibrationDataError: no question, or responses that determine no calibration.
        CalibrationFileError: ``checkpoint`` is another kind of file, or cannot be
            written.
        ConfigurationError: a file of questions cannot be read, or options contradict
            each other.
        FingerprintMismatch: the rows in ``checkpoint`` were measured on another model,
            prompt or sampling.
        LogprobsUnavailable: the responses do not carry the signal of ``measure``.

    Example:
        >>> calibration = calibrate(llm, "labelled.csv", checkpoint="rows.sqlite")
        >>> calibration = calibrate(llm, [("What is 2 + 2?", "4"), "What is 12 times 17?", ...])
        >>> reasc = ReASCRunnable(model=llm, calibration=calibration)
    """
    return blocking(_calibrate(THREADS, model, questions, **options))


async def acalibrate(
    model: ModelOrName, questions: Questions, **options: Unpack[CalibrateOptions]
) -> Calibration:
    """The asynchronous :func:`calibrate`, with the same options."""
    return await _calibrate(EVENT_LOOP, model, questions, **options)


async def _calibrate(
    io: Concurrency,
    model: ModelOrName,
    questions: Questions,
    *,
    answer: AnswerSpec = "auto",
    fixed_prompt: FixedPrompt | None = None,
    tool_votes: ToolVotes | None = None,
    ask_confidence: bool = False,
    measure: Measure | Literal["auto"] = "auto",
    method: Literal["paper"] | None = None,
    p_target: float = 0.9,
    threshold: float | None = None,
    max_samples: int = DEFAULT_BUDGET,
    checkpoint: str | os.PathLike[str] | None = None,
    concurrency: int = 8,
    seed: int = 0,
    escalate_to: ModelOrName | Escalation | None = None,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    if threshold is not None:
        check_probability("threshold", threshold)
    check_target(p_target)
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
    inputs = read_inputs(questions)
    _check_method(method, inputs, escalate_to)
    confidence = _confidence(measure, ask_confidence=ask_confidence)
    face_options: dict[str, Any] = {
        "model": model,
        "confidence": confidence,
        "answer": answer,
        "fixed_prompt": fixed_prompt,
        "tool_votes": tool_votes or ToolVotes(),
        "max_samples": max_samples,
        "sample_timeout": None,
    }
    if escalate_to is not None:
        if confidence == "stated" and measure != "auto":
            raise ConfigurationError(
                f"with escalate_to, a model that is asked (ask_confidence=True) is "
                f"scored by what it states, not by {measure}"
            )
        face_options["escalate_to"] = escalate_to
        face_options["calibration"] = Online(state=checkpoint)
        order = np.random.default_rng(seed).permutation(len(inputs))
        shuffled = [inputs[index] for index in order]
        return await calibrate_two_models(
            io, face_options, shuffled, concurrency, ensure_config(config), progress
        )
    asking = _Asking(
        face_options,
        inputs,
        measure=None if measure == "auto" else measure,
        checkpoint=checkpoint,
        concurrency=concurrency,
        config=ensure_config(config),
    )
    rows = await asking.ask_all(io, progress)
    fit_rows = partial(
        asking.fit,
        rows,
        method=method,
        p_target=p_target,
        threshold=threshold,
        seed=seed,
    )
    calibration: Calibration = await io.run(fit_rows)
    return calibration.as_in_paper() if method == "paper" else calibration


def _check_method(
    method: str | None, inputs: Sequence[LabelledInput], escalate_to: object
) -> None:
    """Refuse what no calibration can be made by, before anything is asked."""
    if method is None:
        return
    if method != "paper":
        raise ConfigurationError(f"method is 'paper' or None, got {method!r}")
    if escalate_to is not None:
        raise ConfigurationError(
            "method='paper' calibrates one model; leave out escalate_to"
        )
    labelled = sum(bool(question.references) for question in inputs)
    if 2 * labelled < max(1, len(inputs)):
        raise ConfigurationError(
            "method='paper' needs right answers to half of the questions or more; "
            f"{labelled} of {len(inputs)} have one"
        )


def _confidence(
    measure: Measure | Literal["auto"], *, ask_confidence: bool
) -> Measure | Literal["stated"] | None:
    """Return the ``confidence`` of a model that is calibrated. A model that is asked
    may still be scored by its tokens.

    Raises:
        ConfigurationError: the measure needs a model that is asked.
    """
    if measure != "auto" and measure.signal == VERBALIZED:
        if not ask_confidence:
            raise ConfigurationError(
                f"the measure {measure} needs a model that is asked: "
                "ask_confidence=True"
            )
        return measure
    if ask_confidence:
        return "stated"
    return None if measure == "auto" else measure


class _AllSignals(Face):
    """Asks for every token signal, because with labels the paper's rule chooses."""

    _all_signals: ClassVar[bool] = True


class _Asking:
    """The questions, and how they are asked, checked before anything is paid for.

    Args:
        face_options: the options of :class:`~langchain_reasc.ReASCRunnable`.
        questions: the questions.
        measure: how a response is scored; None for all that the responses carry.
        checkpoint: the file of rows.
        concurrency: questions in flight at once.
        config: the config of the calls.

    Raises:
        CalibrationDataError: there is no question.
        LogprobsUnavailable: the model is known to give no logprobs, and the measure
            needs them.
    """

    def __init__(
        self,
        face_options: dict[str, Any],
        questions: Sequence[LabelledInput],
        *,
        measure: Measure | None,
        checkpoint: str | os.PathLike[str] | None,
        concurrency: int,
        config: RunnableConfig,
    ) -> None:
        if not questions:
            raise CalibrationDataError(
                "there is no question to calibrate on; 64 are a good number"
            )
        has_labels = any(question.references for question in questions)
        make_face = _AllSignals if has_labels and measure is None else Face
        face = make_face(
            calibration="online",  # asks for logprobs, and counts votes while it learns
            on_missing_confidence="count",
            concurrency=_AT_ONCE,
            **face_options,
        )
        self._voter = face._voter
        self._measure = measure
        self._questions = questions
        self._prompts = [to_messages(question.input) for question in questions]
        self._config = config
        self._concurrency = concurrency
        self._warnings = Repeated()
        model = self._voter.model.resolved(config)
        is_of_tokens = measure is not None and measure.signal != VERBALIZED
        if is_of_tokens and model.no_logprobs:
            raise LogprobsUnavailable(
                f"no response can be scored by {measure}: {model.no_logprobs}"
            )
        self._fingerprint = running_fingerprint(
            model, self._prompts[0], **self._voter.measured_on
        )
        if measure is None:
            measures = _all_measures(labelled=has_labels)
        else:
            measures = [measure]
        self._rows = _Rows(measures, self._fingerprint, checkpoint)
        # Of each response that was asked for now, whether it ended before its answer.
        self._cut_off: list[bool] = []

    async def ask_all(self, io: Concurrency, progress: Progress) -> list[Observation]:
        """Ask the questions without a row. Return the rows of all questions, in order.

        Raises:
            CalibrationDataError: no question gave a response.
            LogprobsUnavailable: the responses do not carry the signal of the measure.
        """
        cutoff = Cutoff()
        rows: dict[int, Observation | Exception] = {}
        ids: list[str] = []
        missing: list[int] = []
        for index, question in enumerate(self._questions):
            id = id_of(self._prompts[index], question.references)
            ids.append(id)
            row = self._rows.take_row(id)
            if row is None:
                missing.append(index)
            else:
                rows[index] = row

        async def ask(index: int) -> tuple[int, Observation | Exception]:
            return index, await self._ask(io, cutoff, index, ids[index])

        with self._warnings, show_progress(progress, len(ids)) as move:
            for _ in rows:
                move()
            async with (
                io.jobs(self._concurrency, cutoff.give_up) as run_each,
                aclosing(run_each(ask, missing)) as outcomes,
            ):
                async for index, outcome in outcomes:
                    rows[index] = outcome
                    move()
        in_order = [row for _, row in sorted(rows.items())]
        observations = [row for row in in_order if isinstance(row, Observation)]
        if not observations:
            raise CalibrationDataError(
                f"none of the {len(ids)} questions gave a response; the first: "
                f"{rows[0]!r}"
            )
        return observations

    async def _ask(
        self, io: Concurrency, cutoff: Cutoff, index: int, id: str
    ) -> Observation | Exception:
        """Ask a question and store its row. Return the error if it fails."""
        finished: list[AnsweredQuestion] = []
        try:
            request = Request(
                self._voter,
                self._prompts[index],
                self._config,
                io=io,
                cutoff=cutoff,
            )
            # Not by a calibration that a runnable around the same model may have
            # learned, which would ask less.
            plan = self._voter.plan(None)
            question = await begin(request, plan, on_finished=finished.append)
            result = await Solving(question).answer()
        except Exception as error:
            if not cutoff.given_up:
                self._warnings.warn(LEFT_OUT, error)
            return error
        messages = self._note_cut_off(result)
        keep = partial(self._keep, index, id, finished[0], messages, cutoff)
        row: Observation = await io.run(keep)
        has_answer = any(answer is not None for answer in row.answers)
        if self._measure is not None and has_answer and not self._rows.scored:
            raise LogprobsUnavailable(
                "nothing to calibrate, so no further question was asked: no response "
                f"can be scored by {self._measure}{_signals_in(finished[0])}; "
                'measure="auto" takes what the responses carry, and '
                "ask_confidence=True lets the model state its own"
            )
        return row

    def _note_cut_off(self, result: ReASCResult) -> list[AIMessage | None]:
        """Note which responses ended before their answer, and return the messages."""
        messages: list[AIMessage | None] = []
        for response in result.responses:
            if not response.used:
                continue
            messages.append(response.message)
            is_cut_off = (
                response.answer is None
                and response.message is not None
                and ending_of(response.message) == "cut off"
            )
            self._cut_off.append(is_cut_off)
        return messages

    def _keep(
        self,
        index: int,
        id: str,
        finished: AnsweredQuestion,
        messages: Sequence[AIMessage | None],
        cutoff: Cutoff,
    ) -> Observation:
        """Grade and score the responses to a question, and store its row."""
        right: tuple[bool | None, ...] = ()
        stored_id: str | None = id
        references = self._questions[index].references
        if references is not None:
            try:
                right = self._grade(index, references, finished, messages, cutoff)
            except Exception as error:
                self._warnings.warn(_NO_LABEL, error)
                stored_id = None  # so that the next call asks the question again
        return self._rows.append(finished, right, stored_id)

    def _grade(
        self,
        index: int,
        references: Sequence[str],
        finished: AnsweredQuestion,
        messages: Sequence[AIMessage | None],
        cutoff: Cutoff,
    ) -> tuple[bool, ...]:
        """Return whether each response is right. A response without an answer is
        wrong.
        """
        voter = self._voter
        tools = voter.options.tool_votes
        schemas = voter.model.schemas
        prompt = self._prompts[index]
        votes: dict[int, Vote] = {}
        for number, message in zip(finished.answers, messages, strict=True):
            if number is not None and message is not None and number not in votes:
                votes[number] = vote_of(
                    message,
                    voter.extract,
                    tools,
                    schemas,
                    question=question_text(prompt),
                )
        is_right = graded(
            votes,
            references,
            prompt,
            voter.extract,
            self._config,
            tools=tools,
            schemas=schemas,
            cutoff=cutoff,
        )
        return tuple(
            number is not None and is_right.get(number, False)
            for number in finished.answers
        )

    def fit(self, rows: Sequence[Observation], **options: Any) -> Calibration:
        """Calibrate on the rows; the options are those of
        :func:`~langchain_reasc.calibration.fit`.
        """
        measures = self._rows.measures
        budget = self._voter.options.max_samples
        calibration = fit(
            rows,
            measures,
            budget=budget,
            provenance=self._rows.provenance,
            fingerprint=self._fingerprint,
            **options,
        )
        responses = sum(len(row.answers) for row in rows)
        cut_off = None
        # A row of a checkpoint does not say it.
        if responses and len(self._cut_off) == responses:
            cut_off = sum(self._cut_off) / responses
        return with_expectation(
            calibration, rows, measures, budget=budget, cut_off=cut_off
        )


def _all_measures(*, labelled: bool) -> list[Measure]:
    """Return the measures that responses are scored by: what the agreement rule reads,
    and with labels all among which the paper's rule chooses.
    """
    if not labelled:
        return [*READ_SCORES]
    measures = list(candidate_measures([*SIGNALS, VERBALIZED]))
    for signal in SIGNALS:
        measures += [Measure(signal, score) for score in SPAN_SCORES]
    return measures


class _Rows:
    """The rows of the questions, and the file that they are appended to.

    Attributes:
        provenance: signal -> the k and V behind its scores.
        scored: whether any response has a score.

    Raises:
        CalibrationFileError: the file is of another kind, or cannot be written.
        FingerprintMismatch: its rows were measured on another model, prompt or
            sampling.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        fingerprint: Fingerprint,
        path: str | os.PathLike[str] | None,
    ) -> None:
        self.measures = measures
        self._fingerprint = fingerprint
        self.provenance: SignalProvenance = {}
        self.scored = False
        self._file = None if path is None else ObservationFile(path)
        self._stored = defaultdict[str | None, list[Observation]](list)  # by question
        self._lock = threading.Lock()
        if self._file is not None:
            with self._file.transaction(create=True) as store:
                assert store is not None
                try:
                    store.check_fits(
                        fingerprint, f"checkpoint={os.fspath(self._file.path)!r}"
                    )
                except FingerprintMismatch as error:
                    raise FingerprintMismatch(
                        f"{error}, or name another file"
                    ) from None
                self.provenance = store.provenance
                for _, row in store.rows(measures):
                    self._stored[row.id].append(row)

    def take_row(self, id: str) -> Observation | None:
        """Return a row of this question that was not returned before."""
        stored = self._stored[id]
        if not stored:
            return None
        row = stored.pop(0)
        self._note_scores(row)
        return row

    def append(
        self, finished: AnsweredQuestion, right: tuple[bool | None, ...], id: str | None
    ) -> Observation:
        """Score the responses to a question, and store the row."""
        with self._lock:
            row = replace(
                finished.scored_by(self.measures, self.provenance), right=right, id=id
            )
            if self._file is not None:
                with self._file.transaction(create=True) as store:
                    assert store is not None
                    _, row = store.append(row, self.measures)
                    store.describe(self._fingerprint, self.provenance)
            self._note_scores(row)
            return row

    def _note_scores(self, row: Observation) -> None:
        if not np.isnan(row.scores).all():
            self.scored = True


def _signals_in(question: AnsweredQuestion) -> str:
    """Say which signals the responses to a question have, for an error."""
    names: set[str] = set()
    for reading in question.readings:
        if reading is not None:
            names.update(reading.signals)
    if not names:
        return " (they have no signals)"
    return f" (they have the signals: {', '.join(sorted(names))})"
