"""One question as an observation (which responses agree, and their scores), and the file of learned state.

No text is kept. The file of ``calibration="online"`` may be read and written by several processes.
"""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat, model_validator

from langchain_reasc.calibration.record import Calibration, Fingerprint, Record, read_record
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.files import write_atomically
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Response

__all__ = [
    "Drift",
    "MadeOf",
    "Observed",
    "ObservedQuestion",
    "OnlineState",
    "OnlineStateFile",
    "agrees_with_majority",
]

_DIGITS: Final = 6  # significant ones, of a score
_WAIT: Final = 30.0  # seconds, for another process that writes
Count = Annotated[int, Field(ge=0)]
Drift = Literal["agreement", "confidence"]
"""What is no longer as was learned: how responses agree, or what their scores tell."""
MadeOf = dict[str, dict[str, int | None]]
"""Signal -> the ``top_k`` and ``vocabulary_size`` that its scores are made of."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One question to learn from.

    Attributes:
        answers: in launch order; equal numbers for equal answers, None for a response without one.
        scores: shape (measures, responses), S(y) by each candidate measure; NaN where there is none.
        right: whether each response is right, where that is known; () without a label.
        counted: whether votes were counted when it was sampled (ASC, or a budget), so that its answer shows what
            counting says.
        decided: responses that the decision rests on; those after it are audits.
        answer: the answer that was decided on.
    """

    answers: tuple[int | None, ...]
    scores: npt.NDArray[np.float64]
    right: tuple[bool | None, ...] = ()
    counted: bool = True
    decided: int = 0
    answer: int | None = None

    @property
    def labelled(self) -> list[bool | None]:
        """Whether each response that votes is right, by its label alone."""
        right = self.right or (None,) * len(self.answers)
        return [known if answer is not None else None for known, answer in zip(right, self.answers, strict=True)]

    @property
    def judged(self) -> list[bool | None]:
        """Whether each response is right by its label, or else by the consensus of the others."""
        pairs = zip(self.labelled, agrees_with_majority(self.answers), strict=True)
        return [agrees if known is None else known for known, agrees in pairs]

    def responses(self, measure: int | None) -> list[Response]:
        """Return what a rule reads, scored by the measure of this number; None scores none."""
        scores = np.full(len(self.answers), np.nan) if measure is None else self.scores[measure]
        return [
            Response(None if answer is None else str(answer), float(score) if np.isfinite(score) else None)
            for answer, score in zip(self.answers, scores, strict=True)
        ]


def agrees_with_majority(answers: Sequence[int | None]) -> list[bool | None]:
    """Return whether each response gives the answer that most of the others give.

    None for a response without an answer, without others, or with one of several leading answers.
    """
    agrees: list[bool | None] = []
    for at, own in enumerate(answers):
        others = Counter(answer for place, answer in enumerate(answers) if place != at and answer is not None)
        most = max(others.values(), default=0)
        leading = [answer for answer, count in others.items() if count == most]
        unknown = own is None or not others or (own in leading and len(leading) > 1)
        agrees.append(None if unknown else own in leading)
    return agrees


class ObservedQuestion(Record):
    """An :class:`Observed` as JSON: integers and scores, and never a text.

    Attributes:
        answers: equal numbers for equal answers, none: null.
        scores: for each measure those of all responses.
        counted: whether votes were counted (ASC), and not what was learned decided.
    """

    answers: tuple[Count | None, ...] = Field(min_length=1)
    scores: tuple[tuple[FiniteFloat | None, ...], ...]
    counted: bool

    @staticmethod
    def of(question: Observed, rows: Sequence[int]) -> "ObservedQuestion":
        """Return the question with the scores of these measures, to six digits."""
        kept = question.scores[list(rows)].tolist()
        scores = tuple(tuple(float(f"{x:.{_DIGITS}g}") if x == x else None for x in row) for row in kept)
        return ObservedQuestion.model_construct(answers=question.answers, scores=scores, counted=question.counted)

    def fits(self, measures: int) -> bool:
        """Whether it has a score of each response by so many measures."""
        return [len(row) for row in self.scores] == [len(self.answers)] * measures

    def observed(self, rows: Sequence[int | None], measures: int) -> Observed:
        """Return it with scores of shape (measures, responses); row i goes to ``rows[i]``, None: nowhere."""
        scores = np.full((measures, len(self.answers)), np.nan)
        for row, values in zip(rows, self.scores, strict=True):
            if row is not None:
                scores[row] = np.array(values, dtype=np.float64)
        return Observed(self.answers, scores, counted=self.counted)


