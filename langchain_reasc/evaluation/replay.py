"""Replaying recorded responses: every method on the same ones, through the decision function that runs live."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from langchain_reasc.calibration import Calibration
from langchain_reasc.evaluation.arrangement import COLUMNS, Arrangement, Cells, RecordedPool
from langchain_reasc.evaluation.methods import (
    EQUAL_COST,
    OFFLINE,
    SAFEGUARDED,
    Method,
    MethodSettings,
    Split,
    asc_at,
    asc_at_once,
    counting,
    weighing,
)
from langchain_reasc.evaluation.other_methods import OTHER_WEIGHING, other_counting, other_weighing
from langchain_reasc.evaluation.risk import Risk, likelihoods, risk_of
from langchain_reasc.evaluation.scoring import MeasureSpec, PoolScores
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import StoppingRule
from langchain_reasc.pools.pool import Pool

__all__ = ["COLUMNS", "Outcomes", "Replay", "replay", "splits"]

RowKey = tuple[str, MeasureSpec | None]


@dataclass
class Outcomes:
    """What one method did on every question of every shuffle.

    Attributes:
        cells: shape (shuffles, questions, 6), the columns of :data:`COLUMNS`; NaN where a question was not tested.
        p_correct: shape (shuffles, questions), how likely the answer is right, as the labels of the calibration
            questions tell; NaN where a question was not tested, or nothing tells.
        calibrations: those of a method that needs them, one per shuffle.
        problems: why there was none, in shuffles where it counted votes instead.
        rules: the stopping rule of each arrangement; none where it changed along the way.
        confidences: those of ASC that were chosen for what it costs, one per shuffle.
    """

    cells: Cells
    p_correct: Cells
    calibrations: list[Calibration] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rules: dict[int, StoppingRule] = field(default_factory=dict)
    confidences: list[float] = field(default_factory=list)

    @property
    def chosen(self) -> Counter[str]:
        """Measures of the calibrations, with the number of shuffles that had each."""
        return Counter(str(calibration.measure) for calibration in self.calibrations)

    @cached_property
    def risk(self) -> Risk | None:
        """What P(correct) is worth; None where nothing tells it."""
        return risk_of(self.p_correct, self.cells[:, :, COLUMNS.index("correct")])


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

    Raises:
        ConfigurationError: too few questions, or a number out of range.
        PoolError: the pool lacks what a measure needs.
    """
    settings = settings or MethodSettings()
    scores = PoolScores(pool)
    size = calibration_size if measures else 0
    _check(pool, size, shuffles)
    notes = (*pool.notes, *_notes(pool, scores, measures, settings, tested_from=0 if shuffles else size))
    run = Replay(pool, settings, shuffles, size, len(pool.questions) - size, seed, {}, notes)
    recorded = RecordedPool(pool, scores)
    for at, split in enumerate(splits(pool, size, shuffles=shuffles, seed=seed)):
        methods = counting(settings) + ([asc_at_once(settings)] if controls else [])
        methods += other_counting(pool, split, settings) if rules == "all" else []
        for spec in measures:
            by_measure = list(weighing(pool, scores, split, spec, settings))
            methods += by_measure
            if rules == "all":
                methods += other_weighing(pool, scores, split, spec, by_measure[0].measure or _asked(spec), settings)
        tested = Arrangement(recorded, split, split.tested, settings.max_samples)
        calibrating = Arrangement(recorded, split, split.calibration, settings.max_samples)
        for method in methods:
            cells = tested.outcome(method)
            _enter(run, at, method, cells, _likely(calibrating.outcome(method), cells))
            if controls and method.name in EQUAL_COST:
                spent = float(np.nanmean(cells[:, COLUMNS.index("tokens")]))
                control = asc_at(tested.asc_confidence(spent), method, settings)
                cells = tested.outcome(control)
                _enter(run, at, control, cells, _likely(calibrating.outcome(control), cells))
        if on_progress:
            on_progress(at + 1, run.arrangements)
    _drop_idle_safeguards(run)
    return _without_refused(run)


def splits(pool: Pool, calibration_size: int, *, shuffles: int, seed: int) -> Iterator[Split]:
    """The arrangements: the recorded one, or N shuffled ones; shuffle i draws from ``default_rng([seed, i])``."""
    questions = list(range(len(pool.questions)))
    lengths = [len(question.responses) for question in pool.questions]
    if shuffles == 0:
        yield Split(questions[:calibration_size], questions[calibration_size:], [range(length) for length in lengths])
    for at in range(shuffles):
        rng = np.random.default_rng([seed, at])
        order = rng.permutation(len(questions)).tolist()
        orders = [rng.permutation(length).tolist() for length in lengths]
        yield Split(order[:calibration_size], order[calibration_size:], orders)


def _likely(calibrating: Cells, tested: Cells) -> Cells:
    columns = [COLUMNS.index("support"), COLUMNS.index("correct")]
    return likelihoods(calibrating[:, columns], tested[:, columns])


def _enter(run: Replay, at: int, method: Method, cells: Cells, p_correct: Cells) -> None:
    # Where the safeguard does not bite, its row repeats the paper's; where it does, its own outcome comes next.
    names = (OFFLINE, SAFEGUARDED) if method.name == OFFLINE else (method.name,)
    for name in names:
        key = (name, method.spec)
        if key not in run.outcomes:
            empty = np.full((run.arrangements, *cells.shape), np.nan)
            run.outcomes[key] = Outcomes(empty, empty[:, :, 0].copy())
        held = run.outcomes[key]
        held.cells[at], held.p_correct[at] = cells, p_correct
        if method.learns is None:
            held.rules[at] = method.rule
        held.confidences += [method.confidence] if method.confidence is not None else []
        held.problems += [method.problem] if method.problem else []
        held.calibrations += [method.calibration] if method.calibration and name == method.name else []


def _drop_idle_safeguards(run: Replay) -> None:
    for key in [key for key, held in run.outcomes.items() if key[0] == SAFEGUARDED and not held.calibrations]:
        del run.outcomes[key]


def _asked(spec: MeasureSpec) -> Measure | str | None:
    """The measure, where it need not be chosen."""
    return None if spec == "auto" else spec


def _without_refused(run: Replay) -> Replay:
    """Without the rows of rules that were possible in no arrangement, and with a note on why."""
    notes: dict[str, list[str]] = {}
    for key in [key for key, held in run.outcomes.items() if len(held.problems) == run.arrangements]:
        name, spec = key
        if name in OTHER_WEIGHING:
            notes.setdefault(run.outcomes.pop(key).problems[0], []).append(f"{name} by {spec}")
    told = (f"no row of {', '.join(names)}: {why}" for why, names in notes.items())
    return replace(run, notes=(*run.notes, *told))


def _check(pool: Pool, calibration_size: int, shuffles: int) -> None:
    if shuffles < 0:
        raise ConfigurationError(f"shuffles is a number of rearrangements, 0 for the recorded order; got {shuffles}")
    if calibration_size and calibration_size < 2:
        raise ConfigurationError(f"calibration-size is at least 2 questions, got {calibration_size}")
    if len(pool.questions) <= calibration_size:
        raise ConfigurationError(
            f"{pool.path} holds {len(pool.questions)} questions; a calibration on {calibration_size} leaves none to "
            f"test. Record more, or pass a calibration-size below {len(pool.questions)}"
        )


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
