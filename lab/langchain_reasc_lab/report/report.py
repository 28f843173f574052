"""A report: which tables and figures there are, how they are made of some pools, and what they come to in words.

To add a table, write a function that takes the studies and returns a :class:`~.tables.Table`, under the decorator
:func:`table`, in one of :data:`_MODULES`; a figure likewise, under :func:`figure`. Every output form and
``reasc report --only NAME`` then know it. What a pool cannot tell, the function raises as a
:class:`~langchain_reasc.exceptions.ReASCError`; the report then says so where the table would stand.
"""

import importlib
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from time import perf_counter
from typing import Any, Final, TypeVar

from langchain_reasc.calibrating import MeasureSpec
from langchain_reasc.complaints import suggestion
from langchain_reasc.exceptions import ConfigurationError, ReASCError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools import Pool
from langchain_reasc_lab.pools.reading import CALIBRATION_POOL
from langchain_reasc_lab.replay.bootstrap import Estimate, exact
from langchain_reasc_lab.replay.methods import ASC_ROW, HORIZON
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_lab.replay.replay import live_rule
from langchain_reasc_lab.report.study import Study, StudySettings
from langchain_reasc_lab.report.tables import Figure, Table, percent

_MODULES: Final = ("comparisons", "sensitivity", "signals", "latency", "figures", "signal_figures")
"""Those whose functions make tables and figures."""

_ORDER: Final = (
    *("main", "tasks", "intervals", "tradeoff", "risk", "posteriors", "stage1", "stage2", "ablation", "acceptance"),
    *("controls", "mappings", "p_target", "scale", "calibration_size", "calibration_size_plot", "scale_plot"),
    *("components", "separation", "window", "histogram", "bins", "latency", "batched", "tokens"),
)
"""The names of tables and figures in the order of a report; others come last."""

