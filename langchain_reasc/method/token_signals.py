"""Token signals: the model's confidence in each generated token.

Higher means more confident. Signals describe the model's raw distribution, before
temperature and truncation.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError

__all__ = [
    "SIGNALS",
    "VERBALIZED",
    "check_finite",
    "check_signals",
    "signals_from_alternatives",
]

Floats = npt.NDArray[np.floating[Any]]

SIGNALS: Final = (
    "self_certainty",
    "kl_uniform",
    "top_k",
    "token_logprob",
    "neg_entropy",
)
"""The signals of a token; higher means more confident."""

VERBALIZED: Final = "verbalized"
"""Stated (verbalised) confidence: one number from 0 to 1 that the model states about a
whole response. It is not a signal of tokens; the number is the response's score.
"""


@np.errstate(invalid="ignore")
def signals_from_alternatives(
    chosen: Floats,
    alternatives: Floats,
    *,
    signals: Collection[str] = ("top_k", "token_logprob", "neg_entropy"),
) -> dict[str, Floats]:
    """Return token signals from the log-probabilities that a server returns.

    ``top_k`` averages the k returned alternatives; ``neg_entropy`` renormalises over
    them. ``self_certainty`` and ``kl_uniform`` need the whole vocabulary, so they
    cannot be computed here.

    Args:
        chosen: shape (T,), log p of each generated token, in nats.
        alternatives: shape (T, k), log p of the k most likely tokens; (T, 0) if none
            were returned.
        signals: which of :data:`SIGNALS` to compute.

    Returns:
        Signal name -> array of shape (T,).

    Raises:
        ConfigurationError: a signal cannot be computed from these data.
        ConfidenceError: a value is not finite, or the two arrays disagree on T.
    """
    check_signals(signals)
    if len(chosen) != len(alternatives):
        raise ConfidenceError(
            f"{len(chosen)} tokens were generated, but alternatives came for "
            f"{len(alternatives)}"
        )
    by_name: dict[str, Floats] = {}
    for name in signals:
        if name == "token_logprob":
            by_name[name] = np.asarray(chosen, dtype=float)
        elif name in ("self_certainty", "kl_uniform"):
            raise ConfigurationError(
                f"signal {name!r} needs the model's whole distribution; a server that "
                "returns alternatives can give 'top_k', 'token_logprob' or "
                "'neg_entropy'"
            )
        elif alternatives.shape[1] == 0:
            raise ConfigurationError(
                f"signal {name!r} needs alternatives, but none were returned; "
                "request top_logprobs, or use 'token_logprob'"
            )
        elif name == "top_k":
            by_name[name] = -alternatives.mean(axis=1)
        else:
            log_p = alternatives - np.logaddexp.reduce(
                alternatives, axis=1, keepdims=True
            )
            by_name[name] = (np.exp(log_p) * log_p).sum(axis=1)
    check_finite(by_name)
    return by_name


def check_signals(signals: Collection[str], *, known: Sequence[str] = SIGNALS) -> None:
    """Require known names of signals."""
    unknown = [name for name in signals if name not in known]
    if unknown:
        raise ConfigurationError(
            f"unknown signal {unknown[0]!r}; choose from {', '.join(known)}"
        )


def check_finite(found: Mapping[str, Floats]) -> None:
    """Require finite signals.

    Raises:
        ConfidenceError: a signal is not finite; the error names it.
    """
    for name, values in found.items():
        if not np.isfinite(values).all():
            raise ConfidenceError(
                f"signal {name!r} is not finite; the model returned a masked or broken "
                "probability"
            )
