"""Going on with a pool whose recording was cut off."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from langchain_reasc.evaluation.kept_signals import KeptSignals
from langchain_reasc.evaluation.pool import read_pool
from langchain_reasc.evaluation.questions import LabelledQuestion
from langchain_reasc.evaluation.signals_file import intact_length, load_signals, signals_path
from langchain_reasc.exceptions import PoolError

__all__ = ["resume"]

# Of a fingerprint; what a recording from before says nothing of is not compared.
_SINCE_VERSION_2: Final = ("prompt", "tools", "response_format", "grammar", "stop")


def resume(
    target: Path, metadata: Mapping[str, Any], questions: Sequence[LabelledQuestion]
) -> tuple[list[str], KeptSignals]:
    """The ids that are complete, after cutting off what a kill left unfinished, and the signals that go with theirs.

    Raises:
        PoolError: the pool was recorded from something else, or holds other questions under the same ids.
    """
    if not target.exists() or _is_torn_start(target.read_bytes()):
        target.write_bytes(b"")
        _cut_signals(target)
        return [], KeptSignals(target)
    pool = read_pool(target)
    then, now = _settings(pool.metadata), _settings(metadata)
    for name in now:
        if then.get(name) != now[name] and (name in then or name not in _SINCE_VERSION_2):
            raise PoolError(
                f"{target} was recorded with {name} {then.get(name)!r}, now it is {now[name]!r}; record into another "
                "file, or delete this one"
            )
    asked = {question.id: question.input for question in questions}
    for held in pool.questions:
        if asked.get(held.id, held.input) != held.input:
            raise PoolError(
                f"{target} holds another question with id {held.id!r} ({held.input!r:.60}); record into another file"
            )
    _cut_line(target)
    _cut_signals(target)
    last = pool.questions[-1].id
    if pool.signals_files and last not in load_signals(pool.signals_files[0]).records:
        _cut_line(target, last=True)  # its signals were lost: record it again
        pool = replace(pool, questions=pool.questions[:-1])
    info = pool.metadata.get("signals_info")
    kept = KeptSignals(target, info if isinstance(info, dict) else None)
    return [question.id for question in pool.questions], kept


def _settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What two recordings must have in common to be one pool."""
    own = {name: metadata.get(name) for name in ("samples", "seed", "answer", "system")}
    fingerprint = metadata.get("fingerprint")
    return (fingerprint if isinstance(fingerprint, dict) else {"fingerprint": fingerprint}) | own


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
