"""The agreement rule: stop when the whole budget would most likely give the same
answer.

The rule only looks at how often each answer was given: a partition of the number of
answers. In a Pitman–Yor process of discount d and concentration α (Pitman and Yor
1997), the next response gives answer i, seen n_i times, with probability (n_i − d) / (n
+ α), and a new answer with probability (α + k d) / (n + α), where k answers have been
seen. With d = −κ and α = mκ it is the symmetric Dirichlet over m answers. A
:class:`Prior` is a mixture of such processes, from models that nearly always agree with
themselves to models that hardly ever do.

The probability that the leader stays is exact: dynamic programming over partitions,
backwards from the last answer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Reason, Response, is_cut_off_alone
from langchain_reasc.method.evidence import evidence_by_answer, leader, posterior
from langchain_reasc.method.horizon import stays_ahead
from langchain_reasc.method.stopping import (
    DEFAULT_BUDGET,
    StoppingRule,
    check_budget,
    check_probability,
)

__all__ = [
    "LARGEST_HORIZON",
    "Agreement",
    "Component",
    "Prior",
    "default_components",
    "likelihoods",
    "stays",
]

LARGEST_HORIZON: Final = 24
"""The most answers with an exact look-ahead. More answers have too many partitions to
count.
"""

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]
"""How often each answer was given: first the followed answer (usually the leader), then
the others, largest first.
"""


@dataclass(frozen=True)
class Agreement(StoppingRule):
    """Stop when P(the leader now is what the whole budget would answer | the counts) ≥
    ``threshold``.

    The probability is exact for the prior, which is learned without labels from how
    often answers agree. A response without a vote uses one of the remaining calls. The
    rule promises agreement with the majority of the whole budget, not a right answer.
    The posterior is that of Eq. 5. The rule itself does not stop at the end of the
    budget; combine it with :class:`~langchain_reasc.method.stopping.Cap`.

    With ``vote``, responses are weighed by their scores. The leader is then that of the
    weighted votes, and sampling also stops when the weighted votes are sufficient. The
    counts stop sampling only if they have the same leader.

    Attributes:
        prior: the expected agreement of answers.
        threshold: θ, above one half.
        budget: the total number of responses, ``max_samples``. The probability is exact
            up to 24 answers. Beyond 24, only the two leading answers count, as in
            :class:`~langchain_reasc.method.horizon.FiniteHorizon`.
        vote: a rule that weighs responses by their scores; None counts responses.
    """

    name: ClassVar[str] = "agreement"
    prior: "Prior"
    threshold: float = 0.97
    budget: int = DEFAULT_BUDGET
    vote: StoppingRule | None = None

    def __post_init__(self) -> None:
        check_probability("threshold", self.threshold)
        check_budget(self.budget)

    @property
    def first_wave(self) -> int | None:
        return None if self.vote is None else self.vote.first_wave

    @property
    def reads_scores(self) -> bool:
        return self.vote is not None and self.vote.reads_scores

    def __call__(self, responses: Sequence[Response]) -> Decision:
        if self.vote is None:
            return self._count(responses)
        voted = self.vote(responses)
        if voted.stop:
            return voted
        decision = self._count(responses)
        if not decision.stop or voted.answer != decision.answer:
            return voted
        return replace(voted, stop=True, reason="agreement")

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return one for each response, or its weight in the weighted vote."""
        if self.vote is None:
            return super().weights(responses)
        return self.vote.weights(responses)

    def _count(self, responses: Sequence[Response]) -> Decision:
        """Decide with every vote counted as one."""
        evidence = evidence_by_answer((response.answer, 1.0) for response in responses)
        stays = self.leader_stays(evidence, self.budget - len(responses))
        stop = stays >= self.threshold and not is_cut_off_alone(responses)
        reason: Reason | None = "agreement" if stop else None
        return Decision(
            stop,
            leader(evidence),
            reason,
            len(responses),
            evidence,
            posterior(evidence),
        )

    def leader_stays(self, votes: Mapping[str, float], left: int) -> float:
        """Return P(the leader now is what the whole budget would answer); 0 without a
        leader or calls left.

        Args:
            votes: how many responses gave each answer.
            left: remaining calls.
        """
        lead, *rest = sorted(map(int, votes.values()), reverse=True) or [0]
        total = lead + sum(rest)
        if not lead or left <= 0:
            return 0.0
        if total >= LARGEST_HORIZON:
            return stays_ahead(lead, max(rest, default=0), left)
        # Beyond 24, calls without an answer do not shorten the horizon, because each
        # horizon needs another table.
        horizon = total + left if total + left <= LARGEST_HORIZON else self.budget
        return self.prior.leader_stays([lead, *rest], horizon)


