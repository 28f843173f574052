"""Pools as JSON Lines: those of earlier recordings, and those that others make.

Optionally ``{"metadata": {...}}``, then one question a line::

    {"id": "q1", "input": "...", "reference": "42", "responses": [
        {"text": "...", "answer": "42", "score": 11.2, "prompt_tokens": 30, "completion_tokens": 64,
         "finish_reason": "stop", "cut_off": false, "correct": true}, ...]}

Of a response only ``answer`` (null: none found) and ``completion_tokens`` are required; unknown keys are ignored.
``reference`` may be a list of accepted answers, or null where nobody knows it. Metadata that names an
``extraction_version`` says that answers are normalized, and by which rules they were found. Token signals may lie
beside it (:mod:`.signals_file`); then ``"answer_span": [57, 60]`` and ``"last_step": [31, 57]`` of a response say which
of its tokens spell the answer, and which are the last step before it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from langchain_reasc.answers import normalize
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools.signals_file import signals_in, signals_path
from langchain_reasc.pools.store import PoolStore, StoredMessage, StoredQuestion, StoredResponse
from langchain_reasc.pools.stored import as_stored
from langchain_reasc.untrusted import open_file, parse_json

__all__ = ["take_in"]

Count = Annotated[int, Field(ge=0, lt=2**63)]  # as SQLite has it
_HINTS: Final = {
    "answer is missing": "write null where no answer was found",
    "reference is missing": "write null where nobody knows it",
    "responses is missing": "`reasc record` makes a pool of questions",
    "responses is empty": "leave out a question without responses",
}
"""How a finding ends -> what to do."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)


class _Response(_Line):
    answer: str | None
    completion_tokens: Count
    text: str | None = None
    score: FiniteFloat | None = None
    prompt_tokens: Count | None = None
    finish_reason: str | None = None
    cut_off: bool = False
    message: Any = None
    correct: bool | None = None
    answer_span: tuple[Count, Count] | None = None
    last_step: tuple[Count, Count] | None = None
    seconds: FiniteFloat | None = None
    usage: dict[str, Any] | None = None
    token_lengths: list[int] | None = None


class _Question(_Line):
    id: str
    responses: Annotated[tuple[_Response, ...], Field(min_length=1)]
    reference: str | list[str] | None
    input: Any = None


def take_in(source: Path, store: PoolStore) -> list[str]:
    """Write a pool of JSON Lines, and the signals beside it, into a store, one question after another.

    A last line that was cut off (the recorder was killed) is left out.

    Returns:
        What its reader should know, in words.

    Raises:
        PoolError: a line is no question, or an id appears twice, with file, line and field; or the signals beside it
            are damaged or belong to something else.
    """
    notes: list[str] = []
    counts: dict[str, int] = {}
    with store.transaction():
        metadata: dict[str, Any] = {}
        for number, record in _records(source, notes):
            if not counts and not metadata and _is_metadata(record):
                metadata = _checked_metadata(record["metadata"], source, number)
                store.set_about(metadata)
                continue
            question = _question(record, source, number, normalized="extraction_version" in metadata)
            if question.id in counts:
                raise PoolError(
                    f"{source}, line {number}: id {question.id!r} appears a second time; ids must be unique"
                )
            counts[question.id] = len(question.responses)
            store.add(question)
        if counts and (beside := signals_path(source)).exists():
            _take_in_signals(beside, store, counts)
    return notes


def _records(source: Path, notes: list[str]) -> Iterator[tuple[int, Any]]:
    """(line number, object) pairs, and a note where the last line was cut off."""
    try:
        with open_file(source) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip(b"\xef\xbb\xbf \t\r\n"):
                    continue
                try:
                    yield number, parse_json(line.decode("utf-8-sig"))
                except ValueError as error:  # not JSON, or not UTF-8
                    if not line.endswith(b"\n"):  # the recorder was killed while writing it
                        notes.append(f"the last line of {source.name} (line {number}) is cut off and was left out")
                        return
                    no_pool = "; if it holds questions, `reasc record` makes a pool of them" if number == 1 else ""
                    raise PoolError(f"{source}, line {number} is {_no_json(error)}{no_pool}") from None
    except OSError as error:
        raise PoolError(f"cannot read the pool {source}: {error.strerror or error}") from error


def _no_json(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at column {error.colno}; a pool has one JSON object a line"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text ({error.reason}); a pool of JSON Lines is saved as UTF-8"
    return f"no JSON that can be read: {error}"


def _is_metadata(record: Any) -> bool:
    return isinstance(record, dict) and "metadata" in record and "responses" not in record


def _checked_metadata(metadata: Any, source: Path, number: int) -> dict[str, Any]:
    if not isinstance(metadata, dict):
        raise PoolError(f"{source}, line {number}: metadata must be a JSON object, got {metadata!r:.60}")
    return metadata


def _question(record: Any, source: Path, number: int, *, normalized: bool) -> StoredQuestion:
    if not isinstance(record, dict):
        raise PoolError(
            f"{source}, line {number}: a question is a JSON object with id, reference and responses, got {record!r:.60}"
        )
    try:
        line = _Question.model_validate(record)
    except ValidationError as error:
        raise PoolError(f"{source}, line {number}: {_hinted(findings(error)[0])}") from None
    if as_stored(line.id) != line.id:
        raise PoolError(f"{source}, line {number}: id {line.id!r} has half a character in it; correct it")
    accepted = [line.reference] if isinstance(line.reference, str) else list(line.reference or ())
    return StoredQuestion(
        line.id, line.input, accepted, [_response(one, normalized=normalized) for one in line.responses]
    )


def _response(line: _Response, *, normalized: bool) -> StoredResponse:
    columns = line.model_dump(exclude={"text", "message", "usage", "token_lengths"})
    if not normalized:  # to do so again would change what is no text, such as the arguments of a tool call
        columns["answer"] = normalize(line.answer) if line.answer and line.answer.strip() else None
    return StoredResponse(columns, StoredMessage(line.text, line.message, line.usage, line.token_lengths))


def _hinted(finding: str) -> str:
    hint = next((hint for end, hint in _HINTS.items() if finding.endswith(end)), None)
    return finding if hint is None else f"{finding}; {hint}"


def _take_in_signals(beside: Path, store: PoolStore, counts: dict[str, int]) -> None:
    missing = set(counts)
    for question, responses in signals_in(beside):
        if question not in counts:  # the recorder was killed before it wrote the question itself
            continue
        if len(responses) != counts[question]:
            raise PoolError(
                f"{beside} has signals of {len(responses)} responses for question {question!r}, the pool has "
                f"{counts[question]}; they were not recorded together"
            )
        store.set_signals(question, responses)
        missing.discard(question)
    if missing:
        raise PoolError(
            f"{beside} has no token signals for question {min(missing)!r}; record it again, or move the signals file "
            "away to replay without them"
        )
