"""Token signals: how confident the model was of each token, one float per generated token.

Higher means more confident. Signals describe the model's raw distribution, before temperature and truncation.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError
from langchain_reasc.method.row_statistics import RowStatistics, WhichStatistics, row_statistics

__all__ = [
    "SIGNALS",
    "VERBALIZED",
    "check_signals",
    "signals_from_alternatives",
    "signals_from_logits",
    "signals_from_statistics",
    "statistics_for",
]

Floats = npt.NDArray[np.floating[Any]]

SIGNALS: Final = ("self_certainty", "kl_uniform", "top_k", "token_logprob", "neg_entropy")

VERBALIZED: Final = "verbalized"
"""Stated (verbalised) confidence: what the model says of itself. Not a signal of tokens, but one number for a whole
response, 0 to 1, of which every score is that number."""


@np.errstate(invalid="ignore")  # what is not finite is reported as an error, not as a warning
def signals_from_logits(
    logits: Floats,
    chosen: npt.NDArray[np.integer[Any]],
    *,
    signals: Collection[str] = SIGNALS,
    k: int = 20,
    scratch: Floats | None = None,
) -> dict[str, Floats]:
    """Token signals from raw logits, exact over the whole vocabulary.

    ``self_certainty`` is Eq. 1 of ReASC, ``-(1/V) Σ log p = logsumexp(z) - mean(z)``; ``kl_uniform`` subtracts
    ``log V`` (Kang et al. 2025); ``top_k`` is ``-(1/k) Σ_{j≤k} log p_j`` (DeepConf); ``token_logprob`` is
    ``log p(chosen)``; ``neg_entropy`` is ``Σ p log p``. All in nats, within 1e-4 of a float64 computation, or within
    1e-6 of the value where that is more: float32 holds a value near 1e3 to 6e-5.

    Args:
        logits: shape (n, V), one row per token, before temperature. Not modified.
        chosen: shape (n,), the sampled token ids.
        signals: which of :data:`SIGNALS` to compute.
        k: how many alternatives ``top_k`` averages; at most V.
        scratch: a float32 array of at least (n, V), reused between calls so that nothing of size V is allocated.

    Returns:
        Signal name -> array of shape (n,), of the logits' type.

    Raises:
        ConfigurationError: an unknown signal, or ``k`` outside 1..V.
        ConfidenceError: a result is not finite (a masked or broken logit).
    """
    if not signals or not len(logits):
        return {name: np.empty(0, logits.dtype) for name in signals}
    rows = row_statistics(logits, statistics_for(signals, k, logits.shape[1]), scratch=scratch)
    drawn = logits[np.arange(len(logits)), chosen] if "token_logprob" in signals else None
    found = signals_from_statistics(rows, drawn, logits.shape[1], signals=signals, k=k)
    _finite(found)
    return {name: values.astype(logits.dtype) for name, values in found.items()}


def statistics_for(signals: Collection[str], k: int, vocabulary_size: int) -> WhichStatistics:
    """Which :func:`row_statistics` these signals are made of.

    Raises:
        ConfigurationError: an unknown signal, or ``k`` outside 1..V.
    """
    check_signals(signals)
    if "top_k" in signals and not 1 <= k <= vocabulary_size:
        raise ConfigurationError(f"top_k averages between 1 and {vocabulary_size} alternatives, got k={k}")
    return WhichStatistics(
        mean="self_certainty" in signals or "kl_uniform" in signals,
        expected="neg_entropy" in signals,
        top=k if "top_k" in signals else 0,
    )


def signals_from_statistics(
    rows: RowStatistics, chosen: Floats | None, vocabulary_size: int, *, signals: Collection[str], k: int
) -> dict[str, Floats]:
    """Token signals in float64 from what :func:`statistics_for` asked for, finite or not.

    The caller silences numpy's warnings of what is not finite.

    Args:
        rows: statistics of n rows of logits.
        chosen: shape (n,), the logits of the sampled tokens; only ``token_logprob`` needs them.
        vocabulary_size: V, the number of tokens in the vocabulary.
        signals: which of :data:`SIGNALS` to compute.
        k: how many alternatives ``top_k`` averages.
    """
    found: dict[str, Floats] = {}
    for name in signals:
        if name == "token_logprob" and chosen is not None:
            found[name] = np.minimum(chosen - rows.log_total, 0)  # rounding puts certain tokens above
        elif name == "top_k" and rows.top is not None:
            found[name] = rows.log_total - rows.top[:, :k].mean(axis=1, dtype=np.float64)
        elif name == "neg_entropy" and rows.expected is not None:
            found[name] = rows.expected - rows.log_total
        elif rows.mean is not None:
            found[name] = rows.log_total - rows.mean - (np.log(vocabulary_size) if name == "kl_uniform" else 0)
    return found


@np.errstate(invalid="ignore")
def signals_from_alternatives(
    chosen: Floats,
    alternatives: Floats,
    *,
    signals: Collection[str] = ("top_k", "token_logprob", "neg_entropy"),
) -> dict[str, Floats]:
    """Token signals from the log-probabilities that a server returns.

    ``top_k`` averages the k returned alternatives; ``neg_entropy`` renormalises over them. ``self_certainty`` and
    ``kl_uniform`` need the whole vocabulary and cannot be had here.

    Args:
        chosen: shape (T,), log p of each generated token, in nats.
        alternatives: shape (T, k), log p of the k most likely tokens; (T, 0) when none were returned.
        signals: which of :data:`SIGNALS` to compute.

    Returns:
        Signal name -> array of shape (T,).

    Raises:
        ConfigurationError: a signal that these data cannot give.
        ConfidenceError: a value is not finite, or the two disagree on T.
    """
    check_signals(signals)
    if len(chosen) != len(alternatives):
        raise ConfidenceError(f"{len(chosen)} tokens were generated, but alternatives came for {len(alternatives)}")
    found: dict[str, Floats] = {}
    for name in signals:
        if name == "token_logprob":
            found[name] = np.asarray(chosen, dtype=float)
        elif name in ("self_certainty", "kl_uniform"):
            raise ConfigurationError(
                f"signal {name!r} needs the model's whole distribution; a server that returns alternatives can give "
                "'top_k', 'token_logprob' or 'neg_entropy'"
            )
        elif alternatives.shape[1] == 0:
            raise ConfigurationError(
                f"signal {name!r} needs alternatives, but none were returned; "
                "request top_logprobs, or use 'token_logprob'"
            )
        elif name == "top_k":
            found[name] = -alternatives.mean(axis=1)
        else:
            log_p = alternatives - np.logaddexp.reduce(alternatives, axis=1, keepdims=True)
            found[name] = (np.exp(log_p) * log_p).sum(axis=1)
    _finite(found)
    return found


def check_signals(signals: Collection[str], *, known: Sequence[str] = SIGNALS) -> None:
    """Refuse names that are no signal, with the list of those that are."""
    unknown = [name for name in signals if name not in known]
    if unknown:
        raise ConfigurationError(f"unknown signal {unknown[0]!r}; choose from {', '.join(known)}")


def _finite(found: dict[str, Floats]) -> None:
    for name, values in found.items():
        if not np.isfinite(values).all():
            raise ConfidenceError(f"signal {name!r} is not finite; the model returned a masked or broken probability")
