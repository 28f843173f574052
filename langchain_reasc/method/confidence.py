"""Response scores: how confident the model was of a whole response.

A response score S(y) condenses a token signal (:mod:`.token_signals`) into one float; higher means more confident.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED, Floats, check_signals

__all__ = ["SCORES", "Measure", "group_means", "response_score"]

DEFAULT_WINDOW: Final = 128


def group_means(token_signals: Floats, window: int) -> npt.NDArray[np.float64]:
    """Means of all sliding windows (stride 1); a response shorter than the window is one group.

    Args:
        token_signals: one signal value per generated token, shape (..., T).
        window: W, the number of tokens per group.

    Returns:
        Shape (..., max(1, T - W + 1)).
    """
    values = np.asarray(token_signals, dtype=np.float64)
    # Centring first keeps the running sum small, so its rounding stays below 1e-12 on long responses.
    centre = values.mean(axis=-1, keepdims=True)
    if values.shape[-1] <= window:
        return np.asarray(centre)
    sums = np.concatenate((np.zeros_like(centre), np.cumsum(values - centre, axis=-1)), axis=-1)
    means: npt.NDArray[np.float64] = (sums[..., window:] - sums[..., :-window]) / window + centre
    return means


def _bottom_group(values: Floats, window: int) -> npt.NDArray[np.float64]:
    groups = group_means(values, window)
    lowest = max(1, groups.shape[-1] // 10)
    return np.asarray(np.partition(groups, lowest - 1)[..., :lowest].mean(axis=-1))


SCORES: Final[dict[str, Callable[[Floats, int], npt.NDArray[np.float64]]]] = {
    "bottom_group": _bottom_group,
    "mean": lambda values, window: np.asarray(values.mean(axis=-1)),
    "tail_group": lambda values, window: np.asarray(values[..., -window:].mean(axis=-1)),
    "average_group": lambda values, window: np.asarray(group_means(values, window).mean(axis=-1)),
    "lowest_group": lambda values, window: np.asarray(group_means(values, window).min(axis=-1)),
}
"""Token signals of responses that are equally long, shape (..., T), and W -> their scores, shape (...)."""


def response_score(token_signals: npt.ArrayLike, *, score: str = "bottom_group", window: int = DEFAULT_WINDOW) -> float:
    """S(y): one confidence for a whole response.

    ``bottom_group`` (Eq. 2, the paper's choice) averages the lowest ``max(1, floor(0.1 n))`` of the n group means;
    ``lowest_group`` takes the lowest, ``average_group`` the mean of all, ``tail_group`` the last group, ``mean`` all
    tokens.

    Args:
        token_signals: shape (T,), T ≥ 1, one signal value per generated token.
        score: a name in :data:`SCORES`.
        window: tokens per group, W ≥ 1; where T ≤ W every score is the plain mean.

    Raises:
        ConfigurationError: an unknown score or a window below 1.
        ConfidenceError: no tokens, not one-dimensional, or a value that is not finite.
    """
    _check_score(score, window)
    values = np.asarray(token_signals, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ConfidenceError(f"a response needs one signal value per token, got an array of shape {values.shape}")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ConfidenceError(f"token signal {at} is {values[at]}; a confidence made of it would be meaningless")
    return float(SCORES[score](values, window))


@dataclass(frozen=True, slots=True)
class Measure:
    """How a response becomes one number S(y): a token signal, a score over it, and the score's window.

    The default is the paper's own: self-certainty, bottom-10 % group confidence, W = 128. ``Measure("verbalized",
    "mean")`` is what the model says of itself instead, where it was asked to (``ask_confidence=True``).
    """

    signal: str = "self_certainty"
    score: str = "bottom_group"
    window: int = DEFAULT_WINDOW

    def __post_init__(self) -> None:
        check_signals([self.signal], known=(*SIGNALS, VERBALIZED))
        _check_score(self.score, self.window)

    def __call__(self, token_signals: Mapping[str, npt.ArrayLike]) -> float:
        """S(y) from a response's token signals (name -> shape (T,)).

        Raises:
            LogprobsUnavailable: the response does not carry this signal.
            ConfidenceError: the signal is empty or not finite.
        """
        if self.signal not in token_signals:
            held = ", ".join(token_signals) or "none"
            raise LogprobsUnavailable(f"the response carries no {self.signal!r} signal (it carries: {held})")
        return response_score(token_signals[self.signal], score=self.score, window=self.window)

    def __str__(self) -> str:
        return f"{self.signal}/mean" if self.score == "mean" else f"{self.signal}/{self.score}/W={self.window}"


def _check_score(score: str, window: int) -> None:
    if score not in SCORES:
        raise ConfigurationError(f"unknown score {score!r}; choose one of {', '.join(SCORES)}")
    if window < 1:
        raise ConfigurationError(f"window must be at least 1 token, got {window}")
