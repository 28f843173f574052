"""What a calibration will do for its user: how many samples to expect, in one sentence with a next step."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field

from langchain_reasc.calibration.escalation import Escalation
from langchain_reasc.calibration.observations import Observation
from langchain_reasc.calibration.parts import Positive, Probability, Record
from langchain_reasc.method.agreement import Prior, likelihoods
from langchain_reasc.method.decision import Response
from langchain_reasc.method.horizon import FiniteHorizon
from langchain_reasc.method.stopping import Cap, StoppingRule, decide

if TYPE_CHECKING:
    from langchain_reasc.calibration.calibration import Calibration
    from langchain_reasc.method.confidence import Measure

__all__ = ["Expectation", "escalation_words", "plain_words", "with_expectation"]

_UNANSWERED: Final = 0.25
"""Share of the responses: where more have no answer, that is to be mended first."""
_FEWEST: Final = 16
"""Questions that a calibration needs to be relied on."""
_AS_MANY: Final = 0.95
"""Samples with a calibration, in those without it, from which on it changes nothing."""


class Expectation(Record):
    """What to expect of the rule of a calibration, on questions like those that it was made of.

    Attributes:
        samples: responses to a question, in the mean; null if the questions had one response each.
        uncalibrated: the same by the rule that decides without a calibration.
        budget: responses to a question at most.
        unanswered: share of the responses in which no answer was found.
        cut_off: share of the responses that were cut off before their answer; null if unknown.
        all_equal: whether no question had two different answers.
    """

    samples: Positive | None
    uncalibrated: Positive | None
    budget: int = Field(ge=1)
    unanswered: Probability
    cut_off: Probability | None = None
    all_equal: bool


def with_expectation(
    calibration: "Calibration",
    questions: Sequence[Observation],
    measures: Sequence["Measure"],
    *,
    budget: int,
    cut_off: float | None = None,
    seed: int = 0,
) -> "Calibration":
    """Return the calibration with what to expect of it.

    The rule decides on the questions that it was fitted on. Where they have too few responses, further ones are drawn
    as the calibration expects them, without a score.

    Args:
        calibration: the calibration.
        questions: the questions that it was fitted on.
        measures: the measure of each row of their scores.
        budget: responses to a question at most.
        cut_off: share of the responses that were cut off before their answer; None if unknown.
        seed: the seed of further responses.
    """
    answers = [answer for one in questions for answer in one.answers]
    voted = [one for one in questions if any(answer is not None for answer in one.answers)]
    several = [one for one in voted if len(one.answers) > 1]
    samples = uncalibrated = None
    if calibration.rule_ is not None and several:
        prior, rng = calibration.rule_.agreement_prior, np.random.default_rng(seed)
        row = measures.index(calibration.measure) if calibration.measure in measures else None
        drawn = [[*one.responses(row), *_further(prior, one.answers, budget, rng)] for one in voted]
        rule = calibration.rule(budget=budget, on_missing_confidence="count")
        samples, uncalibrated = (_mean(one, drawn, budget) for one in (rule, FiniteHorizon(0.97, budget)))
    expected = Expectation(
        samples=samples,
        uncalibrated=uncalibrated,
        budget=budget,
        unanswered=answers.count(None) / max(1, len(answers)),
        cut_off=cut_off,
        all_equal=bool(several) and all(len({*one.answers} - {None}) == 1 for one in voted),
    )
    return calibration.model_copy(update={"expected": expected})


def _mean(rule: StoppingRule, questions: Sequence[Sequence[Response]], budget: int) -> float:
    return float(np.mean([decide(rule | Cap(budget), responses).samples for responses in questions]))


def _further(prior: Prior, answers: Sequence[int | None], budget: int, rng: np.random.Generator) -> list[Response]:
    """Draw further responses to a question, by the process of the prior that its answers make likely."""
    votes = Counter(str(answer) for answer in answers if answer is not None)
    counts = tuple(sorted(votes.values(), reverse=True))
    weights = likelihoods([counts], prior.components)[0] * np.array(prior.weights)
    discount, concentration = prior.components[rng.choice(len(weights), p=weights / weights.sum())]
    drawn = []
    for number in range(len(answers), budget):
        names, seen = list(votes), votes.total()
        share = np.array([votes[name] - discount for name in names]) / (seen + concentration)
        at = int(np.searchsorted(share.cumsum(), rng.random()))
        answer = names[at] if at < len(names) else f"new {number}"
        votes[answer] += 1
        drawn.append(Response(answer))
    return drawn


def escalation_words(known: Escalation) -> tuple[str, str | None]:
    """Return what is to be expected of a small model before a large one, and what to do next; None: use it."""
    if known.rule is None:
        return (
            "Nothing is saved so far: the large model answers every question.",
            "ask more questions, allow more contradictions (within=0.1), or take another small model",
        )
    what = "are wrong where it is right" if known.labelled else "contradict it"
    return (
        f"Expect {known.cost(known.rule):.0%} of the price of the large model alone: {known.rule} of the small one may "
        f"stand, and at most {known.bound(known.rule):.1%} of the answers {what}."
    ), None


def plain_words(calibration: "Calibration") -> tuple[str, str | None]:
    """Return what a calibration will do for its user, and what to do next, in Python's words; None: use it."""
    if calibration.escalation is not None:
        return escalation_words(calibration.escalation)
    expected = calibration.expected
    useless, again = "This calibration is of little use:", "and calibrate again"
    if expected and expected.unanswered >= _UNANSWERED:
        if expected.cut_off is not None and expected.cut_off > expected.unanswered / 2:
            why = f"{expected.cut_off:.0%} of the responses were cut off before their answer"
            return f"{useless} {why}.", f"allow the model more tokens (max_tokens=...), {again}"
        why = f"no answer was found in {expected.unanswered:.0%} of the responses"
        where = "say where the answer is (answer=...)"
        if expected.cut_off is None:
            where += ", or allow more tokens (max_tokens=...) if responses are cut off"
        return f"{useless} {why}.", f"{where}, {again}"
    if calibration.accuracy == 0:
        why = f"none of the {calibration.n} first responses is right"
        where = "say where the answer is (answer=...), or which field has the right answers (answer_field=...)"
        return f"{useless} {why}.", f"{where}, {again}"
    if calibration.n < _FEWEST:
        return f"{useless} {calibration.n} questions are too few.", "calibrate on 64 questions or more"
    if expected and expected.all_equal:
        cold = calibration.fingerprint.sampling.get("temperature") == 0
        return (
            f"All responses to a question gave the same answer{' (temperature 0)' * cold}, so asking once is enough.",
            f"raise the temperature, {again}" if cold else "ask once, without ReASC, if all questions are like these",
        )
    counted = calibration.untrusted or calibration.fallback or calibration.unweighed
    unknown = ", because it is not shown that the model's confidence can be trusted" if counted else ""
    if expected is None or expected.samples is None or expected.uncalibrated is None:
        if calibration.counts():
            several = "calibrate on several responses to each question (max_samples=...)"
            return f"This calibration changes nothing: votes are counted, as without it{unknown}.", several
        if calibration.gate.under("default")[0] is not None:
            return "Expect fewer samples: a confident first response is accepted alone.", None
        return (
            f"Expect fewer samples: {'votes agree sooner' if counted else 'confident responses count for more'}.",
            None,
        )
    ours, without = (f"{one:.{int(one < 10)}f}" for one in (expected.samples, expected.uncalibrated))
    if expected.samples >= _AS_MANY * expected.uncalibrated:
        same = f"about {ours} samples of {expected.budget} are asked with it, and about {without} without it"
        return f"This calibration changes nothing: {same}{unknown}.", "leave it out"
    told = " It also tells how likely an answer is right." if calibration.p_correct else ""
    return (
        f"Expect about {ours} samples in place of {expected.budget} for nearly the same answers; without this "
        f"calibration it would be about {without}.{told}"
    ), None
