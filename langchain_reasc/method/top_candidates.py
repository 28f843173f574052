"""The k most likely tokens of a row of logits, without sorting the vocabulary."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["WORTHWHILE", "top_candidates"]

Floats = npt.NDArray[np.floating[Any]]

_FOLDS: Final = 64  # about sqrt(V / k), which balances the two partitions
WORTHWHILE: Final = 10_000
"""Below this many logits, one partition of all of them is faster than looking for the columns that matter."""


def top_candidates(row: Floats, k: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """The k largest logits of a row and where they are; exact, and equal logits come in the order of their ids.

    The row is folded into 64 lines and the maximum of each column taken, which runs at the speed of memory: the k
    largest values lie in the k columns with the largest maxima, so only those are looked into.

    Args:
        row: the logits, shape (V,), contiguous. Not modified.
        k: how many; all V where it is larger.

    Returns:
        Token ids, shape (min(k, V),), from the most likely down, and their logits. Where logits are NaN, that many
        valid ids still, but which is undefined.

    Raises:
        ConfigurationError: ``k`` is below 1.
    """
    if k < 1:
        raise ConfigurationError(f"at least 1 candidate must be asked for, got k={k}")
    columns = row.size // _FOLDS
    if row.size < WORTHWHILE or k >= columns:
        ids = _reach(row, _kth_largest(row, min(k, row.size)))
    else:
        folded = row.size - row.size % _FOLDS
        maxima = row[:folded].reshape(_FOLDS, columns).max(axis=0)
        bound = _kth_largest(maxima, k)
        looked_at = (np.arange(0, folded, columns)[:, None] + _reach(maxima, bound)).ravel()
        ids = looked_at[_reach(row[looked_at], bound)]
        if folded < row.size:
            ids = np.concatenate((ids, folded + _reach(row[folded:], bound)))
    logits = row[ids]
    order = (-logits).argsort(kind="stable")[:k]  # ids ascend, so a stable sort keeps equals in their order
    return ids[order], logits[order]


def _kth_largest(values: Floats, k: int) -> np.floating[Any]:
    partitioned = values.copy()
    partitioned.partition(values.size - k)
    kth: np.floating[Any] = partitioned[values.size - k]
    return kth


def _reach(values: Floats, bound: np.floating[Any]) -> npt.NDArray[np.intp]:
    """Where values are at least the bound, or NaN, which ``partition`` takes for the largest."""
    return (~(values < bound)).nonzero()[0]
