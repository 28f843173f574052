"""The file of ``calibration="online"``: all that was learned, which several processes may read and write."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from langchain_reasc.calibration.observed import Count, MadeOf, ObservedQuestion
from langchain_reasc.calibration.record import Calibration, Fingerprint, Record, read_record
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.files import write_atomically
from langchain_reasc.method.confidence import Measure

__all__ = ["OnlineState", "OnlineStateFile"]

_WAIT: Final = 30.0  # seconds, for another process that writes


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
        alarms: how often it began anew, because responses agreed otherwise than was learned.
        drift: state of the monitors: of questions that went on, and of audits.
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
