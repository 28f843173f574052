"""A pool graded again, by whatever says what is right, and without a new sample."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from langchain_reasc.calibration.storage import write_atomically
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, PoolError, SamplingError
from langchain_reasc.models.in_flight import in_flight
from langchain_reasc.pools.graders import Grader
from langchain_reasc.pools.pool import Pool, PoolQuestion

__all__ = ["Grading", "Labels", "grade_pool", "labels_from", "write_verdicts"]

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
        return (
            f"{self.grader} could not tell of {self.untold:,} of {self.answers:,} answers whether they are right{why}; "
            f"the {responses:,} responses that give them count as wrong"
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
    response without an answer is wrong, and nobody is asked about it.

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
    tasks = [task for question in pool.questions for task in _tasks(question)]
    verdicts: dict[str, list[bool | None]] = {one.id: [False] * len(one.responses) for one in pool.questions}
    calls = (partial(_graded, task, grader, labels or {}) for task in tasks)
    alone = concurrency == 1 and seconds is None
    outcomes = _one_by_one(calls) if alone else in_flight(calls, concurrency=concurrency, seconds=seconds)
    untold, in_a_row = 0, 0
    failures: list[Exception] = []
    for done, (at, outcome) in enumerate(outcomes, start=1):
        failed = isinstance(outcome, Exception)
        if isinstance(outcome, Exception):
            failures.append(outcome)
        in_a_row = in_a_row + 1 if failed else 0
        if in_a_row == min(_PATIENCE, len(tasks)):
            raise SamplingError(
                f"{grader.name} failed {in_a_row} times in a row, the last time with {outcome!r:.300}; nothing was "
                "changed, and what was judged before is kept: run the same command again to go on",
                failures,
            )
        verdict = None if isinstance(outcome, Exception) else outcome
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
    told = {name: tuple(each) for name, each in verdicts.items()}
    return Grading(grader.name, told, len(tasks), untold, tuple(failures))


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
            labels[held.id] = (found.reference,)
    if not labels:
        raise ConfigurationError(f"the labels are those of none of the questions in {pool.path}, by id or by text")
    return labels, len(pool.questions) - len(labels)


def write_verdicts(pool: Pool, grading: Grading, labels: Labels | None = None) -> None:
    """Write verdicts into a pool's file, with the grader's name and the accepted answers where those are others.

    What could not be told is written as wrong. A reader sees the old verdicts or the new ones, never a part.

    Raises:
        PoolError: the file cannot be read any more, holds other questions by now, or cannot be written.
    """
    try:
        text = pool.path.read_text(encoding="utf-8-sig")
        lines = [json.loads(line) for line in text.split("\n") if line.strip()]
        changed = list(_changed(lines, grading, labels or {}))
        write_atomically(pool.path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in changed))
    except (ValueError, KeyError) as error:
        raise PoolError(f"{pool.path} has changed while it was graded ({error!r}); nothing was written") from error
    except OSError as error:
        raise PoolError(f"cannot write the verdicts into {pool.path}: {error.strerror or error}") from error


def _tasks(question: PoolQuestion) -> Iterator[_Task]:
    giving: dict[str, list[int]] = {}
    for at, one in enumerate(question.responses):
        if one.answer is not None and one.answer.strip():
            giving.setdefault(one.answer, []).append(at)
    yield from (_Task(question, answer, tuple(responses)) for answer, responses in giving.items())


def _graded(task: _Task, grader: Grader, labels: Labels) -> bool | None:
    question = task.question
    return grader.grade(
        question.input if isinstance(question.input, str) else "",
        task.answer,
        question.responses[task.responses[0]].text,
        labels.get(question.id, (question.reference,)),
    )


def _one_by_one(
    calls: Iterator[Callable[[], bool | None]],
) -> Iterator[tuple[int, bool | Exception | None]]:
    for at, call in enumerate(calls):
        try:
            outcome: bool | Exception | None = call()
        except Exception as error:
            outcome = error
        yield at, outcome


def _changed(lines: list[dict[str, Any]], grading: Grading, labels: Labels) -> Iterator[dict[str, Any]]:
    metadata = lines.pop(0) if "responses" not in lines[0] else {"metadata": {}}
    yield metadata | {"metadata": metadata["metadata"] | {"grader": grading.grader}}
    for line in lines:
        verdicts = grading.verdicts[str(line["id"])]
        told = zip(line["responses"], verdicts, strict=True)
        responses = [response | {"correct": bool(verdict)} for response, verdict in told]
        reference = labels.get(str(line["id"]), (line["reference"],))[0]
        yield line | {"reference": reference, "responses": responses}
