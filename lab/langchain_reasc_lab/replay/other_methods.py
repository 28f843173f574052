"""The rules beyond the usual comparison, for ``replay(..., rules="all")``: counting votes, and weighing them."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from langchain_reasc.calibrating import MeasureSpec, PoolScores
from langchain_reasc.calibration import fit_odds
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.bayesian_vote import BayesianVote, LogisticOdds
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.stopping import ASC, Cap, StoppingRule
from langchain_reasc.pools import Pool
from langchain_reasc_lab.replay.methods import Method, MethodSettings, Split
from langchain_reasc_lab.rules import CGES, CISC, DeepConfFilter, DistriVoting, LAggregated, MajorityCertificate

__all__ = ["OTHER_WEIGHING", "other_counting", "other_weighing"]

_BY_ODDS: Final[dict[str, Callable[[LogisticOdds], StoppingRule]]] = {
    "Bayesian vote (0.99)": lambda odds: BayesianVote(odds, 0.99, on_missing_confidence="count"),
    "CGES": lambda odds: CGES(odds, on_missing_confidence="count"),
}
_TOGETHER: Final[dict[str, StoppingRule]] = {
    "CISC": CISC(on_missing_confidence="count"),
    "DeepConf (top 90 %)": DeepConfFilter(0.9, on_missing_confidence="count"),
    "DistriVoting": DistriVoting(on_missing_confidence="count"),
}
OTHER_WEIGHING: Final = (*_BY_ODDS, *_TOGETHER)


def other_counting(pool: Pool, split: Split, settings: MethodSettings) -> Iterator[Method]:
    """The other rules that need answers only; L = 3 learns from all answers to the calibration questions."""
    budget = settings.max_samples
    cap = Cap(budget)
    yield Method("Finite horizon (0.95)", FiniteHorizon(0.95, budget) | cap)
    yield Method("Cannot catch up", CannotCatchUp(budget) | cap)
    yield Method("ASC or cannot catch up", ASC() | CannotCatchUp(budget) | cap)
    yield Method("Majority certificate", MajorityCertificate() | cap)
    if split.calibration:
        try:
            yield Method("L = 3", LAggregated.of_counts(_counts(pool, split, budget)) | cap)
        except CalibrationDataError as error:
            yield Method("L = 3", ASC() | cap, problem=str(error))


def other_weighing(
    pool: Pool,
    scores: PoolScores,
    split: Split,
    spec: MeasureSpec,
    measure: Measure | str | None,
    settings: MethodSettings,
) -> Iterator[Method]:
    """The other rules that weigh votes by a measure; one that is impossible has its ``problem``, and counts votes.

    Args:
        pool: recorded responses.
        scores: the scores of the same pool.
        split: whose labelled first responses to the calibration questions tell the odds.
        spec: the measure that was asked for.
        measure: the one that ``auto`` chose, else the same; None where nothing could be chosen.
        settings: the budget.
    """
    cap = Cap(settings.max_samples)
    for name in OTHER_WEIGHING:
        try:
            if measure is None:
                raise CalibrationDataError("no measure could be chosen")
            rule = _by_odds(name, pool, scores, split, measure) if name in _BY_ODDS else _TOGETHER[name]
            _check_scores(rule, scores, measure)
            yield Method(name, rule | cap, spec, measure)
        except CalibrationDataError as error:
            yield Method(name, ASC() | cap, spec, problem=str(error))


def _by_odds(name: str, pool: Pool, scores: PoolScores, split: Split, measure: Measure | str) -> StoppingRule:
    held = scores.scores(measure)
    labelled = [
        (score, bool(pool.questions[question].responses[response].correct))
        for question, response in split.firsts(split.calibration)
        if (score := held[question][response]) is not None
    ]
    return _BY_ODDS[name](fit_odds([score for score, _ in labelled], [right for _, right in labelled]))


def _check_scores(rule: StoppingRule, scores: PoolScores, measure: Measure | str) -> None:
    """Refuse beforehand what the rule would refuse when it votes."""
    lowest = np.min(scores.array(measure), initial=np.inf, where=~np.isnan(scores.array(measure)))
    if isinstance(rule, DeepConfFilter | DistriVoting) and lowest < 0:
        raise CalibrationDataError("it weighs by the score, and needs a signal that is never below zero")


def _counts(pool: Pool, split: Split, budget: int) -> Iterator[list[int]]:
    for question in split.calibration:
        responses = pool.questions[question].responses
        answers = [responses[at].answer for at in split.orders[question][:budget]]
        yield list(Counter(answer for answer in answers if answer is not None).values())
