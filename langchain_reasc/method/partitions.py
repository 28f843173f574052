"""Answers as they come: exchangeable partitions, and whether the leader of now will lead in the end.

What matters of the answers so far is how often each was given: a partition of the number of answers. A Pitman–Yor
process of discount d and concentration α (Pitman and Yor 1997) gives the next response the answer i, seen n_i times,
with probability (n_i − d) / (n + α), and one not seen before with (α + k d) / (n + α), where k answers have been seen.
With d = −κ and α = mκ it is the symmetric Dirichlet over m answers. A :class:`Prior` mixes such components, so that a
model that nearly always agrees with itself and one that hardly ever does are both expected, as far as was learned.

The probability that the leader stays is exact: dynamic programming over partitions, backwards from the last answer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["LARGEST_HORIZON", "Component", "Prior", "likelihoods", "stays"]

LARGEST_HORIZON: Final = 24
"""Answers that are looked ahead to at most: beyond, there are more partitions than is worth counting."""

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]
"""How often each answer was given. Of a followed answer, its count comes first, and the others' descend after it."""


class Component(NamedTuple):
    """A Pitman–Yor process: discount d < 1 and concentration α > −d; d < 0 means α / −d answers at most."""

    discount: float
    concentration: float


def default_components() -> tuple[Component, ...]:
    """A grid from "always the same answer" to "hardly ever the same", and tasks of 2, 3 and 5 answers."""
    processes = product((0.0, 0.3, 0.6, 0.85), (0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 40.0))
    choices = product((2, 3, 5), (0.2, 1.0, 5.0))
    return (
        *(Component(discount, concentration) for discount, concentration in processes),
        *(Component(-share, answers * share) for answers, share in choices),
    )


@dataclass(frozen=True)
class Prior:
    """A mixture of components with their weights, which sum to one."""

    components: tuple[Component, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.components) != len(self.weights) or not self.components:
            raise ConfigurationError(f"{len(self.components)} components have {len(self.weights)} weights")
        if any(weight < 0 for weight in self.weights) or abs(sum(self.weights) - 1) > 1e-6:
            raise ConfigurationError(f"the weights of a prior are 0 or more and sum to 1, got {sum(self.weights):g}")

    @classmethod
    def uniform(cls) -> "Prior":
        """All default components alike: what is expected before anything was learned."""
        components = default_components()
        return cls(components, (1 / len(components),) * len(components))

    def leader_stays(self, counts: Sequence[int], horizon: int) -> float:
        """P(the answer of ``counts[0]`` has the most votes once there are ``horizon`` answers | the counts).

        Args:
            counts: how often each answer was given, the leader's count first; at least one answer.
            horizon: answers in the end, ``sum(counts)`` at least.
        """
        return self._stays(shape_of(counts), horizon)

    def posterior(self, counts: Sequence[int]) -> Floats:
        """The weights of the components, given the counts; shape (components,). Those of old where none allows them."""
        weights = np.asarray(self.weights)
        joint: Floats = weights * likelihoods([counts], self.components)[0]
        return np.asarray(joint / joint.sum()) if joint.any() else weights

    @cached_property
    def _known(self) -> dict[tuple[Shape, int], float]:
        return {}

    def _stays(self, shape: Shape, horizon: int) -> float:
        key = shape, horizon
        if key not in self._known:
            self._known[key] = float(self.posterior(shape) @ stays(shape, horizon, self.components))
        return self._known[key]


def shape_of(counts: Sequence[int]) -> Shape:
    """The counts with all but the first sorted, largest first: the same state of another order."""
    return (counts[0], *sorted(counts[1:], reverse=True))


def likelihoods(partitions: Iterable[Sequence[int]], components: Sequence[Component]) -> Floats:
    """P(a sequence of answers with these counts), of each component; shape (partitions, components).

    ∏_{i<k} (α + i d) / (α + 1)_{n−1} · ∏_i (1 − d)_{n_i − 1}, where i counts the answers, k there are, from 1 and
    (x)_m = x (x + 1) … (x + m − 1). The order in which answers came does not matter.
    """
    from scipy.special import gammaln

    grid = np.asarray(components, dtype=np.float64)
    discount, concentration = grid[:, 0], grid[:, 1]
    again = 1 - discount
    rows = []
    for counts in partitions:  # in logarithms, as factorials soon overflow
        known = np.arange(1, len(counts))[:, None]
        with np.errstate(divide="ignore"):  # a component that allows no more answers
            opened = np.log(np.maximum(concentration + known * discount, 0.0)).sum(axis=0)
        given = sum(gammaln(again + count - 1) - gammaln(again) for count in counts)
        rows.append(np.exp(opened + given + gammaln(concentration + 1) - gammaln(concentration + sum(counts))))
    return np.array(rows).reshape(len(rows), len(grid))


