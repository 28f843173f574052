"""Algorithm 2: calibrate on unlabelled first responses with a two-component Gaussian
mixture.
"""

import math
import threading
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration.algorithm1 import checked_scores
from langchain_reasc.calibration.auroc import Floats
from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.parts import Gate, Mixture
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = [
    "FEWEST_FOR_MIXTURE",
    "MixtureCalibrator",
    "calibrate_mixture",
    "fit_mixture",
    "posterior_upper",
]

FEWEST_FOR_MIXTURE: Final = 16
"""Scores that a mixture needs: it has five parameters."""
# Tolerance at which the starts are compared. At scikit-learn's default, 1e-3, the best is
# missed.
_ROUGH: Final = 1e-4
_TO_THE_END: Final = 3  # starts that are fitted to convergence
# Least standard deviation of a component, relative to that of all scores.
_NARROWEST: Final = 0.05
_LEAST: Final = 0.03  # least weight of a component


def calibrate_mixture(
    scores: npt.ArrayLike,
    *,
    measure: Measure,
    p_target: float = 0.9,
    scale: float = 0.7,
    top_k: int | None = None,
    vocabulary_size: int | None = None,
    fingerprint: Fingerprint | None = None,
    components: Sequence[int] = (1, 2, 3, 4),
    seed: int = 0,
) -> Calibration:
    """Algorithm 2: τ_gate = max(upper component's mean, smallest score t with P(upper |
    t) ≥ p_target).

    Only scores above the lower component's mean are candidates. With unequal variances
    the mixture posterior is not monotone (a wide upper component wins again far below
    both means), but above the lower mean it rises until acceptance begins.

    Args:
        scores: shape (n,), S(y) of the first response to each input.
        measure: how the scores were made.
        p_target: posterior asked of what the gate accepts.
        scale: λ of the evidence weight.

        top_k: alternatives per token behind the signal; stored.
        vocabulary_size: V behind the signal; stored.
        fingerprint: the model, sampling and prompt; stored.
        components: the numbers of components whose AIC and BIC are stored. Only 1 and 2
            are used.
        seed: the seed of the mixture's initialisation.

    Returns:
        A calibration. Its gate is closed, with the reason, if the mixture does not
        converge, or no score reaches ``p_target`` or the upper component's mean.

    Raises:
        CalibrationDataError: fewer than 2 responses, a score that is not finite, or all
            scores equal.
    """
    values = checked_scores(scores, p_target)
    mixture = None
    if values.size >= FEWEST_FOR_MIXTURE:
        mixture = fit_mixture(values, components, seed)
    return Calibration.now(
        measure,
        values,
        method="mixture",
        n=values.size,
        top_k=top_k,
        vocabulary_size=vocabulary_size,
        lambda_=scale,
        p_target=p_target,
        gate=_gate(values, mixture, p_target),
        mixture=mixture,
        fingerprint=fingerprint or Fingerprint(),
    )


def posterior_upper(scores: Floats, mixture: Mixture) -> Floats:
    """P(z = 1 | r = t): membership in the higher-confidence component, at each score."""
    from scipy.special import expit
    from scipy.stats import norm

    components = zip(mixture.weights, mixture.means, mixture.stds, strict=True)
    low, high = (
        math.log(weight) + norm.logpdf(scores, mean, std)
        for weight, mean, std in components
    )
    return np.asarray(expit(high - low))


def _gate(scores: Floats, mixture: Mixture | None, p_target: float) -> Gate:
    if mixture is None:
        few = (
            f"{scores.size} responses are too few for a two-component mixture "
            f"({FEWEST_FOR_MIXTURE} at least)"
        )
        return Gate(threshold=None, closed_because=few)
    upper_mean = mixture.means[1]
    highest = float(scores.max())
    candidates = np.unique(scores[scores > mixture.means[0]])
    reached = candidates[posterior_upper(candidates, mixture) >= p_target]
    threshold: float | None = None
    target: float | None = None
    reason: str | None = None
    if not mixture.converged:
        reason = "the two-component mixture did not converge"
    elif not reached.size:
        reason = f"no score reaches a mixture posterior of {p_target:g}"
    else:
        target = float(reached[0])
        # Equal ones may differ by rounding.
        if upper_mean > highest + 1e-9 * float(scores.std()):
            reason = f"no score reaches the upper component's mean, {upper_mean:.4g}"
        else:
            threshold = max(min(upper_mean, highest), target)
    return Gate(
        threshold=threshold,
        mean_part=upper_mean,
        target_part=target,
        closed_because=reason,
    )


def fit_mixture(
    scores: Floats, components: Sequence[int] = (1, 2, 3, 4), seed: int = 0
) -> Mixture:
    """Fit mixtures to z-scores, so that the fit does not depend on the unit of the
    signal, and scale back.

    The gate uses the mixture of two components, which is fitted to convergence. The
    others only give AIC and BIC.

    Args:
        scores: shape (n,), at least :data:`FEWEST_FOR_MIXTURE`, finite and not all
            equal.
        components: the numbers of components, including 1 and 2.
        seed: the seed of the initialisation.

    Raises:
        CalibrationDataError: the scores are all equal.
    """
    mean = float(scores.mean())
    std = float(scores.std())
    # A smaller deviation is only rounding.
    if std <= 1e-9 * float(np.abs(scores).max()):
        raise CalibrationDataError(
            f"all {scores.size} scores equal {mean:g}, so no mixture can be fitted"
        )
    z = ((scores - mean) / std)[:, None]
    two = _two_components(z)
    fits = {}
    for k in components:
        fits[k] = two if k == 2 else _mixture(z, k, random_state=seed)
    order = np.argsort(two.means_[:, 0])
    # This makes AIC and BIC those of the raw scores.
    jacobian = 2 * scores.size * math.log(std)
    return Mixture(
        weights=tuple(two.weights_[order].tolist()),
        means=tuple((mean + std * two.means_[order, 0]).tolist()),
        stds=tuple((std * np.sqrt(two.covariances_[order, 0, 0])).tolist()),
        converged=bool(two.converged_),
        aic={k: float(fit.aic(z)) + jacobian for k, fit in fits.items()},
        bic={k: float(fit.bic(z)) + jacobian for k, fit in fits.items()},
    )


