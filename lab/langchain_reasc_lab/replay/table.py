"""The comparison as a table, for a terminal or as Markdown."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from langchain_reasc.calibration import Calibration
from langchain_reasc_lab.replay.methods import ASC_AT_ONCE, MIXTURE
from langchain_reasc_lab.replay.metrics import RESAMPLES, Estimate, Row
from langchain_reasc_lab.replay.replay import Replay, live_rule
from langchain_reasc_lab.replay.risk import BINS
from langchain_reasc_lab.replay.verdict import verdict
from langchain_reasc_lab.replay.worked import Worked

__all__ = [
    "PLAIN_HEAD",
    "comparison",
    "footnotes",
    "methods_explained",
    "print_comparison",
    "print_verdict",
    "worked_table",
]


_LINE = 79  # columns of a verdict
_METHOD, _ACCURACY, _SAMPLES, _TOKENS = " Method", "Accuracy %", "Samples", "Tokens"
_TO_SC, _TO_ASC, _DIFFERENCE, _COST = "/SC", "/ASC", "Δ acc. to ASC", "TFLOPs"
_FULL = {
    _METHOD: 29,
    _ACCURACY: 17,
    _SAMPLES: 7,
    _TOKENS: 7,
    _TO_SC: 5,
    _TO_ASC: 5,
    _DIFFERENCE: 20,
}  # 96 columns
_FULL_WITH_COST = {**_FULL, _METHOD: 25, _COST: 7}  # 100
_NARROW = {
    _METHOD: 17,
    _ACCURACY: 16,
    _SAMPLES: 7,
    _TOKENS: 6,
    _TO_SC: 4,
    _TO_ASC: 4,
    _DIFFERENCE: 19,
}  # 79
_NARROW_WITH_COST = {
    name: width
    for name, width in {**_NARROW, _METHOD: 16, _COST: 6}.items()
    if name != _TO_SC
}  # 80

PLAIN_HEAD = box.Box("    \n    \n -- \n    \n    \n -- \n    \n    \n", ascii=True)
"""rich's ``SIMPLE_HEAD`` for outputs without lines."""


def print_comparison(run: Replay, rows: Sequence[Row], console: Console) -> None:
    """Print what it comes to, the table, narrow if there is little room, and the notes
    that are needed to read it.
    """
    plain = not console.encoding.startswith("utf")
    print_verdict(verdict(run, rows), console)
    console.print(
        comparison(rows, width=console.width, plain=plain), crop=False, no_wrap=True
    )
    for line in footnotes(run, rows):
        console.print(
            escape(line).replace("Δ", _delta(plain)), soft_wrap=not console.is_terminal
        )


def print_verdict(sentences: Sequence[str], console: Console) -> None:
    """Print a verdict in lines of 79 columns, the outcome in bold."""
    outcome, *others = sentences
    for line in _folded(outcome):
        console.print(Text(line, "bold"))
    for sentence in others:
        for line in _folded(sentence):
            console.print(Text(line))


def _folded(sentence: str) -> Iterator[str]:
    """Yield a sentence in lines; a number and its % stay together."""
    for line in wrap(sentence.replace(" %", "\xa0%"), _LINE, break_on_hyphens=False):
        yield line.replace("\xa0", " ")


def comparison(rows: Sequence[Row], *, width: int = 100, plain: bool = False) -> Group:
    """Return a row per method and measure: the methods that count votes, then ReASC by
    each measure.

    Args:
        rows: the rows of :func:`~langchain_reasc_lab.replay.metrics.summarize`.
        width: columns there are room for. Below 80 nothing is left out; a terminal
            breaks such lines.
        plain: whether to print ASCII alone.
    """
    with_cost = any(row.tflops is not None for row in rows)
    full, narrow = (
        (_FULL_WITH_COST, _NARROW_WITH_COST) if with_cost else (_FULL, _NARROW)
    )
    columns = full if width >= _width(full) else narrow
    parts: list[RenderableType] = []
    for spec in dict.fromkeys(row.spec for row in rows):
        section = [row for row in rows if row.spec == spec]
        if spec is not None:
            parts.append(
                Text(
                    f" ReASC by {_section(section[0])}",
                    style="italic",
                    overflow="fold",
                    no_wrap=False,
                )
            )
        table = _empty(columns, header=not parts, plain=plain)
        for row in section:
            cells = _cells(row, columns)
            table.add_row(*(cells[name] for name in columns))
        parts.append(table)
    return Group("", *parts, "")


