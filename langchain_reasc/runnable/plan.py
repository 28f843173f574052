"""The plan of a question: its stopping rule, made here from the options, the calibration and the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from langchain_reasc.answers import Extractor, ObjectVotes, arguments_of
from langchain_reasc.calibration import Calibration, ConsensusCalibrator, MixtureCalibrator, SupportCurve
from langchain_reasc.method.agreement import LARGEST_HORIZON
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.fields import ByField
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.never_agrees import NeverAgrees, rule_in_use
from langchain_reasc.method.stopping import ASC, StoppingRule

if TYPE_CHECKING:
    from langchain_reasc.runnable.options import Options

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How questions of one kind are decided.

    Attributes:
        rule: the stopping rule that was given, calibrated, or chosen by default.
        notices: what the caller should know about the rule.
        measure: how responses are scored; None if nothing reads scores.
        counted: whether votes are counted whatever the confidence, now and later.
        calibration: the calibration in use.
    """

    rule: StoppingRule
    notices: tuple[str, ...] = ()
    measure: Measure | None = None
    counted: bool = True
    calibration: Calibration | None = None

    def rule_in_use(self, options: "Options", extract: Extractor, budget: int) -> StoppingRule:
        """Return the rule as it decides: within a budget, over the parts of answers, and not without any answer.

        Args:
            options: the options of the call.
            extract: finds the answers, and says which objects are decided field by field.
            budget: samples at most.
        """
        protected = options.on_undecided != "answer" or options.abstain_below is not None
        return rule_in_use(
            self.rule,
            budget,
            min_share=options.min_share if protected else None,
            over_parts=partial(_over_parts, extract, budget),
        )

    def probability_curves(self) -> Mapping[str, SupportCurve]:
        """Return ``p_correct`` or ``p_agree`` -> what the calibration says about the answers of this rule."""
        known = self.calibration
        curves = {"p_correct": known.p_correct, "p_agree": known.p_agree} if known else {}
        return {name: curve for name, curve in curves.items() if curve is not None and curve.holds_for(self.rule.name)}


def make_plan(
    options: "Options",
    calibration: Calibration | None,
    learner: ConsensusCalibrator | MixtureCalibrator | None = None,
    *,
    kind: str = "",
    required: bool = True,
) -> Plan:
    """Make the plan for one kind of request.

    Args:
        options: the options.
        calibration: the calibration in use; None if there is none, or not yet.
        learner: what learns a calibration from the answers; None if nothing does.
        kind: the kind of request.
        required: whether a response without confidence is an error where the rule reads scores.
    """
    if options.rule is not None:
        return _plan_by_rule(options.rule, options, calibration)
    if calibration is not None:
        return _plan_by_calibration(options, calibration, learner, kind, required=required)
    if isinstance(learner, ConsensusCalibrator):
        return Plan(rule=ASC(), notices=(learner.notice(None),), counted=False)
    if learner is not None:
        notice = "the calibration by mixture has seen too few responses yet: counting votes (ASC)"
        return Plan(rule=ASC(), notices=(notice,), measure=learner.measure, counted=False)
    horizon = FiniteHorizon(budget=options.max_samples)
    return Plan(rule=horizon, notices=("no calibration: counting votes (finite horizon)",))


def _plan_by_rule(rule: StoppingRule, options: "Options", calibration: Calibration | None) -> Plan:
    if not rule.reads_scores:
        return Plan(rule=rule, calibration=calibration)
    if calibration is None:
        return Plan(rule=rule, measure=options.measure, counted=False)
    notices = tuple[str, ...]()
    if calibration.counts(options.safeguard):
        why = calibration.fallback or calibration.unweighed
        notices = (f"the rule {rule.name} decides as given, where the calibration advises counting votes: {why}",)
    return Plan(rule=rule, notices=notices, measure=calibration.measure, counted=False, calibration=calibration)


def _plan_by_calibration(
    options: "Options",
    calibration: Calibration,
    learner: ConsensusCalibrator | MixtureCalibrator | None,
    kind: str,
    *,
    required: bool,
) -> Plan:
    rule = calibration.rule(
        on_missing_confidence="error" if required else "count",
        budget=options.max_samples,
        worth=0 if options.worth is None and options.on_undecided != "answer" else options.worth,
        safeguard="default" if isinstance(learner, ConsensusCalibrator) else options.safeguard,
    )
    notices = calibration.notices(options.safeguard)
    if isinstance(learner, ConsensusCalibrator):
        notices = (learner.notice(calibration, kind),)
    if options.worth and options.max_samples > LARGEST_HORIZON:
        off = f"worth={options.worth:g} is off: max_samples={options.max_samples} is above {LARGEST_HORIZON}"
        notices = (*notices, off)
    measure = calibration.measure if rule.reads_scores else None
    return Plan(rule=rule, notices=notices, measure=measure, counted=measure is None, calibration=calibration)


def _over_parts(extract: Extractor, budget: int, rule: StoppingRule) -> StoppingRule:
    """Vote field by field or on the whole, and stop early on parts that never agree."""
    rule = NeverAgrees(rule, cache(partial(_parts_of, extract)), budget)
    objects = extract.objects
    if objects and objects.by_field:
        rule = ByField(rule, objects.tolerance, tuple(objects.voted), objects.accepts)
    return rule


def _parts_of(extract: Extractor, answer: str) -> Mapping[str, str] | None:
    """Return the arguments of calls, or the fields of an object; None for an answer without parts."""
    if (arguments := arguments_of(answer)) is not None:
        return arguments
    objects = extract.objects or (None if extract.texts_vote else ObjectVotes())
    if objects is None:
        return None
    return objects.fields(answer) or ({"": answer} if objects.by_field else None)  # a field is one thing, too
