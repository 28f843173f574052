"""Pools as JSON Lines (``.jsonl``, ``.jsonl.gz``), to import those that other programs
write, and to export ours.

Optionally ``{"metadata": {...}}``, then one question a line::

    {"id": "q1", "input": "...", "reference": "42", "responses": [
        {"text": "...", "answer": "42", "score": 11.2, "prompt_tokens": 30, "completion_tokens": 64,
         "finish_reason": "stop", "cut_off": false, "correct": true}, ...]}

Of a response only ``answer`` (null: none found) and ``completion_tokens`` (null: not
reported, and estimated from the text; 1 without a text) are required; unknown keys are
ignored. ``reference`` may be a list of accepted answers, or null where it is not known.
``question_key`` names a question in all recordings of it; it becomes the id. Metadata
that names an ``extraction_version`` says that answers are normalized, and by which
rules they were found.

Token signals lie beside it, ``pool.signals.gz`` beside ``pool.jsonl``: gzip members of
one JSON line each,
``{"id", "lengths", "signals"}``, where the lengths are the tokens of each response, and
the signals are name -> base64 of the responses' float32 values, little-endian,
concatenated.
A member cut off by a kill is left out, and of two with one id the later one counts.
``"answer_span": [57, 60]`` and ``"last_step": [31, 57]`` of a response say which of its
tokens spell the answer, and which are the last step before it.
"""

import base64
import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from langchain_reasc.answers import written
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import PoolError
from langchain_reasc.files import is_cut_off, open_file, parse_json
from langchain_reasc.models.usage import tokens_of_text
from langchain_reasc_lab.pools.copying import WholeQuestion, new_path, whole_questions
from langchain_reasc_lab.pools.store import (
    Message,
    PoolQuestion,
    PoolResponse,
    PoolStore,
    storable,
)

# bytes of the signals of a question; they take a few thousand a response
_LONGEST: Final = 256 << 20
_MESSAGE: Final = {
    "text": "text",
    "message": "beside",
    "usage": "usage",
    "token_lengths": "token_lengths",
}
"""The keys of a response that are kept in its message -> their names there."""
_HINTS: Final = {
    "answer is missing": "write null where no answer was found",
    "completion_tokens is missing": "write null where it was not reported",
    "reference is missing": "write null where it is not known",
    "responses is missing": "`reasc record` makes a pool of questions",
    "responses is empty": "leave out a question without responses",
}
"""How a finding ends -> what to do."""
_Count = Annotated[int, Field(ge=0, lt=2**63)]  # as SQLite stores it


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)


class _Response(_Record):
    answer: str | None
    completion_tokens: _Count | None
    text: str | None = None
    score: FiniteFloat | None = None
    prompt_tokens: _Count | None = None
    finish_reason: str | None = None
    cut_off: bool = False
    message: Any = None
    correct: bool | None = None
    answer_span: tuple[_Count, _Count] | None = None
    last_step: tuple[_Count, _Count] | None = None
    seconds: FiniteFloat | None = None
    usage: dict[str, Any] | None = None
    token_lengths: list[int] | None = None


class _Question(_Record):
    id: str
    responses: Annotated[tuple[_Response, ...], Field(min_length=1)]
    reference: str | list[str] | None
    input: Any = None
    question_key: str | None = None

    @property
    def name(self) -> str:
        return self.question_key or self.id


def read_json_lines(source: Path, made: PoolStore) -> list[str]:
    """Read a pool of JSON Lines, and the signals beside it, into a store, one question
    after another.

    A last line that was cut off by a kill is left out.

    Returns:
        Notes for the user.

    Raises:
        PoolError: the source cannot be read, a line is not a question, or an id appears
            twice, with file, line and field; or the signals beside it are damaged or
            belong to something else.
    """
    notes: list[str] = []
    with made.transaction():  # one for all, as each waits for the disk
        counts = _read_questions(source, made, notes)
        if (beside := signals_path(source)).exists():
            _read_signals(beside, made, counts)
    return notes


def _read_questions(source: Path, made: PoolStore, notes: list[str]) -> dict[str, int]:
    """Add all questions, and return how many responses each has."""
    counts: dict[str, int] = {}
    metadata: dict[str, Any] = {}
    unreported = Counter[bool]()  # whether there is a text to estimate from
    for number, record in _records(source, notes):
        where = f"{source}, line {number}"
        if (
            not counts
            and isinstance(record, dict)
            and "metadata" in record
            and "responses" not in record
        ):
            metadata = record["metadata"]
            if not isinstance(metadata, dict):
                raise PoolError(
                    f"{where}: metadata must be a JSON object, got {metadata!r:.60}"
                )
            made.set_about(metadata)
            continue
        line = _checked(record, where)
        question, messages = _parsed(line, normalized="extraction_version" in metadata)
        if question.id in counts:
            raise PoolError(
                f"{where}: id {question.id!r} appears a second time; ids must be unique"
            )
        counts[question.id] = len(question.responses)
        unreported.update(
            one.text is not None
            for one in line.responses
            if one.completion_tokens is None
        )
        made.add_question(question, messages)
    if not counts:
        raise PoolError(f"{source} holds no question")
    for has_text, how in (
        (True, "they are estimated from the text"),
        (False, "without a text each counts as 1"),
    ):
        if number := unreported[has_text]:
            notes.append(
                f"{number} responses of {source.name} do not report completion_tokens; "
                f"{how}"
            )
    return counts


