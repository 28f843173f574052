"""Record a pool: n responses to each question, resumable after a kill.

A pool that is there is brought up to date first: responses are graded again where
labels have changed, and answers are found again in the stored texts where the extractor
or its rules have.
"""

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable

from langchain_reasc._version import __version__
from langchain_reasc.answers import EXTRACTION_VERSION, AnswerSpec, extractor, written
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import (
    ConfidenceError,
    ConfigurationError,
    ContextOverflowError,
    LogprobsUnavailable,
    PoolError,
)
from langchain_reasc.method.confidence import Measure, Spans
from langchain_reasc.models.contract import TOKEN_LIMITS
from langchain_reasc.models.prepared import PreparedModel, prepare_model
from langchain_reasc.models.signal_reading import SignalReading
from langchain_reasc.runnable.voter import running_fingerprint
from langchain_reasc_lab.pools.drawing import (
    DrawnQuestion,
    DrawnResponse,
    PendingQuestion,
    QuestionSampler,
    sample_questions,
)
from langchain_reasc_lab.pools.pool import Pool
from langchain_reasc_lab.pools.reading import (
    find_answers_again,
    read_pool,
    read_ungraded,
)
from langchain_reasc_lab.pools.store import PoolQuestion, PoolStore, storable

__all__ = ["Recording", "Workers", "model_limit", "record_pool"]

Workers = Callable[
    [Sequence[PendingQuestion], QuestionSampler],
    Iterable[tuple[PendingQuestion, DrawnQuestion | ContextOverflowError]],
]
"""Runs the sampler on the pending questions, here or on other machines, and yields the
drawn ones in any order.
"""

_RULES: Final = ("answer", "extraction_version")
_OF_ANSWERS: Final = (
    "answer",
    "cut_off",
    "correct",
    "answer_span",
    "last_step",
)  # what finding them again changes
_OTHER_FORMATS: Final = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz", ".txt")


def _ignore(*arguments: object) -> None:
    """Take the place of a callback that was not given."""


def record_pool(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    path: str | os.PathLike[str],
    *,
    samples: int = 16,
    answer: AnswerSpec = "auto",
    system: str | None = None,
    template: Template | None = None,
    measure: Measure | None = None,
    concurrency: int = 1,
    workers: Workers | None = None,
    on_question: Callable[[int, int], None] = _ignore,
    on_drawn: Callable[[DrawnQuestion], None] = _ignore,
    on_notice: Callable[[str], None] = _ignore,
) -> Pool:
    """Record responses to each question, adding to what the pool already holds.

    Each question is on disk before the next one is written: a kill loses at most the
    questions in flight, and the same call goes on from there. A sample that failed is
    drawn once more. A question with fewer responses than ``samples`` gets the others
    alone, with the seeds they would have had. What the pool holds is graded again where
    labels have changed, and its answers are found again where ``answer`` or the rules
    behind it have.

    Args:
        model: a chat model; a local one is given all samples of a question at once.
        questions: those to record, with reference answers where they are known. One
            that does not fit the model's context is left out, with a notice.
        path: the pool, an SQLite file; see :mod:`.store`.
        samples: responses per question.
        answer: where the answer is in a response, see
            :func:`langchain_reasc.answers.extractor`. It is called a few times for
            each, see :func:`langchain_reasc.answers.places_of`.
        system: a system message in front of each question.
        template: the rest of the prompt around each question, such as worked examples.
        measure: makes the recorded ``score``; None for the paper's.
        concurrency: questions in flight at once. Several use a server better. The pool
            then has them in the order they were complete, and a model in this process
            gives the same responses to the last bit only one after the other.
        workers: draws the responses where this process does not.
        on_question: called with (questions complete, questions) at the start and after
            each.
        on_drawn: called before that with what was drawn.
        on_notice: called with what the user should know: labels that changed, questions
            that were left out, responses without an answer.

    Returns:
        The whole pool, questions of earlier calls included.

    Raises:
        PoolError: the pool there was recorded from another model, prompt or seed, holds
            other questions, is not an SQLite pool, or cannot be written.
        SamplingError: the model failed; what was complete is kept, and so is what was
            in flight beside it.
        ContextOverflowError: no question fits the model's context.
        ConfigurationError: ``samples`` or ``concurrency`` is below 1, template and
            system message do not go together, or ``answer`` is free text, whose
            meanings a pool cannot compare.
    """
    _check_positive(samples=samples, concurrency=concurrency)
    target, measure = Path(path), measure or Measure()
    prompt = (template or Template()).after(system)
    metadata = _provenance(prepare_model(model, logprobs=True), prompt, answer) | {
        "system": system,
        "template": list(map(list, template.fixed)) if template else None,
        "measure": {
            "signal": measure.signal,
            "score": measure.score,
            "window": measure.window,
        },
    }
    recording = Recording(
        _open_and_update(target, metadata, questions, on_notice), metadata, measure
    )
    pending = recording.pending(questions, samples)
    run = workers or partial(sample_questions, concurrency=concurrency)
    results = run(pending, QuestionSampler(model, prompt, samples, answer))
    done, too_long = len(questions) - len(pending), list[ContextOverflowError]()
    on_question(done, len(questions))
    # an interruption ends the workers
    with closing(results) if isinstance(results, Generator) else nullcontext():
        for at, ((question, _), drawn) in enumerate(results, start=done + 1):
            if isinstance(drawn, ContextOverflowError):
                too_long.append(drawn)
                text = f"{question.input[:50]!r}..."
                on_notice(
                    f"question {question.id!r} ({text}) is too long and was left out: "
                    f"{drawn}"
                )
            else:
                recording.add_question(drawn)
                on_drawn(drawn)
            on_question(at, len(questions))
    if too_long:
        if not recording.store.ids():
            raise ContextOverflowError(
                f"none of the {len(questions)} questions fits the model's context: "
                f"{too_long[0]}"
            )
        on_notice(
            f"{len(too_long)} of {len(questions)} questions do not fit the model's "
            "context and were left out"
        )
    pool = read_pool(target, ungraded=True)
    _notify_unanswered(pool, questions, on_notice)
    return pool


