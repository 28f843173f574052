"""What is run on simulated pools: each configuration learns a stopping rule from a
pool's warm-up.

To add one, give it a row in :data:`CONFIGURATIONS`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE, ONLINE
from langchain_reasc_lab.simulation.pools import Responses

from langchain_reasc.calibration import (
    Calibration,
    Observation,
    calibrate_mixture,
    calibrate_offline,
    fit,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method import (
    ASC,
    CannotCatchUp,
    Cap,
    FiniteHorizon,
    Lead,
    Measure,
    StoppingRule,
    decide,
)

Integers = npt.NDArray[np.int64]
Configuration = Callable[[Responses], tuple[StoppingRule, int]]
"""The responses to warm up on -> a rule, and which measure's scores it reads."""

NAMED: Final = tuple(
    Measure(signal, score)
    for score in ("mean", "bottom_group")
    for signal in ("token_logprob", "top_k", "neg_entropy", "self_certainty")
)
"""What the measures of simulated pools are called where a calibration wants to know:
names only.
"""


def decisions(
    rule: StoppingRule, responses: Responses, measure: int = 0
) -> tuple[Integers, Integers]:
    """Return what the rule decides on each question, within the budget.

    Returns:
        How many responses each decision rests on, and the answer as ``responses``
        numbers it, -1 for none; both of shape (questions,).
    """
    capped, known = (
        rule | Cap(responses.answers.shape[1]),
        dict[bytes, tuple[int, int]](),
    )
    made = []
    for question, answers in enumerate(responses.answers):
        key = question.to_bytes(8) if rule.reads_scores else answers.tobytes()
        if key not in known:
            decision = decide(
                capped,
                responses.to_question(question, measure if rule.reads_scores else None),
            )
            known[key] = (
                decision.samples,
                -1 if decision.answer is None else int(decision.answer),
            )
        made.append(known[key])
    samples, given = np.array(made, dtype=np.int64).reshape(-1, 2).T
    return samples, given


def as_asc_left_it(
    warm_up: Responses,
) -> Iterator[tuple[tuple[int | None, ...], npt.NDArray[np.float64]]]:
    """For each question the answers and scores of the responses that ASC asked for, as
    a running application has them.

    Yields:
        Answers, None if there is none, and scores, shape (measures, responses).
    """
    for question, used in enumerate(decisions(ASC(), warm_up)[0]):
        answers = warm_up.answers[question, :used].tolist()
        yield (
            tuple(None if answer < 0 else answer for answer in answers),
            warm_up.scores[:, question, :used],
        )


def _offline(warm_up: Responses) -> Calibration:
    return calibrate_offline(
        warm_up.scores[0, :, 0], warm_up.correct[:, 0], measure=NAMED[0]
    )


def _paper(warm_up: Responses) -> Calibration:
    return _offline(warm_up).as_in_paper()


def _mixture(warm_up: Responses) -> Calibration:
    return calibrate_mixture(warm_up.scores[0, :, 0], measure=NAMED[0])


def _calibrated(calibrate: Callable[[Responses], Calibration]) -> Configuration:
    """The rule of a calibration on first responses; ASC where they determine none."""

    def learned(warm_up: Responses) -> tuple[StoppingRule, int]:
        try:
            return calibrate(warm_up).rule(), 0
        except CalibrationDataError:
            return ASC(), 0

    return learned


def _consensus(measures: Sequence[Measure]) -> Configuration:
    """The rule learned by consensus from what ASC left, with these measures as
    candidates.
    """

    def learned(warm_up: Responses) -> tuple[StoppingRule, int]:
        observed = [
            Observation(answers, scores[: len(measures)])
            for answers, scores in as_asc_left_it(warm_up)
        ]
        try:
            made = fit(
                observed,
                measures=measures,
                budget=warm_up.answers.shape[1],
                explained=False,
            )
        except CalibrationDataError:
            return ASC(), 0
        rule = made.rule(budget=warm_up.answers.shape[1])
        return rule, 0 if made.measure is None else list(measures).index(made.measure)

    return learned


CONFIGURATIONS: Final[dict[str, Configuration]] = {
    "Finite horizon (.97)": lambda warm_up: (FiniteHorizon(0.97), 0),
    "Finite horizon (.95)": lambda warm_up: (FiniteHorizon(0.95), 0),
    "Lead of 2": lambda warm_up: (Lead(2), 0),
    "Lead of 3": lambda warm_up: (Lead(3), 0),
    "ASC or cannot catch up": lambda warm_up: (ASC() | CannotCatchUp(), 0),
    OFFLINE: _calibrated(_paper),
    MIXTURE: _calibrated(_mixture),
    "Agreement (counts)": _consensus(()),
    ONLINE: _consensus(NAMED),
}
"""Name -> what it learns from a warm-up. All are compared with ASC."""