def write_json_lines(store: PoolStore, out: Path) -> list[Path]:
    """Write a pool as JSON Lines, and its signals beside it where it has any.

    Returns:
        The files that were written.

    Raises:
        ConfigurationError: there is something where one of them would be.
        PoolError: the pool is damaged.
    """
    has_signals, beside = bool(store.signal_names()), signals_path(out)
    with new_path(out) as lines, new_path(beside) as signals, ExitStack() as files:
        file = files.enter_context(lines.open("w", encoding="utf-8"))
        members = files.enter_context(signals.open("wb"))
        file.write(_line({"metadata": store.about()}))
        for whole in whole_questions(store):
            file.write(_line(_record(whole)))
            members.write(
                gzip.compress(_line(_packed_signals(whole)).encode(), mtime=0)
            )
    if not has_signals:
        beside.unlink()
    return [out, beside] if has_signals else [out]


def signals_path(pool: str | os.PathLike[str]) -> Path:
    """Return where the token signals of a pool of JSON Lines lie."""
    return Path(pool).with_suffix(".signals.gz")


def signals_in(
    path: Path,
) -> Iterator[tuple[str, list[dict[str, npt.NDArray[np.float32]]]]]:
    """Yield each question's id and the signals of each of its responses: name -> shape
    (T,); empty if it has none.

    Raises:
        PoolError: the file is unreadable, damaged elsewhere than at its end, or not a
            file of signals.
    """
    for number, line in _signal_lines(path):
        try:
            record = parse_json(line)
            question, lengths = (
                str(record["id"]),
                [int(length) for length in record["lengths"]],
            )
            ends = np.cumsum(lengths, dtype=np.int64)
            parts = {}
            for name, text in record["signals"].items():
                values = np.frombuffer(
                    base64.b64decode(text, validate=True), dtype="<f4"
                )
                if values.size != ends[-1]:
                    raise ValueError(
                        f"signal {name!r} has {values.size} values for {ends[-1]} "
                        "tokens"
                    )
                parts[name] = np.split(values, ends[:-1])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise PoolError(
                f"{path}: member {number} is not a line of token signals ({error}); "
                "move the file away to import the pool without signals"
            ) from None
        held = (
            {name: arrays[at] for name, arrays in parts.items()}
            for at in range(len(lengths))
        )
        yield (
            question,
            [one if length else {} for one, length in zip(held, lengths, strict=True)],
        )


