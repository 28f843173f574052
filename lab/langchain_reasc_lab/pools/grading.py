"""Grading a pool again, by any grader, without a new sample."""

import math
import os
import queue
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Final, TypeVar

from langchain_reasc.answers import EXTRACTION_VERSION
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, PoolError, SamplingError
from langchain_reasc.threads import start_daemon, taken_from
from langchain_reasc_lab.pools.graders import Grader
from langchain_reasc_lab.pools.pool import Pool
from langchain_reasc_lab.pools.store import PoolQuestion, PoolStore

T = TypeVar("T")

Labels = Mapping[str, tuple[str, ...]]
"""The accepted answers by question id."""

Task = tuple[PoolQuestion, list[int]]
"""A question, and the places of the responses that give one distinct answer."""

_PATIENCE: Final = 5  # failures in a row after which nobody is asked any more


@dataclass(frozen=True, slots=True)
class Grading:
    """A grader's verdicts on a pool's responses.

    Attributes:
        grader: its name.
        verdicts: by question id, of each response; None if the grader could not decide.
        answers: distinct answers that were graded.
        undecided: how many of those the grader could not decide.
        failures: the exceptions that grading raised.
    """

    grader: str
    verdicts: Mapping[str, tuple[bool | None, ...]]
    answers: int
    undecided: int
    failures: tuple[Exception, ...] = ()

    @property
    def notice(self) -> str | None:
        """A sentence on what could not be decided; None if everything was decided."""
        if not self.undecided:
            return None
        responses = sum(verdict is None for verdicts in self.verdicts.values() for verdict in verdicts)
        why = f" ({len(self.failures)} failed, the first with {self.failures[0]!r:.200})" if self.failures else ""
        again = "; grade once more to ask about them again" if self.failures else ""
        return (
            f"{self.grader} could not decide whether {self.undecided:,} of {self.answers:,} answers are right{why}; "
            f"the {responses:,} responses that give them count as wrong{again}"
        )


def grade_pool(
    pool: Pool,
    grader: Grader,
    *,
    labels: Labels | None = None,
    concurrency: int = 1,
    seconds: float | None = None,
    on_answer: Callable[[int, int], None] = lambda done, total: None,
) -> Grading:
    """Grade all responses of a pool; nothing is written.

    Each answer to a question is graded once, however many responses give it: equal answers are right together. A
    response without an answer is wrong, without asking the grader. A question without accepted answers keeps the
    verdicts that it has.

    Args:
        pool: recorded responses.
        grader: decides which answers are right.
        labels: the accepted answers of questions where they are others than the pool's.
        concurrency: answers that are graded at once, each in a thread of its own.
        seconds: the time limit of one answer; None for any time.
        on_answer: called with (done, total) distinct answers.

    Raises:
        ConfigurationError: a concurrency below 1, or a time limit that is not above 0.
        SamplingError: grading failed five times in a row, or no answer at all could be decided; most likely the judge
            cannot be reached or does not understand its prompt, and everything would count as wrong.
    """
    _check_limits(concurrency, seconds)
    labels = labels or {}
    tasks, verdicts = _tasks(pool, labels)
    failures: list[Exception] = []
    decided = 0
    outcomes = in_flight(_calls(pool, tasks, grader, labels), concurrency=concurrency, seconds=seconds)
    each = _verdicts(grader.name, outcomes, failures, patience=min(_PATIENCE, len(tasks)))
    for done, (at, verdict) in enumerate(each, start=1):
        decided += verdict is not None
        question, responses = tasks[at]
        for response in responses:
            verdicts[question.id][response] = verdict
        on_answer(done, len(tasks))
    if tasks and not decided:
        raise SamplingError(
            f"{grader.name} could not decide whether any of the {len(tasks):,} answers in {pool.path} is right; "
            "nothing was changed",
            failures,
        )
    held = {id: tuple(of_question) for id, of_question in verdicts.items()}
    return Grading(grader.name, held, len(tasks), len(tasks) - decided, tuple(failures))


def labels_from(pool: Pool, questions: Sequence[LabelledQuestion]) -> tuple[Labels, int]:
    """Return the accepted answers of a pool's questions as a file has them, and how many of those questions it lacks.

    A question is matched by its id, or else by its text.

    Raises:
        ConfigurationError: the file has none of the pool's questions, or another one under an id of the pool's.
    """
    by_id, by_text = {one.id: one for one in questions}, {one.input: one for one in questions}
    labels: dict[str, tuple[str, ...]] = {}
    for held in pool.questions:
        text = held.input if isinstance(held.input, str) else ""
        found = by_id.get(held.id) or by_text.get(text)
        if found is None:
            continue
        if text and text.strip() != found.input.strip():
            raise ConfigurationError(
                f"{pool.path} holds another question with id {held.id!r} ({text!r:.60}) than the labels "
                f"({found.input!r:.60})"
            )
        labels[held.id] = found.references
    if not labels:
        raise ConfigurationError(f"the labels are those of none of the questions in {pool.path}, by id or by text")
    return labels, len(pool.questions) - len(labels)


