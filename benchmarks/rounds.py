"""Repeated rounds in which every contender has its turn, so that a machine's moods meet all of them alike."""

import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

__all__ = ["Spread", "interleaved", "ratios", "seconds"]

Name = TypeVar("Name", bound=Hashable)
_PAUSE = 0.05  # seconds; worker threads of the last turn spin for some milliseconds before they sleep


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of the rounds."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """The spread of at least one value."""
        found = list(values)
        return cls(min(found), statistics.median(found), max(found))


def interleaved(turns: Mapping[Name, Callable[[], float]], *, rounds: int) -> dict[Name, list[float]]:
    """Let everyone have a turn in each round; every other round goes backwards.

    Args:
        turns: name -> what is done in a turn, which returns the figure to keep.
        rounds: how many count; one more goes before them, to warm up.

    Returns:
        Name -> one figure per round; figures of the same index come from the same round.
    """
    figures: dict[Name, list[float]] = {name: [] for name in turns}
    for index in range(-1, rounds):
        for name in list(turns) if index % 2 else reversed(list(turns)):
            time.sleep(_PAUSE)
            figure = turns[name]()
            if index >= 0:
                figures[name].append(figure)
    return figures


def ratios(above: Iterable[float], below: Iterable[float]) -> Spread:
    """Spread of the quotients, round by round."""
    return Spread.of(one / other for one, other in zip(above, below, strict=True))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
