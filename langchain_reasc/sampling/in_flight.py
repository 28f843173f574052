"""How many samples are in flight, over all calls that share a model and a limit."""

import threading
from collections import deque
from typing import Final
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig

from langchain_reasc.concurrency import Concurrency, Workers
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.sampling.cutoff import Cutoff


class _Slots:
    """The slots that are shared by all who draw from one model under the same number at
    the same time.
    """

    def __init__(self, limit: int, shared_by: object) -> None:
        self.left = limit
        self.lock = threading.Lock()
        self.queue: deque[Workers] = deque()  # of those who wait
        # Kept alive, or others might come to have their ids.
        self._shared_by = shared_by

    def wake_first(self) -> None:
        with self.lock:
            waiting = list(self.queue)
        if waiting:
            waiting[0].wake()


_sharing: Final = threading.Lock()
_shared: Final[WeakValueDictionary[tuple[int, int, int], _Slots]] = (
    WeakValueDictionary()
)


class TakenSlots:
    """The slots that a wave has taken.

    Attributes:
        count: how many there were.
    """

    def __init__(self, count: int, slots: _Slots | None) -> None:
        self.count = count
        self._left = count
        self._slots = slots

    def give_back(self, count: int = 1) -> None:
        """Give so many back, as far as they are left; in any thread."""
        if self._slots is not None:
            with self._slots.lock:
                count = min(count, self._left)
                self._left -= count
                self._slots.left += count
            self._slots.wake_first()


async def take_slots(
    model: object, config: RunnableConfig, most: int, cutoff: Cutoff, io: Concurrency
) -> TakenSlots:
    """Wait for a slot among the samples in flight (``config["max_concurrency"]``), and
    take up to ``most``.

    LangChain hands that number down to every step of a chain or an agent, and to each
    input of a batch, which then know nothing of one another. So all calls that draw
    from one model under the same number, at the same time, in threads or in one event
    loop, share its slots, and get them in the order they came. There are none once the
    call is given up.

    Raises:
        ConfigurationError: the number is below 1.
    """
    limit = checked_limit(config)
    if limit is None:
        count = 0 if cutoff.given_up else most
        return TakenSlots(count, None)
    loop = io.loop
    key = (limit, id(model), id(loop))
    with _sharing:
        slots = _shared.setdefault(key, _Slots(limit, (model, loop)))
    waiting = io.workers()
    taken = 0
    with slots.lock:
        slots.queue.append(waiting)
    try:
        with cutoff.notifying(waiting.wake):
            while not cutoff.given_up:
                with slots.lock:
                    if slots.queue[0] is waiting:
                        taken = min(most, slots.left)
                        slots.left -= taken
                if taken:
                    break
                await waiting.get()
    finally:
        with slots.lock:
            slots.queue.remove(waiting)
        slots.wake_first()
    return TakenSlots(taken, slots)


def checked_limit(config: RunnableConfig) -> int | None:
    """Return ``max_concurrency`` of a config.

    Raises:
        ConfigurationError: it is below 1, so that nothing could ever be drawn.
    """
    limit = config.get("max_concurrency")
    if limit is not None and limit < 1:
        raise ConfigurationError(
            f"max_concurrency={limit!r} lets no sample be drawn; it must be at least 1"
        )
    return limit
