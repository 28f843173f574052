"""Every rule on every recording of a folder as one table, 80 columns wide."""

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import AGREEMENT
from langchain_reasc_lab.replay.recordings import LeftOut, RecordingResult, Summary, summarized

__all__ = ["table_lines"]

_WIDTH = 79
_NAME = 21


def table_lines(
    results: Sequence[RecordingResult], left_out: Sequence[LeftOut], *, shuffles: int, seed: int
) -> Iterator[str]:
    """Yield the lines of the table: recordings by model, then what was left out, and all recordings in numbers."""
    if results:
        arranged = f"mean of {shuffles} shuffles (seed {seed})" if shuffles else "recorded order"
        yield from _wrapped(
            f"Every rule on recorded responses, without a model; {arranged}; [..]: 95 % intervals. Samples: responses "
            "used per question. /ASC, /SC: generated tokens relative to ASC, and to always using the budget (SC). "
            "Points: the difference in right answers to SC, and to asking once."
        )
        yield ""
        yield f" {'Rule':{_NAME}} {'Samples':>7} {'/ASC':>4} {'/SC':>4} {'points to SC':>19} {'to asking once':>19}"
        yield "─" * _WIDTH
    model = None
    for result in results:
        if result.model != model:
            model = result.model
            yield model
        yield from _section(result)
        yield ""
    for one in left_out:
        yield from _wrapped(f"Left out: {one.file}: {one.reason}")
    if left_out:
        yield ""
    if len(results) > 1:
        yield from _summary_lines(summarized(results))


def _section(result: RecordingResult) -> Iterator[str]:
    fewest, most = result.responses
    each = f"{most}" if fewest == most else f"{fewest} to {most}"
    named = f"{result.file}, " if not result.file.startswith(result.model) else ""
    tokens = "" if result.counts_tokens else "; lengths not recorded, each counts as one token"
    yield from _wrapped(f" {named}{result.questions:,} questions, {each} responses to each{tokens}")
    yield from _wrapped(
        f" Right: asking once {_share(result.once.accuracy)}, always {result.budget} times "
        f"{_share(result.always.accuracy)}"
    )
    yield f" {result.votes}: {_points(result.always.accuracy_vs_once)} points"
    for rule in result.rules:
        points = f"{_points(rule.accuracy_vs_sc):>19} {_points(rule.accuracy_vs_once):>19}"
        tokens = f"{rule.tokens_vs_asc.value:4.2f} {rule.tokens_vs_sc.value:4.2f}"
        yield from _row(rule.method, f"{rule.samples.value:7.2f} {tokens} {points}")


def _row(method: str, cells: str) -> Iterator[str]:
    first, *rest = wrap(method, _NAME)
    yield f" {first:{_NAME}} {cells}"
    yield from (f"   {line}" for line in rest)


def _summary_lines(summary: Summary) -> Iterator[str]:
    held = summary.recordings
    yield from _wrapped(
        f"All {held} recordings. /ASC: median; /SC: median (lowest-highest). Points to SC: their mean, on how many "
        "recordings they are below -1, and on how many the interval is below 0 (worse) or above 0 (better)."
    )
    yield ""
    yield f" {'Rule':{_NAME}} {'/ASC':>4} {'/SC':^16} {'points':>6} {'< -1':>6} {'worse':>6} {'better':>6}"
    yield "─" * _WIDTH
    for rule in summary.rules:
        low, middle, high = rule.tokens_vs_sc
        tokens = f"{rule.tokens_vs_asc[1]:.2f} {middle:.2f} ({low:.2f}-{high:.2f})"
        counts = f"{rule.a_point_lost:6} {len(rule.worse):6} {len(rule.better):6}"
        yield from _row(rule.method, f"{tokens:21} {rule.points_vs_sc:+6.2f} {counts}")
    yield ""
    ours = next(rule for rule in summary.rules if rule.method == AGREEMENT)
    named = f": {', '.join(ours.worse)}" if ours.worse else ""
    yield from _wrapped(
        f"Votes clearly help on {summary.votes_help} of {held} recordings, and clearly harm on {summary.votes_harm}. "
        f"{AGREEMENT}, which needs no labels and no logprobs, has {ours.points_vs_sc:+.2f} points to SC on average. It "
        f"is clearly worse on {len(ours.worse)}, of which {len(ours.worse_by_a_point)} by more than a point{named}. "
        f"Chance alone would put {summary.by_chance:.1f} of {held} intervals below 0, and as many above."
    )


def _share(accuracy: Estimate) -> str:
    percent = accuracy.percent
    return f"{percent.value:.1f} % {percent.interval('.1f')}".rstrip()


def _points(difference: Estimate) -> str:
    points = difference.percent
    ends = "" if math.isnan(points.low) else f" [{points.low:+.1f},{points.high:+.1f}]"
    return f"{points.value:+.1f}{ends}"


def _wrapped(text: str) -> list[str]:
    indent = " " if text.startswith(" ") else ""
    return wrap(text, _WIDTH, subsequent_indent=indent + " " * bool(indent), break_on_hyphens=False)
