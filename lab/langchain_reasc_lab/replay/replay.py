"""Replay recorded responses through the decision function that runs live."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import ASC, Cap, Measure, StoppingRule
from langchain_reasc_lab.pools import MeasureSpec, Pool, PoolScores
from langchain_reasc_lab.replay.arrangement import (
    COLUMNS,
    Arrangement,
    Cells,
    RecordedPool,
)
from langchain_reasc_lab.replay.methods import (
    CALIBRATED,
    EQUAL_COST,
    HORIZON,
    OTHER_WEIGHING,
    Calibrated,
    Method,
    MethodSettings,
    Split,
    asc_at_once,
    calibrated_on,
    counting,
    other_counting,
    other_weighing,
    simple,
    weighing,
)
from langchain_reasc_lab.replay.risk import Risk, likelihoods, risk_of

__all__ = [
    "Outcomes",
    "Replay",
    "RowKey",
    "budget_of",
    "calibrating",
    "check_sizes",
    "compare",
    "live_rule",
    "replay",
    "splits",
]

RowKey = tuple[str, MeasureSpec | None]
"""A method's name, and the measure asked for."""
_CALIBRATING: Final = 128
"""Questions that calibrate, unless that is more than half of a pool."""
_FEWEST_CALIBRATING: Final = 16
_CORRELATED: Final = 0.2
_CORRELATED_TRUST: Final = 1 / 3


@dataclass
class Outcomes:
    """The outcomes of one method on every question of every shuffle.

    Attributes:
        cells: shape (shuffles, questions, 6), the columns of :data:`COLUMNS`; NaN if a
            question was not tested.
        p_correct: shape (shuffles, questions), P(the answer is right) from the labels
            of the calibration questions; NaN if a question was not tested, or without
            such labels.
        calibrations: the calibrations of a method that needs them, one per shuffle.
        problems: why there was no calibration, in shuffles in which the method counted
            votes instead.
        rules: the stopping rule of each arrangement; none if it changed along the way.
        confidences: ASC's confidences, chosen for equal cost, one per shuffle.
        weighs: whether the method learned from scores while it answered.
    """

    cells: Cells
    p_correct: Cells
    calibrations: list[Calibration] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rules: dict[int, StoppingRule] = field(default_factory=dict)
    confidences: list[float] = field(default_factory=list)
    weighs: bool = False

    @property
    def chosen(self) -> Counter[str]:
        """The calibrations' measures, with the number of shuffles for each."""
        return Counter(str(calibration.measure) for calibration in self.calibrations)

    @property
    def impossible(self) -> bool:
        """Whether the method was impossible in all arrangements, and counted votes
        instead.
        """
        return len(self.problems) == len(self.cells)

    @property
    def learned(self) -> float:
        """ρ of :class:`~.bootstrap.Bootstrap`, where it decided by something else in
        each arrangement or along the way.

        That is the share of the questions that calibrate, or .2 where it is less. What
        scores tell depends more on the questions, and less on their order: where that
        is learned along the way, it is a third. Both were found on simulated
        recordings. 0 if nothing was learned.
        """
        rules = list(self.rules.values())
        if len(rules) == len(self.cells) and all(rule == rules[0] for rule in rules):
            return 0.0
        tested = self.tested
        calibrating = 1 - float(tested[:, tested.any(axis=0)].mean())
        return max(_CORRELATED_TRUST if self.weighs else _CORRELATED, calibrating)

    @property
    def calibrated_anew(self) -> bool:
        """Whether it was calibrated in each of several shuffles, or could not be."""
        return len(self.cells) > 1 and bool(self.calibrations or self.problems)

    @cached_property
    def risk(self) -> Risk | None:
        """The risk of P(correct), or None without P(correct)."""
        return risk_of(self.p_correct, self.column("correct"))

    @property
    def tested(self) -> npt.NDArray[np.bool_]:
        """Shape (shuffles, questions), which questions were tested."""
        return ~np.isnan(self.column("correct"))

    def column(self, name: str) -> Cells:
        """One of :data:`COLUMNS`, shape (shuffles, questions)."""
        return self.cells[:, :, COLUMNS.index(name)]


