"""Reading a pool: every line checked, every answer normalized and graded."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from langchain_reasc.answers import EXTRACTION_VERSION, extractor, normalize
from langchain_reasc.pools.extraction import extracted_again
from langchain_reasc.pools.pool import Pool, PoolQuestion
from langchain_reasc.pools.signals_file import signals_path
from langchain_reasc.exceptions import PoolError, ReASCError

__all__ = ["read_pool", "read_stored"]


def read_pool(path: str | os.PathLike[str]) -> Pool:
    """Read and validate a pool; where it names other extraction rules than ours, find its answers again.

    A last line that was cut off (the recorder was killed) is dropped, with a note.

    Raises:
        PoolError: missing or unreadable file, a line that is not a question, the same id twice, or no question at all;
            it names the file, the line and the field. Or answers that would have to be found again, and cannot be.
    """
    pool = extracted_again(read_stored(path))
    spelled = _speller(pool.metadata)
    graded = tuple(_graded(question, spelled) for question in pool.questions)
    return replace(pool, questions=graded, notes=(*pool.notes, *_missing(pool)))


def read_stored(path: str | os.PathLike[str]) -> Pool:
    """The pool as it stands in the file, ``correct`` not filled in; errors as for :func:`read_pool`."""
    source = Path(path)
    metadata, records, notes = _records(source)
    normalized = "extraction_version" in metadata
    questions: dict[str, PoolQuestion] = {}
    for number, record in records:
        question = _question(record, source, number, normalized=normalized)
        if question.id in questions:
            raise PoolError(f"{source}, line {number}: id {question.id!r} appears a second time; ids must be unique")
        questions[question.id] = question
    if not questions:
        raise PoolError(f"{source} holds no question; record one with `reasc record`, one JSON object a line")
    beside = signals_path(source)
    return Pool(source, tuple(questions.values()), metadata, (beside,) if beside.exists() else (), notes)


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


def _question(record: Any, source: Path, number: int, *, normalized: bool) -> PoolQuestion:
    if not isinstance(record, dict):
        raise PoolError(
            f"{source}, line {number}: a question is a JSON object with id, reference and responses, got {record!r:.60}"
        )
    try:
        question = PoolQuestion.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PoolError(f"{source}, line {number}: {_explained(first)}") from None
    if normalized:  # to do so again would change what is no text, such as the arguments of a tool call
        return question
    answers = [(one, one.answer) for one in question.responses]
    spelled = (one.model_copy(update={"answer": normalize(a) if a and a.strip() else None}) for one, a in answers)
    return question.model_copy(update={"responses": tuple(spelled)})


def _explained(error: Any) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    if error["type"] == "missing":
        hint = "; write null where no answer was found" if where.endswith("answer") else ""
        return f"{where} is missing{hint}"
    if where == "responses" and error["type"] == "too_short":
        return "responses is empty; leave out a question without responses"
    return f"{where}: {error['msg']}, got {error['input']!r:.60}"


def _speller(metadata: dict[str, Any]) -> Callable[[str], str]:
    """How a label is spelled to be compared with answers: as by what found them, where the pool says what did."""
    spec = metadata.get("answer")
    if "extraction_version" not in metadata or not isinstance(spec, str):
        return normalize
    try:
        return extractor(spec).label
    except ReASCError:  # an extra that is not installed here
        return normalize


def _graded(question: PoolQuestion, spelled: Callable[[str], str]) -> PoolQuestion:
    reference = spelled(question.reference)
    rights = (one.answer == reference if one.correct is None else one.correct for one in question.responses)
    graded = (
        one.model_copy(update={"correct": one.answer is not None and right})  # no answer is never right
        for one, right in zip(question.responses, rights, strict=True)
    )
    return question.model_copy(update={"responses": tuple(graded)})


def _missing(pool: Pool) -> Iterator[str]:
    """What cannot be computed from this pool, in one message; and which of its answers nobody can vouch for."""
    lacking = []
    if not pool.has_scores and not pool.signals_files:
        lacking.append("no scores or token signals, so ReASC cannot be replayed (only the methods that count votes)")
    if not pool.has_prompt_tokens:
        lacking.append("no prompt tokens, so only generated tokens are counted")
    if lacking:
        yield f"{pool.path.name} has " + ", and ".join(lacking)
    if "answer" in pool.metadata and "extraction_version" not in pool.metadata:  # an earlier recorder of ours
        yield (
            f"{pool.path.name} does not say by which version of the extraction rules its answers were found (here is "
            f"version {EXTRACTION_VERSION}); they are taken as they stand, and `reasc record` finds them again"
        )
