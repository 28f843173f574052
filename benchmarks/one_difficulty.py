"""What stopping rules lose where all questions are equally hard: computed, not drawn.

In a world of one difficulty every response is right with the same probability, and
wrong responses are spread evenly over a few answers. A rule of a fixed confidence may
hold on average over easy and hard questions, and lose most in one of these worlds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.method import Cap, Response, StoppingRule

BUDGETS: Final = (8, 16, 40)
WRONG: Final = (1, 2, 5)
RIGHT: Final = tuple(percent / 100 for percent in range(30, 100, 5))
Votes = tuple[int, ...]
"""Votes for the right answer, then those for each wrong one, in descending order."""


class World(NamedTuple):
    """A world of one difficulty.

    Attributes:
        right: the probability that a response is right.
        wrong: how many wrong answers there are.
    """

    right: float
    wrong: int

    def __str__(self) -> str:
        return f"p={self.right:.2f} m={self.wrong}"


class Loss(NamedTuple):
    """What a rule does in a world.

    Attributes:
        world: the world.
        tokens: the responses that it uses, relative to the budget.
        points: its right answers minus those of the whole budget.
    """

    world: World
    tokens: float
    points: float


@dataclass(frozen=True, slots=True)
class Stops:
    """The votes on which a rule stops: arrays of one shape.

    Attributes:
        right: votes for the right answer.
        wrong: votes for wrong answers.
        ways: in how many orders the rule comes to such votes.
        chance: the probability that the answer is right: a tie goes to the answer that
            was seen first, which is any of them equally often.
    """

    right: npt.NDArray[np.float64]
    wrong: npt.NDArray[np.float64]
    ways: npt.NDArray[np.float64]
    chance: npt.NDArray[np.float64]

    @classmethod
    def of(cls, rule: StoppingRule, *, wrong: int, budget: int) -> "Stops":
        """Return where a rule that counts the two leading answers stops."""
        stops = _stops(rule | Cap(budget), wrong)
        votes = np.array(list(stops), dtype=np.float64)
        leads = votes == votes.max(axis=1, keepdims=True)
        return cls(
            right=votes[:, 0],
            wrong=votes[:, 1:].sum(axis=1),
            ways=np.array(list(stops.values())),
            chance=leads[:, 0] / leads.sum(axis=1),
        )

    def within(self, world: World) -> tuple[float, float]:
        """Return how many responses are used, and how often the answer is right."""
        each = (1 - world.right) / world.wrong
        likely = self.ways * world.right**self.right * each**self.wrong
        responses = likely @ (self.right + self.wrong)
        return float(responses), float(likely @ self.chance)


def losses(rule: StoppingRule, budget: int) -> Iterator[Loss]:
    """Yield what a rule does in each world, beside the whole budget."""
    for wrong in WRONG:
        stops = Stops.of(rule, wrong=wrong, budget=budget)
        always = _always(wrong, budget)
        for right in RIGHT:
            world = World(right, wrong)
            responses, accuracy = stops.within(world)
            points = 100 * (accuracy - always.within(world)[1])
            yield Loss(world, responses / budget, points)


@cache
def _always(wrong: int, budget: int) -> Stops:
    return Stops.of(Cap(budget), wrong=wrong, budget=budget)


def _stops(rule: StoppingRule, wrong: int) -> dict[Votes, float]:
    """Return in how many ways a rule comes to each of the votes on which it stops."""

    @cache
    def stops(first: int, second: int, others: int) -> bool:
        answers = ["first"] * first + ["second"] * second
        answers.extend(f"other {at}" for at in range(others))
        return rule([Response(answer) for answer in answers]).stop

    stopped: dict[Votes, float] = {}
    going: dict[Votes, float] = {(0,) * (wrong + 1): 1.0}
    while going:
        reached: defaultdict[Votes, float] = defaultdict(float)
        for (votes, ways), at in product(going.items(), range(wrong + 1)):
            reached[_with_another(votes, at)] += ways
        going = {}
        for votes, ways in reached.items():
            *_, second, first = sorted(votes)
            ends = stops(first, second, sum(votes) - first - second)
            (stopped if ends else going)[votes] = ways
    return stopped


def _with_another(votes: Sequence[int], at: int) -> Votes:
    more = list(votes)
    more[at] += 1
    return more[0], *sorted(more[1:], reverse=True)