def _two_components(z: npt.NDArray[Any]) -> Any:
    """Return the most likely of the fits from several starts: cuts at deciles, and
    thirds against all scores.

    A component of a few equal scores has an unbounded likelihood, so such a fit is only
    the last resort.
    """
    ordered = np.sort(z[:, 0])
    n = ordered.size
    third = n // 3
    cuts = (n * np.arange(1, 10)) // 10
    starts = [(ordered[:cut], ordered[cut:]) for cut in cuts]
    for begin in (0, third, n - third):
        starts.append((ordered[begin : begin + third], ordered))
    fits = [_mixture(z, 2, tol=_ROUGH, **_start_from(*start)) for start in starts]

    def rank(fit: Any) -> tuple[bool, float]:
        is_narrow = fit.covariances_.min() < _NARROWEST**2
        is_light = fit.weights_.min() < max(_LEAST, 3 / n)
        return not (is_narrow or is_light), fit.score(z)

    # The likeliest come last.
    best = sorted(fits, key=rank)[-_TO_THE_END:]
    for fit in best:
        _fitted(fit.set_params(tol=1e-6, warm_start=True), z)
    return max(best, key=rank)


def _start_from(*parts: Floats) -> dict[str, Any]:
    sizes = np.array([part.size for part in parts])
    return {
        "means_init": [[part.mean()] for part in parts],
        "weights_init": sizes / sizes.sum(),
        "precisions_init": [[[1 / max(part.var(), _NARROWEST**2)]] for part in parts],
    }


def _mixture(z: npt.NDArray[Any], components: int, **options: Any) -> Any:
    from sklearn.mixture import GaussianMixture

    starts = 1 if components == 1 or "means_init" in options else 5
    mixture = GaussianMixture(
        components, max_iter=10_000, reg_covar=1e-4, n_init=starts, **options
    )
    return _fitted(mixture, z)


def _fitted(mixture: Any, z: npt.NDArray[Any]) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    # A few hundred scores take one thread 50 ms. Several threads take 50 times as long
    # on a busy machine.
    with warnings.catch_warnings(), _threads().limit(limits=1):
        # Convergence is read from .converged_ instead.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mixture.fit(z)


@cache
def _threads() -> Any:
    """Return the controller of the numerical libraries' threads; creating it takes a
    quarter as long as all fits.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class MixtureCalibrator:
    """Learns from the first responses of a running application, one at a time. Safe to
    call from several threads.

    The first calibration is made at ``minimum`` first responses; before, the caller
    counts votes (ASC). It is made again each time their number has grown by a quarter.
    """

    def __init__(
        self,
        *,
        measure: Measure,
        minimum: int = 64,
        p_target: float = 0.9,
        fingerprint: Fingerprint | None = None,
        seed: int = 0,
    ) -> None:
        self.measure = measure
        self._minimum = minimum
        self._p_target = p_target
        self._fingerprint = fingerprint
        self._seed = seed
        self._scores: list[float] = []
        self._provenance: dict[str, int] = {}
        self._calibration: Calibration | None = None
        self._lock = threading.Lock()

    @property
    def learns_of(self) -> tuple[Measure, Fingerprint | None]:
        """The measure and the model. Calibrators with the same can be exchanged."""
        return self.measure, self._fingerprint

    @property
    def calibration(self) -> Calibration | None:
        """The latest calibration; None before the first."""
        return self._calibration

    def observe(
        self,
        score: float,
        *,
        top_k: int | None = None,
        vocabulary_size: int | None = None,
    ) -> None:
        """Add the score of one first response.

        Args:
            score: S(y), the response's score.
            top_k: alternatives per token behind it, if known.
            vocabulary_size: V behind it, if known. A score with another k or V than the
                first is left out.

        Raises:
            CalibrationDataError: a score that is not finite, which would spoil every
                later fit.
        """
        if not math.isfinite(score):
            raise CalibrationDataError(f"the score of a first response is {score}")
        provenance = {"top_k": top_k, "vocabulary_size": vocabulary_size}
        with self._lock:
            for name, value in provenance.items():
                if value is None:
                    continue
                if self._provenance.setdefault(name, value) != value:
                    return
            self._scores.append(score)
            due = self._minimum
            if self._calibration is not None:
                due = math.ceil(1.25 * self._calibration.n)
            if len(self._scores) < due:
                return
            try:
                self._calibration = calibrate_mixture(
                    self._scores,
                    measure=self.measure,
                    p_target=self._p_target,
                    fingerprint=self._fingerprint,
                    seed=self._seed,
                    top_k=self._provenance.get("top_k"),
                    vocabulary_size=self._provenance.get("vocabulary_size"),
                )
            except CalibrationDataError:
                # All scores may be equal.
                self._calibration = None
