"""Calibration without labels: what agrees with the other responses to its question is taken to be right.

Two things are learned from questions that were answered by counting votes. How answers agree sets the prior of the
agreement rule (:mod:`~langchain_reasc.method.agreement`). And a measure of confidence is trusted where it tells the
responses that agree with the majority of the *others* from those that do not, within a question too: then votes weigh
by it. What is promised is agreement with the majority of the whole budget. Where wrong answers agree, that is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from langchain_reasc.calibration.answer_prior import counts_of, fit_prior
from langchain_reasc.calibration.correctness import agreement_with_rest, fit_support_curve
from langchain_reasc.calibration.observed import Observed, alternatives, consensus
from langchain_reasc.calibration.promise import promise
from langchain_reasc.calibration.schema import Calibration, Fingerprint, Gate, RuleBlock, SupportCurve
from langchain_reasc.calibration.trust import Trust
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule

__all__ = ["DEFAULT_AGREEMENT", "Observed", "calibrate_consensus", "consensus"]

DEFAULT_AGREEMENT: Final = 0.975  # θ: the lowest that costs 0.3 points at most on any kind of simulated pools
_VOTE_THRESHOLD: Final = 0.99  # of weighted votes; at .985 scores that follow agreement cost over 0.3 points
_LONG_ENOUGH: Final = 4  # responses, so that each half of them has a vote to agree with
_ENOUGH_DECISIONS: Final = 16  # from which on it is said how likely further responses agree


def calibrate_consensus(
    questions: Sequence[Observed],
    *,
    measures: Sequence[Measure] = (),
    budget: int = DEFAULT_BUDGET,
    threshold: float = DEFAULT_AGREEMENT,
    made_of: Mapping[str, Mapping[str, int | None]] | None = None,
    fingerprint: Fingerprint | None = None,
    seed: int = 0,
    explained: bool = True,
) -> Calibration:
    """Learn the agreement rule from questions without labels; labels that are known count in place of consensus.

    Args:
        questions: what was sampled, each up to where counting votes stopped; 32 are enough to begin with.
        measures: the candidates that ``scores`` are of; none learns from answers alone.
        budget: responses to a question at most.
        threshold: θ, the probability at which the whole budget would hardly answer otherwise.
        made_of: signal -> ``top_k`` and ``vocabulary_size`` that it was made of; recorded.
        fingerprint: what was measured.
        seed: the seed of the resampled bounds.
        explained: whether an interval, what is promised, and how likely further responses agree are worked out, too; no
            decision needs them.

    Raises:
        CalibrationDataError: fewer than 2 questions with an answer, or scores of another number of measures.
    """
    voted = [one for one in questions if any(answer is not None for answer in one.answers)]
    if len(voted) < 2:
        raise CalibrationDataError(f"{len(voted)} of {len(questions)} questions have an answer; 32 are enough to begin")
    for one in voted:
        if one.scores.shape != (len(measures), len(one.answers)):
            raise CalibrationDataError(
                f"scores of shape {one.scores.shape} for {len(measures)} measures of {len(one.answers)} responses"
            )
    prior = fit_prior([counts_of(one.answers) for one in voted])
    trust = Trust.of(voted, measures, seed, explained=explained)
    made = Calibration.now(
        method="consensus",
        n=len(voted),
        gate=Gate(threshold=None, closed_because="the agreement rule decides, which has no gate"),
        rule=RuleBlock.agreement(
            threshold=threshold,
            prior=prior,
            odds=trust.odds,
            vote_threshold=_VOTE_THRESHOLD,
            alternatives=alternatives(voted),
        ),
        fingerprint=fingerprint or Fingerprint(),
        **trust.recorded(made_of or {}),
    )
    if not explained:
        return made
    rule, chosen = made.rule(budget=budget, on_missing_confidence="count"), None
    if trust.measure is not None:
        chosen = list(measures).index(trust.measure)
    found = {"guarantee": promise(rule, voted, chosen), "p_agree": _p_agree(rule, voted, chosen)}
    return made.model_copy(update=found)


def _p_agree(rule: StoppingRule, questions: Sequence[Observed], measure: int | None) -> SupportCurve | None:
    """How likely further responses agree; None where too few questions have enough responses to tell.

    Questions that a rule like it cut short are left out: they ended where responses agreed.
    """
    long = [one for one in questions if one.counted and len(one.answers) >= _LONG_ENOUGH]
    found = [told for one in long if (told := agreement_with_rest(rule, one.responses(measure))) is not None]
    if len(found) < _ENOUGH_DECISIONS:
        return None
    supports, agreed = zip(*found, strict=True)
    return fit_support_curve(supports, agreed, rule=rule.name)
