"""The compared methods, each as a stopping rule: those of papers as published, ours as
a live run uses them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from langchain_reasc.calibration import DEFAULT_AGREEMENT, Calibration
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError
from langchain_reasc.method import (
    ASC,
    ESC,
    CannotCatchUp,
    Cap,
    FiniteHorizon,
    FixedBudget,
    Lead,
    Measure,
    StoppingRule,
)
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc_lab.pools import (
    MeasureSpec,
    Pool,
    PoolScores,
    calibrate_by_agreement_on,
    calibrate_mixture_on,
    calibrate_offline_on,
)
from langchain_reasc_lab.rules import CISC, DeepConfFilter

__all__ = [
    "AGREEMENT",
    "ASC_AT_ONCE",
    "ASC_ROW",
    "CALIBRATED",
    "EQUAL_COST",
    "HORIZON",
    "MIXTURE",
    "OFFLINE",
    "ONCE",
    "ONLINE",
    "OTHER_WEIGHING",
    "Calibrated",
    "Method",
    "MethodSettings",
    "Split",
    "asc_at_once",
    "calibrated_on",
    "counting",
    "other_counting",
    "other_weighing",
    "simple",
    "weighing",
]

ONCE = "pass@1"
"""The row of asking once."""
ASC_ROW = "ASC"
"""The row that others are compared with."""
OFFLINE = "ReASC (offline)"
"""The row of the paper's Algorithm 1."""
CALIBRATED = "ReASC (calibrated)"
"""The row of the agreement rule, learned from the calibration questions."""
MIXTURE = "ReASC (mixture)"
"""The row of the paper's Algorithm 2."""
ONLINE = "ReASC (online)"
"""The row that learns without labels while it answers, with scores."""
AGREEMENT = f"Agreement ({DEFAULT_AGREEMENT:g})"
"""The row that learns without labels from how the responses agree, without scores."""
HORIZON = "Finite horizon (0.97)"
"""The row of the default without a calibration."""
EQUAL_COST: Final = {
    row: row.replace("ReASC", "ASC at equal cost") for row in (OFFLINE, ONLINE, MIXTURE)
}
"""A row -> the row of ASC at the confidence that makes it cost the same."""
_AT_ONCE = 4  # samples, as in ReASCRunnable's default
ASC_AT_ONCE = f"ASC ({_AT_ONCE} at once)"
"""The row of ASC with samples drawn in parallel, as live runs draw them."""
OTHER_WEIGHING: Final[dict[str, StoppingRule]] = {
    "CISC": CISC(on_missing_confidence="count"),
    "DeepConf (top 90 %)": DeepConfFilter(0.9, on_missing_confidence="count"),
}
"""Rows of other papers that weigh votes by scores -> their rules."""


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """The settings that all methods share.

    Attributes:
        max_samples: the budget of every method.
        p_target: accuracy asked of what ReASC's gate accepts.
        seed: the seed of mixtures and folds within a calibration.
        calibration_responses: how many responses to each calibration question are
            known. Algorithm 1 reads the first; the rule that runs by default is learned
            from all of them.
    """

    max_samples: int = DEFAULT_BUDGET
    p_target: float = 0.9
    seed: int = 0
    calibration_responses: int = 4

    @property
    def fixed_budget(self) -> str:
        """The name of self-consistency at this budget."""
        return f"SC@{self.max_samples}"


@dataclass(frozen=True, slots=True)
class Split:
    """One arrangement of a pool.

    Attributes:
        calibration: indices of the questions whose first responses calibrate.
        tested: indices of the questions on which methods are compared.
        orders: for each question of the pool, the indices of its responses in the order
            in which methods see them.
        number: which of the arrangements it is.
    """

    calibration: Sequence[int]
    tested: Sequence[int]
    orders: Sequence[Sequence[int]]
    number: int = 0

    def firsts(self, questions: Sequence[int]) -> list[tuple[int, int]]:
        """Return the (question, response) pairs that come first."""
        return [(question, self.orders[question][0]) for question in questions]

    def further(
        self, questions: Sequence[int], responses: int
    ) -> list[tuple[int, int]]:
        """Return the pairs that come next, up to so many responses to each question."""
        return [
            (question, at)
            for question in questions
            for at in self.orders[question][1:responses]
        ]


