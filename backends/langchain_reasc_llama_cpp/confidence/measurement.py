"""What a request wants to know of every generated token, and how it is found in the rows of logits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_reasc_backend.logits import WhichStatistics, row_statistics, signals_from_statistics, statistics_for

from langchain_reasc_llama_cpp.confidence.token_logprobs import TokenLogprobs

__all__ = ["Measured", "Wanted", "measure", "wants"]

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out about every generated token.

    Attributes:
        signals: token signals by name.
        k: how many alternatives ``top_k`` averages; all V where it is larger.
        logprobs: the likeliest tokens to give in OpenAI's shape besides the drawn one; None: no logprobs at all.
    """

    signals: tuple[str, ...] = ()
    k: int = 20
    logprobs: int | None = None

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return bool(self.signals) or self.logprobs is not None


@lru_cache(maxsize=64)
def wants(signals: tuple[str, ...] = (), k: int = 20, logprobs: int | None = None) -> Wanted:
    """A :class:`Wanted`, the same object for the same wishes: who wants the same is found out for every token."""
    return Wanted(signals, k, logprobs)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found in n rows of logits.

    Attributes:
        signals: shape (number of signals, n), in the order of ``Wanted.signals``.
        logprobs: the log-probabilities of the n drawn tokens, where wanted.
        sound: shape (n,), False where the logits were not finite.
    """

    signals: Floats
    logprobs: TokenLogprobs | None
    sound: npt.NDArray[np.bool_]


@np.errstate(invalid="ignore")  # what is not finite is reported, not warned of
def measure(
    rows: npt.NDArray[np.float32], chosen: Sequence[int], wanted: Wanted, scratch: npt.NDArray[np.float32]
) -> Measured:
    """Find what is wanted in rows of logits.

    Args:
        rows: shape (n, V), n ≥ 1, before temperature. Not modified.
        chosen: the n drawn tokens.
        wanted: what to find.
        scratch: the memory to work in, see :func:`~langchain_reasc_backend.logits.row_statistics`.

    Raises:
        ConfigurationError: an unknown signal, or its ``k`` is below 1.
    """
    n, vocabulary = rows.shape
    found = row_statistics(rows, _which(wanted, vocabulary), scratch=scratch)
    tokens = np.asarray(chosen, dtype=np.intp)
    drawn = rows[np.arange(n), tokens]
    k = min(wanted.k, vocabulary)
    by_name = signals_from_statistics(found, drawn, vocabulary, signals=wanted.signals, k=k)
    signals = np.array([by_name[name] for name in wanted.signals]).reshape(-1, n)
    sound = np.isfinite(signals).all(axis=0)
    if wanted.logprobs is None:
        return Measured(signals, None, sound)
    logprob = np.minimum(drawn - found.log_total, 0)  # rounding puts certain tokens above
    sound &= np.isfinite(logprob)
    if found.top is None or found.top_ids is None:
        none = np.empty((n, 0))
        return Measured(signals, TokenLogprobs(tokens, logprob, none.astype(np.intp), none), sound)
    top = np.minimum(found.top[:, : wanted.logprobs] - found.log_total[:, None], 0)
    return Measured(signals, TokenLogprobs(tokens, logprob, found.top_ids[:, : wanted.logprobs], top), sound)


@lru_cache(maxsize=64)
def _which(wanted: Wanted, vocabulary: int) -> WhichStatistics:
    which = statistics_for(wanted.signals, min(wanted.k, vocabulary), vocabulary)
    top = min(wanted.logprobs or 0, vocabulary)
    return replace(which, top=max(which.top, top), ids=top > 0)
