"""Making a report: its tables and figures one after the other, with what could not be made and why."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from langchain_reasc.complaints import suggestion
from langchain_reasc.exceptions import ConfigurationError, ReASCError
from langchain_reasc.method.confidence import Measure
from langchain_reasc_lab.pools.reading import CALIBRATION_POOL
from langchain_reasc_lab.report.contents import Entry, contents
from langchain_reasc_lab.report.parts import Figure, Table
from langchain_reasc_lab.report.study import Study, StudySettings
from langchain_reasc_lab.report.verdict import verdict

if TYPE_CHECKING:
    from langchain_reasc.calibrating import MeasureSpec

__all__ = ["Made", "Report", "chosen_entries", "command_for", "make_report"]


@dataclass(frozen=True, slots=True)
class Made:
    """A table or some figures of a report.

    Attributes:
        entry: what it is called, and where the paper has it.
        table: the table; None where the entry is of figures, or nothing could be made.
        figures: the figures, one or one for each pool.
        problems: what some pool, or all, could not tell, in whole sentences.
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
    """What was made of some pools.

    Attributes:
        studies: the pools under the settings that they share.
        parts: tables and figures, in the order of a report.
        verdicts: what the main comparison comes to on each pool, in words; none where it was not made.
    """

    studies: Sequence[Study]
    parts: Sequence[Made]
    verdicts: Sequence[Sequence[str]] = ()

    @property
    def settings(self) -> StudySettings:
        """What all tables share."""
        return self.studies[0].settings


def chosen_entries(names: Iterable[str]) -> list[Entry]:
    """The tables and figures of these names, in the order of a report; all of them without a name.

    Raises:
        ConfigurationError: there is none of such a name; it says which ones are alike.
    """
    known, wanted = contents(), list(names)
    for name in wanted:
        if name not in known:
            raise ConfigurationError(f"no table or figure is called {name!r}; {suggestion(name, known)}")
    return [entry for entry in known.values() if not wanted or entry.name in wanted]


def make_report(
    studies: Sequence[Study],
    entries: Sequence[Entry] | None = None,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Make tables and figures of some pools. What a pool cannot tell leaves a sentence in its place.

    Args:
        studies: one for each pool, with names of their own.
        entries: what to make, as :func:`chosen_entries` gives it; None for everything.
        on_progress: called with (parts made, all of them).

    Raises:
        ConfigurationError: no study, or two of one name.
    """
    names = [study.name for study in studies]
    if not studies or len(set(names)) < len(names):
        raise ConfigurationError(f"a report is of one pool or more, each with a name of its own; got {names}")
    wanted = chosen_entries(()) if entries is None else entries
    if on_progress:
        on_progress(0, len(wanted))
    parts = []
    for at, entry in enumerate(wanted, start=1):
        parts.append(_made(entry, studies))
        if on_progress:
            on_progress(at, len(wanted))
    compared = any(part.entry.name == "main" and not part.is_empty for part in parts)
    return Report(studies, parts, [verdict(study) for study in studies] if compared else [])


def _made(entry: Entry, studies: Sequence[Study]) -> Made:
    began = perf_counter()
    made, problems = _of_those_that_can(entry, studies)
    seconds = perf_counter() - began
    if isinstance(made, Table) and all(cell is None or isinstance(cell, str) for row in made.rows for cell in row):
        why = [note for note in made.notes if "cannot be had" in note] or ["No number in it could be had."]
        made, problems = None, [*problems, *why]
    if made is None or isinstance(made, Table):
        return Made(entry, made, [], problems, seconds)
    return Made(entry, None, [made] if isinstance(made, Figure) else list(made), problems, seconds)


def _of_those_that_can(entry: Entry, studies: Sequence[Study]) -> tuple[Any, list[str]]:
    """What is made of all pools, or of those of which it can be made, with what the others lack."""
    try:
        return entry.make(studies), []
    except ReASCError as error:
        if len(studies) == 1:
            return None, [_sentence(error)]
        told = _sentence(error)
    able, problems = [], []
    for study in studies:
        try:
            entry.make([study])
        except ReASCError as error:
            problems.append(f"{study.name}: {_sentence(error)}")
        else:
            able.append(study)
    if not able or len(able) == len(studies):  # none can, or only not together
        return None, [told] if all(told in problem for problem in problems) else problems
    try:
        return entry.make(able), problems
    except ReASCError as error:
        return None, [*problems, _sentence(error)]


def _sentence(error: ReASCError) -> str:
    text = " ".join(str(error).split())
    return text + ("" if text.endswith((".", "!", "?")) else ".")


def command_for(report: Report, name: str) -> str:
    """The command that prints one part of this report alone."""
    usual, settings = StudySettings(), report.settings
    methods = settings.methods
    read = [study.pool for study in report.studies]
    apart = {str(pool.calibration_path) for pool in read if pool.calibration_path}
    beside = not apart and any(pool.path.with_name(CALIBRATION_POOL).exists() for pool in read)  # would be taken
    size: tuple[str, Any, Any] = ("--calibration-size", settings.calibration_size, usual.calibration_size)
    options: list[tuple[str, Any, Any]] = [
        ("--shuffles", settings.shuffles, 0 if all(pool.calibrating for pool in read) else usual.shuffles),
        ("--seed", settings.seed, usual.seed),
        ("--calibration-pool", apart.pop(), None) if len(apart) == 1 else (*size[:2], None) if beside else size,
        ("--max-samples", methods.max_samples, usual.methods.max_samples),
        ("--p-target", methods.p_target, usual.methods.p_target),
        ("--prices", settings.prices and str(settings.prices), None),
        ("--parameters", settings.parameters, None),
        ("--tokens-per-second", settings.tokens_per_second, None),
    ]
    said = [word for option, value, default in options if value != default for word in (option, _word(value))]
    pools = [str(pool.path) for pool in read]
    return shlex.join(["reasc", "report", *pools, "--only", name, *said, *_measured(report.studies[0].measure)])


def _word(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _measured(measure: "MeasureSpec | None") -> list[str]:
    if isinstance(measure, Measure):
        return ["--signal", measure.signal, "--score", measure.score, "--window", str(measure.window)]
    return ["--signal", measure] if measure == "recorded" else []
