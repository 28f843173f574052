"""Into how many groups Gaussian mixtures divide the scores of first responses, and what that means for the gate."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from langchain_reasc.calibration import (
    FEWEST_FOR_MIXTURE,
    Floats,
    Mixture,
    checked_scores,
    fit_mixture,
    posterior_upper,
)
from langchain_reasc.exceptions import CalibrationDataError, PoolError
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.report.blocks import Block, table_of
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Cell, Column, Table, listed
from langchain_reasc_lab.report.signals import SCORE_OF_PAPER, signal_measures, window_for
from langchain_reasc_lab.report.study import Study

__all__ = ["components"]

_COMPONENTS: Final = (1, 2, 3, 4)


@table("components", "How many Gaussian components first-response scores have", paper="Table 5")
def components(studies: Sequence[Study]) -> Table:
    """AIC and BIC of mixtures of one to four components."""
    columns = [
        Column("Signal"),
        Column("By", "", "The criterion: Akaike's or the Bayesian one."),
        *(Column(str(count), ".1f", f"With {_counted(count)}; lower is better.") for count in _COMPONENTS),
        Column("Lowest", ".0f", "Components at which the criterion is lowest."),
    ]
    general = (
        "A difference of 2 or less between two criteria is no evidence for either. That two components describe the "
        "scores better than one does not say that they are the right and the wrong responses."
    )
    return table_of(studies, columns, _components, notes=[general])


def _components(study: Study) -> Block:
    rows: list[Sequence[Cell]] = []
    notes: list[str] = []
    sizes: dict[str, int] = {}
    for measure in _measures(study):
        first = study.scores.array(measure)[:, 0]
        try:
            scores = checked_scores(first[np.isfinite(first)], study.settings.methods.p_target)
        except CalibrationDataError as error:
            notes.append(f"{study.name}, {measure}: no row, because {str(error).rstrip('.')}.")
            continue
        if scores.size < FEWEST_FOR_MIXTURE:
            raise PoolError(f"{scores.size} first responses with a score are too few for mixtures")
        sizes[str(measure)] = scores.size
        fit = fit_mixture(scores, _COMPONENTS, study.settings.methods.seed)
        for criterion, values in (("AIC", fit.aic), ("BIC", fit.bic)):
            lowest = min(values, key=lambda count: values[count])
            signal = measure.signal if isinstance(measure, Measure) else measure
            rows.append((signal, criterion, *(values[k] for k in _COMPONENTS), lowest))
        notes += [f"{study.name}, {measure}: {told}." for told in _told(scores, fit)]
    if not rows:
        raise PoolError("no first responses of it have scores to which mixtures can be fitted")
    if len(set(sizes.values())) == 1:
        notes.append(
            f"{study.name}: {next(iter(sizes.values()))} first responses with a score by {listed(list(sizes))}."
        )
    else:
        notes += [f"{study.name}, {measure}: {size} first responses with a score." for measure, size in sizes.items()]
    return Block(rows, notes)


def _measures(study: Study) -> list[Measure | str]:
    """The one that was asked for, or else the paper's score of each signal."""
    asked = study.measure
    if asked is None or asked == "auto":
        return signal_measures(study, SCORE_OF_PAPER, window_for(study))
    return [asked]


def _told(scores: Floats, fit: Mixture) -> Iterator[str]:
    if fit.one_group:
        yield fit.one_group
    if not fit.converged:
        yield "the mixture of two components did not converge"
    if share := falling(scores, fit):
        yield (
            f"the mixture's posterior is not monotone: {share:.1%} of the scores are taken for less surely right than "
            f"some lower score is (standard deviations {fit.stds[0]:.3g} below and {fit.stds[1]:.3g} above)"
        )


def falling(scores: Floats, mixture: Mixture) -> float:
    """The share of the scores whose posterior of the upper component is below that of some lower score."""
    posterior = posterior_upper(np.sort(scores), mixture)
    return float((posterior < np.maximum.accumulate(posterior) - 1e-9).mean())


def _counted(count: int) -> str:
    return "1 component" if count == 1 else f"{count} components"
