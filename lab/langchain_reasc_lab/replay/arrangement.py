"""A pool as arrays: what a decision after n responses costs, and whether its answer is right."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc.answers import kind_of
from langchain_reasc.calibrating.pool_scores import PoolScores
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Response
from langchain_reasc.pools import Pool, PoolQuestion
from langchain_reasc_lab.replay.decide_many import Decisions, decide_many
from langchain_reasc_lab.replay.methods import Method, Split
from langchain_reasc_lab.replay.stream import Stream
from langchain_reasc_lab.replay.vote_arrays import Integers, Votes, numbered, tally

__all__ = ["COLUMNS", "Arrangement", "Cells", "RecordedPool"]

COLUMNS = ("correct", "samples", "tokens", "prompt_tokens", "gated", "support")
Cells = npt.NDArray[np.float64]


class RecordedPool:
    """The responses of a pool as arrays of shape (questions, responses), in recorded order.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
    """

    def __init__(self, pool: Pool, scores: PoolScores) -> None:
        rows = [question.responses for question in pool.questions]
        self.pool, self.scores = pool, scores
        self.lengths = np.array([len(row) for row in rows])
        self.answers = padded([_numbers(question) for question in pool.questions], -1)
        self.right = padded([_rights(question) for question in pool.questions], False)
        self.cut_off = padded([[one.cut_off for one in row] for row in rows], False)
        self.tokens = padded([[one.completion_tokens for one in row] for row in rows], 0.0)
        self.prompts = padded([[np.nan if (n := one.prompt_tokens) is None else n for one in row] for row in rows], 0.0)
        with_kind = {answer for answer in {one.answer for row in rows for one in row} if kind_of(answer) is not None}
        self.with_kinds = np.array([any(one.answer in with_kind for one in row) for row in rows])


class Arrangement:
    """Some questions of an arranged pool: T questions, n responses to each at most.

    Args:
        recorded: the pool.
        split: in which order responses are seen.
        questions: indices of the questions, such as those that are tested.
        budget: the most responses that any method sees.
    """

    def __init__(self, recorded: RecordedPool, split: Split, questions: Sequence[int], budget: int) -> None:
        self._recorded = recorded
        self._tested = np.asarray(questions, dtype=np.int64)
        self._budget = budget
        self._orders = [split.orders[question][:budget] for question in questions]
        self._order = padded(self._orders, 0)
        self._lengths = np.minimum(recorded.lengths[self._tested], budget)
        self._right = self._arranged(recorded.right, False)
        self._tokens = self._arranged(recorded.tokens, 0.0).cumsum(axis=1)
        self._prompts = self._arranged(recorded.prompts, 0.0).cumsum(axis=1)
        answers, cut_off = self._arranged(recorded.answers, -1), self._arranged(recorded.cut_off, False)
        self._votes = Votes(numbered(answers), np.full(answers.shape, np.nan), cut_off, self._lengths)

    def outcome(self, method: Method) -> Cells:
        """What a method does on the questions, shape (questions of the pool, 6); NaN elsewhere."""
        if not self._tested.size:
            return np.full((self._recorded.lengths.size, len(COLUMNS)), np.nan)
        if method.learns is not None:
            streamed = self.stream(method.learns).run()
            return self.cells(streamed.decisions, streamed.decisions.samples + streamed.audited)
        decisions = self.decisions(method)
        return self.cells(decisions, -(-decisions.samples // method.at_once) * method.at_once)

    def cells(self, decisions: Decisions, drawn: Integers) -> Cells:
        """What decisions come to where so many responses were drawn; shape as of :meth:`outcome`."""
        paid = np.minimum(drawn, self._lengths)
        each = np.arange(self._tested.size)
        agreeing = (self._votes.answers == decisions.answers[:, None]).argmax(axis=1)
        cells = np.full((self._recorded.lengths.size, len(COLUMNS)), np.nan)
        cells[self._tested] = np.column_stack(
            (
                (decisions.answers >= 0) & self._right[each, agreeing],
                paid,
                self._tokens[each, paid - 1],
                self._prompts[each, paid - 1],
                decisions.because("gate"),
                decisions.support,
            )
        )
        return cells

    def decisions(self, method: Method) -> Decisions:
        """The decision of its rule on each of the questions."""
        held = self._recorded.scores

        def responses(row: int) -> Sequence[Response]:
            recorded = held.responses_to(int(self._tested[row]), method.measure)
            return [recorded[at] for at in self._orders[row]]

        return decide_many(
            method.rule, self._votes_by(method.measure), responses, one_by_one=self._recorded.with_kinds[self._tested]
        )

    def stream(self, measures: Sequence[Measure | str]) -> Stream:
        """The questions one after another, to be learned from without labels.

        Args:
            measures: the candidates; one that is called ``recorded`` stands for the pool's own scores.
        """
        held = self._recorded.scores

        def responses(row: int, measure: int | None) -> Sequence[Response]:
            recorded = held.responses_to(int(self._tested[row]), None if measure is None else measures[measure])
            return [recorded[at] for at in self._orders[row]]

        return Stream(
            self._votes,
            [self._arranged(held.array(measure), np.nan) for measure in measures],
            [measure if isinstance(measure, Measure) else Measure() for measure in measures],
            responses,
            self._recorded.with_kinds[self._tested],
            self._budget,
        )

    def asc_confidence(self, tokens: float) -> float:
        """The confidence at which ASC spends most nearly so many tokens per question, in the mean of those tested.

        What ASC spends rises by steps with its confidence, at posteriors that occur; they are searched by bisection.
        """
        reached = np.maximum.accumulate(tally(self._votes).posterior, axis=1)

        def spent(confidence: float) -> float:
            stop = np.minimum((reached < confidence).sum(axis=1), self._lengths - 1)
            return float(self._tokens[np.arange(stop.size), stop].mean())

        never = np.nextafter(1.0, 0.0)
        steps = np.unique(np.append(reached[(reached > 0.5) & (reached < never)], never))
        above = min(bisect_left(steps, tokens, key=spent), steps.size - 1)
        return float(min(steps[max(above - 1, 0) : above + 1], key=lambda step: abs(spent(step) - tokens)))

    def _votes_by(self, measure: Measure | str | None) -> Votes:
        if measure is None:
            return self._votes
        return self._votes.scored(self._arranged(self._recorded.scores.array(measure), np.nan))

    def _arranged(self, values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        there = np.arange(self._order.shape[1]) < self._lengths[:, None]
        return np.where(there, np.take_along_axis(values[self._tested], self._order, axis=1), fill).astype(values.dtype)


def padded(rows: Sequence[Sequence[Any]], fill: float) -> npt.NDArray[Any]:
    """Rows of different lengths as one array."""
    array = np.full((len(rows), max(map(len, rows), default=0)), fill)
    for at, row in enumerate(rows):
        array[at, : len(row)] = row
    return array


def _numbers(question: PoolQuestion) -> list[int]:
    known: dict[str, int] = {}
    answers = (one.answer for one in question.responses)
    return [-1 if answer is None else known.setdefault(answer, len(known)) for answer in answers]


def _rights(question: PoolQuestion) -> list[bool]:
    """Of equal answers the first recorded one says whether it is right, in every arrangement alike."""
    right = {one.answer: bool(one.correct) for one in reversed(question.responses)}
    return [right[one.answer] for one in question.responses]
