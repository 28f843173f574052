"""A replay as plain data, for ``--json``."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from langchain_reasc._version import __version__
from langchain_reasc.calibrating import MeasureSpec
from langchain_reasc.calibration import Calibration
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.replay.methods import OFFLINE
from langchain_reasc_lab.replay.metrics import RESAMPLES, Estimate, Row
from langchain_reasc_lab.replay.replay import Replay
from langchain_reasc_lab.replay.risk import BINS, Risk
from langchain_reasc_lab.replay.table import live_rule

__all__ = ["as_data"]


def as_data(run: Replay, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything a replay found and everything needed to repeat it; numbers that do not exist are null."""
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
        "intervals": {"level": 0.95, "resamples": RESAMPLES, "over": "questions", "seed": [run.seed, RESAMPLES]},
        "rows": [_row(row) for row in rows],
        "live": [_live(run, row.spec) for row in rows if row.method == OFFLINE and row.spec is not None],
        "notes": list(run.notes),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "method": row.method,
        "measure": _measure(row.spec),
        "accuracy": _estimate(row.accuracy),
        "samples": _estimate(row.samples),
        "tokens": _estimate(row.tokens),
        "prompt_tokens": row.prompt_tokens,
        "tokens_vs_sc": _estimate(row.tokens_vs_sc),
        "tokens_vs_asc": _estimate(row.tokens_vs_asc),
        "accuracy_vs_sc": _estimate(row.accuracy_vs_sc),
        "accuracy_vs_asc": _estimate(row.accuracy_vs_asc),
        "accuracy_vs_asc_interval": "exact" if row.no_difference else "bootstrap",
        "gated": row.gated,
        "tflops": row.tflops,
        "p_correct": _risk(row.outcomes.risk),
        "calibrations": [_calibration(calibration) for calibration in row.outcomes.calibrations],
        "problems": row.outcomes.problems,
        "confidences": row.outcomes.confidences,
    }


def _risk(risk: Risk | None) -> dict[str, Any] | None:
    """Calibration of P(correct), and the risk-coverage curve: its share of wrong answers among the k likeliest."""
    if risk is None:
        return None
    return {
        "source": "labels of the calibration questions",
        "arrangements": risk.arrangements,
        "ece": {"bins": BINS, "equal_width": risk.ece_width, "quantile": risk.ece_quantile},
        "aurc": risk.aurc,
        "risk_coverage": [round(value, 6) for value in risk.risk.tolist()],
    }


def _live(run: Replay, spec: MeasureSpec) -> dict[str, Any]:
    method, why = live_rule(run, spec)
    return {"measure": _measure(spec), "method": method, "why": why}


def _measure(spec: MeasureSpec | None) -> dict[str, Any] | str | None:
    return asdict(spec) if isinstance(spec, Measure) else spec


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(estimate).items()}


def _calibration(calibration: Calibration) -> dict[str, Any]:
    kept = {"signal", "score", "window", "n", "mean", "std", "gate", "fallback", "unweighed", "auroc", "within"}
    return calibration.model_dump(mode="json", include=kept)
