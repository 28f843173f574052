"""Compare two gradings of the same responses: accuracy by each, and their agreement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc_lab.replay.bootstrap import Estimate, exact, resampled_sums

__all__ = ["Agreement", "Verdicts", "accuracies", "agreement"]

Verdicts = Mapping[str, Sequence[bool | None]]
"""By question id, of each response; None counts as wrong."""

Array = npt.NDArray[np.float64]
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two gradings of the same responses agree.

    Attributes:
        both: responses that are right by both.
        first_only: right by the first alone.
        second_only: right by the second alone.
        neither: right by none.
        share: the share of responses that both grade alike.
        kappa: Cohen's kappa (Cohen 1960): the share in which they agree beyond what chance would give to two graders
            who are as generous as these; None if one of them says the same of everything, which leaves nothing to
            compare.
    """

    both: int
    first_only: int
    second_only: int
    neither: int
    share: Estimate
    kappa: Estimate | None


def accuracies(before: Verdicts, after: Verdicts, *, seed: int = 0) -> tuple[Estimate, Estimate, Estimate]:
    """Return the share of right responses by each of two gradings, and the second's minus the first's.

    Intervals are of 95 %, from a bootstrap over questions, because the responses to one question resemble each other;
    both gradings share the resamples, so that the difference is paired. Where no resample differs from another, they
    are Clopper and Pearson's for as many questions.

    Args:
        before: one grading of all responses.
        after: another of the same.
        seed: seed of the resamples.
    """
    counts = np.array([[len(before[id]), _right(before[id]), _right(after[id])] for id in before], dtype=float)
    sums = resampled_sums(counts, seed=seed)
    drawn = [sums[:, 1] / sums[:, 0], sums[:, 2] / sums[:, 0]]
    total, first, second = counts.sum(axis=0)
    return (
        _share(first / total, drawn[0], len(counts)),
        _share(second / total, drawn[1], len(counts)),
        _difference((second - first) / total, drawn[1] - drawn[0], len(counts)),
    )


def agreement(
    first: Verdicts, second: Verdicts, answered: Mapping[str, Sequence[bool]], *, seed: int = 0
) -> Agreement | None:
    """Return how far two gradings agree on the responses that have an answer; None where none has one.

    Args:
        first: one grading.
        second: another.
        answered: which responses have an answer.
        seed: seed of the resamples, which are those of :func:`accuracies`.
    """
    counts = np.array([_table(first[id], second[id], answered[id]) for id in first], dtype=float)
    kept = counts[counts.sum(axis=1) > 0]
    if not len(kept):
        return None
    both, first_only, second_only, neither = (int(count) for count in kept.sum(axis=0))
    sums = resampled_sums(kept, seed=seed)
    share = _share((both + neither) / kept.sum(), (sums[:, 0] + sums[:, 3]) / sums.sum(axis=1), len(kept))
    return Agreement(both, first_only, second_only, neither, share, _kappa_of(kept.sum(axis=0), sums, share))


def _right(verdicts: Sequence[bool | None]) -> int:
    return sum(verdict is True for verdict in verdicts)


def _table(first: Sequence[bool | None], second: Sequence[bool | None], answered: Sequence[bool]) -> list[int]:
    cells = [0, 0, 0, 0]
    for one, other, there in zip(first, second, answered, strict=True):
        cells[2 * (one is not True) + (other is not True)] += there
    return cells


def _kappa_of(cells: Array, drawn: Array, share: Estimate) -> Estimate | None:
    """Return Cohen's kappa of a table of shape (4,), with its interval from resampled ones; None if undefined."""
    both, first_only, second_only, neither = cells
    if not (both + first_only) * (second_only + neither) * (both + second_only) * (first_only + neither):
        return None
    shares, chances = _agreeing_and_chance(np.vstack([cells, drawn]))
    defined = 1 - chances > _ROUNDING
    kappas = (shares[defined] - chances[defined]) / (1 - chances[defined])
    low, high = np.percentile(kappas[1:], [2.5, 97.5]) if kappas.size > 1 else (-1.0, 1.0)
    if kappas.min() == kappas.max():  # the graders never disagreed, and resamples do not show how often they may
        low = min(low, (share.low - chances[0]) / (1 - chances[0]))
    return Estimate(float(kappas[0]), float(low), float(high))


def _agreeing_and_chance(cells: Array) -> tuple[Array, Array]:
    """Return the share on which two graders agree, and that expected by chance; (tables, 4) -> (tables,)."""
    shares = cells / cells.sum(axis=1, keepdims=True)
    first, second = shares[:, 0] + shares[:, 1], shares[:, 0] + shares[:, 2]
    return shares[:, 0] + shares[:, 3], first * second + (1 - first) * (1 - second)


def _share(value: float, drawn: Array, questions: int) -> Estimate:
    alone = exact(round(value * questions), questions)
    return _interval(value, drawn, min(alone.low, value), max(alone.high, value))


def _difference(value: float, drawn: Array, questions: int) -> Estimate:
    most = exact(0, questions).high
    return _interval(value, drawn, max(value - most, -1.0), min(value + most, 1.0))


def _interval(value: float, drawn: Array, low: float, high: float) -> Estimate:
    """Return the interval from resamples, or these exact ends where all questions, and so all resamples, are alike."""
    if drawn.min() != drawn.max():
        low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(float(value), float(low), float(high))
