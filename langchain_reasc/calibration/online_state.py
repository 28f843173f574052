"""What ``calibration="online"`` has learned, on disk: integers and scores, and never a text."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from langchain_reasc.calibration.consensus import Observed
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.files import write_atomically
from langchain_reasc.method.confidence import Measure
from langchain_reasc.untrusted import read_text

__all__ = ["ObservedQuestion", "OnlineState", "OnlineStateFile", "load_online_state", "save_online_state"]

_DIGITS: Final = 6  # significant ones, of a score
_WAIT: Final = 30.0  # seconds, for another process that writes
Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ObservedQuestion(_Record):
    """An :class:`~langchain_reasc.calibration.consensus.Observed` as JSON."""

    answers: tuple[Count | None, ...] = Field(min_length=1, description="Equal numbers for equal answers, none: null.")
    scores: tuple[tuple[FiniteFloat | None, ...], ...] = Field(description="For each measure those of all responses.")
    counted: bool = Field(description="Whether votes were counted (ASC), and not what was learned decided.")

    @classmethod
    def of(cls, question: Observed, rows: Sequence[int]) -> "ObservedQuestion":
        """The same with the scores of some measures, to six digits."""
        kept = question.scores[list(rows)].tolist()
        scores = (tuple(float(f"{x:.{_DIGITS}g}") if x == x else None for x in row) for row in kept)
        return cls.model_construct(answers=question.answers, scores=tuple(scores), counted=question.counted)

    def observed(self, rows: Sequence[int | None], measures: int) -> Observed:
        """The same with scores of shape (measures, responses); those read go to these rows, or with None nowhere."""
        scores = np.full((measures, len(self.answers)), np.nan)
        for row, values in zip(rows, self.scores, strict=True):
            if row is not None:
                scores[row] = np.array(values, dtype=np.float64)
        return Observed(self.answers, scores, counted=self.counted)


class OnlineState(_Record):
    """All of it: questions as sampling left them, what was made of them, and how far they drift."""

    kind: Literal["reasc-online"] = "reasc-online"
    schema_version: Literal[1] = 1
    fingerprint: Fingerprint
    measures: tuple[tuple[str, str, int], ...] = Field(
        description="Signal, score and window behind each row of scores."
    )
    made_of: dict[str, dict[str, int | None]] = Field(description="Signal -> the k and V behind its scores.")
    seen: Count = Field(description="Questions since it began, or began anew.")
    fitted: Count = Field(description="How many of them there were at the last calibration.")
    alarms: Count = Field(description="How often it began anew, because responses agreed otherwise than was learned.")
    drift: tuple[tuple[Annotated[FiniteFloat, Field(ge=0)], ...], ...] = Field(
        description="State of the monitors: of questions that went on, and of audits."
    )
    calibration: Calibration | None
    questions: tuple[ObservedQuestion, ...]

    @model_validator(mode="after")
    def _of_one_shape(self) -> Self:
        for at, question in enumerate(self.questions):
            shape = [len(row) for row in question.scores]
            if shape != [len(question.answers)] * len(self.measures):
                raise ValueError(
                    f"question {at} has {len(question.answers)} answers and scores of lengths {shape}, by "
                    f"{len(self.measures)} measures"
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
        """As :func:`load_online_state`."""
        self._known = self._version()
        return load_online_state(self.path)

    def update(self, merged: Callable[[OnlineState | None], OnlineState]) -> None:
        """Write what ``merged`` makes of what others have written since; of None where nobody has.

        Raises:
            CalibrationFileError: the file cannot be locked, read or written; what was there before is untouched.
        """
        with self._locked():
            now = self._version()
            others = load_online_state(self.path) if now not in (None, self._known) else None
            save_online_state(merged(others), self.path)
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
                connection = sqlite3.connect(lock, timeout=_WAIT, isolation_level=None)
            except sqlite3.Error as error:
                raise CalibrationFileError(f"cannot write online_state to {self.path}: {lock}: {error}") from error
            with closing(connection):
                try:
                    connection.execute("BEGIN EXCLUSIVE")
                except sqlite3.Error as error:
                    raise CalibrationFileError(
                        f"cannot write online_state to {self.path}: another process has locked it by {lock} for "
                        f"{_WAIT:g} seconds, or it cannot be locked ({error}); it is tried again"
                    ) from error
                yield


# A child that is forked while SQLite holds a lock would take it for its own connection's, and wait for ever.
_NOT_WHILE_FORKING: Final = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_NOT_WHILE_FORKING.acquire,
        after_in_parent=_NOT_WHILE_FORKING.release,
        after_in_child=_NOT_WHILE_FORKING.release,
    )


def save_online_state(state: OnlineState, path: str | os.PathLike[str]) -> None:
    """Write it, a question a line. A reader sees the old file or the new one.

    Raises:
        CalibrationFileError: the file cannot be written; what was there before is untouched.
    """
    head = state.model_dump_json(exclude={"questions"}, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(question.model_dump(mode='json'))}" for question in state.questions)
    try:
        write_atomically(Path(path), f'{head},\n "questions": [\n{lines}\n ]\n}}\n')
    except OSError as error:
        raise CalibrationFileError(f"cannot write online_state to {path}: {error.strerror or error}") from error


def load_online_state(path: str | os.PathLike[str]) -> OnlineState | None:
    """Read and validate it; None where there is no such file, which is how it begins.

    Raises:
        CalibrationFileError: it cannot be read, is something else, or its folder does not exist.
    """
    source = Path(path)
    try:
        text = read_text(source)
    except FileNotFoundError:
        if not source.absolute().parent.is_dir():
            raise CalibrationFileError(f"online_state={str(path)!r}: there is no folder {source.parent}") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationFileError(f"cannot read online_state={str(path)!r}: {error}") from error
    try:
        return OnlineState.model_validate_json(text)
    except (ValidationError, ValueError) as error:
        found = findings(error, whole="the file", values=False) if isinstance(error, ValidationError) else [str(error)]
        raise CalibrationFileError(
            f"online_state={str(path)!r} is not what calibration='online' has written ({found[0]}); name another file, "
            "or move this one away to begin anew"
        ) from None
