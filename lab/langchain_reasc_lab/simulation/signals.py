"""Simulated response scores that separate right from wrong to a given degree."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import auroc_of
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.simulation.answers import Floats, Integers

_WEAKEST, _STRONGEST = -2.0, 8.0
_LOOKED_AT: Final = 1_000  # questions on which a signal's strength is found
_TAIL: Final = 0.9


@dataclass(frozen=True, slots=True)
class Drawn:
    """The inputs of a signal.

    Attributes:
        answers: shape (questions, budget), the answers of a question by number; -1 for
            none.
        correct: shape (questions, budget), whether each response is right.
        likely: shape (questions,), P(a response is right).
    """

    answers: Integers
    correct: npt.NDArray[np.bool_]
    likely: Floats

    @property
    def agreeing(self) -> Floats:
        """The share of the responses to a question that have the answer of this one,
        shape (questions, budget).
        """
        same = (self.answers[:, :, None] == self.answers[:, None, :]) & (
            self.answers >= 0
        )[:, None, :]
        return np.asarray(same.mean(axis=2))


Booleans = npt.NDArray[np.bool_]
Kind = Callable[[np.random.Generator, Drawn], Floats]


def draw_scores(
    rng: np.random.Generator, kind: str, drawn: Drawn, measures: int = 1
) -> Floats:
    """Draw scores of the responses to a pool's questions, each measure in a unit of its
    own.

    Args:
        rng: the random generator.
        kind: a name in :data:`SIGNAL_KINDS`: what the first measure is.
        drawn: the responses.
        measures: how many; every second one is noise, and the rest are noise and the
            first one, in different shares.

    Returns:
        Shape (measures, questions, budget), finite.

    Raises:
        ConfigurationError: an unknown kind, or no measure.
    """
    if kind not in SIGNAL_KINDS:
        raise ConfigurationError(
            f"unknown kind of signal {kind!r}; choose one of {', '.join(SIGNAL_KINDS)}"
        )
    if measures < 1:
        raise ConfigurationError(f"a response has at least 1 score, got {measures}")
    scores = np.empty((measures, *drawn.correct.shape))
    scores[0] = SIGNAL_KINDS[kind](rng, drawn)
    standardized = (scores[0] - scores[0].mean()) / max(scores[0].std(), 1e-9)
    for at in range(1, measures):
        share = 0.0 if at % 2 else rng.uniform(0.1, 0.9)
        scores[at] = np.sqrt(share) * standardized + np.sqrt(1 - share) * _noise(
            rng, drawn
        )
    units, offsets = (
        10 ** rng.uniform(-2, 1, (measures, 1, 1)),
        rng.uniform(-5, 20, (measures, 1, 1)),
    )
    return np.asarray(units * (offsets + scores))


def _none(rng: np.random.Generator, drawn: Drawn) -> Floats:
    return _noise(rng, drawn)


def _plain(low: float, high: float) -> Kind:
    """Of an AUROC between these, the same between questions and a little more within
    them.
    """

    def scores(rng: np.random.Generator, drawn: Drawn) -> Floats:
        return _separating(
            drawn.correct, _noise(rng, drawn), drawn.correct, rng.uniform(low, high)
        )

    return scores


def _skewed(rng: np.random.Generator, drawn: Drawn) -> Floats:
    """A long tail of sure responses or of unsure ones."""
    side = rng.choice([-1.0, 1.0])
    return np.asarray(side * np.exp(side * _TAIL * _plain(0.7, 0.9)(rng, drawn)))


def _inverted(rng: np.random.Generator, drawn: Drawn) -> Floats:
    return -_plain(0.6, 0.8)(rng, drawn)


def _over_confident(rng: np.random.Generator, drawn: Drawn) -> Floats:
    """Strong, but on 20 to 50 % of the hardest questions and fewer of others, right
    looks wrong and wrong right.
    """
    fooled = rng.random(drawn.likely.shape) < (1 - drawn.likely) * rng.uniform(0.2, 0.5)
    return _plain(0.88, 0.95)(
        rng, replace(drawn, correct=drawn.correct ^ fooled[:, None])
    )


def _of_agreement(rng: np.random.Generator, drawn: Drawn) -> Floats:
    """Tells what is usually answered from what is not, right or wrong, as a likelihood
    does.
    """
    return _separating(
        drawn.agreeing, _noise(rng, drawn), drawn.correct, rng.uniform(0.65, 0.9)
    )


def _between(rng: np.random.Generator, drawn: Drawn) -> Floats:
    """Tells easy questions from hard ones, and nothing of the responses to one
    question.
    """
    latent = np.broadcast_to(drawn.likely[:, None], drawn.correct.shape)
    return _separating(
        latent, rng.normal(size=latent.shape), drawn.correct, rng.uniform(0.65, 0.85)
    )


def _within(rng: np.random.Generator, drawn: Drawn) -> Floats:
    """Tells right responses from wrong ones to the same question, and nothing of
    questions.
    """
    latent = drawn.correct - drawn.likely[:, None]
    return _separating(
        latent, rng.normal(size=latent.shape), drawn.correct, rng.uniform(0.65, 0.85)
    )


def _noise(rng: np.random.Generator, drawn: Drawn) -> Floats:
    """Normal with variance 1; the responses to a question share a part of the variance."""
    shared, shape = rng.uniform(0, 0.6), drawn.correct.shape
    by_question, by_response = rng.normal(size=(shape[0], 1)), rng.normal(size=shape)
    return np.asarray(np.sqrt(shared) * by_question + np.sqrt(1 - shared) * by_response)


def _separating(
    latent: Floats | Booleans, noise: Floats, correct: Booleans, auroc: float
) -> Floats:
    """Return ``strength · latent + noise`` of this AUROC, or of the nearest that is
    possible.
    """
    some = slice(_LOOKED_AT)
    signal, around, right = latent[some], noise[some], correct[some]
    if right.all() or not right.any():
        return np.asarray(latent + noise)

    def beyond(strength: float) -> float:
        scores = strength * signal + around
        return float(auroc_of(scores[right], scores[~right])) - auroc

    from scipy.optimize import brentq

    # With a few right responses, or latents all alike, no strength may do.
    if beyond(_WEAKEST) >= 0 or beyond(_STRONGEST) <= 0:
        strength = min(_WEAKEST, _STRONGEST, key=lambda one: abs(beyond(one)))
    else:
        strength = brentq(beyond, _WEAKEST, _STRONGEST, xtol=0.01)
    return np.asarray(strength * latent + noise)


SIGNAL_KINDS: Final[dict[str, Kind]] = {
    "none": _none,
    "weak": _plain(0.53, 0.62),
    "medium": _plain(0.65, 0.8),
    "strong": _plain(0.88, 0.95),
    "skewed": _skewed,
    "inverted": _inverted,
    "over-confident": _over_confident,
    "of agreement": _of_agreement,
    "between questions": _between,
    "within questions": _within,
}
"""Kinds of signals: name -> (generator, responses) -> scores, shape (questions,
budget).
"""
