"""One arrangement of a pool: the decisions of each method, their cost, and whether they
are right.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.method import (
    Decision,
    Measure,
    Response,
    decide,
    posterior,
    rule_in_use,
    support,
)
from langchain_reasc.method.decision import joined
from langchain_reasc_lab.pools import Pool, PoolQuestion, PoolScores
from langchain_reasc_lab.replay.methods import Method, Split
from langchain_reasc_lab.replay.stream import Stream

__all__ = ["COLUMNS", "Arrangement", "Cells", "RecordedPool", "padded"]

COLUMNS = ("correct", "samples", "tokens", "prompt_tokens", "gated", "support")
"""What is kept of each decision, in this order."""
Cells = npt.NDArray[np.float64]
"""The columns of each decision: shape (..., 6), see :data:`COLUMNS`."""
Integers = npt.NDArray[np.int64]


class RecordedPool:
    """The responses of a pool in recorded order: arrays of shape (questions,
    responses), and what rules read.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
    """

    def __init__(self, pool: Pool, scores: PoolScores) -> None:
        rows = [question.responses for question in pool.questions]
        self.pool, self.scores = pool, scores
        self.lengths = np.array([len(row) for row in rows])
        self.right = [_right_by_answer(question) for question in pool.questions]
        self.tokens = padded(
            [[one.completion_tokens for one in row] for row in rows], 0.0
        )
        self.prompts = padded(
            [
                [np.nan if (n := one.prompt_tokens) is None else n for one in row]
                for row in rows
            ],
            0.0,
        )
        self.responses = lru_cache(maxsize=8)(scores.responses)


class Arrangement:
    """Some questions of an arranged pool: T questions, n responses to each at most.

    Args:
        recorded: the pool.
        split: in which order responses are seen.
        questions: indices of the questions, such as those that are tested.
        budget: the most responses that any method sees.
    """

    def __init__(
        self,
        recorded: RecordedPool,
        split: Split,
        questions: Sequence[int],
        budget: int,
    ) -> None:
        self._recorded, self._budget = recorded, budget
        self._questions = np.asarray(questions, dtype=np.int64)
        self._orders = [split.orders[question][:budget] for question in questions]
        self._order = padded(self._orders, 0)
        self._lengths = np.minimum(recorded.lengths[self._questions], budget)
        self._tokens = self.arranged(recorded.tokens).cumsum(axis=1)
        self._prompts = self.arranged(recorded.prompts).cumsum(axis=1)

    def outcome(self, method: Method) -> Cells:
        """Return what a method does on the questions, shape (questions of the pool, 6);
        NaN elsewhere.
        """
        if not self._questions.size:
            return np.full((self._recorded.lengths.size, len(COLUMNS)), np.nan)
        if method.learns is not None:
            return self.outcome_of(self.stream(method.learns))
        decisions = self.decisions(method)
        waves = [-(-decision.samples // method.at_once) for decision in decisions]
        return self.cells(decisions, np.array(waves) * method.at_once)

    def outcome_of(self, stream: Stream) -> Cells:
        """Return what learning along a stream of these questions does; shape as of
        :meth:`outcome`.
        """
        streamed = stream.run()
        samples = np.array([decision.samples for decision in streamed.decisions])
        return self.cells(streamed.decisions, samples + streamed.audited)

    def cells(self, decisions: Sequence[Decision], drawn: Integers) -> Cells:
        """Return what decisions come to; shape as of :meth:`outcome`.

        Args:
            decisions: the decision on each question.
            drawn: shape (T,), how many responses were drawn.
        """
        paid = np.minimum(drawn, self._lengths)
        each = np.arange(self._questions.size)
        right = (
            self._recorded.right[question] for question in self._questions.tolist()
        )
        supports = [support(decision) for decision in decisions]
        cells = np.full((self._recorded.lengths.size, len(COLUMNS)), np.nan)
        cells[self._questions] = np.column_stack(
            (
                [
                    known.get(decision.answer, False)
                    for known, decision in zip(right, decisions, strict=True)
                ],
                paid,
                self._tokens[each, paid - 1],
                self._prompts[each, paid - 1],
                [decision.reason == "gate" for decision in decisions],
                [np.nan if value is None else value for value in supports],
            )
        )
        return cells

    def decisions(self, method: Method) -> list[Decision]:
        """Return the decision of its rule on each of the questions."""
        rule = rule_in_use(method.rule, self._budget) if method.in_use else method.rule
        return [
            decide(rule, responses) for responses in self._responses(method.measure)
        ]

    def stream(self, measures: Sequence[Measure | str]) -> Stream:
        """Return the questions one after another, to be learned from without labels.

        Args:
            measures: the candidates; one that is called ``recorded`` stands for the
                pool's own scores.
        """
        named = {
            measure if isinstance(measure, Measure) else Measure(): measure
            for measure in measures
        }
        held = self._recorded.scores
        return Stream(
            responses=lambda measure: self._responses(
                None if measure is None else named[measure]
            ),
            scores=[self.arranged(held.array(measure), np.nan) for measure in measures],
            measures=list(named),
            budget=self._budget,
        )

    def asc_confidence(self, tokens: float) -> float:
        """Return the confidence at which ASC spends most nearly so many tokens per
        question, in the mean.

        What ASC spends rises by steps with its confidence, at posteriors that occur;
        they are searched by bisection.
        """
        reached = self._highest_posteriors

        def spent(confidence: float) -> float:
            stop = np.minimum((reached < confidence).sum(axis=1), self._lengths - 1)
            return float(self._tokens[np.arange(stop.size), stop].mean())

        never = np.nextafter(1.0, 0.0)
        steps = np.unique(
            np.append(reached[(reached > 0.5) & (reached < never)], never)
        )
        above = min(bisect_left(steps, tokens, key=spent), steps.size - 1)
        return float(
            min(
                steps[max(above - 1, 0) : above + 1],
                key=lambda step: abs(spent(step) - tokens),
            )
        )

    @cached_property
    def _highest_posteriors(self) -> Cells:
        """The highest posterior of ASC up to each response, shape (T, n)."""
        rows = []
        for responses in self._responses(None):
            counts: dict[str, float] = {}
            row = []
            for response in joined(responses):
                if response.answer is not None:
                    counts[response.answer] = counts.get(response.answer, 0.0) + 1.0
                row.append(posterior(counts))
            rows.append(row)
        return np.asarray(np.maximum.accumulate(padded(rows, 0.0), axis=1))

    def _responses(self, measure: Measure | str | None) -> list[list[Response]]:
        """Return what rules see of each question, in this order."""
        held = self._recorded.responses(measure)
        pairs = zip(self._questions.tolist(), self._orders, strict=True)
        return [[held[question][at] for at in order] for question, order in pairs]

    def arranged(self, values: npt.NDArray[Any], fill: float = 0.0) -> npt.NDArray[Any]:
        """Return values of shape (questions, responses) in recorded order as methods
        see them, ``fill`` beyond.
        """
        there = np.arange(self._order.shape[1]) < self._lengths[:, None]
        return np.where(
            there,
            np.take_along_axis(values[self._questions], self._order, axis=1),
            fill,
        )


def padded(rows: Sequence[Sequence[Any]], fill: float) -> npt.NDArray[Any]:
    """Return rows of different lengths as one array."""
    array = np.full((len(rows), max(map(len, rows), default=0)), fill)
    for at, row in enumerate(rows):
        array[at, : len(row)] = row
    return array


def _right_by_answer(question: PoolQuestion) -> dict[str | None, bool]:
    """Return whether each answer is right; of equal answers the first recorded one says
    it, in every arrangement.
    """
    right = {one.answer: bool(one.correct) for one in reversed(question.responses)}
    return {answer: value for answer, value in right.items() if answer is not None}
