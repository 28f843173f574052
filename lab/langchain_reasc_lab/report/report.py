"""Make a report of some pools, with a sentence for each part that cannot be made."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from langchain_reasc.exceptions import ConfigurationError, ReASCError
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.pools import MeasureSpec, Pool
from langchain_reasc_lab.replay.verdict import verdict
from langchain_reasc_lab.report.contents import Entry, chosen_entries
from langchain_reasc_lab.report.study import Study, StudySettings
from langchain_reasc_lab.report.tables import Figure, Table


@dataclass(frozen=True, slots=True)
class Made:
    """A table or some figures of a report.

    Attributes:
        entry: its name, its title, and where the paper has it.
        table: the table; None if the entry is of figures, or nothing could be made.
        figures: the figures, one or one for each pool.
        problems: why some or all pools lack the entry, in whole sentences.
        seconds: how long it took, what it computed first for others included.
    """

    entry: Entry
    table: Table | None
    figures: Sequence[Figure]
    problems: Sequence[str]
    seconds: float

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be made."""
        return self.table is None and not self.figures


@dataclass(frozen=True, slots=True)
class Report:
    """The tables and figures of some pools.

    Attributes:
        studies: the pools under the settings that they share.
        parts: tables and figures, in the order of a report.
        verdicts: the result of the main comparison on each pool, in words; none if it was not made.
    """

    studies: Sequence[Study]
    parts: Sequence[Made]
    verdicts: Sequence[Sequence[str]] = ()

    @property
    def settings(self) -> StudySettings:
        """The settings that all tables share."""
        return self.studies[0].settings


def make_report(
    studies: Sequence[Study],
    entries: Sequence[Entry] | None = None,
    *,
    on_progress: Callable[[int, int], None] = lambda made, of: None,
) -> Report:
    """Make tables and figures of some pools. What a pool cannot tell leaves a sentence in its place.

    Args:
        studies: one for each pool, with names of their own.
        entries: the result of :func:`chosen_entries`; None for all entries.
        on_progress: called with (parts made, all of them).

    Raises:
        ConfigurationError: no study, or two of one name.
    """
    names = [study.name for study in studies]
    if not studies or len(set(names)) < len(names):
        raise ConfigurationError(f"a report is of one pool or more, each with a name of its own; got {names}")
    chosen = chosen_entries(()) if entries is None else entries
    on_progress(0, len(chosen))
    parts: list[Made] = []
    for entry in chosen:
        parts.append(_made(entry, tuple(studies)))
        on_progress(len(parts), len(chosen))
    compared = any(part.entry.name in ("short", "main") and not part.is_empty for part in parts)
    return Report(studies, parts, [verdict(study.run, study.rows) for study in studies] if compared else [])


def _made(entry: Entry, studies: Sequence[Study]) -> Made:
    began = perf_counter()
    made, reasons = _make(entry, studies)
    problems = list(filter(None, reasons))
    if isinstance(made, Table) and not made.has_numbers:
        problems += [note for note in made.notes if "cannot be had" in note] or ["No number in it could be had."]
        made = None
    table, figures = (made, []) if isinstance(made, Table) else (None, made or [])
    return Made(entry, table, figures, problems, perf_counter() - began)


def _make(entry: Entry, studies: Sequence[Study]) -> tuple[Any, list[str]]:
    """Make an entry of all pools, or of those that allow it; return it and what the others lack, or empty texts."""
    made, why = _attempt(entry, studies)
    if not why or len(studies) == 1:
        return made, [why]
    alone = {study.name: _attempt(entry, (study,))[1] for study in studies}
    able = tuple(study for study in studies if not alone[study.name])
    problems = [f"{name}: {reason}" for name, reason in alone.items() if reason]
    if 0 < len(able) < len(studies):
        made, why = _attempt(entry, able)
        return made, [*problems, why]
    # None can, or only not together.
    return None, [why] if all(why in problem for problem in problems) else problems


def _attempt(entry: Entry, studies: Sequence[Study]) -> tuple[Any, str]:
    """Make an entry; where that is impossible, return None and why, in a sentence."""
    try:
        return entry.make(studies), ""
    except ReASCError as error:
        text = " ".join(str(error).split())
        return None, text if text.endswith((".", "!", "?")) else f"{text}."


def command_for(report: Report, name: str) -> str:
    """Return the command that prints one part of this report alone."""
    words = ["reasc", "report", *(str(study.pool.path) for study in report.studies), "--only", name]
    for option, value, default in _options(report):
        if value is not None and value != default:
            words += [option, value if isinstance(value, str) else f"{value:.12g}"]
    return shlex.join(words)


Option = tuple[str, float | str | None, float | str | None]
"""An option, its value and its default."""


def _options(report: Report) -> list[Option]:
    usual, settings = StudySettings(), report.settings
    calibrated = all(study.pool.calibrating for study in report.studies)
    return [
        ("--shuffles", settings.shuffles, 0 if calibrated else usual.shuffles),
        ("--seed", settings.seed, usual.seed),
        _calibrated_by([study.pool for study in report.studies], settings.calibration_size),
        ("--max-samples", settings.methods.max_samples, usual.methods.max_samples),
        ("--p-target", settings.methods.p_target, usual.methods.p_target),
        ("--prices", str(settings.prices) if settings.prices else None, None),
        ("--parameters", settings.parameters, None),
        ("--tokens-per-second", settings.tokens_per_second, None),
        *_measured_by(report.studies[0].measure),
    ]


def _calibrated_by(pools: Sequence[Pool], size: int | None) -> Option:
    paths = {str(pool.calibration_path) for pool in pools if pool.calibration_path}
    if len(paths) == 1:
        return "--calibration-pool", paths.pop(), None
    return "--calibration-size", size, None


def _measured_by(measure: MeasureSpec | None) -> list[Option]:
    if isinstance(measure, Measure):
        return [(f"--{name}", getattr(measure, name), None) for name in ("signal", "score", "window")]
    return [("--signal", measure, "auto")]
