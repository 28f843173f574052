"""A pool graded again, by whatever says what is right, and without a new sample."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, PoolError, SamplingError
from langchain_reasc.models.in_flight import in_flight
from langchain_reasc.pools.pool import Pool, PoolQuestion
from langchain_reasc.pools.store import PoolStore, is_store
from langchain_reasc_lab.pools.graders import Grader

__all__ = ["Grading", "Labels", "check_writable", "grade_pool", "labels_from", "write_verdicts"]

Labels = Mapping[str, tuple[str, ...]]
"""The accepted answers by question id."""

_PATIENCE: Final = 5  # failures in a row after which nobody is asked any more


@dataclass(frozen=True, slots=True)
class Grading:
    """What a grader said of a pool's responses.

    Attributes:
        grader: its name.
        verdicts: by question id, of each response; None where it could not be told.
        answers: distinct answers that were graded.
        untold: how many of those could not be.
        failures: what grading raised.
    """

    grader: str
    verdicts: Mapping[str, tuple[bool | None, ...]]
    answers: int
    untold: int
    failures: tuple[Exception, ...] = ()

    @property
    def notice(self) -> str | None:
        """What could not be told, in a sentence; None where all was."""
        if not self.untold:
            return None
        responses = sum(verdict is None for verdicts in self.verdicts.values() for verdict in verdicts)
        why = f" ({len(self.failures)} failed, the first with {self.failures[0]!r:.200})" if self.failures else ""
        again = "; grade once more to ask about them again" if self.failures else ""
        return (
            f"{self.grader} could not tell of {self.untold:,} of {self.answers:,} answers whether they are right{why}; "
            f"the {responses:,} responses that give them count as wrong{again}"
        )


@dataclass(frozen=True, slots=True)
class _Task:
    """One distinct answer to one question, and which responses give it."""

    question: PoolQuestion
    answer: str
    responses: tuple[int, ...]


def grade_pool(
    pool: Pool,
    grader: Grader,
    *,
    labels: Labels | None = None,
    concurrency: int = 1,
    seconds: float | None = None,
    on_answer: Callable[[int, int], None] = lambda done, total: None,
) -> Grading:
    """Have all responses of a pool graded; nothing is written.

    Each answer to a question is graded once, however many responses give it: equal answers are right together. A
    response without an answer is wrong, and nobody is asked about it. A question whose right answer nobody knows keeps
    the verdicts that it has.

    Args:
        pool: recorded responses.
        grader: says which answers are right.
        labels: the accepted answers of questions where they are others than the pool's.
        concurrency: answers that are graded at once, each in a thread of its own; 1 grades in this one.
        seconds: what one answer may take; None for any time. A limit takes a thread.
        on_answer: called with (done, total) distinct answers.

    Raises:
        ConfigurationError: a concurrency below 1, or a time that is none.
        SamplingError: grading failed five times in a row, or nothing could be told of any answer; then, most likely,
            the judge is not there or does not understand what it is asked, and everything would count as wrong.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
    if seconds is not None and not seconds > 0:
        raise ConfigurationError(f"a time limit is in seconds, above 0, got {seconds!r}")
    graded = [one for one in pool.questions if one.references or one.id in (labels or {})]
    tasks = [task for question in graded for task in _tasks(question)]
    verdicts = {one.id: [response.correct for response in one.responses] for one in pool.questions}
    verdicts |= {one.id: [False] * len(one.responses) for one in graded}
    calls = _calls(pool, tasks, grader, labels or {})
    alone = concurrency == 1 and seconds is None
    outcomes = _one_by_one(calls) if alone else in_flight(calls, concurrency=concurrency, seconds=seconds)
    failures: list[Exception] = []
    untold = 0
    told = _told(grader.name, outcomes, failures, patience=min(_PATIENCE, len(tasks)))
    for done, (at, verdict) in enumerate(told, start=1):
        untold += verdict is None
        for response in tasks[at].responses:
            verdicts[tasks[at].question.id][response] = verdict
        on_answer(done, len(tasks))
    if tasks and untold == len(tasks):
        raise SamplingError(
            f"{grader.name} could not tell of any of the {len(tasks):,} answers in {pool.path} whether it is right; "
            "nothing was changed",
            failures,
        )
    held = {name: tuple(each) for name, each in verdicts.items()}
    return Grading(grader.name, held, len(tasks), untold, tuple(failures))


