"""How many samples may be in flight at once (``config["max_concurrency"]``).

LangChain hands that number down to every step of a chain or an agent, and to each input of a batch, which then know
nothing of one another. Were it counted for each of them alone, two inputs with ``max_concurrency=2`` would have four
samples in flight. So all calls that draw from one model under the same number, at the same time, share its places.
"""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.cutoff import Cutoff

__all__ = ["AsyncSlots", "Places", "Slots", "checked_limit"]

S = TypeVar("S", "Slots", "AsyncSlots")


class Slots:
    """Places for samples in flight; as many as one asks for where ``limit`` is None."""

    def __init__(self, limit: int | None, whose: object = None) -> None:
        self._left, self._whose = limit, whose
        self._freed = threading.Condition()

    @classmethod
    def of(cls, model: object, config: RunnableConfig) -> "Slots":
        """The places of all who draw from this model now, under the same number.

        Raises:
            ConfigurationError: the number is below 1.
        """
        return _shared(cls, checked_limit(config), model)

    def take(self, wanted: int, cutoff: Cutoff) -> int:
        """Wait for a place, and take up to ``wanted``; 0 once the call is given up."""
        if self._left is None:
            return 0 if cutoff.given_up else wanted
        with cutoff.heard_by(self._wake), self._freed:
            self._freed.wait_for(lambda: bool(self._left) or cutoff.given_up)
            taken = 0 if cutoff.given_up else min(wanted, self._left)
            self._left -= taken
            return taken

    def give_back(self, count: int) -> None:
        """Give back the places of samples that have ended."""
        with self._freed:
            if self._left is not None:
                self._left += count
                self._freed.notify_all()

    def _wake(self) -> None:
        with self._freed:
            self._freed.notify_all()


class AsyncSlots:
    """:class:`Slots` in an event loop; whoever waits is given up by being cancelled."""

    def __init__(self, limit: int | None, whose: object = None) -> None:
        self._whose = whose
        self._places = None if limit is None else asyncio.Semaphore(limit)

    @classmethod
    def of(cls, model: object, config: RunnableConfig) -> "AsyncSlots":
        """As :meth:`Slots.of`, for all who draw in the running event loop."""
        return _shared(cls, checked_limit(config), model, asyncio.get_running_loop())

    async def take(self, wanted: int) -> int:
        """Wait for a place, and take up to ``wanted``."""
        if self._places is None:
            return wanted
        await self._places.acquire()
        taken = 1
        while taken < wanted and not self._places.locked():
            await self._places.acquire()  # at once
            taken += 1
        return taken

    def give_back(self, count: int) -> None:
        """Give back the places of samples that have ended."""
        for _ in range(count if self._places else 0):
            assert self._places is not None
            self._places.release()


class Places:
    """The places that a wave has taken, each given back once, when its sample ends; in any thread."""

    def __init__(self, slots: Slots | AsyncSlots, indices: Iterable[int]) -> None:
        self._slots, self._taken, self._lock = slots, set(indices), threading.Lock()

    def give_back(self, index: int) -> None:
        """The place of a sample, if it has one."""
        self._give_back({index})

    def close(self) -> None:
        """All that are left."""
        self._give_back(self._taken.copy())

    def _give_back(self, indices: set[int]) -> None:
        with self._lock:
            ended = self._taken & indices
            self._taken -= ended
        self._slots.give_back(len(ended))


def checked_limit(config: RunnableConfig) -> int | None:
    """``max_concurrency`` of a config.

    Raises:
        ConfigurationError: it is below 1, so that nothing could ever be drawn.
    """
    limit = config.get("max_concurrency")
    if limit is not None and limit < 1:
        raise ConfigurationError(f"max_concurrency={limit!r} lets no sample be drawn; it must be at least 1")
    return limit


_lock: Final = threading.Lock()
_in_use: Final[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()


def _shared(kind: type[S], limit: int | None, *whose: object) -> S:
    if limit is None:
        return kind(None)
    key = (kind, limit, *map(id, whose))
    with _lock:
        slots: S | None = _in_use.get(key)
        if slots is None:  # it keeps what it is of alive, or another object might come to have its id
            slots = _in_use[key] = kind(limit, whose)
    return slots
