"""Replay every recording of a folder: what each rule would have spent on each model,
and lost, as one table.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import Any, Final

import numpy as np
from pydantic import TypeAdapter

from langchain_reasc._version import __version__
from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError
from langchain_reasc_lab.pools import MeasureSpec, Pool, read_pool
from langchain_reasc_lab.pools.copying import new_pool
from langchain_reasc_lab.pools.json_lines import read_json_lines
from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.methods import AGREEMENT, ONCE, MethodSettings
from langchain_reasc_lab.replay.metrics import summarize
from langchain_reasc_lab.replay.replay import budget_of, replay

__all__ = [
    "LeftOut",
    "RecordingResult",
    "RuleResult",
    "RuleSummary",
    "Summary",
    "open_recording",
    "recordings_as_data",
    "recordings_in",
    "replay_recordings",
    "summarized",
    "table_lines",
]

_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".sqlite")
_CALIBRATION_SIZE: Final = 128
_WIDTH: Final = 79
_NAME: Final = 21  # columns of a rule's name


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule on one recording; the attributes are those of :class:`~.metrics.Row`."""

    method: str
    accuracy: Estimate
    samples: Estimate
    tokens_vs_asc: Estimate
    tokens_vs_sc: Estimate
    accuracy_vs_sc: Estimate
    accuracy_vs_once: Estimate


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """Every rule on one recording.

    Attributes:
        file: the name of its file.
        model: the recorded model, or the file's name where the recording does not say.
        questions: how many questions were tested.
        responses: the fewest and the most responses to a question.
        budget: the most responses that a rule may use.
        counts_tokens: whether the recording says how long responses are. If not, each
            counts as one token.
        once: the result of asking once.
        always: the result of always using the budget.
        rules: the results of the other rules.
        notes: notes on the recording.
    """

    file: str
    model: str
    questions: int
    responses: tuple[int, int]
    budget: int
    counts_tokens: bool
    once: RuleResult
    always: RuleResult
    rules: tuple[RuleResult, ...]
    notes: tuple[str, ...]

    @property
    def votes(self) -> str:
        """Whether votes help at all, in words."""
        gain = self.always.accuracy_vs_once
        return (
            "Votes help"
            if gain.low > 0
            else "Votes do harm"
            if gain.high < 0
            else "Votes do not clearly help"
        )

    def rule(self, method: str) -> RuleResult | None:
        """Return the result of a rule by its name; None if it was not compared."""
        return next((one for one in self.rules if one.method == method), None)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that could not be compared, and why."""

    file: str
    reason: str


def recordings_in(folder: Path) -> list[Path]:
    """Return the recordings of a folder by name: JSON Lines, also gzipped, and pools of
    ``reasc record``.

    Raises:
        ConfigurationError: it is not a folder, or holds none.
    """
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is not a folder of recordings; `reasc replay POOL` compares one"
        )
    found = sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(_SUFFIXES) and path.name[0] != "."
    )
    if not found:
        raise ConfigurationError(
            f"{folder} holds no recording, which is a file ending in "
            f"{', '.join(_SUFFIXES)}"
        )
    return found


def replay_recordings(
    paths: Sequence[Path],
    *,
    shuffles: int = 10,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[list[RecordingResult], list[LeftOut]]:
    """Replay recordings, on all cores.

    Args:
        paths: the files.
        shuffles: as of :func:`~langchain_reasc_lab.replay.replay.replay`.
        seed: the seed of the shuffles of each.
        on_progress: called with (recordings done, recordings).

    Returns:
        The results, ordered by model and file, and the files that could not be
        compared.
    """
    from joblib import Parallel, delayed

    largest_first = sorted(paths, key=lambda path: -path.stat().st_size)
    each = delayed(partial(_replayed, shuffles=shuffles, seed=seed))
    done = list[RecordingResult | LeftOut]()
    for one in Parallel(
        n_jobs=-1 if len(paths) > 1 else 1, return_as="generator_unordered"
    )(map(each, largest_first)):
        done.append(one)
        if on_progress:
            on_progress(len(done), len(paths))
    results = [one for one in done if isinstance(one, RecordingResult)]
    left_out = [one for one in done if isinstance(one, LeftOut)]
    return sorted(results, key=lambda one: (one.model.casefold(), one.file)), sorted(
        left_out, key=lambda one: one.file
    )


def _replayed(path: Path, *, shuffles: int, seed: int) -> RecordingResult | LeftOut:
    """Replay one recording; what is wrong with it is returned, so that the others go
    on.
    """
    try:
        with open_recording(path) as pool:
            return _result(path, pool, shuffles=shuffles, seed=seed)
    except (ReASCError, OSError) as error:
        return LeftOut(
            path.name, str(error).replace(f"{path}, ", "").replace(f"{path}", path.name)
        )


@contextmanager
def open_recording(path: Path) -> Iterator[Pool]:
    """Read a recording; JSON Lines are imported into a file that is removed at the end."""
    if path.suffix == ".sqlite":
        yield read_pool(path)
        return
    with TemporaryDirectory() as folder:
        imported = Path(folder) / f"{_stem(path)}.sqlite"
        with new_pool(imported) as made:
            read_json_lines(path, made)
        yield read_pool(imported)


def _result(path: Path, pool: Pool, *, shuffles: int, seed: int) -> RecordingResult:
    budget = budget_of([pool], None)
    if budget < 2:
        raise PoolError(
            "it has one response to each question, so there is nothing to vote on"
        )
    measures: list[MeasureSpec] = (
        ["auto"] if pool.signals else ["recorded"] if pool.has_scores else []
    )
    run = replay(
        pool,
        measures,
        shuffles=shuffles,
        seed=seed,
        calibration_size=min(_CALIBRATION_SIZE, len(pool.questions) // 2),
        settings=MethodSettings(max_samples=budget, seed=seed),
        rules="simple",
    )
    rows = summarize(run)
    names = [field.name for field in fields(RuleResult)]
    results = {
        row.method: RuleResult(*(getattr(row, name) for name in names)) for row in rows
    }
    sizes = [len(question.responses) for question in pool.questions]
    return RecordingResult(
        file=path.name,
        model=pool.model or _stem(path),
        questions=run.tested,
        responses=(min(sizes), max(sizes)),
        budget=budget,
        counts_tokens=any(
            response.completion_tokens > 1 for response in pool.responses
        ),
        once=results.pop(ONCE),
        always=results.pop(run.settings.fixed_budget),
        rules=tuple(results.values()),
        notes=run.notes,
    )


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".sqlite")


@dataclass(frozen=True, slots=True)
class RuleSummary:
    """One rule on all recordings, beside always using the budget.

    Attributes:
        method: its name.
        tokens_vs_asc: its tokens relative to ASC: the lowest, the median and the
            highest of all recordings.
        tokens_vs_sc: likewise, relative to always using the budget.
        points_vs_sc: the mean difference in right answers to always using the budget,
            in points.
        a_point_lost: recordings on which it has more than one point fewer right
            answers.
        worse: the files on which it is clearly worse, so that the 95 % interval is
            below 0.
        worse_by_a_point: those of them on which the interval is below -1 point.
        better: the files on which it is clearly better.
    """

    method: str
    tokens_vs_asc: tuple[float, float, float]
    tokens_vs_sc: tuple[float, float, float]
    points_vs_sc: float
    a_point_lost: int
    worse: tuple[str, ...]
    worse_by_a_point: tuple[str, ...]
    better: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """All recordings in numbers.

    Attributes:
        recordings: how many there are.
        votes_help: on how many always using the budget is clearly better than asking
            once.
        votes_harm: on how many it is clearly worse.
        by_chance: on how many the interval of a rule that is nowhere different would be
            below 0; on as many, above.
        rules: each rule that was compared on all of them.
    """

    recordings: int
    votes_help: int
    votes_harm: int
    by_chance: float
    rules: tuple[RuleSummary, ...]


def summarized(results: Sequence[RecordingResult]) -> Summary:
    """Return all recordings in numbers; there is one at least."""
    gains = [one.always.accuracy_vs_once for one in results]
    names = [
        rule.method
        for rule in results[0].rules
        if all(one.rule(rule.method) for one in results)
    ]
    return Summary(
        recordings=len(results),
        votes_help=sum(gain.low > 0 for gain in gains),
        votes_harm=sum(gain.high < 0 for gain in gains),
        by_chance=0.025 * len(results),
        rules=tuple(_rule_summary(name, results) for name in names),
    )


def _rule_summary(method: str, results: Sequence[RecordingResult]) -> RuleSummary:
    found = [(one.file, rule) for one in results if (rule := one.rule(method))]

    def spread(of: Callable[[RuleResult], Estimate]) -> tuple[float, float, float]:
        low, median, high = np.percentile(
            [of(rule).value for _, rule in found], [0, 50, 100]
        )
        return float(low), float(median), float(high)

    return RuleSummary(
        method=method,
        tokens_vs_asc=spread(lambda rule: rule.tokens_vs_asc),
        tokens_vs_sc=spread(lambda rule: rule.tokens_vs_sc),
        points_vs_sc=100
        * float(np.mean([rule.accuracy_vs_sc.value for _, rule in found])),
        a_point_lost=sum(rule.accuracy_vs_sc.value < -0.01 for _, rule in found),
        worse=tuple(file for file, rule in found if rule.accuracy_vs_sc.high < 0),
        worse_by_a_point=tuple(
            file for file, rule in found if rule.accuracy_vs_sc.high < -0.01
        ),
        better=tuple(file for file, rule in found if rule.accuracy_vs_sc.low > 0),
    )


def recordings_as_data(
    results: Sequence[RecordingResult],
    left_out: Sequence[LeftOut],
    *,
    shuffles: int,
    seed: int,
) -> dict[str, Any]:
    """Return everything as plain data; numbers that do not exist are null."""
    summary = summarized(results) if results else None
    held: dict[str, Any] = {
        "recordings": results,
        "left_out": left_out,
        "summary": summary,
    }
    kinds = dict[str, list[RecordingResult] | list[LeftOut] | Summary | None]
    plain = json.loads(TypeAdapter(kinds).dump_json(held))
    return {"library_version": __version__, "shuffles": shuffles, "seed": seed, **plain}


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
        arranged = (
            f"mean of {shuffles} shuffles (seed {seed})"
            if shuffles
            else "recorded order"
        )
        yield from _wrapped(
            f"Every rule on recorded responses, without a model; {arranged}; [..]: 95 "
            "% intervals. Samples: responses used per question. /once, /ASC, /SC: "
            "generated tokens relative to asking once, to ASC, and to always using the "
            "budget (SC). Points: the difference in right answers to SC."
        )
        yield ""
        yield f" {'Rule':{_NAME}} {'Samples':>7} {'/once':>5} {'/ASC':>4} {'/SC':>4} {'points to SC':>19}"
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
    tokens = (
        ""
        if result.counts_tokens
        else "; lengths not recorded, each counts as one token"
    )
    yield from _wrapped(
        f" {named}{result.questions:,} questions, {each} responses to each{tokens}"
    )
    yield from _wrapped(
        f" Right: asking once {_share(result.once.accuracy)}, always {result.budget} "
        f"times {_share(result.always.accuracy)}"
    )
    yield f" {result.votes}: {_points(result.always.accuracy_vs_once)} points"
    for rule in result.rules:
        to_once = rule.tokens_vs_sc.value / (result.once.tokens_vs_sc.value or math.nan)
        tokens = f"{to_once:5.2f} {rule.tokens_vs_asc.value:4.2f} {rule.tokens_vs_sc.value:4.2f}"
        yield from _row(
            rule.method,
            f"{rule.samples.value:7.2f} {tokens} {_points(rule.accuracy_vs_sc):>19}",
        )


def _row(method: str, cells: str) -> Iterator[str]:
    first, *rest = wrap(method, _NAME)
    yield f" {first:{_NAME}} {cells}"
    yield from (f"   {line}" for line in rest)


def _summary_lines(summary: Summary) -> Iterator[str]:
    held = summary.recordings
    yield from _wrapped(
        f"All {held} recordings. /ASC: median; /SC: median (lowest-highest). Points to "
        "SC: their mean, on how many recordings they are below -1, and on how many the "
        "interval is below 0 (worse) or above 0 (better)."
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
        f"Votes clearly help on {summary.votes_help} of {held} recordings, and clearly "
        f"harm on {summary.votes_harm}. {AGREEMENT}, which needs no labels and no "
        f"logprobs, has {ours.points_vs_sc:+.2f} points to SC on average. It is "
        f"clearly worse on {len(ours.worse)}, of which {len(ours.worse_by_a_point)} by "
        f"more than a point{named}. Chance alone would put {summary.by_chance:.1f} of "
        f"{held} intervals below 0, and as many above."
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
    return wrap(
        text,
        _WIDTH,
        subsequent_indent=indent + " " * bool(indent),
        break_on_hyphens=False,
    )
