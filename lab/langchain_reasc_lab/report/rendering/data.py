"""A report as plain data, for ``--json``."""

import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from langchain_reasc._version import __version__
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.replay.metrics import RESAMPLES, Estimate
from langchain_reasc_lab.report.making import Made, Report, command_for
from langchain_reasc_lab.report.parts import Cell, Column
from langchain_reasc_lab.report.rendering.cells import number_of
from langchain_reasc_lab.report.study import Study

__all__ = ["measure_data", "report_data", "versions"]

_BESIDE: Final = ("numpy", "scipy", "scikit-learn", "matplotlib")
"""Packages on which the numbers and pictures depend."""


def report_data(report: Report) -> dict[str, Any]:
    """All that a report says and what is needed to make it again; numbers that do not exist are null."""
    settings = report.settings
    return {
        "library_version": __version__,
        "versions": versions(),
        "settings": {
            "shuffles": settings.shuffles,
            "calibration_size": settings.calibration_size,
            "seed": settings.seed,
            "max_samples": settings.methods.max_samples,
            "p_target": settings.methods.p_target,
            "parameters": settings.parameters,
            "prices": settings.prices and str(settings.prices),
            "tokens_per_second": settings.tokens_per_second,
            "intervals": {"level": 0.95, "resamples": RESAMPLES, "over": "questions"},
        },
        "verdicts": {
            study.name: " ".join(verdict) for study, verdict in zip(report.studies, report.verdicts, strict=False)
        },
        "pools": [_pool(study) for study in report.studies],
        "parts": [_part(report, part) for part in report.parts],
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that compute, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in _BESIDE:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def measure_data(study: Study) -> dict[str, Any] | str | None:
    """By what a study's ReASC weighs."""
    return asdict(study.measure) if isinstance(study.measure, Measure) else study.measure


def _pool(study: Study) -> dict[str, Any]:
    pool = study.pool
    return {
        "name": study.name,
        "path": str(pool.path),
        "calibration_pool": pool.calibration_path and str(pool.calibration_path),
        "calibration_questions": study.calibration_size,
        "questions": len(pool.questions) - pool.calibrating,
        "responses": sum(len(question.responses) for question in pool.questions),
        "signals": list(study.scores.signals),
        "measure": measure_data(study),
        "metadata": pool.metadata,
        "notes": list(pool.notes),
    }


def _part(report: Report, part: Made) -> dict[str, Any]:
    entry = part.entry
    told: dict[str, Any] = {
        "name": entry.name,
        "title": entry.title,
        "paper": entry.paper or None,
        "command": command_for(report, entry.name),
        "problems": list(part.problems),
    }
    if part.table is not None:
        rows = [[_cell(cell) for cell in row] for row in part.table.rows]
        columns = [_column(column) for column in part.table.columns]
        told["table"] = {"columns": columns, "rows": rows, "notes": list(part.table.notes)}
    if part.figures:
        told["figures"] = [
            {"title": one.title or None, "text": one.text, "notes": list(one.notes)} for one in part.figures
        ]
    return told


def _column(column: Column) -> dict[str, str | None]:
    return {"name": column.name, "meaning": column.meaning or None, "best": column.best}


def _cell(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        parts: Sequence[Cell] = (cell.value, cell.low, cell.high)
        return dict(zip(("value", "low", "high"), map(number_of, parts), strict=True))
    return cell if isinstance(cell, str) else number_of(cell)
