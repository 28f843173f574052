"""A sampled response: one sample, from its draw to the result."""

from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage

from langchain_reasc.complaints import shortened
from langchain_reasc.models.usage import output_tokens

Status = Literal["complete", "cancelled", "failed"]
"""How a sample ended; ``cancelled`` if it was cut off once the decision had fallen."""


@dataclass(frozen=True, slots=True)
class SampledResponse:
    """One sample: how it was drawn, and once the question is answered, how it voted.

    Attributes:
        index: its place in launch order, from 0.
        message: what the model said, with its token signals; partial if the sample was
            cut off, None if it failed before the first token.
        status: how it ended.
        error: what a failed sample raised.
        seconds: from the launch of its wave to its end; None if that was not timed.
        used: whether the decision rests on it; others were launched beside it and paid
            for all the same.
        answer: the normalized answer, or None.
        score: S(y), or None if no confidence was read.
        weight: the evidence that it contributed; 0 if it was not used or has no answer.
        asked: which model wrote it, if there is a larger one.
    """

    index: int
    message: AIMessage | None
    status: Status = "complete"
    error: Exception | None = None
    seconds: float | None = None
    used: bool = False
    answer: str | None = None
    score: float | None = None
    weight: float = 0.0
    asked: Literal["small", "large"] | None = None

    @property
    def output_tokens(self) -> int:
        """How many tokens were generated."""
        return output_tokens(self.message)

    def __repr__(self) -> str:
        """Return one line, without the token signals of the message, which are
        thousands of numbers.
        """
        text = self.error if self.message is None else self.message.text
        score = "None" if self.score is None else f"{self.score:.4g}"
        return (
            f"SampledResponse(index={self.index}, status={self.status!r}, "
            f"used={self.used}, answer='{shortened(self.answer)}', score={score}, "
            f"weight={self.weight:.4g}, output_tokens={self.output_tokens}, "
            f"text='{shortened(text)}')"
        )
