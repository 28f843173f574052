"""Pools: recorded responses, from which every method can be replayed without the model.

A pool is JSON Lines: optionally ``{"metadata": {...}}``, then one question a line::

    {"id": "q1", "input": "...", "reference": "42", "responses": [
        {"text": "...", "answer": "42", "score": 11.2, "prompt_tokens": 30, "completion_tokens": 64,
         "finish_reason": "stop", "cut_off": false, "correct": true}, ...]}

Of a response only ``answer`` (null: none found) and ``completion_tokens`` are required; unknown keys are ignored, so
that pools made by others can be read. Metadata that names an ``extraction_version`` says that answers are normalized,
and by which rules they were found. Token signals may lie beside it (see :mod:`.signals_file`); then
``"answer_span": [57, 60]`` and ``"last_step": [31, 57]`` of a response say which of its tokens spell the answer, and
which are the last step before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from langchain_reasc.pools.signals_file import PoolSignals, load_signals
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Spans

__all__ = ["Pool", "PoolQuestion", "PoolResponse"]

Count = Annotated[int, Field(ge=0)]
TokenSpan = tuple[Count, Count]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)


class PoolResponse(_Line):
    """One recorded response."""

    answer: str | None = Field(description="The answer found in the response; null when there is none.")
    completion_tokens: Count = Field(description="Tokens generated.")
    text: str | None = None
    score: FiniteFloat | None = Field(default=None, description="S(y); null when no confidence could be read.")
    prompt_tokens: Count | None = None
    finish_reason: str | None = None
    cut_off: bool = Field(
        default=False, description="Whether it ended before its end; it is then never accepted alone."
    )
    message: Any = Field(
        default=None,
        description="What a vote depends on besides text and finish reason, such as tool calls, as LangChain has it.",
    )
    correct: bool | None = Field(
        default=None, description="Whether it is right; from answer and reference when absent."
    )
    answer_span: TokenSpan | None = Field(default=None, description="The tokens that spell the answer, half-open.")
    last_step: TokenSpan | None = Field(default=None, description="Those of the last step before it, half-open.")

    @property
    def spans(self) -> Spans:
        """Which of its tokens are which."""
        return Spans(self.answer_span, self.last_step)


class PoolQuestion(_Line):
    """A question with its responses in the order in which they were drawn."""

    id: str
    reference: str
    responses: Annotated[tuple[PoolResponse, ...], Field(min_length=1)]
    input: Any = None


@dataclass(frozen=True)
class Pool:
    """Recorded responses to a set of questions.

    Attributes:
        path: the file it was read from.
        questions: what was asked, in recorded order; answers are normalized, and ``correct`` is filled in.
        metadata: what the first line says of the recording; empty where it says nothing.
        signals_files: where its token signals lie; none where it has none.
        notes: what the reader of a result should know of this pool, such as what cannot be computed from it.
    """

    path: Path
    questions: tuple[PoolQuestion, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    signals_files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def signals(self) -> PoolSignals | None:
        """Token signals of every question, or None where the file beside the pool is absent.

        Raises:
            PoolError: that file is damaged, or does not fit the pool.
        """
        if not self.signals_files:
            return None
        records = {id: record for path in self.signals_files for id, record in load_signals(path).records.items()}
        signals = PoolSignals(
            self.signals_files[-1],
            {question.id: records[question.id] for question in self.questions if question.id in records},
        )
        signals.check({question.id: len(question.responses) for question in self.questions})
        return signals

    @property
    def has_scores(self) -> bool:
        """Whether any response carries a recorded score."""
        return any(response.score is not None for response in self._responses())

    @property
    def has_prompt_tokens(self) -> bool:
        """Whether every response says how long its prompt was."""
        return all(response.prompt_tokens is not None for response in self._responses())

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
            self.signals_files + other.signals_files,
            tuple(dict.fromkeys(self.notes + other.notes)),
        )

    def _responses(self) -> Iterator[PoolResponse]:
        return (response for question in self.questions for response in question.responses)
