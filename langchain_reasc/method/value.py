"""The value of one more sample: stop when it costs more than it is expected to gain.

What sampling raises is the share that the answer has among all that the model would ever give. With n answers, n₁ of
them the leader's, a Pitman–Yor process of discount d and concentration α expects the leader to have the share
(n₁ − d) / (n + α), and so does the mixture that was learned from how answers agree
(:mod:`~langchain_reasc.method.agreement`). To stop is worth that share. To go on costs a price, and is worth what is
expected of the next state. Backward induction from the end of the budget over the partitions of the answers so far
gives the best stop there is under this prior (Chow, Robbins and Siegmund 1971).

So a question is left early whose votes are scattered behind one leader, such as 4, 1, 1, 1 and 1 of eight: more samples
would hardly find a better answer, although the evidence for this one is never sufficient. Between two answers that are
nearly as frequent it goes on, as each sample tells more of which is better.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.agreement import LARGEST_HORIZON, Prior, partitions
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule, check_budget

__all__ = ["ValueStop", "check_worth"]

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Partition = tuple[int, ...]
"""How often each answer was given, largest first."""

_POINT: Final = 0.01


@dataclass(frozen=True)
class ValueStop(StoppingRule):
    """Stop when the samples left would gain less than they cost.

    The gain is in expected share of the leader: how often further responses would give the answer. A response without
    an answer uses one of the calls that are left. Votes are counted; the posterior is that of Eq. 5, as the stop does
    not say how sure the answer is. Where another rule weighs votes, it may have another leader than the count: this one
    stops only where both have the same.

    Attributes:
        prior: how answers are expected to agree.
        worth: samples that a question may cost for one more point (0.01) of the gain; above zero.
        budget: responses in all, ``max_samples``; 24 at most, as there are too many partitions of more answers.
        vote: what weighs responses by their scores, where a rule does.

    Raises:
        ConfigurationError: a worth or a budget out of range.
    """

    name: ClassVar[str] = "value"
    prior: Prior
    worth: float
    budget: int = DEFAULT_BUDGET
    vote: StoppingRule | None = None

    def __post_init__(self) -> None:
        check_budget(self.budget)
        check_worth(self.worth)
        if self.worth == 0:
            raise ConfigurationError("worth=0 leaves out this rule; it needs a worth above 0")
        if self.budget > LARGEST_HORIZON:
            raise ConfigurationError(f"the value of a sample is known for {LARGEST_HORIZON} at most, got {self.budget}")

    @property
    def reads_scores(self) -> bool:
        return self.vote is not None and self.vote.reads_scores

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes, left = self.tally(responses), self.budget - len(responses)
        if votes.answer is None or left <= 0 or (len(responses) == 1 and responses[0].cut_off):
            return votes
        stop = not self._pays(votes, left) and (self.vote is None or self.vote(responses).answer == votes.answer)
        return replace(votes, stop=stop, reason="worth" if stop else None)

    def prepare(self) -> None:
        self._outlook.goes_on(self._price, self.budget)

    def _pays(self, votes: Decision, left: int) -> bool:
        """Whether to go on is worth its price."""
        counts = sorted(map(int, votes.evidence.values()), reverse=True)
        known = sum(counts)
        return bool(self._outlook.goes_on(self._price, known + left)[known][_positions(known)[tuple(counts)]])

    @property
    def _price(self) -> float:
        return _POINT / self.worth

    @cached_property
    def _outlook(self) -> "_Outlook":
        return _outlook(self.prior, self.budget)


def check_worth(worth: float) -> None:
    """Refuse what is no number of samples.

    Raises:
        ConfigurationError: it is below zero, infinite or NaN.
    """
    if not 0 <= worth < np.inf:
        raise ConfigurationError(f"worth is a number of samples, 0 or more, got {worth}")


class _Next(NamedTuple):
    """What may follow the partitions of n answers: several rows for each of them.

    Attributes:
        origin: the position of the partition that a row begins at.
        into: the position of the partition of n + 1 answers that it leads to.
        size: how often the answer was given before, 0 for never.
        times: how many answers were given that often.
        kinds: how many answers there are.
    """

    origin: Indices
    into: Indices
    size: Floats
    times: Floats
    kinds: Floats


class _Outlook:
    """What a prior expects of each partition of up to so many answers, and whether it pays to go on from there.

    Threads may share it: what is made here stays as it is, and two that ask for the same price at most do the same.
    """

    def __init__(self, prior: Prior, answers: int) -> None:
        grid = np.asarray(prior.components, dtype=np.float64)
        self._discount, self._concentration = grid[:, 0], grid[:, 1]
        self._values: list[Floats] = []
        """After n + 1 answers what it is worth to stop at each partition, shape (partitions,)."""
        self._chances: list[Floats] = []
        """Likewise the probability of each row of what may follow."""
        self._known: dict[tuple[float, int], list[Booleans]] = {}
        first = weights = np.asarray(prior.weights, dtype=np.float64)[None]
        for n in range(1, answers + 1):
            leading = np.array([counts[0] for counts in _positions(n)])
            self._values.append((weights * self._shares(n)[leading]).sum(axis=1))
            if n < answers:
                weights = self._look_further(n, weights, first)

    def goes_on(self, price: float, horizon: int) -> list[Booleans]:
        """Return for n = 0 … horizon answers whether it pays to go on from each partition; at the horizon never.

        Args:
            price: of a sample, in what it is worth to stop.
            horizon: answers in the end.
        """
        if (price, horizon) not in self._known:
            value = self._values[horizon - 1]
            on = [np.zeros(len(value), dtype=bool)]
            for n in range(horizon - 1, 0, -1):
                follows, stopping = _next(n), self._values[n - 1]
                expected = self._chances[n - 1] * value[follows.into]
                going = np.bincount(follows.origin, expected, len(stopping)) - price
                on.append(going > stopping)
                value = np.maximum(going, stopping)
            self._known[price, horizon] = [np.zeros(0, dtype=bool), *reversed(on)]
        return self._known[price, horizon]

    def _look_further(self, n: int, weights: Floats, first: Floats) -> Floats:
        """Work out what may follow n answers.

        Args:
            n: answers so far.
            weights: those of the components given each partition of them, shape (partitions, components).
            first: the prior's, which a partition has that no component allows, shape (1, components).

        Returns:
            The weights given each partition of n + 1 answers.
        """
        follows = _next(n)
        size, kinds = follows.size[:, None], follows.kinds[:, None]
        opened = np.maximum(self._concentration + kinds * self._discount, 0.0)
        joint = weights[follows.origin] * np.where(size > 0, size - self._discount, opened) / (n + self._concentration)
        total = joint.sum(axis=1)
        self._chances.append(follows.times * total)
        after = np.empty((len(_positions(n + 1)), joint.shape[1]))
        after[follows.into] = np.where(total[:, None] > 0, joint / np.maximum(total, 1e-300)[:, None], first)
        return after

    def _shares(self, n: int) -> Floats:
        """Return the expected share of an answer that was given 0 … n times of n, shape (n + 1, components)."""
        given = np.arange(n + 1)[:, None]
        return np.asarray(np.maximum(given - self._discount, 0.0) / (n + self._concentration))


@lru_cache(maxsize=8)  # half a megabyte each, where 24 answers are looked ahead to
def _outlook(prior: Prior, answers: int) -> _Outlook:
    return _Outlook(prior, answers)


@lru_cache(maxsize=LARGEST_HORIZON + 1)
def _positions(n: int) -> dict[Partition, int]:
    """Return every partition of n answers with its position."""
    return {counts: at for at, counts in enumerate(partitions(n, n))}


@lru_cache(maxsize=LARGEST_HORIZON)
def _next(n: int) -> _Next:
    """Return what may follow each partition of n answers."""
    after = _positions(n + 1)
    rows = []
    for origin, counts in enumerate(_positions(n)):
        rows.append((origin, after[(*counts, 1)], 0, 1, len(counts)))
        for size, times in Counter(counts).items():
            at = counts.index(size)  # the first of its size, so that the order stays
            grown = (*counts[:at], size + 1, *counts[at + 1 :])
            rows.append((origin, after[grown], size, times, len(counts)))
    origin, into, size, times, kinds = np.array(rows, dtype=np.intp).T
    return _Next(origin, into, size.astype(float), times.astype(float), kinds.astype(float))