def stays(shape: Shape, horizon: int, components: tuple[Component, ...]) -> Floats:
    """P(the followed answer has the most votes at the horizon | the counts), of each component; shape (components,).

    m answers that are equal at the horizon have 1/m each.

    Args:
        shape: the counts, that of the followed answer first and the others' descending.
        horizon: answers in the end.
        components: the components.
    """
    places, values = _table(horizon, components)
    found: Floats = values[sum(shape)][places[sum(shape)][shape]]
    return found


@lru_cache(maxsize=LARGEST_HORIZON)
def _table(horizon: int, components: tuple[Component, ...]) -> tuple[list[dict[Shape, int]], list[Floats]]:
    """For each number of answers up to the horizon: where a shape stands, and its probabilities."""
    if not 1 <= horizon <= LARGEST_HORIZON:
        raise ConfigurationError(f"a horizon is between 1 and {LARGEST_HORIZON} answers, got {horizon}")
    grid = np.asarray(components, dtype=np.float64)
    shapes = [_shapes(n) for n in range(horizon + 1)]
    values: list[Floats] = [np.zeros((0, len(grid)))] * (horizon + 1)
    values[horizon] = np.repeat([[_share_of_lead(shape)] for shape in shapes[horizon]], len(grid), axis=1)
    for n in range(horizon - 1, 0, -1):
        values[n] = _one_earlier(n, values[n + 1], grid)
    return [{shape: at for at, shape in enumerate(known)} for known in shapes], values


def _one_earlier(n: int, later: Floats, grid: Floats) -> Floats:
    """The probabilities after n answers, from those after n + 1; shape (shapes, components)."""
    discount, concentration = grid[:, 0], grid[:, 1]
    steps = _steps(n)
    sizes, times, kinds = steps.sizes[:, None], steps.times[:, None], steps.kinds[:, None]
    weight = np.where(sizes > 0, times * (sizes - discount), np.maximum(concentration + kinds * discount, 0.0))
    terms = weight / (n + concentration) * later[steps.into]
    return np.add.reduceat(terms, steps.begins, axis=0)


class _Steps(NamedTuple):
    """All ways in which one more answer may come: from each shape several rows, beginning at ``begins``."""

    into: npt.NDArray[np.intp]
    sizes: Floats  # how often the answer was given before; 0: never
    times: Floats  # how many answers were given that often
    kinds: Floats  # answers seen so far
    begins: npt.NDArray[np.intp]


@lru_cache(maxsize=LARGEST_HORIZON)
def _steps(n: int) -> _Steps:
    places = {shape: at for at, shape in enumerate(_shapes(n + 1))}
    rows: list[tuple[int, int, int, int]] = []
    begins: list[int] = []
    for shape in _shapes(n):
        begins.append(len(rows))
        rows += [(places[after], size, times, len(shape)) for after, size, times in _after(shape)]
    into, sizes, times, kinds = np.array(rows, dtype=np.intp).T
    return _Steps(into, sizes.astype(float), times.astype(float), kinds.astype(float), np.array(begins, dtype=np.intp))


def _after(shape: Shape) -> Iterator[tuple[Shape, int, int]]:
    followed, *others = shape
    yield (followed + 1, *others), followed, 1
    for size in dict.fromkeys(others):
        at = others.index(size)  # the first of its size, so that the order stays
        yield (followed, *others[:at], size + 1, *others[at + 1 :]), size, others.count(size)
    yield (*shape, 1), 0, 1


@lru_cache(maxsize=LARGEST_HORIZON + 1)
def _shapes(n: int) -> tuple[Shape, ...]:
    """Every shape of n answers."""
    return tuple((followed, *others) for followed in range(1, n + 1) for others in _partitions(n - followed, n))


def _partitions(n: int, largest: int) -> Iterator[Shape]:
    if n == 0:
        yield ()
    for first in range(min(n, largest), 0, -1):
        for rest in _partitions(n - first, first):
            yield (first, *rest)


def _share_of_lead(shape: Shape) -> float:
    most = max(shape)
    return 0.0 if shape[0] < most else 1 / shape.count(most)
