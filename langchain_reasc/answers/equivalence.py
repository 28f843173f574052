"""Which answers mean the same, and so vote together, where their spelling does not tell."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

__all__ = ["Ask", "Classes", "Equivalence", "Same", "Unclear"]

Same = Callable[[str, str], bool]
"""Whether two answers mean the same; it may raise."""
Ask = Callable[[Runnable[Any, Any], str], AIMessage]
"""Asks a model, on the bill and in the trace of the question whose answers are compared."""


class Unclear(ValueError):
    """Two answers were compared, and it did not come out whether they mean the same."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Equivalence:
    """A way to tell whether two answers to a question mean the same.

    Attributes:
        name: the name shown in messages, which calibrations compare.
        kind: what tells: a function, the similarity of embeddings, or another model.
        between: given the question and how to ask a model, what compares its answers. Made anew for each question, it
            may remember what it has seen of them.
        timeout: seconds that a comparison may take; None for any time.
    """

    name: str
    kind: Literal["same", "embeddings", "judge"]
    between: Callable[[str, Ask], Same]
    timeout: float | None = None

    def __repr__(self) -> str:
        return f"Equivalence({self.name!r})"


class Classes:
    """The answers to one question, sorted into classes in the order in which they are given.

    A new answer is compared with the first member of each class, the oldest first, until one is the same; else it
    begins a class. So n answers that all differ cost n(n-1)/2 comparisons, 120 for 16, and no pair is compared twice.
    ``same`` need not be transitive: the order decides then, and it is that of the launches, not of the arrivals.

    Args:
        same: whether an answer (the second) means the same as the first member of a class.
        spelling: what two answers share that are the same without being compared.
    """

    def __init__(self, same: Same, *, spelling: Callable[[str], str] = str) -> None:
        self._same, self._spelling = same, spelling
        self._labels: dict[str, str] = {}  # spelling -> first member of its class
        self._firsts: list[str] = []

    def of(self, answer: str) -> str:
        """The class of an answer, named by its first member."""
        spelling = self._spelling(answer)
        if spelling not in self._labels:
            self._labels[spelling] = self._found(answer)
        return self._labels[spelling]

    def _found(self, answer: str) -> str:
        for first in self._firsts:
            if self._same(first, answer):
                return first
        self._firsts.append(answer)
        return answer