class Component(NamedTuple):
    """A Pitman–Yor process with discount d < 1 and concentration α > −d. If d < 0,
    there are at most α / −d answers.
    """

    discount: float
    concentration: float


@lru_cache(maxsize=1)
def default_components() -> tuple[Component, ...]:
    """Return a grid from "always the same answer" to "hardly ever the same", and tasks
    of 2, 3 and 5 answers.
    """
    processes = product((0.0, 0.3, 0.6, 0.85), (0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 40.0))
    choices = product((2, 3, 5), (0.2, 1.0, 5.0))
    return (
        *(Component(discount, concentration) for discount, concentration in processes),
        *(Component(-share, answers * share) for answers, share in choices),
    )


@dataclass(frozen=True)
class Prior:
    """A mixture of Pitman–Yor processes, with weights that sum to one."""

    components: tuple[Component, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.components) != len(self.weights) or not self.components:
            raise ConfigurationError(
                f"{len(self.components)} components have {len(self.weights)} weights"
            )
        if (
            any(weight < 0 for weight in self.weights)
            or abs(sum(self.weights) - 1) > 1e-6
        ):
            raise ConfigurationError(
                "the weights of a prior must be >= 0 and sum to 1, got a sum of "
                f"{sum(self.weights):g}"
            )

    @classmethod
    def uniform(cls) -> "Prior":
        """Return all default components with equal weights, for use before anything is
        learned.
        """
        components = default_components()
        return cls(components, (1 / len(components),) * len(components))

    def leader_stays(self, counts: Sequence[int], horizon: int) -> float:
        """Return P(the answer of ``counts[0]`` has the most votes once there are
        ``horizon`` answers | the counts).

        Args:
            counts: how often each answer was given, the leader's count first; 1 to 24
                answers in all.
            horizon: final number of answers, at least ``sum(counts)``.
        """
        shape = _shape(counts)
        if (shape, horizon) not in self._known:
            stay = float(self.posterior(shape) @ stays(shape, horizon, self.components))
            # the weights' sum may be one rounding above 1
            self._known[shape, horizon] = min(1.0, stay)
        return self._known[shape, horizon]

    def posterior(self, counts: Sequence[float]) -> Floats:
        """Return the weights of the components given the counts, shape (components,).

        If no component allows these counts, return the prior's weights.

        Args:
            counts: how often each answer was given.
        """
        weights = np.asarray(self.weights)
        joint: Floats = weights * likelihoods([counts], self.components)[0]
        return np.asarray(joint / joint.sum()) if joint.any() else weights

    def share(self, counts: Sequence[float]) -> float:
        """Return the expected share of the answer of ``counts[0]`` among infinitely
        many responses.

        Args:
            counts: how often each answer was given.
        """
        by_component = (
            max(counts[0] - d, 0.0) / (sum(counts) + concentration)
            for d, concentration in self.components
        )
        return float(self.posterior(counts) @ np.fromiter(by_component, float))

    @cached_property
    def _known(self) -> dict[tuple[Shape, int], float]:
        return {}


def likelihoods(
    partitions: Iterable[Sequence[float]], components: Sequence[Component]
) -> Floats:
    """Return P(a sequence of answers with these counts) for each component, shape
    (partitions, components).

    ∏_{i<k} (α + i d) / (α + 1)_{n−1} · ∏_i (1 − d)_{n_i − 1}, where i runs from 1 over
    the k different answers and (x)_m = x (x + 1) … (x + m − 1). The order of the
    answers does not matter.
    """
    from scipy.special import gammaln

    grid = np.asarray(components, dtype=np.float64)
    discount = grid[:, 0]
    concentration = grid[:, 1]
    again = 1 - discount
    rows = []
    for counts in partitions:  # in logarithms, as factorials soon overflow
        classes = np.arange(1, len(counts))[:, None]
        with np.errstate(divide="ignore"):  # a component that allows no more answers
            opened = np.log(np.maximum(concentration + classes * discount, 0.0)).sum(
                axis=0
            )
        repeats = sum(gammaln(again + count - 1) - gammaln(again) for count in counts)
        rows.append(
            np.exp(
                opened
                + repeats
                + gammaln(concentration + 1)
                - gammaln(concentration + sum(counts))
            )
        )
    return np.array(rows).reshape(len(rows), len(grid))


