"""Several recordings as a table: each by itself, then all of them."""

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.chance import FLIPS
from langchain_reasc_lab.replay.methods import AGREEMENT
from langchain_reasc_lab.replay.recordings import LeftOut, RecordingResult
from langchain_reasc_lab.replay.recordings_summary import (
    LARGE,
    RuleSummary,
    Spread,
    Summary,
    summarized,
)

__all__ = ["table_lines"]

_WIDTH: Final = 79
_NAME: Final = 21  # columns of a rule's name


def table_lines(
    results: Sequence[RecordingResult],
    left_out: Sequence[LeftOut],
    *,
    shuffles: int,
    seed: int,
) -> Iterator[str]:
    """Yield the lines of the table: recordings by model, then what was left out, and
    all recordings in numbers.
    """
    if results:
        yield from _head(shuffles, seed)
    model = None
    for result in results:
        if result.model != model:
            model = result.model
            yield model
        yield from _section(result)
        yield ""
    for file in left_out:
        yield from _wrapped(f"Left out: {file.file}: {file.reason}")
    if left_out:
        yield ""
    if len(results) > 1:
        yield from _summary_lines(summarized(results))


def _head(shuffles: int, seed: int) -> Iterator[str]:
    arranged = "recorded order"
    if shuffles:
        arranged = f"mean of {shuffles} shuffles (seed {seed})"
    yield from _wrapped(
        f"Every rule on recorded responses, without a model; {arranged}; [..]: 95 % "
        "intervals. Samples: responses used per question. /once, /ASC, /SC: generated "
        "tokens relative to asking once, to ASC, and to always using the budget (SC). "
        "Points: the difference in right answers to SC."
    )
    yield ""
    yield (
        f" {'Rule':{_NAME}} {'Samples':>7} {'/once':>5} {'/ASC':>4} {'/SC':>4} "
        f"{'points to SC':>19}"
    )
    yield "─" * _WIDTH


def _section(result: RecordingResult) -> Iterator[str]:
    fewest, most = result.responses
    each = f"{most}" if fewest == most else f"{fewest} to {most}"
    about = f"{result.questions:,} questions, {each} responses to each"
    if not result.file.startswith(result.model):
        about = f"{result.file}, {about}"
    if not result.counts_tokens:
        about = f"{about}; lengths not recorded, each counts as one token"
    yield from _wrapped(f" {about}")
    yield from _wrapped(
        f" Right: asking once {_share(result.once.accuracy)}, always {result.budget} "
        f"times {_share(result.always.accuracy)}"
    )
    gain = _points(result.always.accuracy_vs_once.percent, ".1f")
    yield f" {result.votes}: {gain} points"
    for rule in result.rules:
        tokens = (
            f"{rule.tokens_vs_once.value:5.2f} {rule.tokens_vs_asc.value:4.2f} "
            f"{rule.tokens_vs_sc.value:4.2f}"
        )
        points = _points(rule.accuracy_vs_sc.percent, ".1f")
        yield from _row(rule.method, f"{rule.samples.value:7.2f} {tokens} {points:>19}")


def _summary_lines(summary: Summary) -> Iterator[str]:
    recordings = summary.recordings
    yield from _wrapped(
        f"All {recordings} recordings, of {_sets(summary)}. Tokens of each rule, "
        "relative to asking once and to always using the budget (SC): the median of "
        "the recordings, and where the middle 80 % of them lie. Small recordings are "
        f"noisy, so those of {LARGE} questions or more have their own column."
    )
    yield ""
    large = f"× once, {summary.large} large"
    yield f" {'Rule':{_NAME}} {'× once, all':18} {large:18} /SC"
    yield "─" * _WIDTH
    for rule in summary.rules:
        tokens = (
            f"{_spread(rule.tokens_vs_once, '.1f'):18} "
            f"{_spread(rule.tokens_vs_once_large, '.1f'):18} "
            f"{_spread(rule.tokens_vs_sc, '.2f')}"
        )
        yield from _row(rule.method, tokens)
    yield ""
    yield from _wrapped(
        "Right answers: points to SC are means over the recordings of a set of "
        "questions first, and then over sets, with the 95 % interval over sets. Then "
        "on how many recordings a rule is more than a point below SC, and on how many "
        "its interval is below 0 (worse), would be below 0 by chance alone (chance: "
        f"signs of the differences drawn {FLIPS} times), and is above 0 (better)."
    )
    yield ""
    yield (
        f" {'Rule':{_NAME}} {'points to SC':21} {'< -1':>6} {'worse':>6} "
        f"{'chance':>6} {'better':>6}"
    )
    yield "─" * _WIDTH
    for rule in summary.rules:
        counts = (
            f"{rule.a_point_lost:6} {len(rule.worse):6} {rule.worse_by_chance:6.2f} "
            f"{len(rule.better):6}"
        )
        yield from _row(rule.method, f"{_points(rule.points_vs_sc, '.2f'):21} {counts}")
    yield ""
    yield from _wrapped(
        f"Votes clearly help on {summary.votes_help} of {recordings} recordings, and "
        f"clearly harm on {summary.votes_harm}."
    )
    for rule in summary.rules:
        if rule.method == AGREEMENT:
            yield from _wrapped(_in_words(rule, summary))


def _in_words(rule: RuleSummary, summary: Summary) -> str:
    """Return what a rule costs and loses, in sentences."""
    once, large = rule.tokens_vs_once, rule.tokens_vs_once_large
    cost = f"{once.median:.1f} times as much as one (10-90 %: {_range(once)}"
    if large is not None:
        cost = f"{cost}; {LARGE} questions or more: {large.median:.1f}, {_range(large)}"
    worse = ""
    if rule.worse:
        by_a_point = len(rule.worse_by_a_point) or "none"
        worse = f" ({by_a_point} by more than a point: {', '.join(rule.worse)})"
    return (
        f"{rule.method}, which needs no labels and no logprobs, costs {cost}). It has "
        f"{_points(rule.points_vs_sc, '.2f')} points to SC, over {_sets(summary)}. It "
        f"is clearly worse on {len(rule.worse)} of {summary.recordings} recordings"
        f"{worse}, and clearly better on {len(rule.better)}; chance alone would make "
        f"it worse on {rule.worse_by_chance:.2f}, and better on as many."
    )


def _sets(summary: Summary) -> str:
    sets = "set" if summary.question_sets == 1 else "sets"
    return f"{summary.question_sets} {sets} of questions"


def _row(method: str, cells: str) -> Iterator[str]:
    first, *rest = wrap(method, _NAME)
    yield f" {first:{_NAME}} {cells}"
    yield from (f"   {line}" for line in rest)


def _spread(spread: Spread | None, style: str) -> str:
    if spread is None:
        return "-"
    return f"{spread.median:{style}} ({spread.low:{style}}-{spread.high:{style}})"


def _range(spread: Spread) -> str:
    return f"{spread.low:.1f} to {spread.high:.1f}"


def _share(accuracy: Estimate) -> str:
    percent = accuracy.percent
    return f"{percent.value:.1f} % {percent.interval('.1f')}".rstrip()


def _points(points: Estimate, style: str) -> str:
    if math.isnan(points.low):
        return f"{points.value:+{style}}"
    return f"{points.value:+{style}} [{points.low:+{style}},{points.high:+{style}}]"


def _wrapped(text: str) -> list[str]:
    indent = " " if text.startswith(" ") else ""
    return wrap(
        text,
        _WIDTH,
        subsequent_indent=indent * 2,
        break_on_hyphens=False,
    )
