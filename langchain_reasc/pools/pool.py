"""Pools: recorded responses, from which every method can be replayed without the model.

What decisions need of a pool is in memory, some 320 bytes a response; texts and token signals stay in its file (see
:mod:`.store`) and are fetched when they are asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Span, Spans
from langchain_reasc.pools.signals import PoolSignals
from langchain_reasc.pools.store import PoolStore, StoredMessage

__all__ = ["CALIBRATION_POOL", "Pool", "PoolQuestion", "PoolResponse", "model_of"]


@dataclass(frozen=True, slots=True)
class PoolResponse:
    """What decisions need of one recorded response.

    Attributes:
        answer: the answer found in it; None when there is none.
        completion_tokens: tokens generated.
        score: S(y) as it was recorded; None where no confidence could be read.
        prompt_tokens: tokens of its prompt; None where nobody said.
        finish_reason: why the model ended, in the provider's word.
        cut_off: whether it ended before its end; it is then never accepted alone.
        correct: whether it is right, as it was graded; None in the file where answer and reference tell.
        answer_span: the tokens that spell the answer, half-open.
        last_step: those of the last step before it, half-open.
        seconds: from its launch to its end; None where that was not timed.
        signal_tokens: how many of its tokens have signals.
    """

    answer: str | None
    completion_tokens: int
    score: float | None = None
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    cut_off: bool = False
    correct: bool | None = None
    answer_span: Span | None = None
    last_step: Span | None = None
    seconds: float | None = None
    signal_tokens: int = 0

    @property
    def spans(self) -> Spans:
        """Which of its tokens are which."""
        return Spans(self.answer_span, self.last_step)


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """A question with its responses in the order in which they were drawn.

    Attributes:
        id: the question's name.
        references: the right answer, and others that are accepted; none where nobody knows it.
        responses: one at least.
        input: what was asked.
    """

    id: str
    references: tuple[str, ...]
    responses: tuple[PoolResponse, ...]
    input: Any = None

    @property
    def reference(self) -> str:
        """The right answer, the first of those that are accepted; empty where nobody knows it."""
        return self.references[0] if self.references else ""


CALIBRATION_POOL: Final = "calibration-pool.sqlite"
"""The file beside a pool whose questions calibrate, where nothing else is said."""


def model_of(pool: "Pool") -> str | None:
    """The name of the model that was recorded; None where the pool does not say."""
    fingerprint = pool.metadata.get("fingerprint")
    name = fingerprint.get("model") if isinstance(fingerprint, dict) else None
    return name if isinstance(name, str) else None


@dataclass(frozen=True)
class Pool:
    """Recorded responses to a set of questions.

    Attributes:
        path: the file it was read from.
        questions: what was asked, in recorded order; answers are normalized, and ``correct`` is filled in.
        metadata: what the recording says of itself; empty where it says nothing.
        notes: what the reader of a result should know of this pool, such as what cannot be computed from it.
        stores: where texts and token signals lie.
        calibrating: how many of the first questions are of another file, and calibrate; they are never tested.
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
    def signals(self) -> PoolSignals | None:
        """Token signals that all questions with signals have, or None where there is none."""
        lengths = {one.id: [response.signal_tokens for response in one.responses] for one in self.questions}
        held = PoolSignals(self.path, self.stores, lengths)
        return held if any(map(any, lengths.values())) and held.names else None

    @property
    def has_scores(self) -> bool:
        """Whether any response carries a recorded score."""
        return any(response.score is not None for response in self._responses())

    @property
    def has_prompt_tokens(self) -> bool:
        """Whether every response says how long its prompt was."""
        return all(response.prompt_tokens is not None for response in self._responses())

    def messages(self, question: str) -> list[StoredMessage]:
        """What the pool keeps of the responses to a question beside what decisions need, in recorded order.

        Raises:
            PoolError: there is no such question in its file.
        """
        for store in self.stores:
            if held := store.messages(question):
                return held
        raise PoolError(f"{self.path} keeps no responses to a question {question!r}")

    def texts(self, question: str) -> list[str | None]:
        """The text of each response to a question; None where it was not kept."""
        return [message.text for message in self.messages(question)]

    def token_lengths(self, question: str) -> Sequence[list[int] | None]:
        """How many characters each token of each response spells; None where it was not kept."""
        return [message.token_lengths for message in self.messages(question)]

    def __add__(self, other: "Pool") -> "Pool":
        """This pool's questions, then the other's.

        Raises:
            PoolError: both hold a question with the same id.
        """
        if shared := {q.id for q in self.questions} & {q.id for q in other.questions}:
            raise PoolError(f"{self.path} and {other.path} both hold question {min(shared)!r}")
        return Pool(
            other.path,
            self.questions + other.questions,
            other.metadata,
            tuple(dict.fromkeys(self.notes + other.notes)),
            self.stores + other.stores,
        )

    def calibrated_on(self, other: "Pool") -> "Pool":
        """This pool, to be tested, behind the questions of another one, which calibrate.

        Raises:
            PoolError: both hold a question with the same id, which would be tested on what it calibrated.
        """
        return replace(other + self, calibrating=len(other.questions), calibration_path=other.path)

    def _responses(self) -> Iterator[PoolResponse]:
        return (response for question in self.questions for response in question.responses)
