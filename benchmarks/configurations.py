"""What is run on simulated pools: each configuration learns a stopping rule from a pool's warm-up.

To add one, give it a row in :data:`CONFIGURATIONS`. Its rule is quick where ``evaluation/array_rules.py`` knows its
class.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.replay import agreement_on_arrays, horizon_on_arrays  # noqa: F401  (so arrays know their rules)
from langchain_reasc_lab.replay.decide_many import Decisions, decide_many
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE, ONLINE, SAFEGUARDED
from langchain_reasc_lab.simulation.pools import Responses

from langchain_reasc.calibration import (
    Calibration,
    Observed,
    Safeguard,
    calibrate_consensus,
    calibrate_mixture,
    calibrate_offline,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.stopping import ASC, Cap, Response, StoppingRule

__all__ = ["CONFIGURATIONS", "NAMED", "Configuration", "as_asc_left_it", "decisions"]

Configuration = Callable[[Responses], tuple[StoppingRule, int]]
"""The responses to warm up on -> a rule, and which measure's scores it reads."""

NAMED: Final = tuple(
    Measure(signal, score)
    for score in ("mean", "bottom_group")
    for signal in ("token_logprob", "top_k", "neg_entropy", "self_certainty")
)
"""What the measures of simulated pools are called where a calibration wants to know: names only."""


def decisions(rule: StoppingRule, responses: Responses, measure: int = 0) -> Decisions:
    """What the rule decides on each question, within the budget."""
    answers, scores = responses.answers, responses.scores[measure]

    def one(question: int) -> list[Response]:
        pairs = zip(answers[question].tolist(), scores[question].tolist(), strict=True)
        return [Response(None if answer < 0 else str(answer), score) for answer, score in pairs]

    return decide_many(rule | Cap(answers.shape[1]), responses.votes(measure), one)


def as_asc_left_it(warm_up: Responses) -> Iterator[tuple[tuple[int | None, ...], npt.NDArray[np.float64]]]:
    """For each question the answers and scores of the responses that ASC asked for, as a running application has them.

    Yields:
        Answers, None where there is none, and scores, shape (measures, responses).
    """
    for question, used in enumerate(decisions(ASC(), warm_up).samples):
        answers = warm_up.answers[question, :used].tolist()
        yield tuple(None if answer < 0 else answer for answer in answers), warm_up.scores[:, question, :used]


def _offline(warm_up: Responses) -> Calibration:
    return calibrate_offline(warm_up.scores[0, :, 0], warm_up.correct[:, 0], measure=NAMED[0])


def _mixture(warm_up: Responses) -> Calibration:
    return calibrate_mixture(warm_up.scores[0, :, 0], measure=NAMED[0])


def _calibrated(calibrate: Callable[[Responses], Calibration], *, safeguard: Safeguard = "paper") -> Configuration:
    """The rule of a calibration on first responses; ASC where they determine none."""

    def learned(warm_up: Responses) -> tuple[StoppingRule, int]:
        try:
            return calibrate(warm_up).rule(safeguard=safeguard), 0
        except CalibrationDataError:
            return ASC(), 0

    return learned


def _consensus(measures: Sequence[Measure]) -> Configuration:
    """The rule learned by consensus from what ASC left, with these measures as candidates."""

    def learned(warm_up: Responses) -> tuple[StoppingRule, int]:
        observed = [Observed(answers, scores[: len(measures)]) for answers, scores in as_asc_left_it(warm_up)]
        try:
            made = calibrate_consensus(observed, measures=measures, budget=warm_up.answers.shape[1], explained=False)
        except CalibrationDataError:
            return ASC(), 0
        return made.rule(budget=warm_up.answers.shape[1]), 0 if made.measure is None else list(measures).index(
            made.measure
        )

    return learned


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "Finite horizon (.97)": lambda warm_up: (FiniteHorizon(0.97), 0),
    "Finite horizon (.95)": lambda warm_up: (FiniteHorizon(0.95), 0),
    "ASC or cannot catch up": lambda warm_up: (ASC() | CannotCatchUp(), 0),
    OFFLINE: _calibrated(_offline),
    SAFEGUARDED: _calibrated(_offline, safeguard="default"),
    MIXTURE: _calibrated(_mixture),
    "Agreement (counts)": _consensus(()),
    ONLINE: _consensus(NAMED),
}
"""Name -> what it learns from a warm-up. All are compared with ASC."""
