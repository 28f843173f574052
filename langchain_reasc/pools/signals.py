"""Token signals of a pool, read from its files when they are asked for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools.store import PoolStore

__all__ = ["PoolSignals"]

Floats = npt.NDArray[np.float32]
_AT_ONCE = 1 << 21  # values, 8 MB of one signal
_QUESTIONS_AT_ONCE = 500


@dataclass(frozen=True)
class PoolSignals:
    """The token signals of some questions.

    Attributes:
        path: the pool, for messages.
        stores: the files that may hold them.
        responses: question id -> how many tokens of each of its responses have signals.
    """

    path: Path
    stores: Sequence[PoolStore] = field(repr=False)
    responses: Mapping[str, Sequence[int]] = field(repr=False)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The signals that every question has, of those that have any."""
        held, every = self._held
        return tuple(name for name, questions in held.items() if questions == every)

    @property
    def left_out(self) -> dict[str, int]:
        """The signals that only some of the questions with signals have -> how many do."""
        held, every = self._held
        return {name: questions for name, questions in held.items() if questions != every}

    @cached_property
    def _held(self) -> tuple[Counter[str], int]:
        """How many questions have each signal, and how many have any."""
        held: Counter[str] = Counter()
        for store in self.stores:
            held.update(dict(store.signal_names()))
        return held, sum(store.with_signals() for store in self.stores)

    def of(self, question: str) -> list[dict[str, Floats]]:
        """The signals of each response to a question, in recorded order: signal name -> shape (T,)."""
        ends = np.cumsum(self.responses[question])[:-1]
        parts = {name: np.split(self._of_one(name, question), ends) for name in self.names}
        return [{name: arrays[at] for name, arrays in parts.items()} for at in range(len(self.responses[question]))]

    def each(self, name: str, questions: Sequence[str]) -> Iterator[tuple[Floats, npt.NDArray[np.int64]]]:
        """One signal of all responses to some questions, a part at a time, so that memory stays small.

        Yields:
            The values of some questions' responses, one after the other, and the tokens of each response.

        Raises:
            PoolError: a question has another number of values than its responses have tokens.
        """
        start = 0
        while start < len(questions):
            end, values = start, 0
            while end < len(questions) and end - start < _QUESTIONS_AT_ONCE and (end == start or values < _AT_ONCE):
                values += sum(self.responses[questions[end]])
                end += 1
            some = questions[start:end]
            lengths = [np.asarray(self.responses[question], dtype=np.int64) for question in some]
            yield np.concatenate(self._of_some(name, some)), np.concatenate(lengths)
            start = end

    def lengths(self, question: str) -> list[int]:
        """How many tokens of each response to a question have signals."""
        return list(self.responses[question])

    def _of_one(self, name: str, question: str) -> Floats:
        return self._of_some(name, [question])[0]

    def _of_some(self, name: str, questions: Sequence[str]) -> list[Floats]:
        held: dict[str, Floats] = {}
        for store in self.stores:
            held |= store.signals(name, questions)
        empty = np.zeros(0, dtype=np.float32)
        found = [held.get(question, empty) for question in questions]
        for question, values in zip(questions, found, strict=True):
            if values.size != (wanted := sum(self.responses[question])):
                raise PoolError(
                    f"{self.path}: signal {name!r} of question {question!r} has {values.size} values for {wanted} "
                    "tokens"
                )
        return found
