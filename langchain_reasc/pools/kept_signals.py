"""Which token signals a recording keeps: only such as are made of the same, so that their scores can be compared."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_reasc.exceptions import PoolError
from langchain_reasc.models.logprobs import SignalReading
from langchain_reasc.pools.asking import ReadResponse

__all__ = ["KeptSignals"]


class KeptSignals:
    """The token signals of a pool that is being recorded.

    The first question with signals settles which they are, and over how many alternatives or what vocabulary. A
    response with other ones is kept without: one with fewer would take a signal away from the whole pool.

    Args:
        pool: what messages call the pool.
        info: what the pool's metadata says its signals are made of, where it was begun earlier.
    """

    def __init__(self, pool: object, info: Mapping[str, Any] | None = None) -> None:
        self._pool = pool
        self._info = dict(info) if info else None
        self._settled: SignalReading | None = None

    @property
    def info(self) -> dict[str, Any] | None:
        """What they are made of, for the pool's metadata."""
        return self._info

    def of(self, responses: Sequence[ReadResponse]) -> list[SignalReading]:
        """The signals of each response to a question and its spans, or nothing where they do not go with the others.

        Raises:
            PoolError: the pool was begun with signals made of something else.
        """
        if self._settled is None:
            self._settle(responses)
        readings = [one.reading for one in responses]
        return [one if one and self._goes_with_the_others(one) else SignalReading({}) for one in readings]

    def _settle(self, responses: Sequence[ReadResponse]) -> None:
        carrying = [(one.reading, one.info) for one in responses if one.reading]
        if not carrying:
            return
        settled, told = max(carrying, key=lambda pair: (len(pair[0].signals), len(pair[0].k)))  # the first such
        info = dict(settled.k) if told is None else dict(told)
        for name, then in (self._info or {}).items():
            if info.get(name, then) != then:
                raise PoolError(
                    f"{self._pool} was recorded with {name} {then!r} behind its signals, now it is {info[name]!r}; "
                    "record into another file, or delete this one"
                )
        self._settled, self._info = settled, self._info or info

    def _goes_with_the_others(self, reading: SignalReading) -> bool:
        if self._settled is None or not self._settled.signals.keys() <= reading.signals.keys():
            return False
        then, now = ({**one.k, "V": one.vocabulary_size} for one in (self._settled, reading))
        return all(now[name] == then.get(name) for name in now if None not in (now[name], then.get(name)))