class Recording:
    """A pool that is being recorded.

    The first question with signals settles which signals are kept, and over how many
    alternatives or what vocabulary, so that scores can be compared. A response with
    other ones is kept without signals: one with fewer would take a signal away from the
    whole pool.

    Args:
        store: the pool's file.
        metadata: the metadata of the recording.
        measure: makes the recorded scores.
    """

    def __init__(
        self, store: PoolStore, metadata: Mapping[str, Any], measure: Measure
    ) -> None:
        self.store = store
        self._metadata, self._measure = metadata, measure
        self._held = store.ids()
        about = store.about() if self._held else {}
        self._failed = dict(about.get("failed") or {"samples": 0, "tokens": 0})
        self._begun, self._info = bool(about), about.get("signals_info")
        self._settled: SignalReading | None = None

    def pending(
        self, questions: Sequence[LabelledQuestion], samples: int
    ) -> list[PendingQuestion]:
        """Return the questions that have fewer responses than they shall have."""
        each = (PendingQuestion(one, self._held.get(one.id, 0)) for one in questions)
        return [one for one in each if one.held < samples]

    def add_question(self, drawn: DrawnQuestion) -> None:
        """Write a question with its responses, or more responses to it; it is then on
        disk.

        Raises:
            PoolError: the pool was begun with signals made of something else, another
                process records into it, or it cannot be written.
        """
        if self._settled is None:
            self._settle(drawn.responses)
        readings = [self._comparable(one.reading) for one in drawn.responses]
        responses = tuple(
            replace(one.response, score=self._score(reading), **reading.spans._asdict())
            for one, reading in zip(drawn.responses, readings, strict=True)
        )
        about: dict[str, Any] = {} if self._begun else dict(self._metadata)
        if self._info is not None:
            about["signals_info"] = self._info
        if drawn.failed:
            self._failed["samples"] += drawn.failed
            self._failed["tokens"] += drawn.failed_tokens
            about["failed"] = self._failed
        id, held = drawn.question.id, self._held.get(drawn.question.id, 0)
        question = PoolQuestion(
            id, drawn.question.references, responses, drawn.question.input
        )
        messages, signals = (
            [one.message for one in drawn.responses],
            [one.signals for one in readings],
        )
        with self.store.transaction():
            self.store.set_about(about)
            self.store.add_question(question, messages, signals, expected=held)
        self._held[id] = held + len(responses)
        self._begun = True

    def _settle(self, responses: Sequence[DrawnResponse]) -> None:
        carrying = [(one.reading, one.info) for one in responses if one.reading]
        if not carrying:
            return
        # the first such
        settled, info = max(
            carrying, key=lambda pair: (len(pair[0].signals), len(pair[0].k))
        )
        made_of = dict(settled.k) if info is None else dict(info)
        for name, then in (self._info or {}).items():
            if made_of.get(name, then) != then:
                raise PoolError(
                    f"{self.store.path} was recorded with {name} {then!r} behind its "
                    f"signals, now it is {made_of[name]!r}; record into another file, "
                    "or delete this one"
                )
        self._settled, self._info = settled, self._info or made_of

    def _comparable(self, reading: SignalReading | None) -> SignalReading:
        """Return a reading, without signals where they are made of something else than
        the settled ones.
        """
        if (
            not reading
            or self._settled is None
            or not self._settled.signals.keys() <= reading.signals.keys()
        ):
            return SignalReading({})
        then, now = (
            {**one.k, "V": one.vocabulary_size} for one in (self._settled, reading)
        )
        same = all(
            now[name] == then.get(name)
            for name in now
            if None not in (now[name], then.get(name))
        )
        return reading if same else SignalReading({})

    def _score(self, reading: SignalReading) -> float | None:
        try:
            return self._measure(reading.signals, reading.spans)
        except (LogprobsUnavailable, ConfidenceError):
            return None