Maker = Callable[[Sequence[Study]], Any]
Function = TypeVar("Function", bound=Maker)


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or a figure that can be made.

    Attributes:
        name: what ``--only`` calls it.
        title: its heading.
        paper: where the paper has it, such as ``"Table 2"``; empty where it has none.
        kind: which of the two it is.
        make: makes it from the studies, one for each pool.
    """

    name: str
    title: str
    paper: str
    kind: type[Table] | type[Figure]
    make: Maker


_ENTRIES: dict[str, Entry] = {}


def contents() -> dict[str, Entry]:
    """All tables and figures, by name, in the order of a report."""
    for module in _MODULES:
        importlib.import_module(f"langchain_reasc_lab.report.{module}")
    order = {name: at for at, name in enumerate(_ORDER)}
    return dict(sorted(_ENTRIES.items(), key=lambda named: order.get(named[0], len(order))))


def table(name: str, title: str, *, paper: str = "") -> Callable[[Function], Function]:
    """Decorate the function that makes a table."""
    return _entered(name, title, paper, Table)


def figure(name: str, title: str, *, paper: str = "") -> Callable[[Function], Function]:
    """Decorate the function that makes a figure, or several: one for each pool."""
    return _entered(name, title, paper, Figure)


def _entered(name: str, title: str, paper: str, kind: type[Table] | type[Figure]) -> Callable[[Function], Function]:
    def enter(function: Function) -> Function:
        _ENTRIES[name] = Entry(name, title, paper, kind, _once(name, function))
        return function

    return enter


def _once(name: str, function: Maker) -> Maker:
    """The same, computed once for the same studies: a figure is drawn from a table that is shown as well."""

    @wraps(function)
    def make(studies: Sequence[Study]) -> Any:
        cache = studies[0].made if studies else {}
        made_of, made = cache.get(name, ((), None))
        if len(made_of) != len(studies) or any(one is not other for one, other in zip(made_of, studies, strict=True)):
            made = function(studies)
            cache[name] = tuple(studies), made
        return made

    return make


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
    known, selected = contents(), list(names)
    for name in selected:
        if name not in known:
            raise ConfigurationError(f"no table or figure is called {name!r}; {suggestion(name, known)}")
    return [entry for entry in known.values() if not selected or entry.name in selected]


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
    chosen = chosen_entries(()) if entries is None else entries
    move = on_progress or (lambda made, of: None)
    move(0, len(chosen))
    parts = []
    for at, entry in enumerate(chosen, start=1):
        parts.append(_made(entry, studies))
        move(at, len(chosen))
    compared = any(part.entry.name == "main" and not part.is_empty for part in parts)
    return Report(studies, parts, [verdict(study) for study in studies] if compared else [])


def _made(entry: Entry, studies: Sequence[Study]) -> Made:
    began = perf_counter()
    made, problems = _make(entry, studies)
    seconds = perf_counter() - began
    if isinstance(made, Table) and all(cell is None or isinstance(cell, str) for row in made.rows for cell in row):
        why = [note for note in made.notes if "cannot be had" in note] or ["No number in it could be had."]
        made, problems = None, [*problems, *why]
    if made is None or isinstance(made, Table):
        return Made(entry, made, [], problems, seconds)
    return Made(entry, None, [made] if isinstance(made, Figure) else list(made), problems, seconds)


def _make(entry: Entry, studies: Sequence[Study]) -> tuple[Any, list[str]]:
    """What is made of all pools, or of those of which it can be made, with what the others lack."""
    try:
        return entry.make(studies), []
    except ReASCError as error:
        if len(studies) == 1:
            return None, [_sentence(error)]
        reason = _sentence(error)
    able, problems = [], []
    for study in studies:
        try:
            entry.make([study])
        except ReASCError as error:
            problems.append(f"{study.name}: {_sentence(error)}")
        else:
            able.append(study)
    if not able or len(able) == len(studies):  # none can, or only not together
        return None, [reason] if all(reason in problem for problem in problems) else problems
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
    options: list[tuple[str, Any, Any]] = [
        ("--shuffles", settings.shuffles, 0 if all(pool.calibrating for pool in read) else usual.shuffles),
        ("--seed", settings.seed, usual.seed),
        *_calibrated_by(read, settings.calibration_size),
        ("--max-samples", methods.max_samples, usual.methods.max_samples),
        ("--p-target", methods.p_target, usual.methods.p_target),
        ("--prices", settings.prices and str(settings.prices), None),
        ("--parameters", settings.parameters, None),
        ("--tokens-per-second", settings.tokens_per_second, None),
    ]
    words = [word for option, value, default in options if value != default for word in (option, _word(value))]
    pools = [str(pool.path) for pool in read]
    return shlex.join(["reasc", "report", *pools, "--only", name, *words, *_measured(report.studies[0].measure)])


def _calibrated_by(pools: Sequence[Pool], size: int) -> list[tuple[str, Any, Any]]:
    """The option that says what calibrates, its value, and its default."""
    paths = {str(pool.calibration_path) for pool in pools if pool.calibration_path}
    if len(paths) == 1:
        return [("--calibration-pool", paths.pop(), None)]
    found = not paths and any(pool.path.with_name(CALIBRATION_POOL).exists() for pool in pools)  # would be taken
    return [("--calibration-size", size, None if found else StudySettings().calibration_size)]


def _word(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _measured(measure: MeasureSpec | None) -> list[str]:
    if isinstance(measure, Measure):
        return ["--signal", measure.signal, "--score", measure.score, "--window", str(measure.window)]
    return ["--signal", measure] if measure == "recorded" else []


AS_ACCURATE: Final = 5.0
"""Points: a difference whose interval is within these on both sides is called none; a wider one, undecided."""
FEWEST: Final = 30
"""Questions, below which resampled intervals are too narrow to conclude anything from."""


def verdict(study: Study) -> list[str]:
    """The outcome on one pool, in sentences with their 95 % intervals; the first says most.

    It is of the row that a live run would be: the offline calibration as it runs by default, or, where there is no
    calibration, the rule that needs none. It is compared with all samples (self-consistency), then with ASC, which
    counts votes and needs no confidence.
    """
    rows = {(row.method, row.spec): row for row in study.rows}
    name, spec, why = _live(study)
    row, single = rows[name, spec], rows["pass@1", None]
    lengths = study.recorded.lengths[study.pool.calibrating :]
    samples = f"all {min(study.settings.methods.max_samples, int(lengths.max()))} samples"
    return list(_sentences(row, single, samples, study.run.tested, why))


def _live(study: Study) -> tuple[str, MeasureSpec | None, str]:
    """The name and the measure of the row of a live run, and why it is not one of ReASC, where it is not."""
    if study.uncalibrated:
        return HORIZON, None, study.uncalibrated
    name, why = live_rule(study.run, study.spec)
    return (HORIZON, None, why) if name == ASC_ROW else (name, study.spec, "")


def _sentences(row: Row, single: Row, samples: str, tested: int, why: str) -> Iterator[str]:
    tokens = _tokens(row.tokens_vs_sc)
    if tested < FEWEST:
        right = percent(row.accuracy)
        yield (
            f"{tested} question{'' if tested == 1 else 's'} cannot tell methods apart: {row.method} answers "
            f"{right.value:.1f} % [{right.low:.1f}, {right.high:.1f}] right, {_points(row.accuracy_vs_sc)} beside "
            f"{samples} of each question, {tokens}. Record {FEWEST} or more."
        )
    else:
        yield f"{_compared(row, samples, tested)}, {tokens}."
        if row.method != HORIZON:
            yield (
                f"Beside ASC, which counts votes and needs no confidence: {_points(row.accuracy_vs_asc)}, "
                f"{_tokens(row.tokens_vs_asc)}."
            )
        if (alone := single.accuracy_vs_sc).high >= 0:
            yield (
                "Nor is it clear that more than one response helps here: the first alone is "
                f"{_points(alone)} beside {samples}."
            )
    if why:
        yield f"That counts votes, as ReASC could not be tried: {why}."


def _compared(row: Row, samples: str, tested: int) -> str:
    """Accuracy beside that of all samples: worse, better, the same within so many points, or not to be told."""
    difference = percent(row.accuracy_vs_sc)
    reach = max(-difference.low, difference.high, 100 * exact(0, tested).high)  # resamples of one difference say little
    if difference.high < 0:
        return f"{row.method} is less accurate than {samples} of each question, by {_points_apart(difference)}"
    if difference.low > 0:
        return f"{row.method} is more accurate than {samples} of each question, by {_points_apart(difference)}"
    if reach <= AS_ACCURATE:
        return f"{row.method} is as accurate as {samples} of each question, within ±{reach:.1f} points"
    return (
        f"{tested} questions cannot tell whether {row.method} is as accurate as {samples} of each: the difference is "
        f"{_points(row.accuracy_vs_sc)}"
    )


def _points_apart(difference: Estimate) -> str:
    low, high = sorted((abs(difference.low), abs(difference.high)))
    return f"{abs(difference.value):.1f} points [{low:.1f}, {high:.1f}]"


def _points(share: Estimate) -> str:
    difference = percent(share)
    return f"{difference.value:+.1f} points [{difference.low:+.1f}, {difference.high:+.1f}]"


def _tokens(ratio: Estimate) -> str:
    """Tokens relative to another method's."""
    if not all(map(math.isfinite, (ratio.value, ratio.low, ratio.high))):
        return "for tokens that the pool does not tell"
    saved = percent(Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low))
    if saved.low > 0:
        return f"for {saved.value:.0f} % [{saved.low:.0f}, {saved.high:.0f}] fewer tokens"
    if saved.high < 0:
        return f"for {-saved.value:.0f} % [{-saved.high:.0f}, {-saved.low:.0f}] more tokens"
    return f"for tokens that differ by {-saved.value:+.0f} % [{-saved.high:+.0f}, {-saved.low:+.0f}]"
