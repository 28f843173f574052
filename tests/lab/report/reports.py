"""Studies and reports to write down, with texts that are no friends of HTML, Markdown or terminals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_reasc_lab.replay.methods import MethodSettings
from langchain_reasc_lab.replay.metrics import Estimate
from langchain_reasc_lab.report import Column, Entry, Figure, Made, Report, Study, StudySettings, Table
from pools.synthetic import write_pool

from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools import read_pool

LABEL = "Table 1, tab:a_label_that_is_as_long_as_labels_are_and_has_no_blank"
HOSTILE = '<script>alert("1 & 2")</script> | *a*\x00 `b`'
NOTHING = float("nan")
COLUMNS = (
    Column("Pool"),
    Column("Method", meaning="How it decides."),
    Column("Accuracy %", ".1f", "Share that is right.", "high"),
    Column("Tokens", ",.0f", "Tokens per question.", "low"),
    Column("Δ to ASC", "+.1f"),
)
ROWS = (
    ("a", "pass@1", Estimate(59.44, 51.9, 66.9), 67.0, Estimate(-13.1, -18.8, -7.5)),
    ("a", "ASC", Estimate(72.46, 65.6, 79.4), 1684.0, Estimate(0.0, 0.0, 0.0)),
    ("a", "ReASC", Estimate(72.54, 65.6, 79.4), 488.0, Estimate(0.0, -2.3, 2.3)),
    ("b", HOSTILE, Estimate(NOTHING, NOTHING, NOTHING), None, None),
    ("b", "ASC", 9.0, 10.0, Estimate(1.0, NOTHING, NOTHING)),
)
TABLE = Table(COLUMNS, ROWS, notes=[f"A note with {HOSTILE}."])
WEIGHED = Measure("token_logprob", "bottom_group", 8)  # choosing one takes seconds
SETTINGS = StudySettings(shuffles=1, calibration_size=40, methods=MethodSettings(max_samples=8))


def study(path: Path, name: str = "a", *, settings: StudySettings = SETTINGS, measure: object = WEIGHED) -> Study:
    return Study(name, read_pool(path), measure, settings)  # type: ignore[arg-type]


def pool(folder: Path, name: str = "a", questions: int = 60, **options: Any) -> Path:
    return write_pool(folder / f"{name}.jsonl", questions, 8, **options)


def entry(name: str, made: object, *, paper: str = "") -> Entry:
    kind: Any = "table" if isinstance(made, Table) else "figure"
    return Entry(name, f"The {name}", paper, kind, lambda studies: made)


def report(studies: Sequence[Study], *, more: Sequence[Made] = ()) -> Report:
    """A table, two figures, and a part that could not be made."""
    figures = [
        Figure('<svg viewBox="0 0 9 9" width="9" height="9" role="img" aria-label="x"></svg>', f"Seen: {HOSTILE}", "a"),
        Figure("<p>no picture</p>", "Nothing to see.", notes=["A remark."]),
    ]
    parts = [
        Made(entry("main", TABLE, paper=LABEL), TABLE, [], [], 0.1),
        Made(entry("pictures", figures), None, figures, [f"b: It has none, {HOSTILE}."], 0.1),
        Made(entry("gone", TABLE), None, [], ["No pool has it."], 0.1),
        *more,
    ]
    return Report(studies, parts)
