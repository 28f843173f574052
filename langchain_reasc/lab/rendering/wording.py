"""What every report says of its pools and settings, in words."""

import re
from collections.abc import Iterator
from typing import Any

from langchain_reasc._version import __version__
from langchain_reasc.evaluation.metrics import RESAMPLES
from langchain_reasc.lab.making import Report
from langchain_reasc.lab.parts import listed
from langchain_reasc.lab.study import Study

__all__ = ["headline", "pool_facts", "pool_lines", "printable", "setting_lines"]

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""What a model may write, and HTML does not allow, or a terminal would obey."""


def printable(text: str) -> str:
    """A text without control characters and halves of characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def headline(report: Report) -> str:
    """What the report is of."""
    return f"ReASC on {listed([study.name for study in report.studies])}"


def pool_facts(study: Study) -> dict[str, str]:
    """What is known of a pool, under its name."""
    pool = study.pool
    fingerprint = pool.metadata.get("fingerprint")
    known: dict[str, Any] = fingerprint if isinstance(fingerprint, dict) else {}
    sampling = known.get("sampling")
    counts = sorted({len(question.responses) for question in pool.questions})
    responses = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    facts = {
        "File": str(pool.path),
        "Questions": f"{len(pool.questions):,}, with {responses} response{'' if responses == '1' else 's'} each",
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
    yield (
        f"Means over {arranged}; where a pool has more, the first responses of {settings.calibration_size} questions "
        f"calibrate, and the others are tested; at most {settings.methods.max_samples} responses to each; seed "
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
