"""A pool as JSON Lines, which :mod:`.json_lines` reads: a question a line, the token signals in a file beside it."""

import base64
import gzip
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from langchain_reasc.pools.signals_file import signals_path
from langchain_reasc.pools.store import PoolStore, StoredQuestion, StoredResponse
from langchain_reasc_lab.pools.copying import new_path, whole_questions

__all__ = ["write_json_lines"]


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
        for question in whole_questions(store):
            file.write(_line(_record(question)))
            members.write(gzip.compress(_line(_signals(question)).encode(), mtime=0))
    if not has_signals:
        beside.unlink()
    return [out, beside] if has_signals else [out]


def _record(question: StoredQuestion) -> dict[str, Any]:
    accepted = list(question.accepted)
    return {
        "id": question.id,
        "input": question.input,
        "reference": accepted[0] if len(accepted) == 1 else accepted or None,
        "responses": [_response(one) for one in question.responses],
    }


def _response(one: StoredResponse) -> dict[str, Any]:
    """The keys that say something; ``answer`` and ``completion_tokens`` always do."""
    columns = {name: value for name, value in one.columns.items() if name != "signal_tokens"}
    message = one.message
    told = {"text": message.text, "message": message.beside, "usage": message.usage}
    told |= {"token_lengths": message.token_lengths}
    always = ("answer", "completion_tokens", "cut_off")
    return {name: value for name, value in (told | columns).items() if name in always or value is not None}


def _signals(question: StoredQuestion) -> dict[str, Any]:
    carrying: Sequence[Any] = [one.signals for one in question.responses if one.signals]
    names = list(carrying[0]) if carrying else []
    return {
        "id": question.id,
        "lengths": [int(np.size(one.signals[names[0]])) if one.signals else 0 for one in question.responses],
        "signals": {name: _packed([one[name] for one in carrying]) for name in names},
    }


def _packed(arrays: Sequence[Any]) -> str:
    return base64.b64encode(np.concatenate([np.asarray(one, dtype="<f4") for one in arrays]).tobytes()).decode("ascii")


def _line(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
