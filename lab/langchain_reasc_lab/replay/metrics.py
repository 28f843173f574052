"""From outcomes to rows: means over shuffles, with their intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from langchain_reasc._version import __version__
from langchain_reasc.calibration import Calibration
from langchain_reasc.method import Measure
from langchain_reasc_lab.pools import MeasureSpec
from langchain_reasc_lab.replay.arrangement import COLUMNS
from langchain_reasc_lab.replay.bootstrap import (
    RESAMPLES,
    Array,
    Bootstrap,
    Estimate,
    Means,
    ratio,
)
from langchain_reasc_lab.replay.methods import ASC_ROW, OFFLINE, ONCE
from langchain_reasc_lab.replay.replay import Outcomes, Replay, RowKey, live_rule
from langchain_reasc_lab.replay.risk import BINS, Risk

__all__ = [
    "RESAMPLES",
    "Estimate",
    "Row",
    "as_data",
    "difference",
    "measure_data",
    "side_by_side",
    "summarize",
    "tflops",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One method under one measure.

    Attributes:
        method: the method's name.
        spec: the measure asked for; None for methods that count votes.
        accuracy: share of right answers; of none and of all, with the exact interval.
        samples: responses used per question.
        tokens: tokens generated per question, in the responses used.
        prompt_tokens: prompt tokens of those responses, each counted in full; None if
            the pool does not say.
        tokens_vs_once: tokens relative to asking once.
        tokens_vs_sc: tokens relative to self-consistency.
        tokens_vs_asc: tokens relative to ASC.
        accuracy_vs_sc: accuracy minus self-consistency's on the same questions and
            responses.
        accuracy_vs_asc: accuracy minus ASC's, likewise.
        accuracy_vs_once: accuracy minus that of the first response alone, likewise.
        gated: share of questions answered by the gate from one response.
        tflops: 2N floating-point operations per generated token, in 10¹² per question;
            None without N.
        outcomes: the outcomes that the row summarizes.
    """

    method: str
    spec: MeasureSpec | None
    accuracy: Estimate
    samples: Estimate
    tokens: Estimate
    prompt_tokens: float | None
    tokens_vs_once: Estimate
    tokens_vs_sc: Estimate
    tokens_vs_asc: Estimate
    accuracy_vs_sc: Estimate
    accuracy_vs_asc: Estimate
    accuracy_vs_once: Estimate
    gated: float
    tflops: float | None
    outcomes: Outcomes

    @property
    def measure(self) -> str:
        """The measure asked for, as it is read; empty for methods that count votes."""
        return (
            ""
            if self.spec is None
            else "recorded score"
            if self.spec == "recorded"
            else str(self.spec)
        )

    @property
    def title(self) -> str:
        """The method, with its measure."""
        return f"{self.method} by {self.measure}" if self.measure else self.method


def summarize(
    run: Replay, *, parameters: float | None = None, resamples: int = RESAMPLES
) -> list[Row]:
    """Return the rows of a replay, in the order of its methods.

    A value is the mean over shuffles, and its interval that of
    :class:`~.bootstrap.Bootstrap`. Where a calibrated method was ASC in every shuffle,
    what it spends has no interval: other calibrations may save what none of these did.
    Its differences to self-consistency and to one response are then uncertain as ASC's
    are, and as its own to ASC.

    Args:
        run: a replay.
        parameters: N, the model's number of parameters, for TFLOPs (Kaplan et al. 2020:
            2N per token).
        resamples: how often the bootstrap draws the questions again.
    """
    by_question = side_by_side(run.outcomes, seed=run.seed, resamples=resamples)
    sc, asc, once = (run.settings.fixed_budget, None), (ASC_ROW, None), (ONCE, None)

    def row(key: RowKey) -> Row:
        outcomes = run.outcomes[key]
        learned = outcomes.learned
        always_asc = (
            outcomes.calibrated_anew and outcomes.rules == run.outcomes[asc].rules
        )
        tokens, prompts = (
            by_question.mean((key, "tokens")),
            by_question.mean((key, "prompt_tokens")),
        )

        def spent(of: Callable[[Means], Array]) -> Estimate:
            estimate = by_question.estimate(of, learned=learned)
            return (
                estimate.without_interval
                if always_asc
                else estimate.within(0.0, np.inf)
            )

        to_sc, to_once, to_asc = (
            difference(by_question, run.outcomes, key, other)
            for other in (sc, once, asc)
        )
        if always_asc:
            to_sc, to_once = to_sc.plus(to_asc), to_once.plus(to_asc)

        def versus(other: RowKey) -> Estimate:
            return spent(
                lambda mean: ratio(mean((key, "tokens")), mean((other, "tokens")))
            )

        return Row(
            method=key[0],
            spec=key[1],
            accuracy=by_question.share((key, "correct"), learned=learned),
            samples=spent(lambda mean: mean((key, "samples"))),
            tokens=spent(lambda mean: mean((key, "tokens"))),
            prompt_tokens=None if np.isnan(prompts) else prompts,
            tokens_vs_once=versus(once),
            tokens_vs_sc=versus(sc),
            tokens_vs_asc=versus(asc),
            accuracy_vs_sc=to_sc,
            accuracy_vs_asc=to_asc,
            accuracy_vs_once=to_once,
            gated=by_question.mean((key, "gated")),
            tflops=None if parameters is None else tflops(parameters, tokens),
            outcomes=outcomes,
        )

    return [row(key) for key in run.outcomes]


