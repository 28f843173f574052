"""How often a gate accepts less than it promises:
``python -m benchmarks.gate_coverage``.

A response is right with a probability that depends on how sure the model is, and every
measure tells that with noise of its own. A gate is calibrated on labelled responses, by
one measure or by the best of many that are compared on the same responses, and then
accepts fresh ones. It promises that nine in ten of those are right, except in 5 % of
calibrations at most. In most of these worlds no gate can keep that, as the surest
responses are right a little less often: every gate that opens is one that chance has
opened. A thousand calibrations take about half a minute.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.replay import exact

from benchmarks.command import parser_of
from langchain_reasc.calibration import (
    calibrate_offline,
    can_be_compared,
    candidate_measures,
    select_among,
)

P_TARGET: Final = 0.9
_FRESH: Final = 4000
_SIGNALS: Final = ("self_certainty", "top_k", "token_logprob", "neg_entropy")
CANDIDATES: Final = candidate_measures(_SIGNALS, longest=129)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class World:
    """How right answers and scores are drawn.

    Attributes:
        right: how sure the model is, a normal deviate -> P(right).
        strongest: the correlation of the best measure with that; the worst has .4 of
            it.
        alike: which share of their noise the measures of a signal have in common.
    """

    right: Callable[[Floats], Floats]
    strongest: float
    alike: float

    def draw(
        self, rng: np.random.Generator, responses: int, measure: int | None = None
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return scores by every measure, or by this one alone, shape (measures,
        responses), and what is right.
        """
        sure = rng.normal(size=responses)
        which = np.arange(len(CANDIDATES)) if measure is None else np.array([measure])
        strength = (self.strongest * np.linspace(0.4, 1, len(CANDIDATES)))[which, None]
        signal, own = (
            rng.normal(size=(len(_SIGNALS), responses)),
            rng.normal(size=(which.size, responses)),
        )
        noise = (
            np.sqrt(self.alike) * signal[which % len(_SIGNALS)]
            + np.sqrt(1 - self.alike) * own
        )
        return strength * sure + np.sqrt(1 - strength**2) * noise, rng.random(
            responses
        ) < self.right(sure)


def _step(below: float, above: float, at: float) -> Callable[[Floats], Floats]:
    return lambda sure: np.where(sure > at, above, below)


def _logistic(at_0: float, slope: float) -> Callable[[Floats], Floats]:
    return lambda sure: np.asarray(1 / (1 + np.exp(-at_0 - slope * sure)))


WORLDS: Final = {
    "step 0 to .89, strong": World(_step(0.0, 0.89, -1.3), 0.95, 0.7),
    "step .3 to .89, weak": World(_step(0.3, 0.89, -1.0), 0.6, 0.2),
    "step .6 to .89, strong": World(_step(0.6, 0.89, -0.25), 0.95, 0.2),
    "slope, weak": World(_logistic(1.5, 1.5), 0.6, 0.5),
    "slope, strong": World(_logistic(1.5, 3.0), 0.95, 0.5),
    "step .3 to .98, strong": World(_step(0.3, 0.98, -0.25), 0.95, 0.5),
}
"""Kinds of measures; in the first three no gate can keep its promise, in the last two
one should open.
"""
METHODS: Final = ("one measure", "best of many", "best, tested on the same")


def outcomes(
    world: World, responses: int, rng: np.random.Generator
) -> dict[str, tuple[float, bool]]:
    """Return for each method the share of fresh responses that its gate accepts, and
    whether too few of them are right.

    Empty where too few responses are right, or wrong, to compare measures.
    """
    scores, right = world.draw(rng, responses)
    if not can_be_compared(right):
        return {}
    chosen = select_among(CANDIDATES, scores, right)
    best, typical = CANDIDATES.index(chosen.measure), int(0.8 * len(CANDIDATES))
    options: Any = (
        (typical, {}),
        (best, chosen.evidence),
        (best, chosen.evidence | {"cross_fitted": ()}),
    )
    found = {}
    for name, (at, evidence) in zip(METHODS, options, strict=True):
        made = calibrate_offline(
            scores[at], right, measure=CANDIDATES[at], p_target=P_TARGET, **evidence
        )
        threshold = None if made.fallback else made.gate.safe_threshold
        fresh, correct = world.draw(rng, _FRESH, at)
        passed = fresh[0] >= (np.inf if threshold is None else threshold)
        found[name] = (
            float(passed.mean()),
            bool(passed.any() and correct[passed].mean() < P_TARGET),
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = parser_of("gate_coverage", __doc__)
    parser.add_argument(
        "--calibrations", type=int, default=1000, help="of each kind (%(default)s)"
    )
    parser.add_argument(
        "--responses",
        type=int,
        nargs="+",
        default=[64, 128, 256],
        help="labelled ones (%(default)s)",
    )
    parser.add_argument(
        "--worlds", choices=WORLDS, nargs="+", default=list(WORLDS), metavar="NAME"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print(f"{given.calibrations} calibrations of each kind (seed {given.seed})\n")
    print(
        "| world | labelled | method | accepts | of all gates accept less than "
        "promised |\n|---|---|---|---|---|"
    )
    for name in given.worlds:
        for responses in given.responses:
            rng = np.random.default_rng(
                [given.seed, list(WORLDS).index(name), responses]
            )
            drawn = [
                outcomes(WORLDS[name], responses, rng)
                for _ in range(given.calibrations)
            ]
            found = [one for one in drawn if one]
            for method in METHODS:
                shares, broken = zip(*(one[method] for one in found), strict=True)
                share = exact(sum(broken), len(broken)).percent
                print(
                    f"| {name} | {responses} | {method} | {100 * np.mean(shares):.1f} "
                    f"% | {share.value:.1f} % {share.interval('.1f')} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
