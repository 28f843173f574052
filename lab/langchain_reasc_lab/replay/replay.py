"""Replaying recorded responses: every method on the same ones, through the decision function that runs live."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from langchain_reasc.calibrating import MeasureSpec, PoolScores
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools import Pool
from langchain_reasc_lab.replay.arrangement import COLUMNS, RecordedPool
from langchain_reasc_lab.replay.comparison import Outcomes, RowKey, compare
from langchain_reasc_lab.replay.methods import (
    EQUAL_COST,
    SAFEGUARDED,
    Calibrated,
    Method,
    MethodSettings,
    Split,
    asc_at_once,
    calibrated_on,
    counting,
    weighing,
)
from langchain_reasc_lab.replay.other_methods import OTHER_WEIGHING, other_counting, other_weighing

__all__ = ["COLUMNS", "Outcomes", "Replay", "RowKey", "check_sizes", "replay", "splits"]


@dataclass(frozen=True)
class Replay:
    """The outcomes of all methods.

    Attributes:
        pool: what was replayed.
        settings: what all methods shared.
        shuffles: how often the pool was rearranged; 0 for the recorded order.
        calibration_size: calibration questions per arrangement; 0 where nothing was calibrated.
        tested: tested questions per arrangement.
        seed: the seed of the shuffles.
        outcomes: (method, measure asked for) -> what it did.
        notes: what the reader should know of the pool and of this replay.
    """

    pool: Pool
    settings: MethodSettings
    shuffles: int
    calibration_size: int
    tested: int
    seed: int
    outcomes: dict[RowKey, Outcomes]
    notes: tuple[str, ...]

    @property
    def arrangements(self) -> int:
        """Arrangements of the pool that were replayed."""
        return max(1, self.shuffles)


def replay(
    pool: Pool,
    measures: Sequence[MeasureSpec] = (),
    *,
    shuffles: int = 0,
    seed: int = 0,
    calibration_size: int = 128,
    settings: MethodSettings | None = None,
    controls: bool = False,
    rules: Literal["usual", "all"] = "usual",
    on_progress: Callable[[int, int], None] | None = None,
    recorded: RecordedPool | None = None,
    calibrated: Callable[[Split, MeasureSpec], Calibrated] | None = None,
) -> Replay:
    """Run every method over recorded responses.

    Args:
        pool: recorded responses.
        measures: ReASC has its rows for each of these; none compares only the methods that count votes, on all
            questions.
        shuffles: 0 keeps the recorded order, calibrates on the first ``calibration_size`` questions and tests on the
            rest; N > 0 rearranges questions and the responses of each N times.
        seed: the seed of the shuffles.
        calibration_size: questions whose first responses calibrate.
        settings: the budget and the accuracy asked of the gate.
        controls: whether ASC has rows of its own at the cost of ReASC's, and with four samples launched at once.
        rules: ``"all"`` adds the rows of every other rule that the library has.
        on_progress: called with (arrangements done, arrangements).
        recorded: the same pool as arrays, where it is at hand.
        calibrated: what each arrangement determines, where it is at hand.

    Raises:
        ConfigurationError: too few questions, or a number out of range.
        PoolError: the pool lacks what a measure needs.
    """
    settings = settings or MethodSettings()
    size = calibration_size if measures else 0
    check_sizes(pool, size, shuffles)
    recorded = recorded or RecordedPool(pool, PoolScores(pool))
    scores = recorded.scores

    def methods_of(split: Split) -> Iterator[Method]:
        yield from counting(settings)
        if controls:
            yield asc_at_once(settings)
        if rules == "all":
            yield from other_counting(pool, split, settings)
        for spec in measures:
            made = calibrated(split, spec) if calibrated else calibrated_on(pool, scores, split, spec, settings)
            yield from weighing(pool, scores, split, spec, settings, made)
            if rules == "all":
                yield from other_weighing(pool, scores, split, spec, made.measure, settings)

    outcomes = compare(
        recorded,
        list(splits(pool, size, shuffles=shuffles, seed=seed)),
        methods_of,
        budget=settings.max_samples,
        equal_cost=EQUAL_COST if controls else None,
        likely=True,
        on_progress=on_progress,
    )
    apart = pool.calibrating
    notes = (
        *pool.notes,
        *_notes(pool, scores, measures, settings, tested_from=apart if shuffles else max(size, apart)),
    )
    run = Replay(pool, settings, shuffles, size, len(pool.questions) - max(size, apart), seed, outcomes, notes)
    _drop_idle_safeguards(run)
    return _without_refused(run)


def splits(pool: Pool, calibration_size: int, *, shuffles: int, seed: int) -> Iterator[Split]:
    """The arrangements: the recorded one, or N shuffled ones; shuffle i draws from ``default_rng([seed, i])``.

    Questions of a pool of their own that calibrate go on calibrating in every shuffle, and are never tested.
    """
    apart = pool.calibrating
    tested_from = max(calibration_size, apart)
    lengths = [len(question.responses) for question in pool.questions]
    questions = range(len(lengths))
    if shuffles == 0:
        yield Split(questions[:calibration_size], questions[tested_from:], [range(length) for length in lengths])
    for at in range(shuffles):
        rng = np.random.default_rng([seed, at])
        order = [*questions[:apart], *(apart + rng.permutation(len(lengths) - apart)).tolist()]
        orders = [rng.permutation(length).tolist() for length in lengths]
        yield Split(order[:calibration_size], order[tested_from:], orders, at)


def _drop_idle_safeguards(run: Replay) -> None:
    for key in [key for key, held in run.outcomes.items() if key[0] == SAFEGUARDED and not held.calibrations]:
        del run.outcomes[key]


def _without_refused(run: Replay) -> Replay:
    """Without the rows of rules that were possible in no arrangement, and with a note on why."""
    notes: dict[str, list[str]] = {}
    for key in [key for key, held in run.outcomes.items() if len(held.problems) == run.arrangements]:
        name, spec = key
        if name in OTHER_WEIGHING:
            notes.setdefault(run.outcomes.pop(key).problems[0], []).append(f"{name} by {spec}")
    told = (f"no row of {', '.join(names)}: {why}" for why, names in notes.items())
    return replace(run, notes=(*run.notes, *told))


def check_sizes(pool: Pool, calibration_size: int, shuffles: int) -> None:
    """Refuse numbers of questions and shuffles with which nothing can be compared.

    Raises:
        ConfigurationError: naming the one that is out of range.
    """
    if shuffles < 0:
        raise ConfigurationError(f"shuffles is a number of rearrangements, 0 for the recorded order; got {shuffles}")
    if calibration_size and calibration_size < 2:
        raise ConfigurationError(f"calibration-size is at least 2 questions, got {calibration_size}")
    if pool.calibrating and calibration_size > pool.calibrating:
        raise ConfigurationError(
            f"{pool.calibration_path} holds {pool.calibrating} questions to calibrate on, fewer than {calibration_size}"
        )
    if len(pool.questions) <= max(calibration_size, pool.calibrating):
        held = len(pool.questions)
        smaller = f", or pass a calibration-size below {held}" if held > 2 else ""
        raise ConfigurationError(
            f"{pool.path} holds {held} question{'s' if held > 1 else ''}; a calibration on {calibration_size} leaves "
            f"none to test. Record more{smaller}"
        )


def budget_of(pools: Sequence[Pool], asked: int | None) -> int:
    """The budget of every method: what was asked for, or the usual one as far as the pools reach.

    Raises:
        ConfigurationError: no question holds as many responses as were asked for.
    """
    held = max(len(question.responses) for pool in pools for question in pool.questions[pool.calibrating :])
    if asked is not None and asked > held:
        raise ConfigurationError(
            f"--max-samples {asked} is more than any question of {', '.join(str(pool.path) for pool in pools)} holds; "
            f"leave it out to take all {held}, or record more with `reasc record --samples {asked}`"
        )
    return asked or min(held, MethodSettings().max_samples)


def _notes(
    pool: Pool, scores: PoolScores, measures: Sequence[MeasureSpec], settings: MethodSettings, *, tested_from: int
) -> Iterator[str]:
    tested = pool.questions[tested_from:]
    short = sum(len(question.responses) < settings.max_samples for question in tested)
    if short:
        yield (
            f"{short} of {len(tested)} questions hold fewer than {settings.max_samples} responses; there every "
            "method stops with what it has"
        )
    for measure in measures:
        if measure != "auto" and (unscored := scores.unscored(measure)):
            yield f"{unscored} responses have no score by {measure}; each counts as one vote, and none calibrates"
    for window in {m.window for m in measures if isinstance(m, Measure) and m.windowed}:
        if (share := scores.shorter_than(window)) > 0.5:
            yield (
                f"{share:.0%} of the responses are shorter than the window of {window} tokens, so their score is the "
                "plain mean; a smaller --window may separate better"
            )
