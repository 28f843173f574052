"""Simulated pools of many kinds of models and tasks, to find where a method loses.

A pool's kind is how its answers are distributed and what its signal is worth; a pool is
drawn from its number and a seed, so that any one of thousands can be had again.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.method import Response
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc_lab.simulation.answers import (
    ANSWERS,
    Floats,
    Integers,
    Questions,
    draw_answers,
)
from langchain_reasc_lab.simulation.signals import SIGNAL_KINDS, Drawn, draw_scores

WARM_UPS: Final = (16, 32, 64, 128, 256, 512)
"""Numbers of warm-up questions."""
MEASURES: Final = 8


@dataclass(frozen=True, slots=True)
class PoolKind:
    """How a pool is drawn.

    Attributes:
        answers: a name in :data:`~langchain_reasc_lab.simulation.answers.ANSWERS`.
        signal: a name in :data:`~langchain_reasc_lab.simulation.signals.SIGNAL_KINDS`.
    """

    answers: str
    signal: str


@dataclass(frozen=True, slots=True)
class Responses:
    """Responses to questions, in the order in which they were launched.

    Attributes:
        answers: shape (questions, budget), the answers of a question as 0, 1, 2, ... in
            the order in which they first appear; -1 if there is none.
        scores: shape (measures, questions, budget), S(y), finite. The first measure is
            of the pool's kind of signal; of the others every second is noise, and the
            rest are noise and the first one, in different shares.
        tokens: shape (questions, budget), tokens of each response, at least 1.
        right: shape (questions,), the right answer, numbered as in ``answers``; -2
            where no response gives it.
    """

    answers: Integers
    scores: Floats
    tokens: Integers
    right: Integers

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether each response is right, shape (questions, budget)."""
        return np.asarray(self.answers == self.right[:, None])

    def to_question(self, question: int, measure: int | None = 0) -> list[Response]:
        """Return what rules read of the responses to one question, scored by this
        measure or not at all.
        """
        answers = [
            None if answer < 0 else str(answer)
            for answer in self.answers[question].tolist()
        ]
        if measure is None:
            return [Response(answer, blank=answer is None) for answer in answers]
        scores = self.scores[measure, question].tolist()
        scored = zip(answers, scores, strict=True)
        return [
            Response(answer, score, blank=answer is None) for answer, score in scored
        ]

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, some: slice) -> "Responses":
        return Responses(
            self.answers[some],
            self.scores[:, some],
            self.tokens[some],
            self.right[some],
        )


@dataclass(frozen=True, slots=True)
class SimulatedPool:
    """A model on a task.

    Attributes:
        index: the number it was drawn from.
        kind: how it was drawn.
        warm_up: the questions to learn from.
        tested: the questions on which methods are compared.
    """

    index: int
    kind: PoolKind
    warm_up: Responses
    tested: Responses


def kind_of(index: int) -> PoolKind:
    """Return the kind of a pool: all pairs of answers and signals follow one another."""
    answers, signals = tuple(ANSWERS), tuple(SIGNAL_KINDS)
    turn, at = divmod(index, len(answers))
    return PoolKind(answers[at], signals[(at + turn) % len(signals)])


def simulated_pool(
    index: int,
    *,
    seed: int = 0,
    questions: int = 20_000,
    budget: int = DEFAULT_BUDGET,
    measures: int = MEASURES,
) -> SimulatedPool:
    """Draw the pool of this number, from ``default_rng([seed, index])``.

    Args:
        index: the number of the pool, which also determines its kind.
        seed: the seed of all pools.
        questions: tested questions; those to warm up on, one of :data:`WARM_UPS`, come
            before them.
        budget: responses to each.
        measures: how many scores each response has.
    """
    rng = np.random.default_rng([seed, index])
    kind, warm_up = kind_of(index), int(rng.choice(WARM_UPS))
    responses = _responses(
        rng,
        ANSWERS[kind.answers](rng, warm_up + questions),
        kind.signal,
        budget,
        measures,
    )
    return SimulatedPool(index, kind, responses[:warm_up], responses[warm_up:])


def _responses(
    rng: np.random.Generator,
    questions: Questions,
    signal: str,
    budget: int,
    measures: int,
) -> Responses:
    answers, right = draw_answers(rng, questions, budget)
    tokens = _tokens(rng, questions.heaviest, budget)
    scores = draw_scores(
        rng,
        signal,
        Drawn(answers, answers == right[:, None], questions.likely),
        measures,
    )
    if questions.alike:
        tokens = np.repeat(tokens[:, :1], budget, axis=1)
        scores = np.repeat(scores[:, :, :1], budget, axis=2)
    return Responses(answers, scores, tokens, right)


def _tokens(rng: np.random.Generator, heaviest: Floats, budget: int) -> Integers:
    """Constant in one pool of five; else log-normal, and up to 1.4 times as many where
    answers differ most.
    """
    usual, spread = rng.uniform(20, 400), 0.3 * (rng.random() < 0.8)
    by_question = usual * np.exp(0.35 * (1 - heaviest)[:, None] if spread else 0.0)
    drawn = by_question * np.exp(spread * rng.normal(size=(len(heaviest), budget)))
    return np.maximum(1, np.rint(drawn)).astype(np.int64)
