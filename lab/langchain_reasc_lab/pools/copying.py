"""Whole questions out of one pool into another: with messages and signals; the new file is whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np

from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc.pools.reading import open_pool
from langchain_reasc.pools.store import PoolStore, StoredMessage, StoredQuestion, StoredResponse, TokenSignals

__all__ = ["convert", "new_path", "new_pool", "whole_question", "whole_questions"]


def convert(source: Path, out: Path) -> list[str]:
    """Write a pool of JSON Lines, with the signals beside it, as a pool of today.

    Returns:
        What its reader should know, in words.

    Raises:
        PoolError: the source is no pool.
        ConfigurationError: there is a file at ``out`` already.
    """
    store, notes = open_pool(source)
    with new_pool(out) as made:
        made.set_about(store.about())
        for question in whole_questions(store):
            made.add(question)
        if not made.ids():
            raise PoolError(f"{source} holds no question")
    return notes


def whole_questions(store: PoolStore) -> Iterator[StoredQuestion]:
    """All questions of a pool in recorded order, with everything that it keeps."""
    names = [name for name, _ in store.signal_names()]
    return (whole_question(store, question, names) for question in store.questions())


def whole_question(store: PoolStore, question: StoredQuestion, names: list[str]) -> StoredQuestion:
    """A question as :meth:`~.store.PoolStore.questions` gives it, with its messages and signals.

    Args:
        store: where it is from.
        question: the question.
        names: the signals that there are.

    Raises:
        PoolError: a signal has another number of values than the responses have tokens.
    """
    messages = store.messages(question.id) or [StoredMessage()] * len(question.responses)
    signals = _signals(store, question, names)
    responses = [
        StoredResponse(one.columns, message, own)
        for one, message, own in zip(question.responses, messages, signals, strict=True)
    ]
    return replace(question, responses=responses)


@contextmanager
def new_pool(out: Path) -> Iterator[PoolStore]:
    """A pool that appears at ``out`` once all of it is written, and not at all where that fails.

    Raises:
        ConfigurationError: there is something at ``out`` already.
    """
    with new_path(out) as temporary:
        store = PoolStore.create(temporary)
        try:
            with store.transaction():
                yield store
        finally:
            store.close()


@contextmanager
def new_path(out: Path) -> Iterator[Path]:
    """A path beside ``out`` to write to, which is renamed to it in the end; what is left of a failure is removed.

    Raises:
        ConfigurationError: there is something at ``out`` already.
    """
    if out.exists():
        raise ConfigurationError(f"there is something at {out} already; name another file, or move it away")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, out)
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        for inside in path.iterdir():
            inside.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _signals(store: PoolStore, question: StoredQuestion, names: list[str]) -> list[TokenSignals]:
    """The signals of each response to a question; nothing where one has none."""
    lengths = [int(one.columns["signal_tokens"]) for one in question.responses]
    ends = np.cumsum(lengths)[:-1]
    parts = {}
    for name in names:
        values = store.signals(name, [question.id]).get(question.id)
        if values is None:
            continue
        if values.size != sum(lengths):
            raise PoolError(
                f"{store.path}: signal {name!r} of question {question.id!r} has {values.size} values for "
                f"{sum(lengths)} tokens"
            )
        parts[name] = np.split(values, ends)
    return [{name: arrays[at] for name, arrays in parts.items()} if length else {} for at, length in enumerate(lengths)]
