"""The tables and figures of a report, in its order.

To add one, write a function that takes the studies and returns a :class:`~.tables.Table` or a list of
:class:`~.tables.Figure`, and list it here: every output form and ``reasc report --only NAME`` then know it. What a
pool lacks, the function raises as a :class:`~langchain_reasc.exceptions.ReASCError`; the report says so in its place.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_reasc.complaints import suggestion
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.report import comparisons, figures, latency, sensitivity, signal_figures, signals
from langchain_reasc_lab.report.study import Study

Maker = Callable[[Sequence[Study]], Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or a figure that can be made.

    Attributes:
        name: its name for ``--only``.
        title: its heading.
        paper: its place in the paper, such as ``"Table 2"``; empty if it is not in the paper.
        kind: which of the two it is.
        make: makes the table, or the list of figures, from the studies, one for each pool.
    """

    name: str
    title: str
    paper: str
    kind: Literal["table", "figure"]
    make: Maker


def _table(name: str, title: str, make: Maker, paper: str = "") -> Entry:
    return Entry(name, title, paper, "table", make)


def _figure(name: str, title: str, make: Maker, paper: str = "") -> Entry:
    return Entry(name, title, paper, "figure", make)


_ENTRIES: Final = (
    _table("short", "In short", comparisons.short),
    _table("main", "Main comparison", comparisons.main, "Table 1"),
    _table("tasks", "Beyond mathematics: the main methods on each pool", comparisons.tasks, "Table 12"),
    _table("intervals", "Accuracy with its interval, resampled and exact", comparisons.intervals, "Table 10"),
    _figure("tradeoff", "Accuracy against tokens", figures.tradeoff),
    _figure("risk", "Wrong answers where the unlikely ones are left out", figures.risk),
    _figure("posteriors", "The posterior of one question, response by response", figures.posteriors, "Figure 5"),
    _table("stage1", "Stage 1: what the gate accepts, and how much of it is right", comparisons.stage1, "Table 2"),
    _table("stage2", "Stage 2: the questions that the gate does not accept", comparisons.stage2, "Table 3"),
    _table("ablation", "Ablation: each stage alone", comparisons.ablation, "Table 4"),
    _figure("acceptance", "Questions that the gate answers from one response", figures.acceptance, "Figure 4"),
    _table("controls", "Controls: what else the same responses could have given", comparisons.controls),
    _table("mappings", "From score to weight", sensitivity.mappings, "Table 7"),
    _table("p_target", "The accuracy asked of the gate", sensitivity.p_target, "Table 11"),
    _table("scale", "λ, how strongly confidence counts", sensitivity.scale, "Figure 8"),
    _table("calibration_size", "Questions that calibrate", sensitivity.calibration_size, "Figure 7"),
    _figure(
        "calibration_size_plot",
        "Accuracy and cost against the calibration's size",
        figures.calibration_size_plot,
        "Figure 7",
    ),
    _figure("scale_plot", "Accuracy and cost against λ", figures.scale_plot, "Figure 8"),
    _table("components", "How many Gaussian components first-response scores have", signals.components, "Table 5"),
    _table("separation", "Which score tells right responses from wrong ones", signals.separation, "Table 8"),
    _table("window", "The window of the bottom 10 % group score", signals.window, "Table 9"),
    _figure(
        "histogram",
        "Confidence of right and of wrong first responses",
        signal_figures.histograms,
        "Figures 2 and 6",
    ),
    _table("bins", "Accuracy by confidence", signals.bins, "Table 13"),
    _table("latency", "What methods take in time when samples are launched at once", latency.latency),
    _table("batched", "ReASC in batches, beside ASC and ESC", latency.batched, "Table 14"),
    _figure("tokens", "Confidence token by token", signal_figures.tokens, "Figures 1 and 6"),
)


def contents() -> dict[str, Entry]:
    """Return all tables and figures by name, in the order of a report."""
    return {entry.name: entry for entry in _ENTRIES}


def chosen_entries(names: Iterable[str]) -> list[Entry]:
    """Return the tables and figures of these names, in the order of a report; all of them without a name.

    Raises:
        ConfigurationError: none has such a name; it suggests similar ones.
    """
    known, selected = contents(), list(names)
    for name in selected:
        if name not in known:
            raise ConfigurationError(f"no table or figure is called {name!r}; {suggestion(name, known)}")
    return [entry for entry in _ENTRIES if not selected or entry.name in selected]
