"""Token signals of a pool, in one compressed file beside it: ``pool.jsonl`` has ``pool.signals.gz``.

The file is a sequence of gzip members, each one JSON line: ``{"id", "lengths": [tokens of each response],
"signals": {name: base64 of the responses' float32 values, little-endian, one after the other}}``. Appending a member
never touches what is there, and a member cut off by a kill is recognized and dropped. ``zcat`` shows it.
"""

import base64
import gzip
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError

__all__ = ["PoolSignals", "append_signals", "intact_length", "load_signals", "signals_path"]

TokenSignals = Mapping[str, npt.ArrayLike]
_CHUNK = 1 << 16


def signals_path(pool: str | os.PathLike[str]) -> Path:
    """Where the signals of a pool lie."""
    return Path(pool).with_suffix(".signals.gz")


@dataclass(frozen=True, slots=True)
class PoolSignals:
    """Token signals of recorded responses, decoded when asked for.

    Attributes:
        path: the file they were read from.
        records: question id -> its line in the file.
    """

    path: Path
    records: Mapping[str, Mapping[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """The signals that every question has, of those that have any."""
        held = [record["signals"] for record in self.records.values() if any(record["lengths"])]
        return tuple(name for name in held[0] if all(name in one for one in held)) if held else ()

    def of(self, question: str) -> list[dict[str, npt.NDArray[np.float32]]]:
        """The signals of each response to a question, in recorded order: signal name -> shape (T,).

        Raises:
            PoolError: the question is not in the file, or its values do not fit its lengths.
        """
        record = self._record(question)
        ends = np.cumsum(record["lengths"], dtype=np.int64)
        total = int(ends[-1]) if ends.size else 0
        values = {name: self._decoded(question, name, text, total) for name, text in record["signals"].items()}
        parts = {name: np.split(held, ends[:-1]) for name, held in values.items()}
        return [{name: arrays[at] for name, arrays in parts.items()} for at in range(len(ends))]

    def of_all(self, name: str, questions: Sequence[str]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """One signal of all responses to some questions, one after the other, and the tokens of each response.

        Raises:
            PoolError: as for :meth:`of`.
        """
        lengths = [self.lengths(question) for question in questions]
        held = [self._record(question)["signals"].get(name, "") for question in questions]  # "": of no token
        each = zip(questions, held, lengths, strict=True)
        values = [self._decoded(question, name, text, sum(tokens)) for question, text, tokens in each]
        return np.concatenate(values), np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in lengths])

    def lengths(self, question: str) -> list[int]:
        """Tokens of each response of a question; errors as for :meth:`of`."""
        return list(self._record(question)["lengths"])

    def check(self, responses: Mapping[str, int]) -> None:
        """Refuse signals that do not belong to a pool.

        Args:
            responses: question id -> number of its responses.

        Raises:
            PoolError: a question is missing here, or has another number of responses.
        """
        for question, count in responses.items():
            held = len(self.lengths(question))
            if held != count:
                raise PoolError(
                    f"{self.path} has signals of {held} responses for question {question!r}, the pool has {count}; "
                    "they were not recorded together"
                )

    def _record(self, question: str) -> Mapping[str, Any]:
        if question not in self.records:
            raise PoolError(
                f"{self.path} has no token signals for question {question!r}; record it again, or move the signals "
                "file away to replay without them"
            )
        return self.records[question]

    def _decoded(self, question: str, name: str, text: str, tokens: int) -> npt.NDArray[np.float32]:
        try:
            values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
        except ValueError as error:
            raise PoolError(
                f"{self.path}: signal {name!r} of question {question!r} cannot be decoded: {error}"
            ) from None
        if values.size != tokens:
            raise PoolError(
                f"{self.path}: signal {name!r} of question {question!r} has {values.size} values for {tokens} tokens"
            )
        return values


def append_signals(path: Path, question: str, responses: Sequence[TokenSignals]) -> None:
    """Append the token signals of one question, and wait until they are on disk.

    Args:
        path: the signals file.
        question: the question's id.
        responses: per response, signal name -> shape (T,), or nothing where a response has none; only signals that
            all others carry are kept.
    """
    carrying = [one for one in responses if one]
    names = [name for name in carrying[0] if all(name in one for one in carrying)] if carrying else []
    lengths = [int(np.size(one[names[0]])) if one else 0 for one in responses]
    packed = {name: _packed([one[name] for one in carrying]) for name in names}
    line = json.dumps({"id": question, "lengths": lengths, "signals": packed}) + "\n"
    with path.open("ab") as file:
        file.write(gzip.compress(line.encode(), mtime=0))
        file.flush()
        os.fsync(file.fileno())


def load_signals(path: Path) -> PoolSignals:
    """Read a signals file; a cut-off last member is dropped, and of two members with one id the later one counts.

    Raises:
        PoolError: unreadable, or damaged elsewhere than at its end.
    """
    lines, _ = _members(path)
    records: dict[str, Mapping[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            records[str(record["id"])] = {
                "lengths": [int(length) for length in record["lengths"]],
                "signals": dict(record["signals"]),
            }
        except (ValueError, KeyError, TypeError) as error:
            raise PoolError(
                f"{path}: member {number} is not a line of token signals ({error!r}); it was not written by "
                "`reasc record`, move it away to replay without signals"
            ) from None
    return PoolSignals(path, records)


def intact_length(path: Path) -> int:
    """Bytes up to the end of the last whole member, to which an interrupted file is cut before it is continued."""
    return _members(path)[1]


def _members(path: Path) -> tuple[list[bytes], int]:
    """The content of each whole gzip member, and where the last of them ends."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PoolError(f"cannot read the token signals {path}: {error.strerror or error}") from error
    lines: list[bytes] = []
    intact = 0
    while intact < len(data):
        member, parts, at = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), [], intact
        try:
            while at < len(data) and not member.eof:
                parts.append(member.decompress(data[at : at + _CHUNK]))
                at += _CHUNK
        except zlib.error as error:
            raise PoolError(
                f"{path} is damaged after byte {intact} ({error}); move it away to replay without token signals"
            ) from None
        if not member.eof:
            break
        lines.append(b"".join(parts))
        intact = min(at, len(data)) - len(member.unused_data)
    return lines, intact


def _packed(arrays: Sequence[npt.ArrayLike]) -> str:
    values = np.concatenate([np.asarray(array, dtype="<f4") for array in arrays])
    return base64.b64encode(values.tobytes()).decode("ascii")
