"""Accuracy of responses by how confident they were: in bins of equally many, and in bins of equal width."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from langchain_reasc.calibration import Floats
from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.replay.bootstrap import exact
from langchain_reasc_lab.report.blocks import Block, table_of
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Cell, Column, Table, percent
from langchain_reasc_lab.report.signals import Responses, chosen, judged
from langchain_reasc_lab.report.study import Study

__all__ = ["bin_numbers", "bins", "edges"]

BINS: Final = 5


@table("bins", "Accuracy by confidence", paper="Table 13")
def bins(studies: Sequence[Study]) -> Table:
    """Accuracy within five bins of each kind."""
    columns = [
        Column(
            "Bins", "", "Quantile: a fifth of the responses in each. Equal width: a fifth of the scores' range each."
        ),
        Column("Bin", ".0f", "From the least confident on."),
        Column("From", ".3g"),
        Column("To", ".3g"),
        Column("Responses", ".0f"),
        Column("Accuracy %", ".1f", "Share of right responses, with Clopper and Pearson's exact 95 % interval."),
    ]
    general = (
        "The paper calls its bins quantiles, but its ranges are equally wide. The intervals take responses for "
        "independent; those to one question are not, so that they are somewhat too narrow."
    )
    return table_of(studies, columns, _bins, notes=[general])


def edges(scores: Floats, kind: str) -> Floats:
    """The bounds of the bins, shape (6,); a score on a bound belongs to the bin above it."""
    if kind == "quantile":
        return np.quantile(scores, np.linspace(0, 1, BINS + 1))
    return np.linspace(scores.min(), scores.max(), BINS + 1)


def bin_numbers(scores: Floats, bounds: Floats) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """The bin of each score, from 0 on."""
    return np.searchsorted(bounds[1:-1], scores, side="right")


def _bins(study: Study) -> Block:
    measure = chosen(study)
    found = [here for _, here in judged(study, Responses.of(study), [measure])]
    if not found:
        raise PoolError(f"the responses that have a score by {measure} are all right, or all wrong")
    scores, right = found[0].scores[0], found[0].right
    if scores.min() == scores.max():
        raise PoolError(f"all its scores by {measure} are {scores[0]:g}")
    rows: list[Sequence[Cell]] = []
    notes = []
    for kind in ("quantile", "equal width"):
        bounds = edges(scores, kind)
        number = bin_numbers(scores, bounds)
        accuracies = []
        for at in range(BINS):
            here = number == at
            accuracy = percent(exact(int(right[here].sum()), int(here.sum()))) if here.any() else None
            accuracies += [accuracy.value] if accuracy else []
            rows.append((kind, at + 1, float(bounds[at]), float(bounds[at + 1]), int(here.sum()), accuracy))
        rises = all(low < high for low, high in pairwise(accuracies))
        notes.append(
            f"{study.name}, {kind}: by {measure}, accuracy {'rises' if rises else 'does not rise'} from bin to bin."
        )
    return Block(rows, notes)