def _delta(plain: bool) -> str:
    return "Delta" if plain else "Δ"


def _width(columns: Mapping[str, int]) -> int:
    return sum(columns.values()) + len(columns) - 1


def _empty(columns: Mapping[str, int], *, header: bool, plain: bool) -> Table:
    """Return a table of fixed column widths, so that several of them align."""
    style = PLAIN_HEAD if plain else box.SIMPLE_HEAD
    table = Table(
        box=style, show_edge=False, show_header=header, padding=0, width=_width(columns)
    )
    for name, width in columns.items():
        justify: Literal["left", "right"] = "left" if name == _METHOD else "right"
        table.add_column(
            name.replace("Δ", _delta(plain)),
            justify=justify,
            width=width,
            no_wrap=name != _METHOD,
        )
    return table


def footnotes(run: Replay, rows: Sequence[Row]) -> Iterator[str]:
    """Yield what the columns mean, how they were measured, which rule a live run would
    use, and what is missing.
    """
    yield from _measured(run, rows)
    yield from _live_rules(run, rows)
    with_controls = any(row.method == ASC_AT_ONCE for row in rows)
    if with_controls:  # only then, as there are many lines
        yield from _risks(rows)
    if with_controls:
        yield from _controls(rows)
    yield from _mixtures(run, [row for row in rows if row.method == MIXTURE])
    for row in rows:
        if problems := row.outcomes.problems:
            yield f"{row.method} counted votes in {len(problems)} of {run.arrangements} arrangements: {problems[0]}"
    for note in run.notes:
        yield f"Note: {note}."


def _measured(run: Replay, rows: Sequence[Row]) -> Iterator[str]:
    arranged = (
        f"mean of {run.shuffles} shuffles (seed {run.seed})"
        if run.shuffles
        else "recorded order"
    )
    calibrated = not_counted = ""
    if run.calibration_size:
        of_file = (
            f" in {run.pool.calibration_path}" if run.pool.calibration_path else ""
        )
        calibrated = f", calibrated on {run.calibration_size} others{of_file}"
        not_counted = " Calibration responses are not counted."
    yield f"{run.tested} question{'s' * (run.tested != 1)}{calibrated}; {arranged}."
    by_confidence = any(row.spec is not None for row in rows)
    yield methods_explained(run.settings.max_samples, by_confidence=by_confidence)
    prompts = [
        row.prompt_tokens / row.samples.value
        for row in rows
        if row.prompt_tokens is not None
    ]
    more = f"; the prompt has {prompts[0]:.0f} more" if prompts else ""
    between = (
        "; for rows that learn, with the variance between shuffles"
        if run.shuffles > 1
        else ""
    )
    yield (
        f"[..]: 95 % intervals, {RESAMPLES:,} bootstrap resamples over questions, and "
        f"Clopper and Pearson's for Δ (in points){between}. Tokens: generated, per "
        f"question, in the samples a method used{more}; /SC, /ASC: relative to those "
        f"rows.{not_counted}"
    )
    yield from _left_out(run, rows)
    if any(row.spec == "auto" for row in rows):
        yield (
            "auto: what ReASC (offline) and (mixture) read was chosen on the labelled "
            "calibration responses; ReASC (calibrated) and (online) read the mean "
            "log-probability."
        )


