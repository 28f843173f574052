"""Recording a pool: n responses to each question, resumable after a kill."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable

from langchain_reasc._version import __version__
from langchain_reasc.answers import EXTRACTION_VERSION, AnswerSpec, extractor
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.data.template import Template
from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, ContextOverflowError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.logprobs import SignalReading
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.pools.asking import Answered, Asked, Asking, Prompts, each_question
from langchain_reasc.pools.bill import Bill
from langchain_reasc.pools.estimate import model_limit
from langchain_reasc.pools.kept_signals import KeptSignals
from langchain_reasc.pools.pool import Pool
from langchain_reasc.pools.reading import read_pool
from langchain_reasc.pools.resume import resume
from langchain_reasc.pools.store import PoolStore, StoredQuestion, StoredResponse

__all__ = ["Recording", "Workers", "record_pool"]

Workers = Callable[[Sequence[Asked], Asking], Iterable[tuple[Asked, Answered | ContextOverflowError]]]
"""What asks a model elsewhere: is given what is to be asked, and gives answers as they are done."""


def record_pool(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    path: str | os.PathLike[str],
    *,
    samples: int = 16,
    answer: AnswerSpec = "auto",
    system: str | None = None,
    template: Template | Prompts | None = None,
    measure: Measure | None = None,
    concurrency: int = 1,
    workers: Workers | None = None,
    on_question: Callable[[int, int], None] | None = None,
    on_bill: Callable[[str, Bill], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Pool:
    """Record responses to each question, adding to what the pool already holds.

    Each question is on disk before the next one is written: a kill loses at most the questions in flight, and the same
    call goes on from there. A sample that failed is drawn once more. A question that has fewer responses than
    ``samples`` is asked for the others alone, with the seeds they would have had. What the pool holds is graded again
    where labels have changed, and its answers are found again where ``answer`` or the rules behind it have.

    Args:
        model: a chat model; a local one is asked for all samples of a question at once.
        questions: those to ask, with reference answers. One that does not fit the model's context is left out, with a
            notice.
        path: the pool, an SQLite file; see :mod:`.store`.
        samples: responses per question.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`. It is asked a few
            times of each, see :func:`langchain_reasc.answers.places_of`.
        system: a system message in front of each question.
        template: what else stands around each question, such as worked examples; or the whole prompt of each.
        measure: makes the recorded ``score``; None for the paper's.
        concurrency: questions in flight at once. Several use a server better. The pool then has them in the order they
            were done, and a model in this process gives the same responses to the last bit only one after the other.
        workers: what asks, where it is not this process: it is given the questions with what there is of each, and
            what asks one of them, and gives answers in any order.
        on_question: called with (questions complete, questions) at the start and after each.
        on_bill: called before that with a question's id and what drawing its responses cost, those that failed too.
        on_notice: called with what the user should know: labels that changed, questions that were left out, responses
            without an answer.

    Returns:
        The whole pool, questions of earlier calls included.

    Raises:
        PoolError: the pool there was recorded from another model, prompt or seed, holds other questions, is one of JSON
            Lines, or cannot be written.
        SamplingError: the model failed; what was complete is kept, and so is what was in flight beside it.
        ContextOverflowError: no question fits the model's context.
        ConfigurationError: ``samples`` or ``concurrency`` is below 1, template and system message do not go together,
            or ``answer`` is free text, of which a pool cannot tell what means the same.
    """
    target, tell = Path(path), on_notice or (lambda notice: None)
    given, extract = template or Template(), extractor(answer)
    prompt = given.after(system) if isinstance(given, Template) else given
    if extract.equivalence:
        raise ConfigurationError(
            f"a pool's answers are compared by their spelling, and {extract.name} tells what means the same: calibrate "
            "with langchain_reasc.calibrate(), which takes it"
        )
    for name, value in (("samples", samples), ("concurrency", concurrency)):
        if value < 1:
            raise ConfigurationError(f"{name} must be 1 or more, got {value}")
    measure = measure or Measure()
    metadata = {
        **_provenance(PreparedModel.of(model, logprobs=True), prompt),
        "answer": answer if isinstance(answer, str) else {"function": extract.name},
        "system": system,
        "template": [list(turn) for turn in template.fixed] if isinstance(template, Template) else None,
        "measure": {"signal": measure.signal, "score": measure.score, "window": measure.window},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    recording = Recording(resume(target, metadata, questions, tell=tell), metadata, measure)
    held = recording.store.ids()
    missing = [Asked(one, held.get(one.id, 0)) for one in questions if held.get(one.id, 0) < samples]
    asking = Asking(model, prompt, samples, answer)
    if on_question:
        on_question(len(questions) - len(missing), len(questions))
    too_long: list[ContextOverflowError] = []
    answers = (workers or partial(each_question, concurrency=concurrency))(missing, asking)
    try:
        for at, ((question, _), answered) in enumerate(answers, start=len(questions) - len(missing) + 1):
            if isinstance(answered, ContextOverflowError):
                too_long.append(answered)
                tell(f"question {question.id!r} ({question.input[:50]!r}...) is too long and was left out: {answered}")
            else:
                recording.add(answered)
                if on_bill:
                    on_bill(question.id, answered.bill)
            if on_question:
                on_question(at, len(questions))
    finally:
        if isinstance(answers, Generator):
            answers.close()  # an interruption ends those that ask elsewhere
    if too_long and not recording.store.ids():
        raise ContextOverflowError(f"none of the {len(questions)} questions fits the model's context: {too_long[0]}")
    pool = read_pool(target)
    for notice in _told(pool, {question.id for question in questions}, left_out=len(too_long)):
        tell(notice)
    return pool


class Recording:
    """A pool that is being recorded, and what all that is written into it has in common.

    Args:
        store: the pool.
        metadata: what the recording says of itself.
        measure: makes the recorded scores.
    """

    def __init__(self, store: PoolStore, metadata: Mapping[str, Any], measure: Measure) -> None:
        self.store = store
        self._metadata, self._measure = metadata, measure
        self._held = store.ids()
        begun = store.about() if self._held else {}
        self._begun = bool(begun)
        self._kept = KeptSignals(store.path, begun.get("signals_info"))

    def add(self, answered: Answered) -> None:
        """Write a question with its responses, or more responses to it; it is then on disk.

        Raises:
            PoolError: the pool was begun with signals made of something else, another process records into it, or it
                cannot be written.
        """
        question, responses, bill = answered
        readings = self._kept.of(responses)
        stored = [
            StoredResponse(
                {**one.columns, **_spans(reading), "score": self._score(reading)}, one.message, reading.signals
            )
            for one, reading in zip(responses, readings, strict=True)
        ]
        with self.store.transaction():
            if not self._begun:
                self.store.set_about(self._metadata)
            if self._kept.info is not None:
                self.store.set_about({"signals_info": self._kept.info})
            if bill.failed:
                self.store.set_about({"failed": self._failed(bill)})
            asked = StoredQuestion(question.id, question.input, question.references, stored)
            self.store.add(asked, behind=self._held.get(question.id, 0))
        self._held[question.id] = self._held.get(question.id, 0) + len(stored)
        self._begun = True

    def _failed(self, bill: Bill) -> dict[str, int]:
        """Samples that failed so far, and what had come of them: no response says so."""
        held = self.store.about().get("failed") or {}
        return {"samples": held.get("samples", 0) + bill.failed, "tokens": held.get("tokens", 0) + bill.lost}

    def _score(self, reading: SignalReading) -> float | None:
        try:
            return self._measure(reading.signals, reading.spans)
        except (LogprobsUnavailable, ConfidenceError):
            return None


def _provenance(source: PreparedModel, prompt: Prompts) -> dict[str, Any]:
    """What a pool's responses came from, and when."""
    fingerprint = source.fingerprint(prompt.messages(""), prompt=prompt.fixed)
    return {
        "library_version": __version__,
        "extraction_version": EXTRACTION_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": fingerprint.model_dump(mode="json", exclude_none=True),
        "seed": getattr(source.model, "seed", None),
        "parameters": getattr(source.model, "parameter_count", None),
        "max_tokens": model_limit(source),
    }


def _told(pool: Pool, asked: set[str], *, left_out: int) -> Iterator[str]:
    """What a user should know of the responses to the questions that were asked."""
    if left_out:
        yield f"{left_out} of {len(asked)} questions do not fit the model's context and were left out"
    responses = [response for question in pool.questions if question.id in asked for response in question.responses]
    without = [response for response in responses if response.answer is None]
    if without:
        cut_off = sum(response.cut_off for response in without)
        yield (
            f"{len(without)} of {len(responses)} responses have no answer ({cut_off} of them were cut off); "
            "answer=... says where it is, max_tokens=... how long a response may be"
        )


def _spans(reading: SignalReading) -> dict[str, Any]:
    return {name: span for name, span in reading.spans._asdict().items() if span is not None}