@dataclass(frozen=True, slots=True)
class Method:
    """A stopping rule with its name and its calibration.

    Attributes:
        name: the name of its row.
        rule: the stopping rule, including the cap on samples.
        spec: the requested measure, which distinguishes rows; None for the methods that
            count votes.
        measure: how responses are scored; None if only answers count.
        calibration: the calibration of a ReASC rule; None if the data determined none,
            and the rule counts votes.
        problem: why there is no calibration.
        at_once: samples launched at once; all of the last wave are paid for.
        confidence: ASC's confidence, if it was chosen for equal cost.
        learns: the measures among which the method chooses while it answers, without
            labels; None if the rule does not change. Until something is learned,
            ``rule`` decides.
        in_use: whether it decides as a live run does, with "no answer" as a candidate.
    """

    name: str
    rule: StoppingRule
    spec: MeasureSpec | None = None
    measure: Measure | str | None = None
    calibration: Calibration | None = None
    problem: str | None = None
    at_once: int = 1
    confidence: float | None = None
    learns: Sequence[Measure | str] | None = None
    in_use: bool = False


def counting(settings: MethodSettings) -> list[Method]:
    """Return the methods that need answers only."""
    cap = Cap(settings.max_samples)
    return [
        Method(ONCE, FixedBudget(1)),
        Method(settings.fixed_budget, FixedBudget(settings.max_samples)),
        Method("ESC (w=4)", ESC(4) | cap),
        Method(ASC_ROW, ASC() | cap),
        Method(HORIZON, FiniteHorizon(0.97, settings.max_samples) | cap, in_use=True),
        Method(AGREEMENT, ASC() | cap, learns=()),
    ]


def simple(settings: MethodSettings) -> list[Method]:
    """Return the methods that anybody would try first: three votes, a lead of two or
    three, and the default at a lower confidence.
    """
    budget = settings.max_samples
    cap = Cap(budget)
    lower = FiniteHorizon(0.9, budget) | cap
    return [
        Method("SC@3", FixedBudget(3) | cap),
        Method("Lead of 2", Lead(2) | cap),
        Method("Lead of 3", Lead(3) | cap),
        Method("Finite horizon (0.9)", lower, in_use=True),
    ]


