"""The plan: how questions of one kind are decided. It is made here, from the options
and the calibration in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from langchain_reasc.answers import Extractor, ObjectVotes, arguments_of
from langchain_reasc.calibration import (
    DEFAULT_RACE,
    Calibration,
    ConsensusCalibrator,
    SupportCurve,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.fields import ByField
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.never_agrees import NeverAgrees, rule_in_use
from langchain_reasc.method.stopping import ASC, Decision, StoppingRule
from langchain_reasc.runnable.result import Likelihood

if TYPE_CHECKING:
    from langchain_reasc.runnable.options import Options
    from langchain_reasc.runnable.setup import Setup


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How questions of one kind are decided. :class:`Setup` keeps the plan until the
    calibration changes.

    Attributes:
        options: the options.
        rule: the stopping rule that was given, calibrated, or chosen by default.
        notices: what the caller should know about the rule.
        measure: how responses are scored; None if nothing reads scores.
        counted: whether votes are counted whatever the confidence, now and later.
        calibration: the calibration in use.
    """

    options: "Options"
    rule: StoppingRule
    notices: tuple[str, ...] = ()
    measure: Measure | None = None
    counted: bool = True
    calibration: Calibration | None = None

    def rule_in_use(self, extract: Extractor, budget: int) -> StoppingRule:
        """Return the rule as it decides: within a budget, over the parts of answers,
        and not without any answer.

        Args:
            extract: finds the answers, and says which objects are decided field by
                field.
            budget: samples at most.
        """
        options = self.options
        protected = (
            options.on_undecided != "answer"
            or options.abstain_below is not None
            or options.escalate_to
        )
        return rule_in_use(
            self.rule,
            budget,
            min_share=options.min_share if protected else None,
            over_parts=partial(_over_parts, extract, budget),
        )

    def probability_curves(self) -> Mapping[str, SupportCurve]:
        """Return ``p_correct`` or ``p_agree`` -> what the calibration says about the
        answers of this rule.
        """
        known = self.calibration
        curves = (
            {"p_correct": known.p_correct, "p_agree": known.p_agree} if known else {}
        )
        return {
            name: curve
            for name, curve in curves.items()
            if curve is not None and curve.holds_for(self.rule.name)
        }

    def promises(self, decision: Decision, first_score: float | None) -> dict[str, Any]:
        """Return how likely the answer is right, or agreed with, and what the
        calibration guarantees.

        Args:
            decision: the decision.
            first_score: the score of the first response.
        """
        promises = dict[str, Any]()
        for name, curve in self.probability_curves().items():
            if (share := curve.support(decision)) is not None:
                source: Any = "labels" if name == "p_correct" else "consensus"
                promises[name] = Likelihood(
                    value=curve.probability(share), source=source
                )
        calibration = self.calibration
        if calibration is None or calibration.counts:
            return promises
        rule_given = self.options.rule is not None
        if decision.reason == "gate":
            if not rule_given or calibration.gate_accepts(first_score):
                promises["guarantee"] = calibration.gate_promise()
        elif calibration.guarantee and calibration.by_agreement and not rule_given:
            promises["guarantee"] = calibration.guarantee
        return promises


def make_plan(setup: "Setup", calibration: Calibration | None) -> Plan:
    """Make the plan under a calibration; None if there is none, or not yet."""
    options = setup.options
    if (given := options.stopping_rule) is not None:
        return _plan_by_rule(given, options, calibration)
    if calibration is not None:
        return _plan_by_calibration(setup, calibration)
    if setup.online:
        return Plan(options=options, rule=ASC(), counted=False)
    if setup.mixture:
        notice = "the calibration by mixture has seen too few responses yet: counting votes (ASC)"
        return Plan(
            options=options,
            rule=ASC(),
            notices=(notice,),
            measure=setup.mixture.measure,
            counted=False,
        )
    if setup.large:
        notice = f"nothing was learned: {DEFAULT_RACE.votes} equal votes of the small model are an answer, by default"
        return Plan(options=options, rule=DEFAULT_RACE, notices=(notice,))
    horizon = FiniteHorizon(budget=options.max_samples)
    return Plan(
        options=options,
        rule=horizon,
        notices=("no calibration: counting votes (finite horizon)",),
    )


def plan_by_course(
    options: "Options", rule: StoppingRule, measure: Measure | None
) -> Plan:
    """Make the plan by which a small model is asked, by a rule that was learned or is
    tested.
    """
    return Plan(options=options, rule=rule, measure=measure, counted=measure is None)


def _plan_by_rule(
    rule: StoppingRule, options: "Options", calibration: Calibration | None
) -> Plan:
    if not rule.reads_scores:
        return Plan(options=options, rule=rule, calibration=calibration)
    if calibration is None:
        return Plan(options=options, rule=rule, measure=options.measure, counted=False)
    notices = tuple[str, ...]()
    if calibration.counts:
        why = calibration.fallback or calibration.unweighed
        notices = (
            (
                f"the rule {rule.name} decides as given, where the calibration advises "
                f"counting votes: {why}"
            ),
        )
    measure = calibration.measure
    return Plan(
        options=options,
        rule=rule,
        notices=notices,
        measure=measure,
        counted=False,
        calibration=calibration,
    )


def _plan_by_calibration(setup: "Setup", calibration: Calibration) -> Plan:
    options, is_online = setup.options, isinstance(setup.learner, ConsensusCalibrator)
    rule = calibration.rule(
        on_missing_confidence=setup.on_missing_confidence,
        budget=options.max_samples,
    )
    notices = (
        () if is_online else calibration.notices()
    )  # online it is told with each question
    measure = calibration.measure if rule.reads_scores else None
    is_counted = measure is None
    return Plan(
        options=options,
        rule=rule,
        notices=notices,
        measure=measure,
        counted=is_counted,
        calibration=calibration,
    )


def _over_parts(extract: Extractor, budget: int, rule: StoppingRule) -> StoppingRule:
    """Vote field by field or on the whole, and stop early on parts that never agree."""
    rule = NeverAgrees(rule, cache(partial(_parts_of, extract)), budget)
    objects = extract.objects
    if objects and objects.by_field:
        rule = ByField(rule, objects.tolerance, tuple(objects.voted), objects.accepts)
    return rule


def _parts_of(extract: Extractor, answer: str) -> Mapping[str, str] | None:
    """Return the arguments of calls, or the fields of an object; None for an answer
    without parts.
    """
    if (arguments := arguments_of(answer)) is not None:
        return arguments
    objects = extract.objects or (None if extract.texts_vote else ObjectVotes())
    if objects is None:
        return None
    return objects.fields(answer) or (
        {"": answer} if objects.by_field else None
    )  # a field is one thing, too
