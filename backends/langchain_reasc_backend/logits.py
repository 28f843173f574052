"""Token signals and log-probabilities from raw logits, exact over the whole vocabulary.

Sums use ``np.einsum``: as fast as BLAS here, but it starts no threads, which would wait
in a loop on the cores that the model decodes on.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.token_signals import SIGNALS, check_finite, check_signals

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

CHUNK: Final = 1 << 17
"""Logits worked on at a time: with a small vocabulary numpy costs per call, with a
large one per byte out of cache.
"""
_UNSHIFTED: Final = (
    40.0  # logits up to here are not shifted: their exp neither overflows nor vanishes
)
# values summed in float32, to within 1e-6 of the largest; the pieces' sums are summed
# in float64
_PIECE: Final = 128
_SHIFTED: Final = 1 << 14  # values shifted at a time where there is no scratch for all
_FOLDS: Final = 64  # about sqrt(V / k), which balances the two partitions
_FOLDED_FROM: Final = (
    10_000  # logits; fewer are partitioned as a whole, which is faster
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhichStatistics:
    """What to find besides ``log_total``.

    Attributes:
        mean: whether to find the mean.
        expected: whether to find the expected logit.
        top: how many of the largest logits to find, 0 to V.
        ids: whether to find their token ids too.
    """

    mean: bool = False
    expected: bool = False
    top: int = 0
    ids: bool = False


@dataclass(frozen=True, slots=True)
class RowStatistics:
    """Statistics of n rows of logits z of shape (V,), in float64; None if not asked
    for.

    Attributes:
        log_total: shape (n,), ``log Σ exp z``.
        mean: shape (n,), ``Σ z / V``.
        expected: shape (n,), ``Σ p z`` with ``p = exp(z - log_total)``.
        top: shape (n, k), the k largest logits, from the largest down.
        top_ids: shape (n, k), their token ids.
    """

    log_total: Floats
    mean: Floats | None
    expected: Floats | None
    top: Floats | None
    top_ids: Integers | None


# values that are not finite are reported as an error, not as a warning
@np.errstate(invalid="ignore")
def signals_from_logits(
    logits: Floats,
    chosen: npt.NDArray[np.integer[Any]],
    *,
    signals: Collection[str] = SIGNALS,
    k: int = 20,
    scratch: Floats | None = None,
) -> dict[str, Floats]:
    """Return token signals from raw logits, exact over the whole vocabulary.

    ``self_certainty`` is Eq. 1 of ReASC, ``-(1/V) Σ log p = logsumexp(z) - mean(z)``;
    ``kl_uniform`` subtracts ``log V`` (Kang et al. 2025); ``top_k`` is
    ``-(1/k) Σ_{j≤k} log p_j`` (DeepConf); ``token_logprob`` is ``log p(chosen)``;
    ``neg_entropy`` is ``Σ p log p``. All in nats, within 1e-4 of a float64 computation,
    or within 1e-6 of the value where that is more: float32 holds a value near 1e3 to
    6e-5.

    Args:
        logits: shape (n, V), one row per token, before temperature. Not modified.
        chosen: shape (n,), the sampled token ids.
        signals: which of :data:`~langchain_reasc.method.token_signals.SIGNALS` to
            compute.
        k: how many alternatives ``top_k`` averages; at most V.
        scratch: a float32 array of at least (n, V), reused between calls so that
            nothing of size V is allocated.

    Returns:
        Signal name -> array of shape (n,), of the logits' type.

    Raises:
        ConfigurationError: an unknown signal, or ``k`` outside 1..V.
        ConfidenceError: a result is not finite (a masked or broken logit).
    """
    if not signals or not len(logits):
        return {name: np.empty(0, logits.dtype) for name in signals}
    rows = row_statistics(
        logits, statistics_for(signals, k, logits.shape[1]), scratch=scratch
    )
    drawn = (
        logits[np.arange(len(logits)), chosen] if "token_logprob" in signals else None
    )
    found = signals_from_statistics(rows, drawn, logits.shape[1], signals=signals, k=k)
    check_finite(found)
    return {name: values.astype(logits.dtype) for name, values in found.items()}


def statistics_for(
    signals: Collection[str], k: int, vocabulary_size: int
) -> WhichStatistics:
    """Return which :func:`row_statistics` these signals need.

    Raises:
        ConfigurationError: an unknown signal, or ``k`` outside 1..V.
    """
    check_signals(signals)
    if "top_k" in signals and not 1 <= k <= vocabulary_size:
        raise ConfigurationError(
            f"top_k averages between 1 and {vocabulary_size} alternatives, got k={k}"
        )
    return WhichStatistics(
        mean="self_certainty" in signals or "kl_uniform" in signals,
        expected="neg_entropy" in signals,
        top=k if "top_k" in signals else 0,
    )


def signals_from_statistics(
    rows: RowStatistics,
    chosen: Floats | None,
    vocabulary_size: int,
    *,
    signals: Collection[str],
    k: int,
) -> dict[str, Floats]:
    """Return token signals in float64 from the statistics that :func:`statistics_for`
    names, finite or not.

    The caller silences numpy's warnings about values that are not finite.

    Args:
        rows: statistics of n rows of logits.
        chosen: shape (n,), the logits of the sampled tokens; only ``token_logprob``
            needs them.
        vocabulary_size: V, the number of tokens in the vocabulary.
        signals: which of :data:`~langchain_reasc.method.token_signals.SIGNALS` to
            compute.
        k: how many alternatives ``top_k`` averages.
    """
    found: dict[str, Floats] = {}
    for name in signals:
        if name == "token_logprob" and chosen is not None:
            # rounding puts certain tokens above
            found[name] = np.minimum(chosen - rows.log_total, 0)
        elif name == "top_k" and rows.top is not None:
            found[name] = rows.log_total - rows.top[:, :k].mean(
                axis=1, dtype=np.float64
            )
        elif name == "neg_entropy" and rows.expected is not None:
            found[name] = rows.expected - rows.log_total
        elif rows.mean is not None:
            found[name] = (
                rows.log_total
                - rows.mean
                - (np.log(vocabulary_size) if name == "kl_uniform" else 0)
            )
    return found


def row_statistics(
    logits: Floats, which: WhichStatistics, *, scratch: Floats | None = None
) -> RowStatistics:
    """Return statistics of rows of logits, within 1e-4 of their exact values, or 1e-6
    of them where that is more.

    Logits that are not finite show in the results; the caller silences numpy's warnings
    of them.

    Args:
        logits: shape (n, V), n ≥ 1. Not modified.
        which: what to find.
        scratch: shape (at least min(n, max(1, CHUNK // V)), at least V); with it
            nothing of size V is allocated.
    """
    n, vocabulary = logits.shape
    step = max(1, CHUNK // vocabulary)
    if scratch is None:
        scratch = np.empty((min(n, step), vocabulary), dtype=logits.dtype)
    parts = []
    for at in range(0, n, step):
        rows = logits[at : at + step]
        work = scratch[: len(rows), :vocabulary]
        top, ids = _top(rows, work, which) if which.top else (None, None)
        parts.append(RowStatistics(*_moments(rows, work, which, top), top, ids))
    return parts[0] if len(parts) == 1 else _concatenated(parts)


def _moments(
    rows: Floats, work: Floats, which: WhichStatistics, top: Floats | None
) -> tuple[Floats, Floats | None, Floats | None]:
    """``log_total``, ``mean`` and ``expected``.

    Rows are shifted by their peak only where they must be, which the total tells: it
    lies between exp(peak) and V times that. Rounding then is relative to the distance
    from the peak, which ``log_total - mean`` exceeds on average.
    """
    vocabulary = rows.shape[1]
    mean = _sums(rows) / vocabulary if which.mean else None
    with np.errstate(over="ignore"):
        total = _sums(np.exp(rows, out=work))
    if (
        (total <= math.exp(_UNSHIFTED)) & (total >= vocabulary * math.exp(-_UNSHIFTED))
    ).all():
        return (
            np.log(total),
            mean,
            _dots(work, rows) / total if which.expected else None,
        )
    peak = rows.max(axis=1) if top is None else top[:, 0]
    shift = peak * ~(np.abs(peak) <= _UNSHIFTED)  # NaN stays NaN
    np.subtract(rows, shift[:, None], out=work)
    mean = _sums(work) / rows.shape[1] + shift if which.mean else None
    total = _sums(np.exp(work, out=work))
    expected = _dots(work, rows) / total if which.expected else None
    if expected is not None:
        for row in shift.nonzero()[0]:
            expected[row] = (
                _shifted_dot(work[row], rows[row], shift[row]) / total[row] + shift[row]
            )
    return np.log(total) + shift, mean, expected


def _sums(rows: Floats) -> Floats:
    """``Σ z`` of each row, shape (n,), in float64."""
    n, vocabulary = rows.shape
    width, whole = _pieces(vocabulary)
    sums: Floats = np.einsum("nij->ni", rows[:, :whole].reshape(n, -1, width)).sum(
        axis=1, dtype=np.float64
    )
    if whole < vocabulary:
        sums += np.einsum("ni->n", rows[:, whole:])
    return sums


def _dots(weights: Floats, rows: Floats) -> Floats:
    """``Σ w z`` of each row, shape (n,), in float64."""
    n, vocabulary = rows.shape
    width, whole = _pieces(vocabulary)
    pieces = (each[:, :whole].reshape(n, -1, width) for each in (weights, rows))
    sums: Floats = np.einsum("nij,nij->ni", *pieces).sum(axis=1, dtype=np.float64)
    if whole < vocabulary:
        sums += np.einsum("ni,ni->n", weights[:, whole:], rows[:, whole:])
    return sums


@cache
def _pieces(vocabulary: int) -> tuple[int, int]:
    """Width of the pieces that rows are summed in, and how many values fill pieces:
    all, where a width allows it.
    """
    width = next(
        (width for width in range(_PIECE, _PIECE // 2, -1) if vocabulary % width == 0),
        _PIECE,
    )
    return width, vocabulary - vocabulary % width


def _shifted_dot(weights: Floats, row: Floats, shift: np.floating[Any]) -> float:
    """``Σ w (z - shift)`` of one row, in pieces, as the weights have taken the scratch."""
    total = 0.0
    for at in range(0, row.size, _SHIFTED):
        piece = slice(at, at + _SHIFTED)
        total += float(_dots(weights[None, piece], (row[piece] - shift)[None])[0])
    return total


def _top(
    rows: Floats, work: Floats, which: WhichStatistics
) -> tuple[Floats, Integers | None]:
    """Return the k largest logits of each row and, where asked, their ids."""
    (n, vocabulary), k = rows.shape, which.top
    if vocabulary >= _FOLDED_FROM:
        return _top_by_row(rows, k)
    np.copyto(work, rows)
    work.partition(vocabulary - k, axis=1)
    best = -np.sort(-work[:, vocabulary - k :], axis=1)
    if not which.ids:
        return best, None
    places = (rows >= best[:, -1:]).ravel().nonzero()[0]
    if len(places) != n * k:  # equal logits, or NaN
        return _top_by_row(rows, k)
    where = places.reshape(n, k) - np.arange(0, n * vocabulary, vocabulary)[:, None]
    order = np.argsort(-np.take_along_axis(rows, where, axis=1), axis=1, kind="stable")
    return best, np.take_along_axis(where, order, axis=1)


def _top_by_row(rows: Floats, k: int) -> tuple[Floats, Integers]:
    found = [top_candidates(row, k) for row in rows]
    return np.array([logits for _, logits in found]), np.array(
        [ids for ids, _ in found]
    )


def _concatenated(parts: list[RowStatistics]) -> RowStatistics:
    columns: list[list[Any]] = [
        [getattr(part, each.name) for part in parts] for each in fields(RowStatistics)
    ]
    joined: list[Any] = [
        None if column[0] is None else np.concatenate(column) for column in columns
    ]
    return RowStatistics(*joined)


def top_candidates(row: Floats, k: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return the k largest logits of a row and their ids; exact, equal logits in the
    order of their ids.

    The row is folded into 64 lines and the maximum of each column taken, which runs at
    the speed of memory: the k largest values lie in the k columns with the largest
    maxima, so only those are looked into.

    Args:
        row: the logits, shape (V,), contiguous. Not modified.
        k: how many; all V where it is larger.

    Returns:
        Token ids, shape (min(k, V),), from the most likely down, and their logits.
        Where logits are NaN, that many valid ids still, but which is undefined.

    Raises:
        ConfigurationError: ``k`` is below 1.
    """
    if k < 1:
        raise ConfigurationError(f"at least 1 candidate must be asked for, got k={k}")
    columns = row.size // _FOLDS
    if row.size < _FOLDED_FROM or k >= columns:
        ids = _places_at_least(row, _kth_largest(row, min(k, row.size)))
    else:
        folded = row.size - row.size % _FOLDS
        maxima = row[:folded].reshape(_FOLDS, columns).max(axis=0)
        bound = _kth_largest(maxima, k)
        looked_at = (
            np.arange(0, folded, columns)[:, None] + _places_at_least(maxima, bound)
        ).ravel()
        ids = looked_at[_places_at_least(row[looked_at], bound)]
        if folded < row.size:
            ids = np.concatenate((ids, folded + _places_at_least(row[folded:], bound)))
    logits = row[ids]
    order = (-logits).argsort(kind="stable")[
        :k
    ]  # ids ascend, so a stable sort keeps equals in their order
    return ids[order], logits[order]


def _kth_largest(values: Floats, k: int) -> np.floating[Any]:
    partitioned = values.copy()
    partitioned.partition(values.size - k)
    kth: np.floating[Any] = partitioned[values.size - k]
    return kth


def _places_at_least(values: Floats, bound: np.floating[Any]) -> npt.NDArray[np.intp]:
    """Return where values are at least the bound, or NaN, which ``partition`` takes for
    the largest.
    """
    return (~(values < bound)).nonzero()[0]
