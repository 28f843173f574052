"""Stopping rules on arrays: what a rule says after each response to each of many questions.

A rule that has no function here is decided on question by question, with
:func:`~langchain_reasc.method.stopping.decide`: some twenty times as slow, and the same. To give one its
function, say what it says of every prefix, and nothing of when it stopped first::

    @on_arrays(FiniteHorizon)
    def _finite_horizon(rule: FiniteHorizon, votes: Votes) -> Verdicts:
        counts = tally(votes)  # or tally(votes, weights), of shape (Q, n)
        left = rule.budget - np.arange(1, votes.width + 1)
        ahead = stays_ahead(counts.first, counts.second, left)
        return Verdicts.stopping(counts, (ahead >= rule.phi) & (left > 0), "agreement")

Such a function computes with the very operations of the rule, in their order: ``tests/evaluation/test_decide_many.py``
holds each one against ``decide``, decision by decision, and wants a line for a new rule. ``math.exp`` and ``numpy.exp``
differ in the last bit, so scalar functions are mapped over arrays. A function returns None where arrays cannot tell.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.decision import Reason
from langchain_reasc.method.evidence import _LARGEST_EXPONENT, WEIGHTS, Standardizer
from langchain_reasc.method.stopping import ASC, ESC, Cap, ReASC, StoppingRule, _Both, _Either
from langchain_reasc_lab.replay.vote_arrays import Booleans, Floats, Integers, Tally, Votes, tally

__all__ = ["GOES_ON", "REASONS", "Verdicts", "after_each", "on_arrays"]

REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
GOES_ON: Final = -1


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a rule says after each response, without looking for an earlier stop.

    Attributes:
        answers: shape (Q, n), the answer as :class:`~.vote_arrays.Votes` numbers it; -1 while there is none.
        reasons: shape (Q, n), why it stops, as an index of :data:`REASONS`; :data:`GOES_ON` where it does not.
        evidence: shape (Q, n, K), the accumulated weight of each answer.
    """

    answers: Integers
    reasons: npt.NDArray[np.int8]
    evidence: Floats

    @classmethod
    def stopping(cls, sums: Tally, where: Booleans, reason: Reason) -> "Verdicts":
        """Stops with the leader wherever ``where`` says so, shape (Q, n), for one and the same reason."""
        return cls(sums.leader, np.where(where, np.int8(REASONS.index(reason)), np.int8(GOES_ON)), sums.evidence)

    def elsewhere(self, other: "Verdicts") -> "Verdicts":
        """These where they stop; else the reasons of others, with the answers and the evidence of these."""
        return replace(self, reasons=np.where(self.reasons == GOES_ON, other.reasons, self.reasons))


OnArrays = Callable[[Any, Votes], Verdicts | None]
Function = TypeVar("Function", bound=OnArrays)
_FUNCTIONS: dict[type[StoppingRule], OnArrays] = {}


def on_arrays(kind: type[StoppingRule]) -> Callable[[Function], Function]:
    """Decorate the function that says on arrays what a rule of exactly this class says."""

    def register(function: Function) -> Function:
        _FUNCTIONS[kind] = function
        return function

    return register


def after_each(rule: StoppingRule, votes: Votes) -> Verdicts | None:
    """What the rule says after each response; None where only calling it question by question can tell."""
    function = _FUNCTIONS.get(type(rule))  # a subclass may decide otherwise
    return None if function is None else function(rule, votes)


@on_arrays(Cap)
def _cap(rule: Cap, votes: Votes) -> Verdicts:
    spent = np.broadcast_to(np.arange(1, votes.width + 1) >= rule.samples, votes.answers.shape)
    return Verdicts.stopping(tally(votes), spent, "budget")


@on_arrays(ASC)
def _asc(rule: ASC, votes: Votes) -> Verdicts:
    counts = tally(votes)
    return Verdicts.stopping(counts, counts.reaches(rule.confidence), "evidence")


@on_arrays(ESC)
def _esc(rule: ESC, votes: Votes) -> Verdicts:
    counts, stops = tally(votes), np.zeros(votes.answers.shape, dtype=bool)
    answers = counts.leader
    for start in reversed(range(0, votes.width - rule.window + 1, rule.window)):  # the first one has the last word
        window, after = votes.answers[:, start : start + rule.window], start + rule.window - 1
        unanimous = (window[:, 0] >= 0) & (window == window[:, :1]).all(axis=1)
        stops[unanimous, after:] = True
        answers[unanimous, after:] = window[unanimous, :1]
    return Verdicts.stopping(replace(counts, leader=answers), stops, "window")


@on_arrays(ReASC)
def _reasc(rule: ReASC, votes: Votes) -> Verdicts | None:
    weights = _weights(rule, votes)
    if weights is None:
        return None
    sums = tally(votes, weights)
    gated = np.zeros(votes.answers.shape, dtype=bool)
    if rule.gate is not None:
        first = votes.first(1)
        gated[:, :1] = (first.answers >= 0) & ~first.cut_off & (first.scores >= rule.gate)
    by_gate = Verdicts.stopping(sums, gated, "gate")
    return by_gate.elsewhere(Verdicts.stopping(sums, sums.reaches(rule.confidence), "evidence"))


def _weights(rule: ReASC, votes: Votes) -> Floats | None:
    """What each response counts for; None where one may have to be refused, which depends on when sampling stops."""
    weights = np.ones(votes.answers.shape)
    if rule.weight == "count":
        return weights
    answered, scored = votes.answers >= 0, ~np.isnan(votes.scores)
    if rule.weight == "mean" and rule.statistics.mean <= 0:
        return None
    if rule.on_missing_confidence == "error" and (answered & ~scored).any():
        return None
    weighed = answered & scored
    if rule.weight == "reasc":
        weighed &= votes.scores > rule.statistics.mean  # the others have the weight max(1, exp(λ z)) = 1
        weights[weighed] = _exponential(votes.scores[weighed], rule.statistics)
    else:
        weigh = WEIGHTS[rule.weight]
        weights[weighed] = [weigh(score, rule.statistics) for score in votes.scores[weighed].tolist()]
    return weights


def _exponential(scores: Floats, by: Standardizer) -> list[float]:
    exponents = np.minimum(by.scale * ((scores - by.mean) / by.std), _LARGEST_EXPONENT)
    return [math.exp(exponent) for exponent in exponents.tolist()]


@on_arrays(_Either)
def _either(rule: _Either, votes: Votes) -> Verdicts | None:
    left, right = after_each(rule.left, votes), after_each(rule.right, votes)
    return None if left is None or right is None else left.elsewhere(right)


@on_arrays(_Both)
def _both(rule: _Both, votes: Votes) -> Verdicts | None:
    left, right = after_each(rule.left, votes), after_each(rule.right, votes)
    if left is None or right is None:
        return None
    both = (left.reasons != GOES_ON) & (right.reasons != GOES_ON)
    return replace(left, reasons=np.where(both, left.reasons, np.int8(GOES_ON)))