def _records(source: Path, notes: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield (line number, JSON value), and add a note where the last line was cut off."""
    try:
        with (
            open_file(source) as opened,
            gzip.open(opened) if source.suffix == ".gz" else opened as file,
        ):
            # bytes end their lines with CR, too, and nothing else that is white space
            # to a text
            lines = (
                line for several in file for line in several.splitlines(keepends=True)
            )
            for number, line in enumerate(lines, start=1):
                text = line.strip(b"\xef\xbb\xbf \t\r\n")
                if not text:
                    continue
                try:
                    yield number, parse_json(line.decode("utf-8-sig"))
                except ValueError as error:  # not JSON, or not UTF-8
                    # the program that wrote it was killed
                    if not line.endswith((b"\n", b"\r")) and is_cut_off(text):
                        notes.append(
                            f"the last line of {source.name} (line {number}) is cut "
                            "off and was left out"
                        )
                        return
                    hint = (
                        "; if it holds questions, `reasc record` makes a pool of them"
                        if number == 1
                        else ""
                    )
                    raise PoolError(
                        f"{source}, line {number} is {_why_unreadable(error)}{hint}"
                    ) from None
    except FileNotFoundError:
        raise PoolError(f"no pool at {source}") from None
    except (OSError, EOFError, zlib.error) as error:  # the last two of a damaged .gz
        raise PoolError(
            f"cannot read the pool {source}: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error


def _why_unreadable(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at column {error.colno}; a pool has one JSON object a line"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text ({error.reason}); save it as UTF-8"
    return f"not JSON that can be read: {error}"


def _checked(record: Any, where: str) -> _Question:
    if not isinstance(record, dict):
        raise PoolError(
            f"{where}: a question is a JSON object with id, reference and responses, "
            f"got {record!r:.60}"
        )
    try:
        line = _Question.model_validate(record)
    except ValidationError as error:
        finding = findings(error)[0]
        hint = next(
            (f"; {hint}" for end, hint in _HINTS.items() if finding.endswith(end)), ""
        )
        raise PoolError(f"{where}: {finding}{hint}") from None
    if storable(line.name) != line.name:
        raise PoolError(
            f"{where}: id {line.name!r} has half a character in it; correct it"
        )
    return line


def _parsed(line: _Question, *, normalized: bool) -> tuple[PoolQuestion, list[Message]]:
    references = (
        [line.reference] if isinstance(line.reference, str) else line.reference or ()
    )
    responses = tuple(
        _pool_response(one, normalized=normalized) for one in line.responses
    )
    messages = [
        Message(**{name: getattr(one, key) for key, name in _MESSAGE.items()})
        for one in line.responses
    ]
    return PoolQuestion(line.name, tuple(references), responses, line.input), messages


def _pool_response(given: _Response, *, normalized: bool) -> PoolResponse:
    columns = given.model_dump(exclude=set(_MESSAGE))
    if given.completion_tokens is None:
        columns["completion_tokens"] = (
            1 if given.text is None else tokens_of_text(len(given.text.encode()))
        )
    # to do so again would change what is not text, such as the arguments of a tool call
    if not normalized:
        columns["answer"] = (
            written(given.answer) if given.answer and given.answer.strip() else None
        )
    return PoolResponse(**columns)


def _read_signals(beside: Path, made: PoolStore, counts: dict[str, int]) -> None:
    missing = set(counts)
    for question, responses in signals_in(beside):
        # the recorder was killed before it wrote the question itself
        if question not in counts:
            continue
        if len(responses) != counts[question]:
            raise PoolError(
                f"{beside} has signals of {len(responses)} responses for question "
                f"{question!r}, the pool has {counts[question]}; they were not "
                "recorded together"
            )
        made.set_signals(question, responses)
        missing.discard(question)
    if missing:
        raise PoolError(
            f"{beside} has no token signals for question {min(missing)!r}; record it "
            "again, or move the signals file away to import the pool without them"
        )


def _signal_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with open_file(path) as packed, gzip.open(packed) as file:
            for number, line in enumerate(
                iter(lambda: file.readline(_LONGEST + 1), b""), start=1
            ):
                if len(line) > _LONGEST:
                    raise PoolError(
                        f"{path}, line {number} holds more than {_LONGEST >> 20} MiB; "
                        "move the file away"
                    )
                yield number, line
    except EOFError:  # the recorder was killed while it wrote the last member
        return
    except (zlib.error, gzip.BadGzipFile) as error:
        if "(b'\\x1f')" in str(error):  # killed after the first byte of the last member
            return
        raise PoolError(
            f"{path} is damaged ({error}); move it away to import the pool without "
            "signals"
        ) from None
    except OSError as error:
        raise PoolError(
            f"cannot read the token signals {path}: {error.strerror or error}"
        ) from error


def _record(whole: WholeQuestion) -> dict[str, Any]:
    question, messages, _ = whole
    references = list(question.references)
    return {
        "id": question.id,
        "input": question.input,
        "reference": references[0] if len(references) == 1 else references or None,
        "responses": [
            _plain(*pair) for pair in zip(question.responses, messages, strict=True)
        ],
    }


def _plain(response: PoolResponse, message: Message) -> dict[str, Any]:
    """Return a response without the keys that say nothing; ``answer`` and
    ``completion_tokens`` are always there.
    """
    columns = {
        name: getattr(response, name)
        for name in _Response.model_fields
        if name not in _MESSAGE
    }
    kept = {key: getattr(message, name) for key, name in _MESSAGE.items()}
    always = ("answer", "completion_tokens", "cut_off")
    return {
        name: value
        for name, value in (kept | columns).items()
        if name in always or value is not None
    }


def _packed_signals(whole: WholeQuestion) -> dict[str, Any]:
    question, _, signals = whole
    carrying = [one for one in signals if one]
    names = list(carrying[0]) if carrying else []
    return {
        "id": question.id,
        "lengths": [int(np.size(one[names[0]])) if one else 0 for one in signals],
        "signals": {name: _packed([one[name] for one in carrying]) for name in names},
    }


def _packed(arrays: Sequence[npt.ArrayLike]) -> str:
    joined = np.concatenate([np.asarray(one, dtype="<f4") for one in arrays])
    return base64.b64encode(joined.tobytes()).decode("ascii")


def _line(record: Any) -> str:
    """Return a record as a line, with escapes where it holds half a surrogate pair,
    which no file can hold.
    """
    line = json.dumps(record, ensure_ascii=False)
    return (line if storable(line) == line else json.dumps(record)) + "\n"