def tflops(parameters: float, tokens: float) -> float:
    """Return 10¹² floating-point operations for these generated tokens: 2N each (Kaplan
    et al. 2020).
    """
    return 2 * parameters * tokens / 1e12


def side_by_side(
    outcomes: Mapping[RowKey, Outcomes], *, seed: int, resamples: int = RESAMPLES
) -> Bootstrap:
    """Return the means of methods on the same arrangements; columns are named ((method,
    measure), column).
    """
    columns = {
        (key, name): held.column(name)
        for key, held in outcomes.items()
        for name in COLUMNS
    }
    return Bootstrap(
        columns, next(iter(outcomes.values())).tested, seed=seed, resamples=resamples
    )


def difference(
    by_question: Bootstrap,
    outcomes: Mapping[RowKey, Outcomes],
    one: RowKey,
    other: RowKey,
    *,
    among: str | None = None,
) -> Estimate:
    """Return how much more accurate one method is than another on the same questions
    and responses.

    Between different rules that never differed, the interval says how many questions
    may differ all the same. The same rule under two names has no difference to bound,
    unless several calibrations taught it: others may teach another.

    Args:
        by_question: the means of both, as :func:`side_by_side` names them.
        outcomes: (method, measure asked for) -> what it did.
        one: the first method.
        other: the second.
        among: a column that is 1 on the questions on which they are compared; None for
            all.
    """
    first, second = outcomes[one], outcomes[other]
    if (
        first.rules == second.rules
        and not (first.calibrated_anew or second.calibrated_anew)
        and np.array_equal(
            first.column("correct"), second.column("correct"), equal_nan=True
        )
    ):
        return Estimate(0.0, 0.0, 0.0)
    learned = max(first.learned, second.learned)
    return by_question.difference(
        (one, "correct"), (other, "correct"), among=among, learned=learned
    )


def as_data(run: Replay, rows: Sequence[Row]) -> dict[str, Any]:
    """Return all that a replay found and all that is needed to repeat it; numbers that
    do not exist are null.
    """
    return {
        "library_version": __version__,
        "pool": str(run.pool.path),
        "metadata": run.pool.metadata,
        "questions": len(run.pool.questions),
        "tested": run.tested,
        "calibration_size": run.calibration_size,
        "shuffles": run.shuffles,
        "seed": run.seed,
        "max_samples": run.settings.max_samples,
        "p_target": run.settings.p_target,
        "intervals": {
            "level": 0.95,
            "resamples": RESAMPLES,
            "over": "questions",
            "seed": [run.seed, RESAMPLES],
        },
        "rows": [_row(row) for row in rows],
        "live": [
            _live(run, row.spec)
            for row in rows
            if row.method == OFFLINE and row.spec is not None
        ],
        "notes": list(run.notes),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "method": row.method,
        "measure": measure_data(row.spec),
        "accuracy": _estimate(row.accuracy),
        "samples": _estimate(row.samples),
        "tokens": _estimate(row.tokens),
        "prompt_tokens": row.prompt_tokens,
        "tokens_vs_once": _estimate(row.tokens_vs_once),
        "tokens_vs_sc": _estimate(row.tokens_vs_sc),
        "tokens_vs_asc": _estimate(row.tokens_vs_asc),
        "accuracy_vs_sc": _estimate(row.accuracy_vs_sc),
        "accuracy_vs_asc": _estimate(row.accuracy_vs_asc),
        "accuracy_vs_once": _estimate(row.accuracy_vs_once),
        "gated": row.gated,
        "tflops": row.tflops,
        "p_correct": _risk(row.outcomes.risk),
        "calibrations": [
            _calibration(calibration) for calibration in row.outcomes.calibrations
        ],
        "problems": row.outcomes.problems,
        "confidences": row.outcomes.confidences,
    }


def _risk(risk: Risk | None) -> dict[str, Any] | None:
    """Calibration of P(correct), and the risk-coverage curve: its share of wrong
    answers among the k likeliest.
    """
    if risk is None:
        return None
    return {
        "source": "labels of the calibration questions",
        "arrangements": risk.arrangements,
        "ece": {
            "bins": BINS,
            "equal_width": risk.ece_width,
            "quantile": risk.ece_quantile,
        },
        "aurc": risk.aurc,
        "risk_coverage": [round(value, 6) for value in risk.risk.tolist()],
    }


def _live(run: Replay, spec: MeasureSpec) -> dict[str, Any]:
    method, why = live_rule(run, spec)
    return {"measure": measure_data(spec), "method": method, "why": why}


def measure_data(spec: MeasureSpec | None) -> dict[str, Any] | str | None:
    """Return a measure as plain data."""
    return asdict(spec) if isinstance(spec, Measure) else spec


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {
        name: value if math.isfinite(value) else None
        for name, value in asdict(estimate).items()
    }


def _calibration(calibration: Calibration) -> dict[str, Any]:
    kept = {
        "signal",
        "score",
        "window",
        "n",
        "mean",
        "std",
        "gate",
        "fallback",
        "unweighed",
        "auroc",
        "within",
    }
    return calibration.model_dump(mode="json", include=kept)
