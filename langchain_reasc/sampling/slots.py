"""How many samples may be in flight in one call, over all its inputs (``config["max_concurrency"]``)."""

import asyncio
import threading

from langchain_reasc.models.cutoff import Cutoff

__all__ = ["AsyncSlots", "Slots"]


class Slots:
    """Places for samples in flight; as many as one asks for where ``limit`` is None."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._freed = threading.Condition()

    def take(self, wanted: int, cutoff: Cutoff) -> int:
        """Wait for a place, and take up to ``wanted``; 0 once the call is given up."""
        if self._left is None:
            return 0 if cutoff.given_up else wanted
        with cutoff.heard_by(self._wake), self._freed:
            self._freed.wait_for(lambda: bool(self._left) or cutoff.given_up)
            taken = 0 if cutoff.given_up else min(wanted, self._left)
            self._left -= taken
            return taken

    def give_back(self, count: int = 1) -> None:
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

    def __init__(self, limit: int | None) -> None:
        self._places = None if limit is None else asyncio.Semaphore(limit)

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

    def give_back(self, count: int = 1) -> None:
        """Give back the places of samples that have ended."""
        for _ in range(count if self._places else 0):
            assert self._places is not None
            self._places.release()