def _settings_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two recordings must have in common to be one pool: not the answers,
    which can be found again.
    """
    fingerprint = metadata.get("fingerprint")
    known = (
        fingerprint if isinstance(fingerprint, dict) else {"fingerprint": fingerprint}
    )
    own = {
        name: metadata.get(name)
        for name in ("seed", "system", "template", "max_tokens")
    }
    return own | {name: value for name, value in known.items() if name != "answer"}


def model_limit(model: PreparedModel) -> int | None:
    """Return the limit of tokens per response; None if none is set."""
    given = (
        model.kwargs.get(name, getattr(model.model, name, None))
        for name in TOKEN_LIMITS
    )
    return next(
        (value for value in given if isinstance(value, int) and value > 0), None
    )


def _provenance(
    source: PreparedModel, prompt: Template, answer: AnswerSpec
) -> dict[str, Any]:
    """Return what a pool's responses came from, and when, and how their answers are
    found.
    """
    extract = extractor(answer)
    if extract.equivalence:
        raise ConfigurationError(
            f"a pool's answers are compared by their spelling, and {extract.name} "
            "compares meanings: calibrate with langchain_reasc.calibrate(), which "
            "takes it"
        )
    fingerprint = running_fingerprint(source, prompt.messages(""), prompt=prompt.fixed)
    return {
        "library_version": __version__,
        "extraction_version": EXTRACTION_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": fingerprint.model_dump(mode="json", exclude_none=True),
        "seed": getattr(source.model, "seed", None),
        "parameters": getattr(source.model, "parameter_count", None),
        "max_tokens": model_limit(source),
        "answer": answer if isinstance(answer, str) else {"function": extract.name},
    }


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ConfigurationError(f"{name} must be 1 or more, got {value}")


def _notify_unanswered(
    pool: Pool, questions: Sequence[LabelledQuestion], notify: Callable[[str], None]
) -> None:
    asked = {question.id for question in questions}
    responses = [
        response
        for question in pool.questions
        if question.id in asked
        for response in question.responses
    ]
    without = [response for response in responses if response.answer is None]
    if without:
        cut_off = sum(response.cut_off for response in without)
        notify(
            f"{len(without)} of {len(responses)} responses have no answer ({cut_off} "
            "of them were cut off); answer=... says where it is, max_tokens=... how "
            "long a response may be"
        )


def _open_and_update(
    target: Path,
    metadata: Mapping[str, Any],
    questions: Sequence[LabelledQuestion],
    notify: Callable[[str], None],
) -> PoolStore:
    """Create a pool, or open the one that is there and bring its labels and answers up
    to date.
    """
    if target.exists() and not target.is_file():
        raise PoolError(
            f"{target} is not a file, so no pool can be written there; name another one"
        )
    if not target.exists() and target.suffix.lower() in _OTHER_FORMATS:
        raise PoolError(
            f"a pool is an SQLite file, which {target.name} does not look like: name "
            "it *.sqlite"
        )
    for question in questions:
        if storable(question.id) != question.id:
            raise PoolError(
                f"id {question.id!r} has half a character in it, which no file can "
                "hold; correct it"
            )
    target.parent.mkdir(parents=True, exist_ok=True)
    store = PoolStore.create(target)
    if store.ids():
        pool = replace(read_ungraded(target), stores=(store,))
        _check_settings(pool, metadata)
        _check_questions(pool, questions)
        _update(pool, store, metadata, questions, notify)
    return store


def _check_settings(pool: Pool, metadata: Mapping[str, Any]) -> None:
    then = _settings_of(pool.metadata)
    for name, value in _settings_of(metadata).items():
        if then.get(name) != value:
            raise PoolError(
                f"{pool.path} was recorded with {name} {then.get(name)!r}, now it is "
                f"{value!r}; record into another file, or delete this one"
            )


def _check_questions(pool: Pool, questions: Sequence[LabelledQuestion]) -> None:
    asked = {question.id: question.input for question in questions}
    for held in pool.questions:
        if asked.get(held.id, held.input) != held.input:
            raise PoolError(
                f"{pool.path} holds another question with id {held.id!r} "
                f"({held.input!r:.60}); record into another file"
            )
    names = {held.id for held in pool.questions}
    renamed = {held.input: held.id for held in pool.questions if held.id not in asked}
    for question in questions:
        if question.id not in names and question.input in renamed:
            raise PoolError(
                f"{pool.path} holds the question {question.input!r:.60} as "
                f"{renamed[question.input]!r}, now its id is {question.id!r}; it would "
                "be paid for a second time. Give the questions the ids that the pool "
                "has, or record into another file"
            )


def _update(
    pool: Pool,
    store: PoolStore,
    metadata: Mapping[str, Any],
    questions: Sequence[LabelledQuestion],
    notify: Callable[[str], None],
) -> None:
    """Write the labels and answers of today into a pool, where they have changed since
    it was recorded.
    """
    relabelled = _changed_labels(pool, questions)
    found = _current_answers(pool, metadata)
    if not relabelled and found is None:
        return
    with store.transaction():
        for id, references in relabelled.items():
            store.set_references(id, references)
        if found is not None:
            _write_answers(store, found)
            store.set_about({name: metadata[name] for name in (*_RULES, "fingerprint")})
    if relabelled:
        notify(
            f"{len(relabelled)} labels have changed since {pool.path} was recorded; "
            "its responses are graded anew"
        )
    if pool.metadata.get("grader"):
        notify(
            f"verdicts of {pool.metadata['grader']!r} in {pool.path} were dropped with "
            "them: `reasc grade` it again"
        )
    if found is not None:
        _notify_found_again(pool, found, metadata, notify)


def _notify_found_again(
    pool: Pool, found: Pool, metadata: Mapping[str, Any], notify: Callable[[str], None]
) -> None:
    changed = sum(
        one.answer != other.answer
        for one, other in zip(pool.responses, found.responses, strict=True)
    )
    notify(
        f"the answers in {pool.path} were found by {_in_words(pool.metadata)}, now "
        f"they are by {_in_words(metadata)}: looked for again in the stored text, "
        f"{changed} changed"
    )
    if any(response.spans != Spans() for response in pool.responses):
        notify(
            f"which tokens of {pool.path} spell those answers is not known: record "
            "anew for a score of them"
        )


def _changed_labels(
    pool: Pool, questions: Sequence[LabelledQuestion]
) -> dict[str, tuple[str, ...]]:
    """Return id -> accepted answers, for the questions with other labels than in the
    pool.
    """
    labels = {one.id: one.references for one in questions if one.references}
    given = ((held, labels.get(held.id, held.references)) for held in pool.questions)
    return {
        held.id: label
        for held, label in given
        if set(map(written, label)) != set(map(written, held.references))
    }


def _write_answers(store: PoolStore, pool: Pool) -> None:
    for question in pool.questions:
        changes = [
            {name: getattr(one, name) for name in _OF_ANSWERS}
            for one in question.responses
        ]
        store.set_responses(question.id, changes)


def _current_answers(pool: Pool, metadata: Mapping[str, Any]) -> Pool | None:
    """Find the answers again by the current extractor and rules; None if the pool used
    the same.
    """
    if all(pool.metadata.get(name) == metadata.get(name) for name in _RULES):
        return None
    if not isinstance(metadata["answer"], str):
        raise PoolError(
            f"the answers in {pool.path} were found by {_in_words(pool.metadata)}, now "
            f"they are to be found by {_in_words(metadata)}. A function may look at "
            "more of a response than is stored: record into another file"
        )
    try:
        return find_answers_again(pool, metadata["answer"])
    except PoolError as error:
        raise PoolError(f"{pool.path}: {error}; record into another file") from None


def _in_words(rules: Mapping[str, Any]) -> str:
    spec, version = rules.get("answer"), rules.get("extraction_version")
    how = (
        repr(spec)
        if isinstance(spec, str)
        else f"the function {dict(spec or {}).get('function')!r}"
    )
    return f"{how} (rules of {'an unknown version' if version is None else f'version {version}'})"
