"""The tables and figures of a report, and how they are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError, ReASCError
from langchain_reasc_lab.replay.verdict import verdict
from langchain_reasc_lab.report import (
    batched,
    comparisons,
    figures,
    sensitivity,
    signals,
)
from langchain_reasc_lab.report.study import Study, StudySettings
from langchain_reasc_lab.report.tables import Table


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or a figure that can be made.

    Attributes:
        name: its name, and that of its files.
        title: its heading.
        make: makes its table of all studies, one for each pool; or of one study, if
            each pool has a figure.
        paper: its place in the paper, such as ``"Table 2"``; empty if it is not in the
            paper.
        each_pool: whether each pool has a figure.
        by_votes: whether answers suffice, and no log-probabilities are needed.
    """

    name: str
    title: str
    make: Callable[[Any], Table]
    paper: str = ""
    each_pool: bool = False
    by_votes: bool = False


def _figure(
    name: str,
    title: str,
    make: Callable[[Study], Table],
    paper: str = "",
    *,
    by_votes: bool = False,
) -> Entry:
    return Entry(name, title, make, paper, each_pool=True, by_votes=by_votes)


CONTENTS: Final = (
    Entry(
        "main", "Main comparison", comparisons.main, "Tables 1 and 12", by_votes=True
    ),
    _figure("tradeoff", "Accuracy against tokens", figures.tradeoff, by_votes=True),
    Entry(
        "stage1",
        "Stage 1: what the gate accepts, and how much is right",
        comparisons.stage1,
        "Table 2, Figure 4",
    ),
    Entry(
        "stage2",
        "Stage 2: the questions that the gate does not accept",
        comparisons.stage2,
        "Table 3",
    ),
    Entry("ablation", "Ablation: each stage alone", comparisons.ablation, "Table 4"),
    Entry(
        "controls",
        "Controls: what else the same responses could have given",
        comparisons.controls,
    ),
    Entry(
        "intervals",
        "Accuracy with its interval, resampled and exact",
        comparisons.intervals,
        "Table 10",
        by_votes=True,
    ),
    _figure("risk", "Wrong answers where the unlikely ones are left out", figures.risk),
    Entry(
        "batched",
        "Time: ReASC in batches, beside ASC and ESC",
        batched.batched,
        "Table 14",
        by_votes=True,
    ),
    _figure(
        "posteriors",
        "The posterior of one question, response by response",
        figures.posteriors,
        "Figure 5",
    ),
    Entry("mappings", "From score to weight", sensitivity.mappings, "Table 7"),
    Entry(
        "p_target", "The accuracy asked of the gate", sensitivity.p_target, "Table 11"
    ),
    Entry("scale", "λ, how strongly confidence counts", sensitivity.scale, "Figure 8"),
    Entry(
        "calibration_size",
        "Questions that calibrate",
        sensitivity.calibration_size,
        "Figure 7",
    ),
    Entry(
        "separation",
        "Which score tells right responses from wrong ones",
        signals.separation,
        "Table 8",
    ),
    Entry(
        "window", "The window of the bottom 10 % group score", signals.window, "Table 9"
    ),
    Entry("bins", "Accuracy by confidence", signals.bins, "Table 13"),
    _figure(
        "histogram",
        "Confidence of right and of wrong first responses",
        figures.histogram,
        "Figures 2 and 6",
    ),
    _figure("tokens", "Confidence token by token", figures.tokens, "Figures 1 and 6"),
    Entry(
        "components",
        "How many Gaussian components first-response scores have",
        signals.components,
        "Table 5",
    ),
)
"""All tables and figures, in the order of a report: what a reader looks at first stands
first.

To add one, write a function that returns a :class:`~.tables.Table`, and list it here.
What a pool lacks, the function raises as a
:class:`~langchain_reasc.exceptions.ReASCError`; the report says so in its place.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A table or the figures of a report.

    Attributes:
        entry: its name, its title, and where the paper has it.
        tables: pool -> its figure; or ``""`` -> the table of all pools.
        problems: why pools lack it, in whole sentences.
    """

    entry: Entry
    tables: dict[str, Table]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Report:
    """The tables and figures of some pools.

    Attributes:
        studies: the pools under the settings that they share.
        parts: tables and figures, in the order of a report.
        verdicts: the result of the main comparison in sentences, for each pool.
    """

    studies: Sequence[Study]
    parts: Sequence[Part]
    verdicts: Sequence[Sequence[str]]

    @property
    def settings(self) -> StudySettings:
        """The settings that all tables share."""
        return self.studies[0].settings


def make_report(
    studies: Sequence[Study],
    entries: Sequence[Entry] = CONTENTS,
    *,
    on_progress: Callable[[int, int], None] = lambda made, total: None,
) -> Report:
    """Make tables and figures of some pools. What a pool cannot tell leaves a sentence
    in its place.

    Args:
        studies: one for each pool, with names of their own.
        entries: the tables and figures.
        on_progress: called with (parts made, all of them).

    Raises:
        ConfigurationError: no study, or two of one name.
    """
    names = [study.name for study in studies]
    if not studies or len(set(names)) < len(names):
        raise ConfigurationError(
            f"a report is of one pool or more, each with a name of its own; got {names}"
        )
    on_progress(0, len(entries))
    verdicts = [verdict(study.run, study.rows) for study in studies]
    parts: list[Part] = []
    for entry in entries:
        parts.append(_made(entry, studies))
        on_progress(len(parts), len(entries))
    return Report(studies, parts, verdicts)


def _made(entry: Entry, studies: Sequence[Study]) -> Part:
    arguments: dict[str, Any] = {"": studies}
    if entry.each_pool:
        arguments = {study.name: study for study in studies}
    tables: dict[str, Table] = {}
    problems: list[str] = []
    for name, argument in arguments.items():
        try:
            tables[name] = entry.make(argument)
        except ReASCError as error:
            sentence = " ".join(str(error).split()).rstrip(".") + "."
            problems.append(f"{name}: {sentence}" if len(arguments) > 1 else sentence)
    return Part(entry, tables, problems)
