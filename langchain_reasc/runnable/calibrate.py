"""``calibrate(model, questions)``: ask questions, with or without right answers, and
fit a calibration.
"""

import hashlib
import inspect
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, Final, Literal, ParamSpec

from langchain_core.messages import AIMessage, BaseMessage
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
    DEFAULT_AGREEMENT,
    AnsweredQuestion,
    Calibration,
    Observation,
    ObservationFile,
    SignalProvenance,
    candidate_measures,
    fit,
    with_expectation,
)
from langchain_reasc.calibration.offline import check_target
from langchain_reasc.complaints import Repeated
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
from langchain_reasc.models.prepared import ModelOrName, to_messages
from langchain_reasc.runnable.cascade import Cascade, labelled_kind, row_of_both
from langchain_reasc.runnable.concurrency import Concurrency, EventLoop, Threads
from langchain_reasc.runnable.face import Face
from langchain_reasc.runnable.labels import (
    LabelledInput,
    Questions,
    graded,
    read_inputs,
)
from langchain_reasc.runnable.options import Escalation, Online
from langchain_reasc.runnable.progress import Progress, show_progress
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.solve import Solving, begin
from langchain_reasc.runnable.voter import running_fingerprint
from langchain_reasc.sampling import Cutoff
from langchain_reasc.threads import blocking

logger = logging.getLogger(__name__)

P = ParamSpec("P")

_NO_LABEL: Final = (
    "a question has no label, as its answers could not be compared with the right one"
)
_LEFT_OUT: Final = "a question is left out of the calibration"
_AT_ONCE: Final = 4  # samples of a question: what counting votes needs at least


