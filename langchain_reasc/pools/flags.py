"""Answers that a pool flags both right and wrong, within one question."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from langchain_reasc.pools.pool import Pool

__all__ = ["Contradiction", "contradiction_note", "contradictions"]

_SHOWN: Final = 3
_LONGEST: Final = 40  # characters of an answer in a note


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One answer to one question, flagged both right and wrong.

    Attributes:
        question: the question's id.
        answer: the answer.
        right: responses that give it and are flagged right.
        wrong: those that give it and are flagged wrong.
        decides: what the first recorded of them is flagged, which is what replay goes by.
    """

    question: str
    answer: str
    right: int
    wrong: int
    decides: bool


def contradictions(pool: Pool) -> Iterator[Contradiction]:
    """The answers of a pool that are flagged both right and wrong, in the order of its questions.

    Responses without an answer, or without a flag, contradict nothing.
    """
    for question in pool.questions:
        flags: dict[str, list[bool]] = {}
        for one in question.responses:
            if one.answer is not None and one.correct is not None:
                flags.setdefault(one.answer, []).append(one.correct)
        for answer, given in flags.items():
            if 0 < sum(given) < len(given):
                yield Contradiction(question.id, answer, sum(given), len(given) - sum(given), given[0])


def contradiction_note(pool: Pool) -> str | None:
    """What the reader of a result should know of them, in a sentence; None where there are none."""
    found = list(contradictions(pool))
    if not found:
        return None
    shown = "; ".join(map(_shown, found[:_SHOWN]))
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"{pool.path.name} flags equal answers to one question both right and wrong ({shown}{more}); the first "
        "recorded one decides for all of them, and `reasc grade` flags them alike"
    )


def _shown(one: Contradiction) -> str:
    answer = one.answer if len(one.answer) <= _LONGEST else one.answer[:_LONGEST] + "..."
    return f"question {one.question!r}, answer {answer!r}: {one.right} right, {one.wrong} wrong"