def methods_explained(budget: int, *, by_confidence: bool) -> str:
    """Return what each method does, in sentences.

    Args:
        budget: the most responses to a question.
        by_confidence: whether there are rows that read confidence.
    """
    explained = (
        f"pass@1 takes the first response, SC@{budget} the majority of {budget}. ESC "
        "stops when the four responses of a window agree, ASC when the leading answer "
        "is ahead with 95 %, Finite horizon when it wins the vote of the whole budget "
        "with 97 %, Agreement when it does so with 97.5 %, as the questions before "
        "have taught it."
    )
    if not by_confidence:
        return explained
    return (
        f"{explained} ReASC reads confidence, a score or the log-probabilities of a "
        "response's tokens, and may stop after one response: offline is the paper's "
        "rule, calibrated on labelled questions, with a gate that accepts a confident "
        "first response; calibrated is the agreement rule with scores, learned from "
        "the same questions; mixture is fitted to the first responses to all tested "
        "questions, and online learns from one tested question after the other, both "
        "without labels."
    )


def _left_out(run: Replay, rows: Sequence[Row]) -> Iterator[str]:
    """Yield which rows have no interval, and what varies from one calibration to the
    next and no interval shows.
    """
    if without := list(
        dict.fromkeys(row.method for row in rows if math.isnan(row.accuracy.low))
    ):
        yield (
            f"No interval: {', '.join(without)}, as other questions, in another order, "
            "would teach something else; --shuffles 10 shows how much that matters."
        )
    if run.calibration_size and (run.arrangements == 1 or run.pool.calibrating):
        yield "Intervals of rows that were calibrated once hold for that calibration, and leave out how others differ."


def _controls(rows: Sequence[Row]) -> Iterator[str]:
    if chosen := [
        confidence for row in rows for confidence in row.outcomes.confidences
    ]:
        found = " to ".join(
            dict.fromkeys(
                f"{confidence:.4g}" for confidence in (min(chosen), max(chosen))
            )
        )
        yield (
            "ASC at equal cost: at the confidence, found on the tested questions, at "
            f"which it spends most nearly what the named ReASC row does ({found}); "
            "what ASC spends rises by steps."
        )
    yield f"{ASC_AT_ONCE}: as with that concurrency; it decides like ASC, and pays for all of the last wave."


def _mixtures(run: Replay, rows: Sequence[Row]) -> Iterator[str]:
    """Yield in how many arrangements the mixture's gate was closed, and why, or BIC
    prefers a single component.
    """
    measures: dict[
        str, list[str]
    ] = {}  # a sentence -> the measures that it is true for
    for row in rows:
        for sentence in _mixture_notes(run, row.outcomes.calibrations):
            measures.setdefault(sentence, []).append(row.measure)
    for sentence, names in measures.items():
        yield f"{MIXTURE} by {', '.join(names)}: {sentence}"


def _mixture_notes(run: Replay, calibrations: Sequence[Calibration]) -> Iterator[str]:
    of_all = f"of {run.arrangements} arrangements"
    reasons = [
        one.gate.closed_because for one in calibrations if one.gate.closed_because
    ]
    if reasons and not run.shuffles:
        yield f"the gate was closed in the recorded order ({_without_figures(reasons[0])})."
    elif reasons:
        counted = Counter(map(_without_figures, reasons)).most_common()
        each = "; ".join(f"{times}: {reason}" for reason, times in counted)
        yield f"the gate was closed in {len(reasons)} {of_all} ({each})."
    if doubted := sum(
        one.mixture is not None and one.mixture.one_group is not None
        for one in calibrations
    ):
        where = f"in {doubted} {of_all}" if run.shuffles else "here"
        yield f"BIC prefers one component {where}; the paper's gate stands all the same."


def _without_figures(reason: str) -> str:
    return re.sub(r" \([^)]*\)", "", reason)


def _live_rules(run: Replay, rows: Sequence[Row]) -> Iterator[str]:
    measures = {row.spec: row.measure for row in rows if row.spec is not None}
    rules: dict[tuple[str, str], list[str]] = {}
    for spec, measure in measures.items():
        rules.setdefault(live_rule(run, spec), []).append(measure)
    for (name, why), names in rules.items():
        which = "" if len(measures) == 1 else f" (by {', '.join(names)})"
        yield f"A live run{which} is the row '{name}': {why}."


