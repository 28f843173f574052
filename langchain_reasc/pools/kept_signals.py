"""Which token signals a recording keeps: only such as are made of the same, so that their scores can be compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.answers import Extractor, Vote, places_of
from langchain_reasc.pools.signals_file import TokenSignals, append_signals, signals_path
from langchain_reasc.exceptions import LogprobsUnavailable, PoolError
from langchain_reasc.models.contract import TOKEN_SIGNALS_INFO
from langchain_reasc.models.logprobs import SignalReading, read_signals

__all__ = ["KeptSignals"]


class KeptSignals:
    """The token signals of a pool that is being recorded.

    The first question with signals settles which they are, and over how many alternatives or what vocabulary. A
    response with other ones is kept without: one with fewer would take a signal away from the whole pool.

    Args:
        pool: the pool; its signals lie beside it.
        info: what the pool's metadata says its signals are made of, where it was begun earlier.
    """

    def __init__(self, pool: Path, info: Mapping[str, Any] | None = None) -> None:
        self._pool, self._path = pool, signals_path(pool)
        self._info = dict(info) if info else None
        self._settled: SignalReading | None = None

    @property
    def info(self) -> dict[str, Any] | None:
        """What they are made of, for the pool's metadata."""
        return self._info

    def of(self, responses: Sequence[AIMessage], votes: Sequence[Vote], extract: Extractor) -> list[SignalReading]:
        """The signals of each response and its spans, or nothing where it has none that go with the others.

        Args:
            responses: the responses to one question.
            votes: what each votes for. Of one that votes for its tool calls the calls' own tokens are kept, where they
                can be told, as a live decision would weigh it.
            extract: what found their answers.

        Raises:
            PoolError: the pool was begun with signals made of something else.
        """
        readings = [_reading(message, vote, extract) for message, vote in zip(responses, votes, strict=True)]
        if self._settled is None:
            self._settle(responses, readings)
        return [one if one and self._goes_with_the_others(one) else SignalReading({}) for one in readings]

    def append(self, question: str, signals: Sequence[TokenSignals], *, earlier: Sequence[str]) -> None:
        """Write those of a question to disk; ``earlier`` questions that had none are written as having none."""
        if not self._path.exists():
            if not any(signals):
                return
            for before in earlier:
                append_signals(self._path, before, [{} for _ in signals])
        append_signals(self._path, question, signals)

    def _settle(self, responses: Sequence[AIMessage], readings: Sequence[SignalReading | None]) -> None:
        carrying = [(one, message) for one, message in zip(readings, responses, strict=True) if one]
        if not carrying:
            return
        settled, message = max(carrying, key=lambda pair: (len(pair[0].signals), len(pair[0].k)))  # the first such
        told = message.response_metadata.get(TOKEN_SIGNALS_INFO)
        info = dict(told) if isinstance(told, Mapping) else dict(settled.k)
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


def _reading(message: AIMessage, vote: Vote, extract: Extractor) -> SignalReading | None:
    try:
        return read_signals(message, of_calls=vote.calls, places=places_of(message, extract, vote))
    except LogprobsUnavailable:
        return None
