"""Token signals: how confident the model was of each token, one float per generated token.

Higher means more confident. Signals describe the model's raw distribution, before temperature and truncation.
"""

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfidenceError, ConfigurationError

__all__ = ["SIGNALS", "check_signals", "signals_from_alternatives", "signals_from_logits"]

Floats = npt.NDArray[np.floating[Any]]

SIGNALS: Final = ("self_certainty", "kl_uniform", "top_k", "token_logprob", "neg_entropy")
_BLOCK = 32  # the top k are looked for only in the blocks whose maximum can hold one
_PIECE = 8192  # logits that fit the processor's cache


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
    ``log p(chosen)``; ``neg_entropy`` is ``Σ p log p``. All in nats.

    Args:
        logits: shape (n, V), one row per token, before temperature. Not modified.
        chosen: shape (n,), the sampled token ids.
        signals: which of :data:`SIGNALS` to compute.
        k: alternatives averaged by ``top_k``; at most V.
        scratch: a float32 array of at least (n, V), reused between calls so that nothing of size V is allocated.

    Returns:
        Signal name -> array of shape (n,).

    Raises:
        ConfigurationError: an unknown signal, or ``k`` outside 1..V.
        ConfidenceError: a result is not finite (a masked or broken logit).
    """
    check_signals(signals)
    n, vocabulary = logits.shape
    rows = np.arange(n)
    work = np.empty_like(logits) if scratch is None else scratch[:n, :vocabulary]
    peak = logits.max(axis=1)
    np.subtract(logits, peak[:, None], out=work)
    shifted_mean = work.mean(axis=1)
    shifted_chosen = work[rows, chosen]
    top = _top_mean(work, k) if "top_k" in signals else None
    probabilities = np.exp(work, out=work)
    total = probabilities.sum(axis=1)
    log_total = np.log(total)  # logsumexp of the shifted logits

    found: dict[str, Floats] = {}
    if "self_certainty" in signals:
        found["self_certainty"] = log_total - shifted_mean
    if "kl_uniform" in signals:
        found["kl_uniform"] = log_total - shifted_mean - np.float32(np.log(vocabulary))
    if top is not None:
        found["top_k"] = log_total - top
    if "token_logprob" in signals:
        found["token_logprob"] = shifted_chosen - log_total
    if "neg_entropy" in signals:
        found["neg_entropy"] = _expected_shift(probabilities, logits, peak) / total - log_total
    _finite(found)
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


def _expected_shift(weights: Floats, logits: Floats, peak: Floats) -> Floats:
    """``Σ w (z - peak)`` per row, in pieces so that nothing of size V is allocated.

    On the raw logits one product would do, but a common offset (GPT-2's lie near -100) would cost four digits.
    """
    expected = np.zeros_like(peak)
    for at in range(0, logits.shape[1], _PIECE):
        shifted = logits[:, at : at + _PIECE] - peak[:, None]
        expected += np.matmul(weights[:, None, at : at + _PIECE], shifted[:, :, None])[:, 0, 0]
    return expected


def _top_mean(rows: Floats, k: int) -> Floats:
    """Mean of the k largest values of each row, without sorting the row."""
    n, vocabulary = rows.shape
    if not 1 <= k <= vocabulary:
        raise ConfigurationError(f"top_k averages between 1 and {vocabulary} alternatives, got k={k}")
    whole = vocabulary - vocabulary % _BLOCK
    if whole < 8 * k * _BLOCK:  # too few blocks for the detour to pay
        return _largest_mean(rows, k)
    blocks = rows[:, :whole].reshape(n, -1, _BLOCK)
    maxima = blocks.max(axis=2)
    best = np.argpartition(maxima, maxima.shape[1] - k, axis=1)[:, -k:]  # the top k lie in the k best blocks
    held = np.take_along_axis(blocks, best[:, :, None], axis=1).reshape(n, -1)
    candidates = np.concatenate((held, rows[:, whole:]), axis=1)
    return _largest_mean(candidates, k)


def _largest_mean(rows: Floats, k: int) -> Floats:
    means: Floats = np.partition(rows, rows.shape[1] - k, axis=1)[:, -k:].mean(axis=1)
    return means


def check_signals(signals: Collection[str]) -> None:
    """Refuse names that are no signal, with the list of those that are."""
    unknown = [name for name in signals if name not in SIGNALS]
    if unknown:
        raise ConfigurationError(f"unknown signal {unknown[0]!r}; choose from {', '.join(SIGNALS)}")


def _finite(found: dict[str, Floats]) -> None:
    for name, values in found.items():
        if not np.isfinite(values).all():
            raise ConfidenceError(f"signal {name!r} is not finite; the model returned a masked or broken probability")
