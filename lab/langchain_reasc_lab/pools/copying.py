"""Copy whole pools: every question with its messages and signals, into a file that
appears when it is complete.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc_lab.pools.store import (
    Message,
    PoolQuestion,
    PoolStore,
    TokenSignals,
)

WholeQuestion = tuple[PoolQuestion, list[Message], list[TokenSignals]]
"""A question with the message and the token signals of each response, as
:meth:`PoolStore.add_question` takes them.
"""


def whole_questions(store: PoolStore) -> Iterator[WholeQuestion]:
    """Yield all questions of a pool in recorded order, with everything that it keeps.

    Raises:
        PoolError: a signal has another number of values than the responses have tokens.
    """
    for question in store.questions():
        yield question, store.messages(question.id), _signals_of(store, question)


@contextmanager
def new_pool(out: Path) -> Iterator[PoolStore]:
    """Create a pool that appears at ``out`` once all of it is written, and not at all
    where that fails.

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
    """Yield a path to write to, which is renamed to ``out`` at the end; after a
    failure, what was written is removed.

    Raises:
        ConfigurationError: there is something at ``out`` already.
    """
    if out.exists():
        raise ConfigurationError(
            f"there is something at {out} already; name another file, or move it away"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, out)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _signals_of(store: PoolStore, question: PoolQuestion) -> list[TokenSignals]:
    """Return the token signals of each response to a question; empty for a response
    without any.
    """
    lengths = [response.signal_tokens for response in question.responses]
    ends = np.cumsum(lengths)[:-1]
    signals: list[dict[str, Any]] = [{} for _ in lengths]
    for name in store.signal_names():
        values = store.signals(name, [question.id]).get(question.id)
        if values is None:
            continue
        if values.size != sum(lengths):
            raise PoolError(
                f"{store.path}: signal {name!r} of question {question.id!r} has "
                f"{values.size} values for {sum(lengths)} tokens"
            )
        for response_signals, part in zip(signals, np.split(values, ends), strict=True):
            if part.size:
                response_signals[name] = part
    return list(signals)