@dataclass(frozen=True)
class Replay:
    """The outcomes of all methods.

    Attributes:
        pool: the replayed pool.
        settings: the settings that all methods shared.
        shuffles: how often the pool was rearranged; 0 for the recorded order.
        calibration_size: calibration questions per arrangement; 0 if nothing was
            calibrated.
        tested: tested questions per arrangement.
        seed: the seed of the shuffles.
        outcomes: (method, measure asked for) -> what it did.
        notes: notes on the pool and on this replay.
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
    calibration_size: int | None = None,
    settings: MethodSettings | None = None,
    controls: bool = False,
    rules: Literal["usual", "simple", "all"] = "usual",
    on_progress: Callable[[int, int], None] | None = None,
    recorded: RecordedPool | None = None,
    calibrated: Callable[[Split, MeasureSpec], Calibrated] | None = None,
) -> Replay:
    """Run every method over recorded responses.

    Args:
        pool: recorded responses.
        measures: ReASC has its rows for each of these; none compares only the methods
            that count votes, on all questions.
        shuffles: 0 keeps the recorded order, calibrates on the first
            ``calibration_size`` questions and tests on the rest; N > 0 rearranges
            questions and the responses of each N times.
        seed: the seed of the shuffles.
        calibration_size: questions whose first responses calibrate; None for 128, or
            for half of fewer than 256. Fewer than 32 compare only the methods that need
            no calibration.
        settings: the budget and the accuracy asked of the gate.
        controls: whether ASC has rows of its own at the cost of ReASC's, and with four
            samples launched at once.
        rules: ``"simple"`` adds three votes, a lead of two or three, and the default at
            a lower confidence; ``"all"`` also every other rule that the library has.
        on_progress: called with (arrangements done, arrangements).
        recorded: the same pool as arrays, if the caller has it.
        calibrated: the calibrations of each arrangement, if the caller has them.

    Raises:
        ConfigurationError: too few questions, or a number out of range.
        PoolError: the pool lacks what a measure needs.
    """
    settings = settings or MethodSettings()
    size, note = calibrating(pool, calibration_size) if measures else (0, "")
    measures = measures if size else ()
    check_sizes(pool, size, shuffles)
    recorded = recorded or RecordedPool(pool, PoolScores(pool))
    scores = recorded.scores

    def methods_of(split: Split) -> Iterator[Method]:
        yield from counting(settings)
        if controls:
            yield asc_at_once(settings)
        if rules == "simple":
            yield from simple(settings)
        elif rules == "all":
            yield from other_counting(settings)
        for spec in measures:
            made = (
                calibrated(split, spec)
                if calibrated
                else calibrated_on(pool, scores, split, spec, settings)
            )
            yield from weighing(pool, scores, split, spec, settings, made)
            if rules == "all":
                yield from other_weighing(scores, spec, made.measure, settings)

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
        *filter(None, [note]),
        *_notes(
            pool,
            scores,
            measures,
            settings,
            tested_from=apart if shuffles else max(size, apart),
        ),
    )
    run = Replay(
        pool,
        settings,
        shuffles,
        size,
        len(pool.questions) - max(size, apart),
        seed,
        outcomes,
        notes,
    )
    return _without_refused(run)


def calibrating(pool: Pool, size: int | None) -> tuple[int, str]:
    """Return how many questions calibrate, and what to note of that; 0 if the pool
    holds too few.

    Args:
        pool: recorded responses.
        size: how many are asked for; None for the usual number.
    """
    questions = len(pool.questions)
    if pool.calibrating or size is not None:
        return size or pool.calibrating, ""
    half = questions // 2
    if half < _FEWEST_CALIBRATING:
        few = f"{questions} question{' is' if questions == 1 else 's are'} too few to calibrate on"
        return (
            0,
            (
                f"{few}, so only methods that need no calibration are compared; "
                f"{2 * _FEWEST_CALIBRATING} would do"
            ),
        )
    if half < _CALIBRATING:
        note = f"{half} of the {questions} questions calibrate, as {_CALIBRATING} would leave too few to test"
        return half, note
    return _CALIBRATING, ""


def splits(
    pool: Pool, calibration_size: int, *, shuffles: int, seed: int
) -> Iterator[Split]:
    """Yield the arrangements: the recorded one, or N shuffled ones; shuffle i draws
    from ``default_rng([seed, i])``.

    Questions of a pool of their own that calibrate go on calibrating in every shuffle,
    and are never tested.
    """
    apart = pool.calibrating
    tested_from = max(calibration_size, apart)
    lengths = [len(question.responses) for question in pool.questions]
    questions = range(len(lengths))
    if shuffles == 0:
        yield Split(
            questions[:calibration_size],
            questions[tested_from:],
            [range(length) for length in lengths],
        )
    for at in range(shuffles):
        rng = np.random.default_rng([seed, at])
        order = [
            *questions[:apart],
            *(apart + rng.permutation(len(lengths) - apart)).tolist(),
        ]
        orders = [rng.permutation(length).tolist() for length in lengths]
        yield Split(order[:calibration_size], order[tested_from:], orders, at)


def _without_refused(run: Replay) -> Replay:
    """Leave out the rows of rules that no arrangement allowed, with a note on why."""
    reasons: dict[str, list[str]] = {}
    for key in [key for key, held in run.outcomes.items() if held.impossible]:
        name, spec = key
        if name in OTHER_WEIGHING:
            reasons.setdefault(run.outcomes.pop(key).problems[0], []).append(
                f"{name} by {spec}"
            )
    notes = (f"no row of {', '.join(names)}: {why}" for why, names in reasons.items())
    return replace(run, notes=(*run.notes, *notes))


def check_sizes(pool: Pool, calibration_size: int, shuffles: int) -> None:
    """Refuse numbers of questions and shuffles with which nothing can be compared.

    Raises:
        ConfigurationError: naming the one that is out of range.
    """
    if shuffles < 0:
        raise ConfigurationError(
            "shuffles is a number of rearrangements, 0 for the recorded order; got "
            f"{shuffles}"
        )
    if calibration_size and calibration_size < 2:
        raise ConfigurationError(
            f"calibration-size is at least 2 questions, got {calibration_size}"
        )
    if pool.calibrating and calibration_size > pool.calibrating:
        raise ConfigurationError(
            f"{pool.calibration_path} holds {pool.calibrating} questions to calibrate "
            f"on, fewer than {calibration_size}"
        )
    if len(pool.questions) <= max(calibration_size, pool.calibrating):
        held = len(pool.questions)
        smaller = f", or pass a calibration-size below {held}" if held > 2 else ""
        raise ConfigurationError(
            f"{pool.path} holds {held} question{'s' if held > 1 else ''}; a "
            f"calibration on {calibration_size} leaves none to test. Record "
            f"more{smaller}"
        )


def budget_of(pools: Sequence[Pool], asked: int | None) -> int:
    """Return the budget of every method: the given one, or the usual one as far as the
    pools reach.

    Raises:
        ConfigurationError: no question holds as many responses as were asked for.
    """
    held = max(
        len(question.responses)
        for pool in pools
        for question in pool.questions[pool.calibrating :]
    )
    if asked is not None and asked > held:
        raise ConfigurationError(
            f"--max-samples {asked} is more than any question of "
            f"{', '.join(str(pool.path) for pool in pools)} holds; leave it out to "
            f"take all {held}, or record more with `reasc record --samples {asked}`"
        )
    return asked or min(held, MethodSettings().max_samples)


def _notes(
    pool: Pool,
    scores: PoolScores,
    measures: Sequence[MeasureSpec],
    settings: MethodSettings,
    *,
    tested_from: int,
) -> Iterator[str]:
    tested = pool.questions[tested_from:]
    short = sum(len(question.responses) < settings.max_samples for question in tested)
    if short:
        yield (
            f"{short} of {len(tested)} questions hold fewer than "
            f"{settings.max_samples} responses; there every method stops with what it "
            "has"
        )
    for measure in measures:
        if measure != "auto" and (unscored := scores.unscored(measure)):
            yield f"{unscored} responses have no score by {measure}; each counts as one vote, and none calibrates"
    for window in {m.window for m in measures if isinstance(m, Measure) and m.windowed}:
        if (share := scores.shorter_than(window)) > 0.5:
            yield (
                f"{share:.0%} of the responses are shorter than the window of {window} "
                "tokens, so their score is the plain mean; a smaller --window may "
                "separate better"
            )


def live_rule(run: Replay, spec: MeasureSpec) -> tuple[str, str]:
    """Return which of the calibrated rows a live run would be, and why."""
    calibrations = run.outcomes[CALIBRATED, spec].calibrations
    if not calibrations:
        return HORIZON, "nothing could be learned, so that votes are counted"
    by_labels = [one for one in calibrations if not one.by_agreement]
    if by_labels:  # of one response to each question
        why = "; ".join(by_labels[0].notices()) or "its gate decides, and its weights"
        return CALIBRATED, f"Algorithm 1, as a live run has it: {why}"
    untrusted = [one.untrusted for one in calibrations if one.untrusted]
    if untrusted:
        return CALIBRATED, f"votes are counted: {untrusted[0]}"
    return CALIBRATED, "the agreement rule decides, by answers and scores"


def compare(
    recorded: RecordedPool,
    splits: Sequence[Split],
    methods_of: Callable[[Split], Iterable[Method]],
    *,
    budget: int,
    equal_cost: Mapping[str, str] | None = None,
    likely: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[RowKey, Outcomes]:
    """Decide on the tested questions of every arrangement by each method, through the
    function that decides live.

    Args:
        recorded: the pool.
        splits: its arrangements.
        methods_of: the methods that are compared on one of them. A method is known by
            its name and measure, and arrangements in which there is none of that name
            leave its cells NaN.
        budget: the most responses that any method sees.
        equal_cost: a method's name -> the name of a row of ASC at the confidence at
            which it costs the same.
        likely: whether to decide on the calibration questions too, from whose labels
            P(correct) is had.
        on_progress: called with (arrangements done, arrangements).

    Returns:
        (method, measure asked for) -> what it did, in the order in which methods first
        came.
    """
    found: dict[RowKey, Outcomes] = {}
    for at, split in enumerate(splits):
        tested = Arrangement(recorded, split, split.tested, budget)
        calibrating = Arrangement(
            recorded, split, split.calibration if likely else (), budget
        )
        for method in methods_of(split):
            cells = tested.outcome(method)
            _enter(
                found,
                len(splits),
                at,
                method,
                cells,
                _likely(calibrating.outcome(method), cells),
            )
            if equal_cost and (name := equal_cost.get(method.name)):
                spent = float(np.nanmean(cells[:, COLUMNS.index("tokens")]))
                confidence = tested.asc_confidence(spent)
                control = Method(
                    name,
                    ASC(confidence) | Cap(budget),
                    method.spec,
                    confidence=confidence,
                )
                cells = tested.outcome(control)
                _enter(
                    found,
                    len(splits),
                    at,
                    control,
                    cells,
                    _likely(calibrating.outcome(control), cells),
                )
        if on_progress:
            on_progress(at + 1, len(splits))
    return found


def _likely(calibrating: Cells, tested: Cells) -> Cells:
    columns = [COLUMNS.index("support"), COLUMNS.index("correct")]
    return likelihoods(calibrating[:, columns], tested[:, columns])


def _enter(
    found: dict[RowKey, Outcomes],
    arrangements: int,
    at: int,
    method: Method,
    cells: Cells,
    p_correct: Cells,
) -> None:
    key = (method.name, method.spec)
    if key not in found:
        empty = np.full((arrangements, *cells.shape), np.nan)
        found[key] = Outcomes(empty, empty[:, :, 0].copy(), weighs=bool(method.learns))
    held = found[key]
    held.cells[at], held.p_correct[at] = cells, p_correct
    if method.learns is None:
        held.rules[at] = method.rule
    held.confidences += [method.confidence] if method.confidence is not None else []
    held.problems += [method.problem] if method.problem else []
    held.calibrations += [method.calibration] if method.calibration else []