def _risks(rows: Sequence[Row]) -> Iterator[str]:
    known = [(row, risk) for row in rows if (risk := row.outcomes.risk) is not None]
    if known:
        yield (
            "P(correct), from how strongly decisions on the calibration questions were "
            f"supported, and their labels: expected calibration error in {BINS} bins "
            "of equal width / with equally many questions, in points; AURC: the mean "
            "share of wrong answers among the likeliest 1, 2, ... of all, in %."
        )
    for row, risk in known:
        ece = f"{100 * risk.ece_width:.1f} / {100 * risk.ece_quantile:.1f}"
        yield f"  {row.title}: ECE {ece}, AURC {100 * risk.aurc:.1f}"


def worked_table(worked: Worked, *, plain: bool = False) -> Table:
    """Return the evidence sample by sample under ReASC, with ASC's posterior beside it;
    ``plain`` for ASCII alone.
    """
    table = Table(box=PLAIN_HEAD if plain else box.SIMPLE_HEAD, pad_edge=False)
    for name in (
        "#",
        "Answer",
        "Score",
        "Weight",
        "Evidence",
        "P(ReASC)",
        "P(ASC)",
        "Decision",
    ):
        table.add_column(
            name,
            justify="left" if name in ("Answer", "Evidence", "Decision") else "right",
        )
    for at, counted in enumerate(worked.asc):
        response = worked.responses[at]
        weighed = worked.reasc[at] if at < len(worked.reasc) else None
        table.add_row(
            str(at + 1),
            escape(str(response.answer)),
            "-" if response.score is None else f"{response.score:.3f}",
            f"{worked.weights[at]:.2f}",
            ""
            if weighed is None
            else "  ".join(
                f"{escape(a)}: {v:.2f}" for a, v in weighed.evidence.items()
            ),
            "" if weighed is None else f"{weighed.posterior:.3f}",
            f"{counted.posterior:.3f}",
            _course(at, worked),
        )
    return table


def _course(at: int, worked: Worked) -> str:
    last = [
        name
        for name, course in (("ReASC", worked.reasc), ("ASC", worked.asc))
        if at == len(course) - 1
    ]
    return (
        f"{' and '.join(last)} {'stop' if len(last) > 1 else 'stops'}"
        if last
        else "go on"
    )


def _cells(row: Row, columns: Mapping[str, int]) -> dict[str, str]:
    separator = ", " if columns[_ACCURACY] == _FULL[_ACCURACY] else ","
    return {
        _METHOD: escape(
            "\n".join(
                wrap(
                    row.method,
                    columns[_METHOD],
                    initial_indent=" ",
                    subsequent_indent="   ",
                )
            )
        ),
        _ACCURACY: _interval(row.accuracy, "{:.1f}", separator),
        _SAMPLES: f"{row.samples.value:.2f}",
        _TOKENS: f"{row.tokens.value:,.0f}"
        if row.tokens.value < 99_999.5
        else f"{row.tokens.value / 1000:,.0f}k",
        _TO_SC: f"{row.tokens_vs_sc.value:.2f}",
        _TO_ASC: f"{row.tokens_vs_asc.value:.2f}",
        _DIFFERENCE: _interval(row.accuracy_vs_asc, "{:+.1f}", separator),
        _COST: ""
        if row.tflops is None
        else f"{row.tflops:.2g}"
        if row.tflops < 99.5
        else f"{row.tflops:,.0f}",
    }


def _interval(estimate: Estimate, style: str, separator: str) -> str:
    percents = (
        style.format(100 * part)
        for part in (estimate.value, estimate.low, estimate.high)
    )
    value, low, high = (text.replace("100.0", "100") for text in percents)
    return value if math.isnan(estimate.low) else f"{value} \\[{low}{separator}{high}]"


def _section(row: Row) -> str:
    chosen = row.outcomes.chosen
    if row.spec != "auto" or not chosen:
        return row.measure
    best, times = chosen.most_common(1)[0]
    return f"auto: {best}" + (
        f" in {times} of {chosen.total()} shuffles" if chosen.total() > 1 else ""
    )
