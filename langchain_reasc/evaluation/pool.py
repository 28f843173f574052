"""Pools: recorded responses, from which every method can be replayed without the model.

A pool is JSON Lines: optionally ``{"metadata": {...}}``, then one question a line::

    {"id": "q1", "input": "...", "reference": "42", "responses": [
        {"text": "...", "answer": "42", "score": 11.2, "prompt_tokens": 30, "completion_tokens": 64,
         "finish_reason": "stop", "correct": true}, ...]}

Of a response only ``answer`` (null: none found) and ``completion_tokens`` are required; unknown keys are ignored, so
that pools made by others can be read. Token signals may lie beside it (see :mod:`.signals_file`).
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from langchain_reasc.answers import normalize
from langchain_reasc.evaluation.signals_file import PoolSignals, load_signals, signals_path
from langchain_reasc.exceptions import PoolError

__all__ = ["Pool", "PoolQuestion", "PoolResponse", "read_pool"]

Count = Annotated[int, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)


class PoolResponse(_Line):
    """One recorded response. Its answer is normalized when it is read."""

    answer: str | None = Field(description="The answer found in the response; null when there is none.")
    completion_tokens: Count = Field(description="Tokens generated.")
    text: str | None = None
    score: FiniteFloat | None = Field(None, description="S(y); null when no confidence could be read.")
    prompt_tokens: Count | None = None
    finish_reason: str | None = None
    correct: bool | None = Field(None, description="Whether it is right; from answer and reference when absent.")


class PoolQuestion(_Line):
    """A question with its responses in the order in which they were drawn."""

    id: str
    reference: str
    responses: Annotated[tuple[PoolResponse, ...], Field(min_length=1)]
    input: Any = None


@dataclass(frozen=True)
class Pool:
    """Recorded responses to a set of questions.

    Attributes:
        path: the file it was read from.
        questions: in recorded order; answers normalized, ``correct`` filled in.
        metadata: of the first line; empty where there is none.
        signals_files: where its token signals lie; none where it has none.
        notes: what the reader of a result should know of this pool, such as what cannot be computed from it.
    """

    path: Path
    questions: tuple[PoolQuestion, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    signals_files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def signals(self) -> PoolSignals | None:
        """Token signals of every question, or None where the file beside the pool is absent.

        Raises:
            PoolError: that file is damaged, or does not fit the pool.
        """
        if not self.signals_files:
            return None
        records = {id: record for path in self.signals_files for id, record in load_signals(path).records.items()}
        signals = PoolSignals(
            self.signals_files[-1],
            {question.id: records[question.id] for question in self.questions if question.id in records},
        )
        signals.check({question.id: len(question.responses) for question in self.questions})
        return signals

    @property
    def has_scores(self) -> bool:
        """Whether any response carries a recorded score."""
        return any(response.score is not None for response in self._responses())

    @property
    def has_prompt_tokens(self) -> bool:
        """Whether every response says how long its prompt was."""
        return all(response.prompt_tokens is not None for response in self._responses())

    def __add__(self, other: "Pool") -> "Pool":
        """This pool's questions, then the other's.

        Raises:
            PoolError: both hold a question with the same id.
        """
        if shared := {q.id for q in self.questions} & {q.id for q in other.questions}:
            raise PoolError(f"{self.path} and {other.path} both hold question {min(shared)!r}")
        return Pool(
            other.path,
            self.questions + other.questions,
            other.metadata,
            self.signals_files + other.signals_files,
            tuple(dict.fromkeys(self.notes + other.notes)),
        )

    def _responses(self) -> Iterator[PoolResponse]:
        return (response for question in self.questions for response in question.responses)


def read_pool(path: str | os.PathLike[str]) -> Pool:
    """Read and validate a pool.

    A last line that was cut off (the recorder was killed) is dropped, with a note.

    Raises:
        PoolError: missing or unreadable file, a line that is not a question, the same id twice, or no question at all;
            it names the file, the line and the field.
    """
    source = Path(path)
    metadata, records, notes = _records(source)
    questions: dict[str, PoolQuestion] = {}
    for number, record in records:
        question = _question(record, source, number)
        if question.id in questions:
            raise PoolError(f"{source}, line {number}: id {question.id!r} appears a second time; ids must be unique")
        questions[question.id] = question
    if not questions:
        raise PoolError(f"{source} holds no question; record one with `reasc record`, one JSON object a line")
    beside = signals_path(source)
    pool = Pool(source, tuple(questions.values()), metadata, (beside,) if beside.exists() else ())
    return replace(pool, notes=(*notes, *_missing(pool)))


def _records(source: Path) -> tuple[dict[str, Any], list[tuple[int, Any]], tuple[str, ...]]:
    """The metadata, the (line number, object) pairs after it, and a note where the last line was cut off."""
    metadata: dict[str, Any] = {}
    records: list[tuple[int, Any]] = []
    lines = _text(source).split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline after it: the recorder was killed while writing it
                note = f"the last line of {source.name} is cut off and was dropped; `reasc record` completes it"
                return metadata, records, (note,)
            raise PoolError(
                f"{source}, line {number} is not valid JSON: {error.msg} at column {error.colno}; "
                "a pool has one JSON object a line"
            ) from None
        if not records and not metadata and _is_metadata(record):
            metadata = _checked_metadata(record["metadata"], source, number)
        else:
            records.append((number, record))
    return metadata, records, ()


def _text(source: Path) -> str:
    try:
        data = source.read_bytes()
    except FileNotFoundError:
        raise PoolError(f"no pool at {source}; record one with `reasc record`") from None
    except OSError as error:
        raise PoolError(f"cannot read the pool {source}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.find(b"\n", error.start) < 0:  # cut off in the middle of a character
            return data[: error.start].decode("utf-8-sig")
        line = data.count(b"\n", 0, error.start) + 1
        raise PoolError(f"{source}, line {line} is not UTF-8 text ({error.reason}); save the pool as UTF-8") from None


def _is_metadata(record: Any) -> bool:
    return isinstance(record, dict) and "metadata" in record and "responses" not in record


def _checked_metadata(metadata: Any, source: Path, number: int) -> dict[str, Any]:
    if not isinstance(metadata, dict):
        raise PoolError(f"{source}, line {number}: metadata must be a JSON object, got {metadata!r:.60}")
    return metadata


def _question(record: Any, source: Path, number: int) -> PoolQuestion:
    if not isinstance(record, dict):
        raise PoolError(
            f"{source}, line {number}: a question is a JSON object with id, reference and responses, got {record!r:.60}"
        )
    try:
        question = PoolQuestion.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PoolError(f"{source}, line {number}: {_explained(first)}") from None
    reference = normalize(question.reference)
    return question.model_copy(
        update={"responses": tuple(_graded(response, reference) for response in question.responses)}
    )


def _explained(error: Any) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    if error["type"] == "missing":
        hint = "; write null where no answer was found" if where.endswith("answer") else ""
        return f"{where} is missing{hint}"
    if where == "responses" and error["type"] == "too_short":
        return "responses is empty; leave out a question without responses"
    return f"{where}: {error['msg']}, got {error['input']!r:.60}"


def _graded(response: PoolResponse, reference: str) -> PoolResponse:
    answer = None if response.answer is None or not response.answer.strip() else normalize(response.answer)
    right = answer == reference if response.correct is None else response.correct
    return response.model_copy(update={"answer": answer, "correct": answer is not None and right})


def _missing(pool: Pool) -> Sequence[str]:
    """One message for the whole pool that says what cannot be computed."""
    lacking = []
    if not pool.has_scores and not pool.signals_files:
        lacking.append("no scores or token signals, so ReASC cannot be replayed (only the methods that count votes)")
    if not pool.has_prompt_tokens:
        lacking.append("no prompt tokens, so only generated tokens are counted")
    return [f"{pool.path.name} has " + ", and ".join(lacking)] if lacking else []
