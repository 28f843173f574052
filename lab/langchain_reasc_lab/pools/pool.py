"""A pool in memory: recorded responses, from which every method is replayed without the
model.

What decisions need is in memory, some 320 bytes a response; texts and token signals
stay in the file (see :mod:`.store`) and are read when they are needed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.pools.store import (
    Message,
    PoolQuestion,
    PoolResponse,
    PoolStore,
)

__all__ = ["Pool", "PoolSignals"]

Floats = npt.NDArray[np.float32]
# 2 MB of one signal, of which three copies are held for a moment
_VALUES_AT_ONCE: Final = 1 << 19
_QUESTIONS_AT_ONCE: Final = 500


@dataclass(frozen=True)
class Pool:
    """Recorded responses to a set of questions.

    Attributes:
        path: the file it was read from.
        questions: the questions in recorded order; answers are normalized, and
            ``correct`` is filled in.
        metadata: the metadata of the recording, possibly empty.
        notes: notes on this pool for readers of a result, such as figures that cannot
            be computed from it.
        stores: the files that hold texts and token signals.
        calibrating: how many of the first questions are of another file, and calibrate;
            they are never tested.
        calibration_path: that file.
    """

    path: Path
    questions: tuple[PoolQuestion, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stores: tuple[PoolStore, ...] = field(default=(), compare=False, repr=False)
    calibrating: int = 0
    calibration_path: Path | None = None

    @cached_property
    def signals(self) -> "PoolSignals | None":
        """The token signals that all questions with signals have in common; None if
        there are none.
        """
        lengths = {
            one.id: [response.signal_tokens for response in one.responses]
            for one in self.questions
        }
        held = PoolSignals(self.path, self.stores, lengths)
        return held if any(map(any, lengths.values())) and held.names else None

    @property
    def model(self) -> str | None:
        """The name of the recorded model; None if the metadata does not name one."""
        fingerprint = self.metadata.get("fingerprint")
        name = fingerprint.get("model") if isinstance(fingerprint, dict) else None
        return name if isinstance(name, str) else None

    @property
    def responses(self) -> Iterator[PoolResponse]:
        """All responses, question by question."""
        return (
            response for question in self.questions for response in question.responses
        )

    @property
    def has_scores(self) -> bool:
        """Whether any response carries a recorded score."""
        return any(response.score is not None for response in self.responses)

    @property
    def has_prompt_tokens(self) -> bool:
        """Whether every response says how long its prompt was."""
        return all(response.prompt_tokens is not None for response in self.responses)

    def messages(self, question: str) -> list[Message]:
        """Read the messages of the responses to a question, in recorded order.

        Raises:
            PoolError: there is no such question in its file.
        """
        for store in self.stores:
            if held := store.messages(question):
                return held
        raise PoolError(f"{self.path} keeps no responses to a question {question!r}")

    def texts(self, question: str) -> list[str | None]:
        """Read the text of each response to a question; None for a text that was not
        kept.
        """
        return [message.text for message in self.messages(question)]

    def __add__(self, other: "Pool") -> "Pool":
        """Return this pool's questions, then the other's.

        Raises:
            PoolError: both hold a question with the same id.
        """
        if shared := {q.id for q in self.questions} & {q.id for q in other.questions}:
            raise PoolError(
                f"{self.path} and {other.path} both hold question {min(shared)!r}"
            )
        return Pool(
            other.path,
            self.questions + other.questions,
            other.metadata,
            tuple(dict.fromkeys(self.notes + other.notes)),
            self.stores + other.stores,
        )


@dataclass(frozen=True)
class PoolSignals:
    """The token signals of some questions, read from their files when they are needed.

    Attributes:
        path: the pool, for messages.
        stores: the files that may hold them.
        responses: question id -> how many tokens of each of its responses have signals.
    """

    path: Path
    stores: Sequence[PoolStore] = field(repr=False)
    responses: Mapping[str, Sequence[int]] = field(repr=False)

    @cached_property
    def _counted(self) -> tuple[Counter[str], int]:
        """The number of questions with each signal, and with any."""
        counts: Counter[str] = Counter()
        for store in self.stores:
            counts.update(store.signal_names())
        return counts, sum(store.questions_with_signals() for store in self.stores)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The signals that every question has, of those that have any."""
        counts, every = self._counted
        return tuple(name for name, questions in counts.items() if questions == every)

    @property
    def left_out(self) -> dict[str, int]:
        """The signals that only some of the questions with signals have -> how many do."""
        counts, every = self._counted
        return {
            name: questions for name, questions in counts.items() if questions != every
        }

    def of_question(self, question: str) -> list[dict[str, Floats]]:
        """Read the signals of each response to a question, in recorded order: signal
        name -> shape (T,).
        """
        ends = np.cumsum(self.responses[question])[:-1]
        parts = {
            name: np.split(self._read(name, [question])[0], ends) for name in self.names
        }
        return [
            {name: arrays[at] for name, arrays in parts.items()}
            for at in range(len(self.responses[question]))
        ]

    def each(
        self, name: str, questions: Sequence[str]
    ) -> Iterator[tuple[Floats, npt.NDArray[np.int64]]]:
        """Read one signal of all responses to some questions, a part at a time, so that
        memory stays small.

        Yields:
            The values of some questions' responses, concatenated, and the tokens of
            each response.

        Raises:
            PoolError: a question has another number of values than its responses have
                tokens.
        """
        left = list(questions)
        while left:
            values = np.cumsum(
                [
                    sum(self.responses[question])
                    for question in left[:_QUESTIONS_AT_ONCE]
                ]
            )
            count = min(int(np.searchsorted(values, _VALUES_AT_ONCE)) + 1, values.size)
            some, left = left[:count], left[count:]
            lengths = [
                np.asarray(self.responses[question], dtype=np.int64)
                for question in some
            ]
            yield np.concatenate(self._read(name, some)), np.concatenate(lengths)

    def lengths(self, question: str) -> list[int]:
        """Return how many tokens of each response to a question have signals."""
        return list(self.responses[question])

    def _read(self, name: str, questions: Sequence[str]) -> list[Floats]:
        held: dict[str, Floats] = {}
        for store in self.stores:
            held |= store.signals(name, questions)
        found = [
            held.get(question, np.zeros(0, dtype=np.float32)) for question in questions
        ]
        for question, values in zip(questions, found, strict=True):
            if values.size != (expected := sum(self.responses[question])):
                raise PoolError(
                    f"{self.path}: signal {name!r} of question {question!r} has "
                    f"{values.size} values for {expected} tokens"
                )
        return found
