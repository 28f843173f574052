"""Models that state how confident they are."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from langchain_reasc import Measure

from .fakes import Reply, Scripted, saying

STATED = Measure("verbalized", "mean")
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
QUESTIONS = [(f"q{at}", "1") for at in range(40)]


@dataclass
class Says(Reply):
    """Keeps its line breaks, and has no logprobs."""

    logprob: float | None = None

    def tokens(self) -> Iterator[str]:
        yield from re.findall(r"\s*\S+", self.text)


def stating(*texts: str) -> Scripted:
    """A model whose sample i says ``texts[i]``, the last one for all beyond."""
    return saying(*map(Says, texts))


def script(question: str, index: int) -> Reply:
    """Right and sure of it, or wrong and less sure; a function of the question alone."""
    rng = random.Random(question)
    right = rng.random() < 0.6
    stated = min(100, round(rng.gauss(90 if right else 55, 6)))
    return Says(f"so it is {1 if right else 2}.\nConfidence: {stated}%")
