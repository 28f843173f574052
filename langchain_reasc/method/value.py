"""The value of one more sample: stop when a sample costs more than its expected gain.

Sampling can raise the answer's share among infinitely many responses. After n answers, n₁ of them the leader's, a
Pitman–Yor process of discount d and concentration α expects the leader to have the share (n₁ − d) / (n + α), and so
does the mixture that is learned from how answers agree (:mod:`~langchain_reasc.method.agreement`). The value of
stopping is that share. The value of continuing is the expected value of the next state minus the price of a sample.
Backward induction from the end of the budget over the partitions of the answers gives the optimal stop under this
prior (Chow, Robbins and Siegmund 1971).

So sampling stops early if the votes behind one leader are scattered, such as 4, 1, 1, 1 and 1: more samples would
hardly find a better answer, although the evidence for this one will never be sufficient. Between two answers that are
nearly as frequent, sampling continues, because each sample helps to tell which is better.
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
    """Stop when the remaining samples would gain less than they cost.

    The gain is the increase of the leader's expected share of responses. A response without a vote uses one of the
    remaining calls. Votes are counted. The posterior is that of Eq. 5, because this stop does not say how certain the
    answer is. If ``vote`` weighs responses, this rule stops only if the counts have the same leader.

    Attributes:
        prior: the expected agreement of answers.
        worth: the most samples that one more point (0.01) of gain may cost; above zero.
        budget: the total number of responses, ``max_samples``; at most 24, because more answers have too many
            partitions.
        vote: a rule that weighs responses by their scores, or None.

    Raises:
        ConfigurationError: the worth or the budget is out of range.
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
            raise ConfigurationError("worth must be above 0 for this rule; worth=0 means not to use it")
        if self.budget > LARGEST_HORIZON:
            raise ConfigurationError(f"budget must be at most {LARGEST_HORIZON} for this rule, got {self.budget}")

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
        """Return whether another sample is worth its price."""
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
    """Require a finite worth >= 0.

    Raises:
        ConfigurationError: the worth is below zero, infinite or NaN.
    """
    if not 0 <= worth < np.inf:
        raise ConfigurationError(f"worth must be a finite number of samples >= 0, got {worth}")


class _Next(NamedTuple):
    """Transitions from the partitions of n answers to those of n + 1: several rows for each partition.

    Attributes:
        origin: the index of the partition before.
        into: the index of the partition after.
        size: how often the added answer was given before, 0 for a new answer.
        times: how many answers were given that often.
        kinds: how many different answers there are.
    """

    origin: Indices
    into: Indices
    size: Floats
    times: Floats
    kinds: Floats


class _Outlook:
    """Tables of a prior: the expected share at each partition, and whether it pays to continue from there.

    Threads may share this object: tables never change, and at worst two threads compute the same one.
    """

    def __init__(self, prior: Prior, answers: int) -> None:
        grid = np.asarray(prior.components, dtype=np.float64)
        self._discount, self._concentration = grid[:, 0], grid[:, 1]
        self._values: list[Floats] = []
        """Element n: the value of stopping at each partition of n + 1 answers, shape (partitions,)."""
        self._chances: list[Floats] = []
        """Element n: the probability of each transition from n + 1 answers."""
        self._known: dict[tuple[float, int], list[Booleans]] = {}
        first = weights = np.asarray(prior.weights, dtype=np.float64)[None]
        for n in range(1, answers + 1):
            leading = np.array([counts[0] for counts in _positions(n)])
            self._values.append((weights * self._shares(n)[leading]).sum(axis=1))
            if n < answers:
                weights = self._look_further(n, weights, first)

    def goes_on(self, price: float, horizon: int) -> list[Booleans]:
        """Return, for n = 0 … horizon answers, whether it pays to continue from each partition. At the horizon, never.

        Args:
            price: the price of a sample, in expected share.
            horizon: final number of answers.
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
        """Compute the transitions from n answers.

        Args:
            n: answers so far.
            weights: weights of the components given each partition, shape (partitions, components).
            first: the prior's weights, for a partition that no component allows, shape (1, components).

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
        """Return the expected share of an answer given 0 … n times out of n, shape (n + 1, components)."""
        given = np.arange(n + 1)[:, None]
        return np.asarray(np.maximum(given - self._discount, 0.0) / (n + self._concentration))


@lru_cache(maxsize=8)  # half a megabyte each, where 24 answers are looked ahead to
def _outlook(prior: Prior, answers: int) -> _Outlook:
    return _Outlook(prior, answers)


@lru_cache(maxsize=LARGEST_HORIZON + 1)
def _positions(n: int) -> dict[Partition, int]:
    """Return every partition of n answers with its index."""
    return {counts: at for at, counts in enumerate(partitions(n, n))}


@lru_cache(maxsize=LARGEST_HORIZON)
def _next(n: int) -> _Next:
    """Return the transitions from each partition of n answers."""
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
