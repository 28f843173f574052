"""Sets of questions: which recordings ask the same ones, and means over sets.

Recordings of the same questions are not independent. So a mean goes over the recordings
of a set first, and then over sets.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtrit

from langchain_reasc_lab.pools import Pool
from langchain_reasc_lab.replay.bootstrap import Estimate

__all__ = ["QuestionNames", "mean_over_sets", "question_sets"]


@dataclass(frozen=True, slots=True)
class QuestionNames:
    """How a recording names its questions.

    Attributes:
        ids: the ids of the questions.
        inputs: the texts of the questions, as JSON; empty if none was recorded.
    """

    ids: frozenset[str]
    inputs: frozenset[str]

    @classmethod
    def of_pool(cls, pool: Pool) -> "QuestionNames":
        """Return the names of a pool's questions."""
        ids = frozenset(question.id for question in pool.questions)
        inputs = frozenset(
            json.dumps(question.input, sort_keys=True)
            for question in pool.questions
            if question.input
        )
        return cls(ids, inputs)

    def shares_a_question(self, other: "QuestionNames") -> bool:
        """Return whether both ask a question: by its text where both recorded texts,
        else by its id.
        """
        if self.inputs and other.inputs:
            return not self.inputs.isdisjoint(other.inputs)
        return not self.ids.isdisjoint(other.ids)


def question_sets(recordings: Sequence[QuestionNames]) -> list[int]:
    """Return the number of each recording's set, from 1: two recordings that share a
    question are of one set.
    """
    shared = [
        [first.shares_a_question(second) for second in recordings]
        for first in recordings
    ]
    _, numbers = connected_components(np.array(shared), directed=False)
    return [int(number) + 1 for number in numbers]


def mean_over_sets(values: Sequence[float], sets: Sequence[int]) -> Estimate:
    """Return the mean over sets of the mean over a set's recordings, with the interval
    of Student's t; a single set has none.

    Args:
        values: a value of each recording.
        sets: the number of each recording's set.
    """
    of_set = np.asarray(sets)
    means = [
        np.asarray(values)[of_set == number].mean() for number in np.unique(of_set)
    ]
    mean = float(np.mean(means))
    if len(means) < 2:
        return Estimate(mean, math.nan, math.nan)
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    half = float(stdtrit(len(means) - 1, 0.975) * error)
    return Estimate(mean, mean - half, mean + half)
