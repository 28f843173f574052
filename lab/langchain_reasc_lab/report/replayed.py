"""Figures of a replay: accuracy against tokens, risk against coverage, the posterior of one question."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from langchain_reasc.calibrating import calibrate_offline_on
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.stopping import Decision
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.plots import draw_posteriors, draw_risk, draw_tradeoff, ranked
from langchain_reasc_lab.replay.worked import Worked, pick_worked
from langchain_reasc_lab.report.comparisons import methods_shown
from langchain_reasc_lab.report.contents import figure
from langchain_reasc_lab.report.drawing import for_each_pool, svg
from langchain_reasc_lab.report.parts import Figure
from langchain_reasc_lab.report.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

__all__ = ["posteriors", "risk", "tradeoff"]


@figure("tradeoff", "Accuracy against tokens")
def tradeoff(studies: Sequence[Study]) -> list[Figure]:
    """Every method of each pool, with intervals."""
    return _each(studies, "tradeoff", "Accuracy against tokens", draw_tradeoff, _tradeoff_words)


@figure("risk", "Wrong answers where the unlikely ones are left out")
def risk(studies: Sequence[Study]) -> list[Figure]:
    """Risk–coverage curves of the methods that tell how likely an answer is right."""
    return _each(studies, "risk", "Risk against coverage", draw_risk, _risk_words)


def _each(
    studies: Sequence[Study],
    name: str,
    title: str,
    draw: "Callable[[Sequence[Row]], Drawn]",
    words: Callable[[Sequence[Row]], str],
) -> list[Figure]:
    def of_pool(at: int, study: Study) -> Figure:
        rows = methods_shown(study)
        html = svg(lambda: draw(rows), f"{name}-{at}", f"{title} in {study.name}")
        return Figure(html, words(rows))

    return for_each_pool(studies, of_pool)


def _tradeoff_words(rows: Sequence[Row]) -> str:
    return " ".join(
        f"{_named(row)}: {100 * row.accuracy.value:.1f} % [{100 * row.accuracy.low:.1f}, {100 * row.accuracy.high:.1f}]"
        f" right with {row.tokens.value:,.0f} tokens a question."
        for row in rows
    )


def _risk_words(rows: Sequence[Row]) -> str:
    return "Area under the curve, the lower the better. " + " ".join(
        f"{_named(row)}: {100 * told.aurc:.1f} %; wrong are {100 * told.risk[(told.risk.size - 1) // 2]:.1f} % of the "
        f"likeliest half, {100 * told.risk[-1]:.1f} % of all."
        for row, told in ranked(rows)
    )


def _named(row: Row) -> str:
    return row.method if row.spec is None else f"{row.method} by {row.spec}"


@figure("posteriors", "The posterior of one question, response by response", paper="Figure 5")
def posteriors(studies: Sequence[Study]) -> list[Figure]:
    """ASC above, ReASC below, on the same responses."""
    return for_each_pool(studies, _posterior)


def _posterior(at: int, study: Study) -> Figure:
    worked = pick_worked(
        study.pool,
        _first_calibration(study),
        max_samples=study.settings.methods.max_samples,
        among=study.splits[0].tested,
        measure="recorded" if study.measure == "recorded" else None,
    )
    title = f"Posterior after each response to question {worked.question.id} in {study.name}"
    return Figure(
        html=svg(lambda: draw_posteriors(worked), f"posteriors-{at}", title),
        text=_worked_words(worked),
        notes=[
            f"Question {worked.question.id}, picked among those that were not calibrated on to show a difference where "
            "both methods are right: no typical one. Shaded: where the leading answer has more than half."
        ],
    )


def _first_calibration(study: Study) -> Calibration:
    """Algorithm 1 on the first arrangement's calibration questions.

    Raises:
        CalibrationDataError: they determine none.
        PoolError: the pool has neither scores nor token signals.
    """
    if study.measure is None:
        raise PoolError(f"{study.pool.path} has no scores or token signals, by which votes could be weighed")
    split, methods = study.splits[0], study.settings.methods
    return calibrate_offline_on(
        study.pool,
        study.scores,
        split.firsts(split.calibration),
        study.measure,
        p_target=methods.p_target,
        seed=methods.seed,
    )


def _worked_words(worked: Worked) -> str:
    return " ".join(
        f"{name} stops after {len(course)} {'response' if len(course) == 1 else 'responses'} ({course[-1].reason}): "
        f"{', '.join(_step(one) for one in course)}."
        for name, course in (("ASC", worked.asc), ("ReASC", worked.reasc))
    )


def _step(decision: Decision) -> str:
    return f"P = {decision.posterior:.3f} after {decision.samples}"