def labels_from(pool: Pool, questions: Sequence[LabelledQuestion]) -> tuple[Labels, int]:
    """The accepted answers of a pool's questions as a file has them, and how many of those questions it lacks.

    A question is recognised by its id, and where the pool does not know that, by its text.

    Raises:
        ConfigurationError: the file has none of the pool's questions, or another one under an id of the pool's.
    """
    by_id = {one.id: one for one in questions}
    by_text = {one.input: one for one in questions}
    labels: dict[str, tuple[str, ...]] = {}
    for held in pool.questions:
        named = by_id.get(held.id)
        if named is not None and isinstance(held.input, str) and held.input.strip() != named.input.strip():
            raise ConfigurationError(
                f"{pool.path} holds another question with id {held.id!r} ({held.input!r:.60}) than the labels "
                f"({named.input!r:.60})"
            )
        if (found := named or by_text.get(held.input if isinstance(held.input, str) else "")) is not None:
            labels[held.id] = found.references
    if not labels:
        raise ConfigurationError(f"the labels are those of none of the questions in {pool.path}, by id or by text")
    return labels, len(pool.questions) - len(labels)


def check_writable(pool: Pool) -> None:
    """Refuse to grade what verdicts cannot be written into, before a judge is paid.

    Raises:
        PoolError: a pool of JSON Lines, one that may not be written, or one whose answers other rules found.
    """
    if not is_store(pool.path):
        raise PoolError(
            f"{pool.path} is a pool of JSON Lines, which is read and not written: make it one that can be graded with "
            f"`reasc pool convert {pool.path} {pool.path.with_suffix('.sqlite')}`, or see what would change (--dry-run)"
        )
    if not os.access(pool.path, os.W_OK):
        raise PoolError(f"{pool.path} may not be written; see what would change with --dry-run")
    version = pool.metadata.get("extraction_version")
    if version not in (None, EXTRACTION_VERSION):
        raise PoolError(
            f"the answers in {pool.path} were found by version {version} of the extraction rules, here is version "
            f"{EXTRACTION_VERSION}: `reasc record` brings them up to date, then grade it; or see what would change "
            "(--dry-run)"
        )


def write_verdicts(pool: Pool, grading: Grading, labels: Labels | None = None) -> None:
    """Write verdicts into a pool's file, with the grader's name and the accepted answers where those are others.

    What could not be told is written as wrong. A reader sees the old verdicts or the new ones, never some of each.

    Raises:
        PoolError: see :func:`check_writable`; or the file holds other responses by now, or could not be written.
    """
    check_writable(pool)
    store = PoolStore.open(pool.path)
    try:
        with store.transaction():
            held = store.ids()
            if any(held.get(name) != len(verdicts) for name, verdicts in grading.verdicts.items()):
                raise PoolError(f"{pool.path} has changed while it was graded; nothing was written: grade it again")
            for name, references in (labels or {}).items():
                store.set_question(name, references)
            for name, verdicts in grading.verdicts.items():
                store.set_verdicts(name, list(map(bool, verdicts)))
            store.set_about({"grader": grading.grader})
    finally:
        store.close()


def _tasks(question: PoolQuestion) -> Iterator[_Task]:
    giving: dict[str, list[int]] = {}
    for at, one in enumerate(question.responses):
        if one.answer is not None and one.answer.strip():
            giving.setdefault(one.answer, []).append(at)
    yield from (_Task(question, answer, tuple(responses)) for answer, responses in giving.items())


def _calls(pool: Pool, tasks: Sequence[_Task], grader: Grader, labels: Labels) -> Iterator[Callable[[], bool | None]]:
    """Each answer's grading; texts are fetched as it is begun, by who begins it."""
    for question, each in groupby(tasks, key=attrgetter("question")):
        texts = pool.texts(question.id)
        asked = question.input if isinstance(question.input, str) else ""
        accepted = labels.get(question.id, question.references)
        for task in each:
            yield partial(grader.grade, asked, task.answer, texts[task.responses[0]], accepted)


def _told(
    grader: str, outcomes: Iterable[tuple[int, bool | Exception | None]], failures: list[Exception], *, patience: int
) -> Iterator[tuple[int, bool | None]]:
    """What outcomes say, where a failure says nothing; failures are added to the list, until too many come in a row."""
    in_a_row = 0
    for at, outcome in outcomes:
        if not isinstance(outcome, Exception):
            in_a_row = 0
            yield at, outcome
            continue
        failures.append(outcome)
        in_a_row += 1
        if in_a_row == patience:
            raise SamplingError(
                f"{grader} failed {in_a_row} times in a row, the last time with {outcome!r:.300}; nothing was changed, "
                "and what was judged before is kept: run the same command again to go on",
                failures,
            )
        yield at, None


def _one_by_one(
    calls: Iterator[Callable[[], bool | None]],
) -> Iterator[tuple[int, bool | Exception | None]]:
    for at, call in enumerate(calls):
        try:
            outcome: bool | Exception | None = call()
        except Exception as error:
            outcome = error
        yield at, outcome