async def _calibrate(  # noqa: D417
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
    threshold: float = DEFAULT_AGREEMENT,
    max_samples: int = DEFAULT_BUDGET,
    checkpoint: str | os.PathLike[str] | None = None,
    concurrency: int = 8,
    seed: int = 0,
    escalate_to: ModelOrName | Escalation | None = None,
    config: RunnableConfig | None = None,
    progress: Progress = None,
) -> Calibration:
    """Ask each question until the votes on it are clear (ASC), and calibrate on the
    answers.

    64 questions are a good number; they cost no more than counting votes on them. How
    far the responses agree decides when sampling stops. Questions may have right
    answers. If half of them or more do, these add a gate, which accepts a confident
    first response alone; 16 right answers add the probability that an answer is right
    (``p_correct``). Without logprobs, only answers are learned from.

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
        answer: where the answer is in a response, see
            :func:`langchain_reasc.answers.extractor`. With
            :func:`~langchain_reasc.answers.free_text` answers are compared by meaning,
            with one another and with the right answer.
        fixed_prompt: which part of a prompt is the same for every question, see
            :attr:`langchain_reasc.ReASCRunnable.fixed_prompt`.
        tool_votes: how calls of tools are compared.
        ask_confidence: whether the model is asked to state its confidence, see
            :attr:`langchain_reasc.ReASCRunnable.confidence`.
        measure: how a response is scored; ``"auto"`` chooses among all that the
            responses carry, or none.
        method: ``"paper"`` makes the paper's ReASC (Algorithm 1), which takes right
            answers and logprobs, and needs only the first response to each question
            (``max_samples=1``). None learns from how the responses agree, and uses of
            Algorithm 1 what the data support.
        p_target: accuracy asked of what the gate accepts.
        threshold: the probability asked of an answer that all ``max_samples`` responses
            would give the same.
        max_samples: responses to a question at most, here and in use. With one, nothing
            shows how responses agree, and Algorithm 1 decides as far as its data
            support it.
        checkpoint: an SQLite file to which each question is appended as a row of
            numbers, without text. The same call continues from there. ``reasc inspect``
            reads the file, and
            ``ReASCRunnable(calibration=Online(state=...))`` can learn from it.
        concurrency: questions in flight at once, each with up to 4 responses.
        seed: the seed of the calibration.
        escalate_to: a larger model, or :class:`~langchain_reasc.Escalation` with what
            is promised and what the models cost. Both models are then asked, and the calibration
            says only when an answer of ``model`` may stand, see
            :attr:`langchain_reasc.ReASCRunnable.escalate_to`. It takes 76 questions
            without a contradiction, and 200 to 300 with some. With right answers to all
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
    check_probability("threshold", threshold)
    check_target(p_target)
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
    inputs = read_inputs(questions)
    _check_method(method, inputs, escalate_to)
    confidence = _confidence(measure, ask_confidence=ask_confidence)
    if escalate_to is not None:
        if confidence == "stated" and measure != "auto":
            raise ConfigurationError(
                f"with escalate_to, a model that is asked (ask_confidence=True) is "
                f"scored by what it states, not by {measure}"
            )
        options: dict[str, Any] = {
            "confidence": confidence,
            "answer": answer,
            "fixed_prompt": fixed_prompt,
            "tool_votes": tool_votes or ToolVotes(),
            "calibration": Online(state=checkpoint),
            "max_samples": max_samples,
        }
        return await _calibrate_two(
            io,
            model,
            escalate_to,
            inputs,
            concurrency,
            ensure_config(config),
            progress,
            options,
        )
    asked = _Asked(
        model,
        inputs,
        measure=measure,
        confidence=confidence,
        checkpoint=checkpoint,
        concurrency=concurrency,
        config=ensure_config(config),
        answer=answer,
        fixed_prompt=fixed_prompt,
        tool_votes=tool_votes or ToolVotes(),
        max_samples=max_samples,
    )
    rows = await asked.ask_all(io, progress)
    made = partial(asked.fit, rows, p_target=p_target, threshold=threshold, seed=seed)
    calibration: Calibration = await io.in_thread(made)
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
    labelled = sum(bool(one.references) for one in inputs)
    if 2 * labelled < max(1, len(inputs)):
        raise ConfigurationError(
            f"method='paper' needs right answers to half of the questions or more; {labelled} of {len(inputs)} have one"
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


class _Asked:
    """The questions, and how they are asked, checked before anything is paid for.

    The arguments are those of :func:`calibrate`, and ``options`` are those of
    :class:`~langchain_reasc.ReASCRunnable`.
    """

    def __init__(
        self,
        model: ModelOrName,
        questions: Sequence[LabelledInput],
        *,
        measure: Measure | Literal["auto"],
        checkpoint: str | os.PathLike[str] | None,
        concurrency: int,
        config: RunnableConfig,
        **options: Any,
    ) -> None:
        if not questions:
            raise CalibrationDataError(
                "there is no question to calibrate on; 64 are a good number"
            )
        named = self._named = None if measure == "auto" else measure
        self._voter = Face(
            model=model,
            calibration="online",  # asks for logprobs, and counts votes while it learns
            on_missing_confidence="count",
            concurrency=_AT_ONCE,
            sample_timeout=None,
            **options,
        )._voter
        self._warnings = Repeated()
        self._questions, self._prompts = (
            questions,
            [to_messages(one.input) for one in questions],
        )
        self._config, self._concurrency = config, concurrency
        resolved = self._voter.model.resolved(config)
        if named and named.signal != VERBALIZED and resolved.no_logprobs:
            raise LogprobsUnavailable(
                f"no response can be scored by {named}: {resolved.no_logprobs}"
            )
        self._fingerprint = running_fingerprint(
            resolved, self._prompts[0], **self._voter.measured_on
        )
        measures = (
            [named]
            if named
            else _all_measures(labelled=any(one.references for one in questions))
        )
        self._rows = _Rows(measures, self._fingerprint, checkpoint)
        self._cut_off = (
            list[bool]()
        )  # of each response that was asked for now: whether it ended before its answer

    async def ask_all(self, io: Concurrency, progress: Progress) -> list[Observation]:
        """Ask the questions without a row. Return the rows of all questions, in order.

        Raises:
            CalibrationDataError: no question gave a response.
            LogprobsUnavailable: the responses do not carry the signal of the named
                measure.
        """
        cutoff, rows = Cutoff(), dict[int, Observation | Exception]()
        ids = [
            _id_of(prompt, one.references)
            for prompt, one in zip(self._prompts, self._questions, strict=True)
        ]
        for at, id in enumerate(ids):
            if (held := self._rows.take_row(id)) is not None:
                rows[at] = held
        missing = [at for at in range(len(ids)) if at not in rows]
        with self._warnings, show_progress(progress, len(ids)) as move:
            for _ in rows:
                move()

            async def ask_one(at: int) -> tuple[int, Observation | Exception]:
                return at, await self._ask(io, cutoff, at, ids[at])

            async with (
                io.workers(self._concurrency, cutoff) as each,
                aclosing(each(ask_one, missing)) as found,
            ):
                async for at, one in found:
                    rows[at] = one
                    move()
        given = [one for _, one in sorted(rows.items()) if isinstance(one, Observation)]
        if not given:
            raise CalibrationDataError(
                f"none of the {len(ids)} questions gave a response; the first: {rows[0]!r}"
            )
        return given

    async def _ask(
        self, io: Concurrency, cutoff: Cutoff, at: int, id: str
    ) -> Observation | Exception:
        """Ask a question and store its row. Return the error if it fails."""
        finished: list[AnsweredQuestion] = []
        try:
            request = Request(
                self._voter,
                self._prompts[at],
                self._config,
                is_async=io.is_async,
                cutoff=cutoff,
            )
            # Not by a calibration that a runnable around the same model may have
            # learned, which would ask less.
            plan = self._voter.plan(None)
            question = await begin(request, plan, on_finished=finished.append)
            result = await Solving(question).answer()
        except Exception as error:
            if not cutoff.given_up:
                self._warnings.warn(_LEFT_OUT, error)
            return error
        used = [response for response in result.responses if response.used]
        messages = [response.message for response in used]
        cut = (
            one.message is not None and ending_of(one.message) == "cut off"
            for one in used
        )
        self._cut_off.extend(
            one.answer is None and ended for one, ended in zip(used, cut, strict=True)
        )
        row: Observation = await io.in_thread(
            partial(self._keep, at, id, finished[0], messages, cutoff)
        )
        if (
            self._named
            and not self._rows.scored
            and any(answer is not None for answer in row.answers)
        ):
            raise LogprobsUnavailable(
                "nothing to calibrate, so no further question was asked: no response can be scored by "
                f'{self._named}{_signals_in(finished[0])}; measure="auto" takes what the responses carry, and '
                "ask_confidence=True lets the model state its own"
            )
        return row

    def _keep(
        self,
        at: int,
        id: str,
        finished: AnsweredQuestion,
        messages: Sequence[AIMessage | None],
        cutoff: Cutoff,
    ) -> Observation:
        """Grade and score the responses to a question, and store its row."""
        right: tuple[bool | None, ...] = ()
        named: str | None = id
        try:
            if (references := self._questions[at].references) is not None:
                right = self._grade(at, references, finished, messages, cutoff)
        except Exception as error:
            self._warnings.warn(_NO_LABEL, error)
            named = None  # so that the next call asks it again
        return self._rows.append(finished, right, named)

    def _grade(
        self,
        at: int,
        references: Sequence[str],
        finished: AnsweredQuestion,
        messages: Sequence[AIMessage | None],
        cutoff: Cutoff,
    ) -> tuple[bool, ...]:
        """Return whether each response is right. A response without an answer is wrong."""
        voter = self._voter
        tools = voter.options.tool_votes
        schemas = voter.model.schemas
        votes: dict[int, Vote] = {}
        for number, message in zip(finished.answers, messages, strict=True):
            if number is not None and message is not None and number not in votes:
                votes[number] = vote_of(
                    message,
                    voter.extract,
                    tools,
                    schemas,
                    question=question_text(self._prompts[at]),
                )
        found = graded(
            votes,
            references,
            self._prompts[at],
            voter.extract,
            self._config,
            tools=tools,
            schemas=schemas,
            cutoff=cutoff,
        )
        return tuple(
            number is not None and found.get(number, False)
            for number in finished.answers
        )

    def fit(self, rows: Sequence[Observation], **options: Any) -> Calibration:
        """Calibrate on the rows; the options are those of
        :func:`~langchain_reasc.calibration.fit`.
        """
        measures, budget = self._rows.measures, self._voter.options.max_samples
        provenance, fingerprint = self._rows.provenance, self._fingerprint
        made = fit(
            rows,
            measures,
            budget=budget,
            provenance=provenance,
            fingerprint=fingerprint,
            **options,
        )
        known = len(self._cut_off) == sum(
            len(row.answers) for row in rows
        )  # a row of a checkpoint does not say it
        cut_off = sum(self._cut_off) / len(self._cut_off) if known else None
        return with_expectation(made, rows, measures, budget=budget, cut_off=cut_off)


def _all_measures(*, labelled: bool) -> list[Measure]:
    """Return the candidates that responses are scored by; spans are compared by right
    answers.
    """
    of_spans = (
        [Measure(signal, score) for signal in SIGNALS for score in SPAN_SCORES]
        if labelled
        else []
    )
    return [*candidate_measures([*SIGNALS, VERBALIZED]), *of_spans]


async def _calibrate_two(
    io: Concurrency,
    model: ModelOrName,
    larger: ModelOrName | Escalation,
    questions: Sequence[LabelledInput],
    concurrency: int,
    config: RunnableConfig,
    progress: Progress,
    options: dict[str, Any],
) -> Calibration:
    """Ask both models every question, and learn when the smaller one's answer may
    stand.
    """
    if not questions:
        raise CalibrationDataError(
            "there is no question to calibrate on; 200 to 300 are a good number"
        )
    face = Face(
        model=model,
        escalate_to=larger,
        sample_timeout=None,
        **options,
    )
    cascade = face._solver
    assert isinstance(cascade, Cascade) and cascade.learner is not None
    voter = cascade.small
    learner = cascade.learner
    cutoff = Cutoff()
    labelled = all(one.references for one in questions)

    async def ask_one(one: LabelledInput) -> Exception | None:
        prompt = to_messages(one.input)
        request = Request(voter, prompt, config, is_async=io.is_async, cutoff=cutoff)
        id = _id_of(prompt, one.references)
        kind = labelled_kind(request.kind) if labelled else request.kind
        if await io.in_thread(partial(learner.has_seen, kind, id)):
            return None

        def grade(message: AIMessage) -> bool:
            tools = voter.options.tool_votes
            schemas = voter.model.schemas
            question = question_text(prompt)
            vote = vote_of(message, voter.extract, tools, schemas, question=question)
            return graded(
                {0: vote},
                one.references or (),
                prompt,
                voter.extract,
                config,
                tools=tools,
                schemas=schemas,
                cutoff=cutoff,
            )[0]

        try:
            row = await row_of_both(cascade, request, grade if labelled else None)
        except Exception as error:
            if not cutoff.given_up:
                warnings.warn(_LEFT_OUT, error)
            return error
        if row is not None:
            await io.in_thread(partial(learner.observe, kind, row, id))
        return None

    failed, warnings = list[Exception](), Repeated()
    with warnings, show_progress(progress, len(questions)) as move:
        async with (
            io.workers(concurrency, cutoff) as each,
            aclosing(each(ask_one, questions)) as done,
        ):
            async for error in done:
                failed += [error] if error else []
                move()
    if (made := learner.calibration) is None:
        raise CalibrationDataError(
            f"none of the {len(questions)} questions was answered by both models"
            + (f"; the first: {failed[0]!r}" if failed else "")
        )
    if made.escalation and made.escalation.rule is None:
        logger.warning("nothing may stand yet: %s", made.escalation.status)
    prompt = to_messages(questions[0].input)
    fingerprint = running_fingerprint(
        voter.model.resolved(config), prompt, **voter.measured_on
    )
    return made.model_copy(update={"fingerprint": fingerprint})


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
        self.measures, self._fingerprint = measures, fingerprint
        self.provenance: SignalProvenance = {}
        self.scored = False
        self._file = None if path is None else ObservationFile(path)
        self._held = defaultdict[str | None, list[Observation]](list)  # by question
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
                    self._held[row.id].append(row)

    def take_row(self, id: str) -> Observation | None:
        """Return a row of this question that was not returned before."""
        row = self._held[id].pop(0) if self._held[id] else None
        self.scored = self.scored or (
            row is not None and bool((row.scores == row.scores).any())
        )
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
            self.scored = self.scored or bool((row.scores == row.scores).any())
            return row


def _signals_in(question: AnsweredQuestion) -> str:
    """Say which signals the responses to a question have, for an error."""
    names = sorted(
        {name for reading in question.readings if reading for name in reading.signals}
    )
    return (
        f" (they have the signals: {', '.join(names)})"
        if names
        else " (they have no signals)"
    )


def _id_of(prompt: Sequence[BaseMessage], references: Sequence[str] | None) -> str:
    """Return a hash of a question and its right answers. If these are corrected, the
    question is asked again.
    """
    parts = [[message.type, message.content] for message in prompt]
    return hashlib.sha256(
        json.dumps([parts, references], default=str).encode()
    ).hexdigest()[:16]


def _forms(
    name: str,
    function: Callable[Concatenate[Concurrency, P], Coroutine[Any, Any, Calibration]],
) -> tuple[Callable[P, Calibration], Callable[P, Coroutine[Any, Any, Calibration]]]:
    """Return the synchronous function of this name and its asynchronous form, with one
    signature and docstring.
    """

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
        form.__signature__ = signature.replace(
            parameters=list(signature.parameters.values())[1:]
        )
    return call, acall


calibrate, acalibrate = _forms("calibrate", _calibrate)
