"""Response scores: the model's confidence in a whole response.

A response score S(y) condenses a token signal (:mod:`.token_signals`) into one float;
higher means more confident. Most scores read all tokens (:data:`SCORES`). Two are means
over the tokens of the answer or of the last step (:data:`SPAN_SCORES`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import (
    ConfidenceError,
    ConfigurationError,
    LogprobsUnavailable,
)
from langchain_reasc.method.token_signals import (
    SIGNALS,
    VERBALIZED,
    Floats,
    check_signals,
)

__all__ = [
    "SCORES",
    "SPAN_SCORES",
    "Measure",
    "Span",
    "Spans",
    "group_means",
    "response_score",
]

DEFAULT_WINDOW: Final = 128

Span = tuple[int, int]
"""A half-open range."""


class Spans(NamedTuple):
    """Half-open ranges of token indices in a response; None if a range is unknown.

    Attributes:
        answer_span: the tokens that spell any part of the answer, as in CoT-decoding
            (Wang & Zhou, arXiv 2402.10200).
        last_step: the tokens from the beginning of the line or sentence before the
            answer's own, up to the answer.
    """

    answer_span: Span | None = None
    last_step: Span | None = None


SPAN_SCORES: Final = Spans._fields
"""Scores that are the mean over one span of the response. They have no window."""


def group_means(token_signals: Floats, window: int) -> npt.NDArray[np.float64]:
    """Return the means of all sliding windows (stride 1). A response shorter than the
    window is one group.

    Args:
        token_signals: one signal value per generated token, shape (..., T).
        window: W, the number of tokens per group.

    Returns:
        Shape (..., max(1, T - W + 1)).
    """
    values = np.asarray(token_signals, dtype=np.float64)
    # Centring keeps the running sum small, so its rounding error stays below 1e-12 on
    # long responses.
    centre = values.mean(axis=-1, keepdims=True)
    if values.shape[-1] <= window:
        return np.asarray(centre)
    sums = np.concatenate(
        (np.zeros_like(centre), np.cumsum(values - centre, axis=-1)), axis=-1
    )
    means: npt.NDArray[np.float64] = (
        sums[..., window:] - sums[..., :-window]
    ) / window + centre
    return means


def _bottom_group(values: Floats, window: int) -> npt.NDArray[np.float64]:
    groups = group_means(values, window)
    lowest = max(1, groups.shape[-1] // 10)
    return np.asarray(np.partition(groups, lowest - 1)[..., :lowest].mean(axis=-1))


SCORES: Final[dict[str, Callable[[Floats, int], npt.NDArray[np.float64]]]] = {
    "bottom_group": _bottom_group,
    "mean": lambda values, window: np.asarray(values.mean(axis=-1)),
    "tail_group": lambda values, window: np.asarray(
        values[..., -window:].mean(axis=-1)
    ),
    "average_group": lambda values, window: np.asarray(
        group_means(values, window).mean(axis=-1)
    ),
    "lowest_group": lambda values, window: np.asarray(
        group_means(values, window).min(axis=-1)
    ),
}
"""Token signals of equally long responses, shape (..., T), and W -> scores, shape
(...).
"""


def response_score(
    token_signals: npt.ArrayLike,
    *,
    score: str = "bottom_group",
    window: int = DEFAULT_WINDOW,
) -> float:
    """Return S(y), one confidence for a whole response.

    ``bottom_group`` (Eq. 2, the paper's choice) averages the lowest
    ``max(1, floor(0.1 n))`` of the n group means; ``lowest_group`` takes the lowest,
    ``average_group`` the mean of all, ``tail_group`` the last group, ``mean`` all
    tokens.

    Args:
        token_signals: shape (T,), T ≥ 1, one signal value per generated token.
        score: a name in :data:`SCORES`.
        window: tokens per group, W ≥ 1. If T ≤ W, every score is the plain mean.

    Raises:
        ConfigurationError: the score is unknown, or the window is below 1.
        ConfidenceError: the signals are empty, not one-dimensional, or not finite.
    """
    _check_score(score, window)
    values = np.asarray(token_signals, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ConfidenceError(
            "a response needs one signal value per token, got an array of shape "
            f"{values.shape}"
        )
    if not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ConfidenceError(
            f"token signal {index} is {values[index]}; a confidence made of it would be "
            "meaningless"
        )
    return float(SCORES[score](values, window))


@dataclass(frozen=True, slots=True)
class Measure:
    """Defines the number S(y) of a response: a token signal, a score over it, and the
    score's window.

    The default is the paper's: self-certainty, bottom-10 % group confidence, W = 128.
    ``Measure("token_logprob", "answer_span")`` reads only the tokens that spell the
    answer. ``Measure("verbalized", "mean")`` is the confidence that the model states
    about itself (``confidence="stated"``).

    Attributes:
        signal: a name in :data:`~langchain_reasc.method.token_signals.SIGNALS`, or
            ``verbalized``.
        score: a name in :data:`SCORES` or :data:`SPAN_SCORES`.
        window: tokens per group, W ≥ 1. ``mean`` and the scores of a span have no
            window.
    """

    signal: str = "self_certainty"
    score: str = "bottom_group"
    window: int = DEFAULT_WINDOW

    def __post_init__(self) -> None:
        check_signals([self.signal], known=(*SIGNALS, VERBALIZED))
        _check_score(self.score, self.window, known=(*SCORES, *SPAN_SCORES))
        if self.of_span and self.signal == VERBALIZED:
            raise ConfigurationError(
                f"the stated confidence has no tokens, so score {self.score!r} does "
                "not apply; use 'mean'"
            )

    @property
    def of_span(self) -> bool:
        """Whether the score is a mean over one span of the response."""
        return self.score in SPAN_SCORES

    @property
    def windowed(self) -> bool:
        """Whether the score depends on the window."""
        return self.score != "mean" and not self.of_span

    def __call__(
        self, token_signals: Mapping[str, npt.ArrayLike], spans: Spans | None = None
    ) -> float:
        """Compute S(y) from a response's token signals (name -> shape (T,)) and its
        spans.

        Raises:
            LogprobsUnavailable: the response does not have this signal, or the span is
                unknown.
            ConfidenceError: the signal is empty or not finite, or ends before the span
                does.
        """
        if self.signal not in token_signals:
            names = ", ".join(token_signals) or "none"
            raise LogprobsUnavailable(
                f"the response has no {self.signal!r} signal (it has: {names})"
            )
        values = token_signals[self.signal]
        if self.of_span:
            return self._over(getattr(spans, self.score, None), np.asarray(values))
        return response_score(values, score=self.score, window=self.window)

    def _over(self, span: Span | None, values: npt.NDArray[np.floating[Any]]) -> float:
        if span is None:
            raise LogprobsUnavailable(
                f"no {self.score!r} score: its tokens are unknown (the answer is not "
                "spelled in the response as it was found, or the tokens came without "
                "their text); choose another score, or count such votes with "
                "on_missing_confidence='count'"
            )
        if not 0 <= span[0] < span[1] <= len(values):
            raise ConfidenceError(
                f"the {self.score!r} tokens {list(span)} are outside of the response's "
                f"{len(values)} tokens"
            )
        return response_score(values[slice(*span)], score="mean")

    def __str__(self) -> str:
        if self.windowed:
            return f"{self.signal}/{self.score}/W={self.window}"
        return f"{self.signal}/{self.score}"


def _check_score(score: str, window: int, known: Collection[str] = SCORES) -> None:
    if score not in known:
        raise ConfigurationError(
            f"unknown score {score!r}; choose one of {', '.join(known)}"
        )
    if window < 1:
        raise ConfigurationError(f"window must be at least 1 token, got {window}")