def check_writable(pool: Pool) -> None:
    """Refuse a pool that verdicts cannot be written into, before a judge is paid.

    Raises:
        PoolError: the file may not be written, or other rules found its answers.
    """
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

    What could not be decided is written as wrong. A reader sees the old verdicts or the new ones, never some of each.

    Raises:
        PoolError: see :func:`check_writable`; or the file holds other responses by now, or could not be written.
    """
    check_writable(pool)
    store = PoolStore.open(pool.path)
    try:
        with store.transaction():
            held = store.ids()
            if any(held.get(id) != len(verdicts) for id, verdicts in grading.verdicts.items()):
                raise PoolError(f"{pool.path} has changed while it was graded; nothing was written: grade it again")
            for id, references in (labels or {}).items():
                store.set_references(id, references)
            for id, verdicts in grading.verdicts.items():
                store.set_responses(id, [{"correct": bool(verdict)} for verdict in verdicts])
            store.set_about({"grader": grading.grader})
    finally:
        store.close()


def _check_limits(concurrency: int, seconds: float | None) -> None:
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
    if seconds is not None and not seconds > 0:
        raise ConfigurationError(f"a time limit is in seconds, above 0, got {seconds!r}")


def _tasks(pool: Pool, labels: Labels) -> tuple[list[Task], dict[str, list[bool | None]]]:
    """Return what is to be graded, and by question id the verdicts without it."""
    tasks: list[Task] = []
    verdicts = {one.id: [response.correct for response in one.responses] for one in pool.questions}
    for question in pool.questions:
        if not question.references and question.id not in labels:
            continue
        verdicts[question.id] = [False] * len(question.responses)
        giving: dict[str, list[int]] = {}
        for at, response in enumerate(question.responses):
            if response.answer is not None and response.answer.strip():
                giving.setdefault(response.answer, []).append(at)
        tasks += [(question, places) for places in giving.values()]
    return tasks, verdicts


def _calls(pool: Pool, tasks: Sequence[Task], grader: Grader, labels: Labels) -> Iterator[Callable[[], bool | None]]:
    """Yield each answer's grading; texts are read as it is begun."""
    for question, each in groupby(tasks, key=itemgetter(0)):
        texts = pool.texts(question.id)
        asked = question.input if isinstance(question.input, str) else ""
        accepted = labels.get(question.id, question.references)
        for _, (first, *_others) in each:
            yield partial(grader.grade, asked, str(question.responses[first].answer), texts[first], accepted)


def _verdicts(
    grader: str, outcomes: Iterable[tuple[int, bool | Exception | None]], failures: list[Exception], *, patience: int
) -> Iterator[tuple[int, bool | None]]:
    """Yield outcomes as verdicts, None for a failure; collect failures, and raise after too many in a row."""
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


def in_flight(
    calls: Iterable[Callable[[], T]], *, concurrency: int, seconds: float | None = None
) -> Generator[tuple[int, T | Exception], None, None]:
    """Yield what calls return or raise, with their place in the order given, as they end.

    Each runs in a thread of its own, which keeps no process alive; one that takes too long is waited for no longer, and
    the next takes its place. Nothing is begun before the first outcome is asked for.

    Args:
        calls: taken one by one, as there is room.
        concurrency: how many run at once.
        seconds: the time limit of each; None for any time.
    """
    left = iter(enumerate(calls))
    ended: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()
    until: dict[int, float] = {}  # those that run, the oldest first

    def begin() -> None:
        for at, call in islice(left, concurrency - len(until)):
            until[at] = math.inf if seconds is None else time.monotonic() + seconds
            start_daemon(partial(_run, at, call, ended), f"reasc-call-{at}")

    begin()
    while until:
        oldest, limit = next(iter(until.items()))
        try:
            at, outcome = taken_from(ended, until=None if seconds is None else limit)
        except queue.Empty:
            at, outcome = oldest, TimeoutError(f"no answer within {seconds:g} s")
        if until.pop(at, None) is None:  # it comes after its time
            continue
        if not isinstance(outcome, Exception) and isinstance(outcome, BaseException):
            raise outcome
        begin()
        yield at, outcome


def _run(at: int, call: Callable[[], T], ended: "queue.SimpleQueue[tuple[int, T | BaseException]]") -> None:
    try:
        ended.put((at, call()))
    except BaseException as error:
        ended.put((at, error))
