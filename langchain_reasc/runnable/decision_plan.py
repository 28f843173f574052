"""The plan: the rule that decides questions, what it reads, and what it promises."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple

from langchain_reasc.answers import Extractor, ObjectVotes, arguments_of
from langchain_reasc.calibration import Calibration, SupportCurve
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import support
from langchain_reasc.method.fields import ByField
from langchain_reasc.method.never_agrees import NeverAgrees, rule_in_use
from langchain_reasc.method.stopping import Decision, StoppingRule

ProbabilityName = Literal["p_correct", "p_agree"]


class Promises(NamedTuple):
    """What a calibration says of an answer.

    Attributes:
        probabilities: how likely the answer is right (``p_correct``), and how likely
            one further response agrees with it (``p_agree``), as far as that is known.
        interval: the 95 % interval of ``p_correct``, if that is known.
        guarantee: what the calibration guarantees of such answers, in words.
    """

    probabilities: Mapping[ProbabilityName, float]
    interval: tuple[float, float] | None
    guarantee: str | None


@dataclass(frozen=True, kw_only=True)
class DecisionPlan:
    """How questions of one kind are decided, until the calibration changes.

    Attributes:
        rule: the stopping rule that was given, calibrated, or chosen by default.
        notices: what the caller should know about the rule.
        measure: how responses are scored; None if nothing reads scores.
        is_counted: whether votes are counted whatever the confidence, now and later.
        is_rule_given: whether the user gave the rule, instead of the calibration.
        min_share: the share of votes below which an answer is not decided; None for
            any.
        calibration: the calibration in use.
    """

    rule: StoppingRule
    notices: tuple[str, ...] = ()
    measure: Measure | None = None
    is_counted: bool = True
    is_rule_given: bool = False
    min_share: float | None = None
    calibration: Calibration | None = None

    def composed_rule(self, extract: Extractor, budget: int) -> StoppingRule:
        """Return the rule as it decides: within a budget, over the parts of answers,
        and not without any answer.

        Args:
            extract: finds the answers, and says which objects are decided field by
                field.
            budget: samples at most.
        """
        return rule_in_use(
            self.rule,
            budget,
            min_share=self.min_share,
            over_parts=partial(_over_parts, extract, budget),
        )

    @property
    def correctness(self) -> SupportCurve | None:
        """How likely the answers of this rule are right; None if that is unknown."""
        if self.calibration is None or self.calibration.p_correct is None:
            return None
        curve = self.calibration.p_correct
        return curve if curve.holds_for(self.rule.name) else None

    @property
    def tells_probability(self) -> bool:
        """Whether anything is known of how likely answers are right, or agreed with."""
        calibration = self.calibration
        by_agreement = calibration is not None and calibration.by_agreement
        return self.correctness is not None or (by_agreement and not self.is_rule_given)

    def promises(self, decision: Decision, first_score: float | None) -> Promises:
        """Return how likely the answer is right, or agreed with, and what the
        calibration guarantees.

        Args:
            decision: the decision.
            first_score: the score of the first response.
        """
        probabilities: dict[ProbabilityName, float] = {}
        interval = None
        supported = support(decision)
        curve = self.correctness
        if curve is not None and supported is not None:
            probabilities["p_correct"] = curve.probability(supported)
            interval = curve.interval(supported)
        is_learned = self.calibration is not None and not self.is_rule_given
        if is_learned and supported is not None and decision.agrees is not None:
            probabilities["p_agree"] = decision.agrees
        guarantee = self._guarantee(decision, first_score)
        return Promises(probabilities, interval, guarantee)

    def _guarantee(self, decision: Decision, first_score: float | None) -> str | None:
        calibration = self.calibration
        if calibration is None or calibration.counts:
            return None
        if decision.reason == "gate":
            # A gate that was given may accept more than the calibrated one.
            if self.is_rule_given and not calibration.gate_accepts(first_score):
                return None
            return calibration.gate_promise()
        if calibration.by_agreement and not self.is_rule_given:
            return calibration.guarantee
        return None


def _over_parts(extract: Extractor, budget: int, rule: StoppingRule) -> StoppingRule:
    """Vote field by field or on the whole, and stop early on parts that never agree."""
    rule = NeverAgrees(rule, cache(partial(_parts_of, extract)), budget)
    objects = extract.objects
    if objects and objects.by_field:
        return ByField(rule, objects.tolerance, tuple(objects.voted), objects.accepts)
    return rule


def _parts_of(extract: Extractor, answer: str) -> Mapping[str, str] | None:
    """Return the arguments of calls, or the fields of an object; None for an answer
    without parts.
    """
    arguments = arguments_of(answer)
    if arguments is not None:
        return arguments
    objects = extract.objects
    if objects is None:
        if extract.texts_vote:
            return None
        objects = ObjectVotes()
    fields = objects.fields(answer)
    if not fields and objects.by_field:
        return {"": answer}  # an object that is one field, too
    return fields or None