def stays(
    counts: Sequence[int], horizon: int, components: tuple[Component, ...]
) -> Floats:
    """Return P(the answer of ``counts[0]`` has the most votes at the horizon | the
    counts), shape (components,).

    If m answers are tied at the horizon, each counts 1/m. Votes after the 24th are
    assumed to name one of the two answers that lead after 24.

    Args:
        counts: how often each answer was given; 1 to 24 answers in all.
        horizon: final number of answers.
        components: the components.
    """
    n = sum(counts)
    shape = _shape(counts)
    probabilities: Floats = _table(horizon, components)[n][_positions(n)[shape]]
    return probabilities


def _shape(counts: Sequence[int]) -> Shape:
    return (counts[0], *sorted(counts[1:], reverse=True))


@lru_cache(maxsize=LARGEST_HORIZON)
def _table(horizon: int, components: tuple[Component, ...]) -> list[Floats]:
    """Return the probabilities after n ≤ 24 answers, up to the horizon; each of shape
    (shapes, components).
    """
    if horizon < 1:
        raise ConfigurationError(f"horizon must be at least 1 answer, got {horizon}")
    grid = np.asarray(components, dtype=np.float64)
    exact = min(horizon, LARGEST_HORIZON)
    values: list[Floats] = [np.zeros((0, len(grid)))] * (exact + 1)
    ends = [[_stays_to_the_end(shape, horizon - exact)] for shape in _positions(exact)]
    values[exact] = np.repeat(ends, len(grid), axis=1)
    discount = grid[:, 0]
    concentration = grid[:, 1]
    for n in range(exact - 1, 0, -1):
        into, *columns, begins = _steps(n)
        sizes, times, kinds = (column[:, None] for column in columns)
        weight = np.where(
            sizes > 0,
            times * (sizes - discount),
            np.maximum(concentration + kinds * discount, 0.0),
        )
        values[n] = np.add.reduceat(
            weight / (n + concentration) * values[n + 1][into], begins, axis=0
        )
    return values


def _stays_to_the_end(shape: Shape, left: int) -> float:
    followed, *rest = shape
    if left:
        return stays_ahead(followed, max(rest, default=0), left)
    return 1 / shape.count(followed) if followed == max(shape) else 0.0


@lru_cache(maxsize=LARGEST_HORIZON)
def _steps(
    n: int,
) -> tuple[npt.NDArray[np.intp], Floats, Floats, Floats, npt.NDArray[np.intp]]:
    """Return all transitions from n to n + 1 answers: several rows for each shape.

    Returns:
        For each row, the index of the new shape, how often the added answer was given
        before (0 for a new answer), how many answers were given that often, and how
        many different answers there are; and for each shape, its first row.
    """
    positions = _positions(n + 1)
    rows: list[tuple[int, int, int, int]] = []
    begins: list[int] = []
    for shape in _positions(n):
        begins.append(len(rows))
        rows += [
            (positions[after], size, times, len(shape))
            for after, size, times in _successors(shape)
        ]
    into, sizes, times, kinds = np.array(rows, dtype=np.intp).T
    return (
        into,
        sizes.astype(float),
        times.astype(float),
        kinds.astype(float),
        np.array(begins, dtype=np.intp),
    )


def _successors(shape: Shape) -> Iterator[tuple[Shape, int, int]]:
    followed, *rest = shape
    yield (followed + 1, *rest), followed, 1
    for size, times in Counter(rest).items():
        index = rest.index(size)  # the first of its size, so that the order stays
        yield (followed, *rest[:index], size + 1, *rest[index + 1 :]), size, times
    yield (*shape, 1), 0, 1


@lru_cache(maxsize=LARGEST_HORIZON + 1)
def _positions(n: int) -> dict[Shape, int]:
    """Return every shape of n answers with its index."""
    shapes = (
        (followed, *rest)
        for followed in range(1, n + 1)
        for rest in partitions(n - followed, n)
    )
    return {shape: index for index, shape in enumerate(shapes)}


def partitions(n: int, largest: int) -> Iterator[Shape]:
    if n == 0:
        yield ()
    for first in range(min(n, largest), 0, -1):
        for rest in partitions(n - first, first):
            yield (first, *rest)
