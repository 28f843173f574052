"""The k most likely tokens of a row of logits, without sorting the vocabulary."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["top_candidates"]

_FOLDS: Final = 64  # about sqrt(V / k), which balances the two partitions
_WORTHWHILE: Final = 10_000  # below this many logits one partition of all of them is faster


def top_candidates(
    row: npt.NDArray[np.floating[Any]], k: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.floating[Any]]]:
    """The k largest logits of a row and where they are; exact, and equal logits come in the order of their ids.

    The row is folded into 64 lines and the maximum of each column taken, which runs at the speed of memory: the k
    largest values lie in the k columns with the largest maxima, so only those are looked into.

    Args:
        row: shape (V,), contiguous. Not modified.
        k: how many; all V where it is larger.

    Returns:
        Token ids, shape (min(k, V),), from the most likely down, and their logits. Where logits are NaN, that many
        valid ids still, but which is undefined.

    Raises:
        ConfigurationError: ``k`` is below 1.
    """
    if k < 1:
        raise ConfigurationError(f"at least 1 candidate must be asked for, got k={k}")
    size = row.size
    columns = size // _FOLDS
    if size < _WORTHWHILE or k >= columns:
        ids = np.flatnonzero(_reaches(row, _kth_largest(row, min(k, size))))
    else:
        folded = row[: columns * _FOLDS].reshape(_FOLDS, columns)
        maxima = folded.max(axis=0)
        bound = _kth_largest(maxima, k)
        held = np.flatnonzero(_reaches(maxima, bound))
        line, at = np.divmod(np.flatnonzero(_reaches(folded[:, held], bound)), held.size)
        rest = columns * _FOLDS
        ids = np.concatenate((line * columns + held[at], rest + np.flatnonzero(_reaches(row[rest:], bound))))
    logits = row[ids]
    order = np.argsort(-logits, kind="stable")[:k]  # ids ascend, so a stable sort keeps equals in their order
    return ids[order], logits[order]


def _kth_largest(values: npt.NDArray[np.floating[Any]], k: int) -> np.floating[Any]:
    kth: np.floating[Any] = np.partition(values, values.size - k)[values.size - k]
    return kth


def _reaches(values: npt.NDArray[np.floating[Any]], bound: np.floating[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value is at least the bound, or NaN, which ``partition`` takes for the largest."""
    return ~(values < bound)