class OnlineState(Record):
    """All that was learned: questions as sampling left them, the calibration made of them, and how far they drift.

    Attributes:
        kind: says what the file is.
        schema_version: 1.
        fingerprint: what it was measured on.
        measures: signal, score, window behind each row of scores.
        made_of: signal -> the k and V behind its scores.
        seen: questions since it began, or began anew.
        fitted: how many of them there were at the last calibration.
        alarms: how often it began anew, because what was learned no longer held.
        drifted: what did not hold the last time.
        drift: state of the monitors: of questions that went on, of audits, and of what scores tell.
        calibration: the latest one.
        questions: the last of them.
    """

    kind: Literal["reasc-online"] = "reasc-online"
    schema_version: Literal[1] = 1
    fingerprint: Fingerprint
    measures: tuple[tuple[str, str, int], ...]
    made_of: MadeOf
    seen: Count
    fitted: Count
    alarms: Count
    drifted: Drift | None = None
    drift: tuple[tuple[Annotated[FiniteFloat, Field(ge=0)], ...], ...]
    calibration: Calibration | None
    questions: tuple[ObservedQuestion, ...]

    @model_validator(mode="after")
    def _of_one_shape(self) -> Self:
        for at, question in enumerate(self.questions):
            if not question.fits(len(self.measures)):
                raise ValueError(
                    f"question {at} has {len(question.answers)} answers and scores of lengths "
                    f"{[len(row) for row in question.scores]}, by {len(self.measures)} measures"
                )
        for measure in self.measures:
            Measure(*measure)
        return self


class OnlineStateFile:
    """The file where online learning is kept; several processes may write it, each after reading what others wrote.

    Beside it lies an empty file, ``NAME.lock``. The lock is SQLite's, which the operating system takes back from a
    process that is killed.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._known: tuple[int, ...] | None = None  # the version last read or written

    def load(self) -> OnlineState | None:
        """Read and validate the state; None where there is no such file, which is how it begins.

        Raises:
            CalibrationFileError: it cannot be read, is something else, or its folder does not exist.
        """
        version = self._version()
        state = self._read()
        self._known = version
        return state

    def _read(self) -> OnlineState | None:
        what = f"online_state={str(self.path)!r}"
        advice = "name another file, or move this one away to begin anew"
        try:
            return read_record(OnlineState, self.path, what, advice, values=False)
        except FileNotFoundError:
            if not self.path.absolute().parent.is_dir():
                raise CalibrationFileError(f"{what}: there is no folder {self.path.parent}") from None
            return None

    def update(self, merge: Callable[[OnlineState | None], OnlineState]) -> None:
        """Write what ``merge`` makes of what others have written since; of None where nobody has. A question a line.

        Raises:
            CalibrationFileError: the file cannot be locked, read or written; what was there before is untouched.
        """
        with self._locked():
            state = merge(self._read() if self._version() not in (None, self._known) else None)
            head = state.model_dump_json(exclude={"questions"}, indent=1).removesuffix("\n}")
            lines = ",\n".join(f"  {json.dumps(question.model_dump(mode='json'))}" for question in state.questions)
            try:
                write_atomically(self.path, f'{head},\n "questions": [\n{lines}\n ]\n}}\n')
            except OSError as error:
                why = error.strerror or error
                raise CalibrationFileError(f"cannot write online_state to {self.path}: {why}") from error
            self._known = self._version()

    def _version(self) -> tuple[int, ...] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    @contextmanager
    def _locked(self) -> Iterator[None]:
        import sqlite3

        target = self.path.resolve()
        lock = target.with_name(f"{target.name}.lock")
        with _NOT_WHILE_FORKING:
            try:
                with closing(sqlite3.connect(lock, timeout=_WAIT, isolation_level=None)) as connection:
                    connection.execute("BEGIN EXCLUSIVE")
                    yield
            except sqlite3.Error as error:
                raise CalibrationFileError(
                    f"cannot write online_state to {self.path}: {lock} cannot be locked, another process may have held "
                    f"it for {_WAIT:g} seconds ({error}); it is tried again"
                ) from error


# A child that is forked while SQLite holds a lock would take it for its own connection's, and wait for ever.
_NOT_WHILE_FORKING: Final = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_NOT_WHILE_FORKING.acquire,
        after_in_parent=_NOT_WHILE_FORKING.release,
        after_in_child=_NOT_WHILE_FORKING.release,
    )
