"""What every report says of its pools and settings, in words."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_reasc._version import __version__
from langchain_reasc_lab.replay.metrics import RESAMPLES
from langchain_reasc_lab.report.contents import Entry
from langchain_reasc_lab.report.making import Made, Report
from langchain_reasc_lab.report.parts import listed
from langchain_reasc_lab.report.rendering.cells import MARKED, marks
from langchain_reasc_lab.report.study import Study

__all__ = [
    "Explained",
    "explained",
    "headline",
    "missing",
    "pool_facts",
    "pool_lines",
    "printable",
    "setting_lines",
    "verdict_lines",
]

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""What a model may write, and HTML does not allow, or a terminal would obey."""


def printable(text: str) -> str:
    """A text without control characters and halves of characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def headline(report: Report) -> str:
    """What the report is of."""
    return f"ReASC on {listed([study.name for study in report.studies])}"


@dataclass(frozen=True, slots=True)
class Explained:
    """What has to be known to read one table.

    Attributes:
        notes: sentences that stand under no table before it.
        meanings: of its columns, (name, meaning), likewise.
        marks: whether to say how its bests are marked.
        earlier: under which tables the rest stands.
    """

    notes: Sequence[str]
    meanings: Sequence[tuple[str, str]]
    marks: bool
    earlier: Sequence[Entry]


def explained(report: Report) -> dict[str, Explained]:
    """For each table, by name, what has to be known to read it; each thing is said once, under the first table."""
    told: dict[object, Entry] = {}
    found: dict[str, Explained] = {}
    for part in report.parts:
        if part.table is None:
            continue
        notes = list(dict.fromkeys(part.table.notes))
        meanings = [(column.name, column.meaning) for column in part.table.columns if column.meaning]
        lines: list[object] = [*notes, *meanings, *([MARKED] if marks(part.table) else [])]
        earlier = dict.fromkeys(told[line] for line in lines if line in told)
        found[part.entry.name] = Explained(
            [note for note in notes if note not in told],
            [meaning for meaning in meanings if meaning not in told],
            MARKED in lines and MARKED not in told,
            list(earlier),
        )
        told |= {line: part.entry for line in lines if line not in told}
    return found


def missing(report: Report) -> dict[str, list[Made]]:
    """What could not be made at all: the reason -> the parts."""
    found: dict[str, list[Made]] = {}
    for part in report.parts:
        if part.is_empty:
            found.setdefault(" ".join(part.problems) or "There is nothing in it.", []).append(part)
    return found


def verdict_lines(report: Report) -> list[str]:
    """What the report comes to, a line for each pool."""
    named = len(report.studies) > 1
    told = zip(report.studies, report.verdicts, strict=False)
    return [f"{study.name}: {' '.join(verdict)}" if named else " ".join(verdict) for study, verdict in told]


def pool_facts(study: Study) -> dict[str, str]:
    """What is known of a pool, under its name."""
    pool = study.pool
    fingerprint = pool.metadata.get("fingerprint")
    known: dict[str, Any] = fingerprint if isinstance(fingerprint, dict) else {}
    sampling = known.get("sampling")
    tested = pool.questions[pool.calibrating :]
    counts = sorted({len(question.responses) for question in tested})
    responses = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    facts = {
        "File": str(pool.path),
        "Questions": f"{len(tested):,}, with {responses} response{'' if responses == '1' else 's'} each",
        "Calibrated on": pool.calibrating and f"the first responses to {pool.calibrating:,} in {pool.calibration_path}",
        "Model": known.get("model") and " ".join(str(known[n]) for n in ("model", "quantization") if known.get(n)),
        "Sampling": isinstance(sampling, dict) and ", ".join(f"{name} {value}" for name, value in sampling.items()),
        "Recorded": pool.metadata.get("created_at"),
        "Token signals": ", ".join(study.scores.signals) or "none",
        "ReASC weighs by": "nothing: votes are counted" if study.measure is None else _measured(study),
    }
    return {name: str(value) for name, value in facts.items() if value}


def pool_lines(report: Report) -> Iterator[str]:
    """A line for each pool, and one for each thing that should be known of it."""
    for study in report.studies:
        facts = pool_facts(study)
        yield f"{study.name}: " + "; ".join(f"{name}: {value}" for name, value in facts.items()) + "."
        yield from (f"{study.name}: {note}." for note in study.pool.notes)


def setting_lines(report: Report) -> Iterator[str]:
    """How the numbers were had."""
    settings = report.settings
    arranged = f"{settings.shuffles} shuffles of questions and responses" if settings.shuffles else "the recorded order"
    alone = any(not study.pool.calibrating for study in report.studies)
    own = (
        f"where a pool has more, the first responses of {settings.calibration_size} of its questions calibrate, and "
        "the others are tested; "
    )
    yield (
        f"Means over {arranged}; {own if alone else ''}at most {settings.methods.max_samples} responses to each; seed "
        f"{settings.seed}."
    )
    yield (
        f"In brackets: 95 % intervals, {RESAMPLES:,} bootstrap resamples over questions where nothing else is said. "
        f"The gate is asked for an accuracy of {settings.methods.p_target:g}."
    )
    if settings.parameters is not None:
        yield f"TFLOPs: 2N per generated token, N = {settings.parameters:,.0f} parameters."
    if settings.tokens_per_second is not None:
        yield f"Latencies: as with {settings.tokens_per_second:g} tokens a second in one sequence."
    yield f"Made by langchain-reasc {__version__}."


def _measured(study: Study) -> str:
    return {"auto": "what separates best on the calibration questions", "recorded": "the recorded scores"}.get(
        str(study.measure), str(study.measure)
    )
