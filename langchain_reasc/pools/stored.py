"""What goes into a pool's file and comes out of it: questions, responses and messages, and how SQLite takes them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.untrusted import parse_json

__all__ = [
    "MESSAGE",
    "RESPONSE",
    "StoredMessage",
    "StoredQuestion",
    "StoredResponse",
    "TokenSignals",
    "accepted_of",
    "as_json",
    "as_stored",
    "columns_of",
    "message_of",
    "tokens_of",
]

RESPONSE: Final = (
    *("answer", "correct", "score", "completion_tokens", "prompt_tokens", "finish_reason", "cut_off"),
    *("answer_span", "last_step", "seconds", "signal_tokens"),
)
"""The columns of ``responses`` that a response has."""
MESSAGE: Final = ("text", "beside", "usage", "token_lengths")
"""Those of ``messages``."""

TokenSignals = Mapping[str, npt.ArrayLike]
"""Signal name -> shape (T,), of one response."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """What a pool keeps of a response that decisions do not need.

    Attributes:
        text: what the model wrote; None where it was not kept.
        beside: what its vote depends on besides text and finish reason, such as tool calls, as LangChain has it.
        usage: its ``usage_metadata``, as the provider reported it.
        token_lengths: how many characters of the text each token spells, where that could be told.
    """

    text: str | None = None
    beside: Any = None
    usage: dict[str, Any] | None = None
    token_lengths: list[int] | None = None


class StoredResponse(NamedTuple):
    """A response on its way into a pool: the columns of ``responses`` by name, its message and its token signals."""

    columns: Mapping[str, Any]
    message: StoredMessage = StoredMessage()
    signals: TokenSignals = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question on its way into a pool or out of it.

    Attributes:
        id: its name.
        input: what was asked; anything that JSON can hold.
        accepted: the right answer, and others that are accepted.
        responses: those to store, or those that were.
    """

    id: str
    input: Any
    accepted: Sequence[str]
    responses: Sequence[StoredResponse] = field(default=())


def columns_of(values: Sequence[Any]) -> dict[str, Any]:
    """The columns of a response by name, from those in the file.

    Raises:
        ValueError: they are nothing that was written there.
    """
    columns = dict(zip(RESPONSE, values, strict=True))
    for name in ("score", "seconds"):
        if columns[name] is not None and not math.isfinite(columns[name]):
            raise ValueError(f"{name} is {columns[name]}")
    for name in ("completion_tokens", "signal_tokens"):
        if not isinstance(columns[name], int) or columns[name] < 0:
            raise ValueError(f"{name} is {columns[name]!r:.40}")
    for name in ("answer", "finish_reason"):
        _check(columns[name], str, name)
    _check(columns["prompt_tokens"], int, "prompt_tokens")
    for name in ("answer_span", "last_step"):
        columns[name] = _span(columns[name])
    columns["cut_off"] = bool(columns["cut_off"])
    columns["correct"] = None if columns["correct"] is None else bool(columns["correct"])
    return columns


def message_of(values: Sequence[Any]) -> StoredMessage:
    """A message, from the columns in the file; errors as for :func:`columns_of`."""
    text, *more = values
    beside, usage, lengths = (None if one is None else parse_json(one) for one in more)
    for name, value, kind in (("text", text, str), ("beside", beside, dict), ("usage", usage, dict)):
        _check(value, kind, name)
    if lengths is not None and not (isinstance(lengths, list) and all(type(one) is int for one in lengths)):
        raise ValueError(f"token_lengths is {lengths!r:.40}")
    return StoredMessage(text, beside, usage, lengths)


def accepted_of(text: str) -> list[str]:
    """The accepted answers to a question, from its column; errors as for :func:`columns_of`."""
    accepted = parse_json(text)
    if not isinstance(accepted, list) or not all(isinstance(one, str) for one in accepted):
        raise ValueError(f"the accepted answers are {accepted!r:.40}, which is no list of texts")
    return accepted


def _check(value: Any, kind: type, name: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r:.40}")


def as_stored(value: Any) -> Any:
    """A value as SQLite takes it; half an emoji is no text, and a mark stands in its place."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(value) if isinstance(value, tuple | list) else value


def as_json(value: Any) -> str | None:
    """A value as JSON, which can hold half an emoji; None of None."""
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if as_stored(text) == text else json.dumps(value)


def tokens_of(signals: TokenSignals) -> int:
    """Of how many tokens signals are."""
    return next((int(np.size(values)) for values in signals.values()), 0)


def _span(text: str | None) -> tuple[int, int] | None:
    if not text:
        return None
    begin, end = parse_json(text)
    return int(begin), int(end)