def asc_at_once(settings: MethodSettings) -> Method:
    """Return ASC in waves of 4 samples, all of which are paid for. A live wave may be
    smaller.
    """
    return Method(ASC_AT_ONCE, ASC() | Cap(settings.max_samples), at_once=_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The calibrations of one arrangement by both algorithms.

    Attributes:
        measure: how responses are scored; None if it was to be chosen, and could not
            be.
        offline: Algorithm 1 on the labelled first responses of the calibration
            questions, or why they determine none.
        mixture: Algorithm 2 on the unlabelled first responses of the tested ones (it is
            transductive), likewise; None without a measure, or if nobody asked.
        agreement: the agreement rule, learned from several responses to the calibration
            questions, likewise.
    """

    measure: Measure | Literal["recorded"] | None
    offline: Calibration | CalibrationDataError
    mixture: Calibration | CalibrationDataError | None
    agreement: Calibration | CalibrationDataError


def calibrated_on(
    pool: Pool,
    scores: PoolScores,
    split: Split,
    spec: MeasureSpec,
    settings: MethodSettings,
    *,
    unlabelled_too: bool = True,
) -> Calibrated:
    """Calibrate on this arrangement; a choice of measure is made on its labelled
    calibration responses.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        split: the arrangement.
        spec: the measure that was asked for.
        settings: the accuracy asked of the gate.
        unlabelled_too: whether to fit the mixture as well.
    """
    measure: Measure | Literal["recorded"] | None = None if spec == "auto" else spec
    labelled, unlabelled = split.firsts(split.calibration), split.firsts(split.tested)
    further = split.further(split.calibration, settings.calibration_responses)
    options: dict[str, Any] = {"p_target": settings.p_target, "seed": settings.seed}
    offline: Calibration | CalibrationDataError
    mixture: Calibration | CalibrationDataError | None = None
    try:
        offline = calibrate_offline_on(
            pool, scores, labelled, spec, further=further, **options
        )
        measure = offline.measure if spec == "auto" else spec
    except CalibrationDataError as error:
        offline = error
    if measure is not None and unlabelled_too:
        try:
            mixture = calibrate_mixture_on(pool, scores, unlabelled, measure, **options)
        except CalibrationDataError as error:
            mixture = error
    agreement: Calibration | CalibrationDataError
    try:
        agreement = calibrate_by_agreement_on(
            pool, scores, [*labelled, *further], spec, seed=settings.seed
        )
    except CalibrationDataError as error:
        agreement = error
    return Calibrated(measure, offline, mixture, agreement)


def weighing(
    pool: Pool,
    scores: PoolScores,
    split: Split,
    spec: MeasureSpec,
    settings: MethodSettings,
    made: Calibrated | None = None,
) -> Iterator[Method]:
    """Yield ReASC as the paper has it, and as it runs by default.

    Online calibration learns from the tested questions themselves, one after another
    and without labels.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        split: the arrangement.
        spec: the measure that was asked for.
        settings: the budget and the accuracy asked of the gate.
        made: the calibrations of the arrangement, if the caller has them.
    """
    made = made or calibrated_on(pool, scores, split, spec, settings)
    yield method_by(made.offline, OFFLINE, spec, made.measure, settings)
    yield method_by_agreement(made.agreement, spec, settings)
    learns = scores.read_by_agreement() if spec == "auto" else [spec]
    yield Method(ONLINE, ASC() | Cap(settings.max_samples), spec, learns=learns)
    # Without a mixture, the offline error says why no measure could be chosen.
    yield method_by(made.mixture or made.offline, MIXTURE, spec, made.measure, settings)


def paper_rule(calibration: Calibration) -> StoppingRule:
    """Return a calibration's rule as the paper has it."""
    return calibration.as_in_paper().rule(on_missing_confidence="count")


def method_by_agreement(
    calibration: Calibration | CalibrationDataError,
    spec: MeasureSpec,
    settings: MethodSettings,
) -> Method:
    """Return the rule of a calibration as a live run has it, usually the agreement
    rule, as a method.
    """
    measure: Measure | str | None = None
    if isinstance(calibration, Calibration) and calibration.measure is not None:
        measure = "recorded" if spec == "recorded" else calibration.measure

    def rule_of(calibration: Calibration) -> StoppingRule:
        return calibration.rule(
            budget=settings.max_samples, on_missing_confidence="count"
        )

    return method_by(calibration, CALIBRATED, spec, measure, settings, rule_of)


def method_by(
    calibration: Calibration | Exception,
    name: str,
    spec: MeasureSpec | None,
    measure: Measure | str | None,
    settings: MethodSettings,
    rule_of: Callable[[Calibration], StoppingRule] = paper_rule,
) -> Method:
    """Return the rule of a calibration as a method; if there is none, ASC, with the
    reason as its problem.
    """
    cap = Cap(settings.max_samples)
    try:
        if isinstance(calibration, Exception):
            raise calibration
        return Method(
            name,
            rule_of(calibration) | cap,
            spec,
            measure,
            calibration,
            in_use=name == CALIBRATED,
        )
    except (CalibrationDataError, ConfigurationError) as error:
        return Method(name, ASC() | cap, spec, problem=str(error))


def other_counting(settings: MethodSettings) -> list[Method]:
    """Return the other rules that need answers only."""
    budget = settings.max_samples
    cap = Cap(budget)
    return [
        *simple(settings),
        Method("Finite horizon (0.95)", FiniteHorizon(0.95, budget) | cap),
        Method("Cannot catch up", CannotCatchUp(budget) | cap),
        Method("ASC or cannot catch up", ASC() | CannotCatchUp(budget) | cap),
    ]


def other_weighing(
    scores: PoolScores,
    spec: MeasureSpec,
    measure: Measure | str | None,
    settings: MethodSettings,
) -> Iterator[Method]:
    """Yield the other rules that weigh votes by a measure; one that is impossible
    counts votes, and says why.

    Args:
        scores: the scores of the pool.
        spec: the measure that was asked for.
        measure: the one that ``auto`` chose, else the same; None if nothing could be
            chosen.
        settings: the budget.
    """
    cap = Cap(settings.max_samples)
    for name, rule in OTHER_WEIGHING.items():
        problem = _why_impossible(rule, scores, measure)
        if problem is None:
            yield Method(name, rule | cap, spec, measure)
        else:
            yield Method(name, ASC() | cap, spec, problem=problem)


def _why_impossible(
    rule: StoppingRule, scores: PoolScores, measure: Measure | str | None
) -> str | None:
    """Return why a rule cannot weigh by this measure, which the rule would refuse when
    it votes; None if it can.
    """
    if measure is None:
        return "no measure could be chosen"
    if (
        isinstance(rule, DeepConfFilter)
        and np.nanmin(scores.array(measure), initial=np.inf) < 0
    ):
        return "it weighs by the score, and needs a signal that is never below zero"
    return None
