"""Models that state how confident they are."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import Field

from langchain_reasc import Measure

from .fakes import Reply, Scripted

STATED = Measure("verbalized", "mean")
QUESTIONS = [(f"q{at}", "1") for at in range(40)]


@dataclass
class Says(Reply):
    """Keeps its line breaks, and has no logprobs."""

    logprob: float | None = None

    def tokens(self) -> Iterator[str]:
        yield from re.findall(r"\s*\S+", self.text)


class Asked(Scripted):
    """Remembers its prompts."""

    prompts: list[Any] = Field(default_factory=list)

    def _begin(self, messages: list[BaseMessage]) -> Any:
        self.prompts.append(messages)
        return super()._begin(messages)


def stating(*texts: str) -> Asked:
    """A model whose sample i says ``texts[i]``, the last one for all beyond."""
    return Asked(script=lambda question, index: Says(texts[min(index, len(texts) - 1)]))


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and less sure; a function of the question alone."""
    rng = random.Random(question)
    right = rng.random() < 0.6
    stated = min(100, round(rng.gauss(90 if right else 55, 6)))
    return Says(f"so it is {1 if right else 2}.\nConfidence: {stated}%")
