"""Going on with a pool whose recording was cut off, or whose labels or extraction rules have changed since."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from langchain_reasc.pools.kept_signals import KeptSignals
from langchain_reasc.pools.pool import Pool
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.pools.reading import read_stored
from langchain_reasc.pools.regrade import regrade
from langchain_reasc.pools.signals_file import intact_length, load_signals, signals_path
from langchain_reasc.exceptions import PoolError

__all__ = ["resume"]

# Of a fingerprint; what a recording from before says nothing of is not compared.
_SINCE_VERSION_2: Final = ("prompt", "tools", "response_format", "grammar", "stop")


def resume(
    target: Path, metadata: Mapping[str, Any], questions: Sequence[LabelledQuestion], *, tell: Callable[[str], None]
) -> tuple[list[str], KeptSignals]:
    """The ids that are complete, after cutting off what a kill left unfinished, and the signals that go with theirs.

    Args:
        target: the pool.
        metadata: what the recording that is to go on would write of itself.
        questions: all that it asks; where their labels have changed, what the pool holds is graded again.
        tell: called with what was graded again, in words.

    Raises:
        PoolError: the pool was recorded from something else, or holds other questions under the same ids.
    """
    if not target.exists() or _is_torn_start(target.read_bytes()):
        target.write_bytes(b"")
        _cut_signals(target)
        return [], KeptSignals(target)
    pool = read_stored(target)
    _check_settings(pool, metadata)
    _check_questions(pool, questions)
    _cut_line(target)
    _cut_signals(target)
    last = pool.questions[-1].id
    if pool.signals_files and last not in load_signals(pool.signals_files[0]).records:
        _cut_line(target, last=True)  # its signals were lost: record it again
        pool = replace(pool, questions=pool.questions[:-1])
    regrade(pool, metadata, questions, tell=tell)
    info = pool.metadata.get("signals_info")
    kept = KeptSignals(target, info if isinstance(info, dict) else None)
    return [question.id for question in pool.questions], kept


def _check_settings(pool: Pool, metadata: Mapping[str, Any]) -> None:
    """Refuse to mix two recordings."""
    then, now = _settings(pool.metadata), _settings(metadata)
    for name in now:
        if then.get(name) != now[name] and (name in then or name not in _SINCE_VERSION_2):
            raise PoolError(
                f"{pool.path} was recorded with {name} {then.get(name)!r}, now it is {now[name]!r}; record into "
                "another file, or delete this one"
            )


def _check_questions(pool: Pool, questions: Sequence[LabelledQuestion]) -> None:
    asked = {question.id: question.input for question in questions}
    for held in pool.questions:
        if asked.get(held.id, held.input) != held.input:
            raise PoolError(
                f"{pool.path} holds another question with id {held.id!r} ({held.input!r:.60}); record into another file"
            )
    names = {held.id for held in pool.questions}
    renamed = {held.input: held.id for held in pool.questions if held.id not in asked}
    for question in questions:
        if question.id not in names and question.input in renamed:
            raise PoolError(
                f"{pool.path} holds the question {question.input!r:.60} as {renamed[question.input]!r}, now its id is "
                f"{question.id!r}; it would be paid for a second time. Give the questions the ids that the pool has, "
                "or record into another file"
            )


def _settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What two recordings must have in common to be one pool: not the answers, which can be found again."""
    own = {name: metadata.get(name) for name in ("samples", "seed", "system", "template")}
    fingerprint = metadata.get("fingerprint")
    told = fingerprint if isinstance(fingerprint, dict) else {"fingerprint": fingerprint}
    return own | {name: value for name, value in told.items() if name != "answer"}


def _is_torn_start(data: bytes) -> bool:
    """Whether the recorder was killed before its first question was whole."""
    return not data.strip() or (data.count(b"\n") < 2 and b'{"metadata"'.startswith(data[:11]))


def _cut_line(target: Path, *, last: bool = False) -> None:
    """Cut a line that is not whole, or the last whole one."""
    data = target.read_bytes()
    whole = data.rfind(b"\n") + 1
    if last:
        os.truncate(target, data.rfind(b"\n", 0, whole - 1) + 1)
    elif data[whole:] and _is_json(data[whole:]):  # all there but its newline
        target.write_bytes(data + b"\n")
    else:
        os.truncate(target, whole)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _cut_signals(target: Path) -> None:
    signals = signals_path(target)
    if signals.exists() and (intact := intact_length(signals)) < signals.stat().st_size:
        os.truncate(signals, intact)
