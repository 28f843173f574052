"""``calibration="online"`` over a batch: the paper's Algorithm 2 as it stands.

The first response to every input is drawn before any decision; their scores calibrate; then each input is decided,
starting from the response it already has.
"""

import asyncio
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.base import RunnableSerializable
from langchain_core.runnables.config import get_config_list, get_executor_for_config
from langchain_core.runnables.utils import gated_coro

from langchain_reasc.calibration import Calibration, calibrate_online
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.logprobs import Provenance, read_signals
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.sampling import Sample, awave, wave
from langchain_reasc.sampling.time_limit import QuestionClock

__all__ = ["TransductiveBatch", "TransductiveStart"]


@dataclass(frozen=True, slots=True)
class TransductiveStart:
    """Where the decision on one input of a batch starts from.

    Attributes:
        sample: its first sample, already drawn.
        calibration: fitted on the first samples of all inputs; None where they determine none.
        notices: what the caller should know.
    """

    sample: Sample
    calibration: Calibration | None
    notices: tuple[str, ...]


class TransductiveBatch(RunnableSerializable[LanguageModelInput, AIMessage]):
    """The batch methods of a runnable whose online calibration sees the whole batch."""

    @abstractmethod
    def _transductive(self, kwargs: dict[str, Any]) -> tuple[PreparedModel, Measure] | None:
        """What first responses are drawn from and how they are scored; None where the batch calibrates nothing."""

    @abstractmethod
    def _clock(self) -> QuestionClock:
        """What limits the time of a question, running."""

    def batch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """One winning response per input; ``calibration="online"`` calibrates on all first responses (Algorithm 2)."""
        outputs = dict(self._completed(inputs, config, return_exceptions, kwargs))
        return [cast(AIMessage, outputs[index]) for index in range(len(inputs))]

    async def abatch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """The asynchronous :meth:`batch`."""
        outputs = dict([pair async for pair in self._acompleted(inputs, config, return_exceptions, kwargs)])
        return [cast(AIMessage, outputs[index]) for index in range(len(inputs))]

    def batch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> Iterator[tuple[int, AIMessage | Exception]]:
        """(index, winning response) in order of completion."""
        return self._completed(inputs, config, return_exceptions, kwargs)

    def abatch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> AsyncIterator[tuple[int, AIMessage | Exception]]:
        """The asynchronous :meth:`batch_as_completed`."""
        return self._acompleted(inputs, config, return_exceptions, kwargs)

    def _completed(
        self, inputs: Sequence[LanguageModelInput], config: Any, return_exceptions: bool, kwargs: dict[str, Any]
    ) -> Iterator[tuple[int, AIMessage | Exception]]:
        configs = get_config_list(config, len(inputs))
        if not configs:
            return

        def decide(
            value: LanguageModelInput, one: RunnableConfig, start: TransductiveStart | None
        ) -> AIMessage | Exception:
            try:
                return self.invoke(value, one, start=start, **kwargs)
            except Exception as error:
                if not return_exceptions:
                    raise
                return error

        with get_executor_for_config(configs[0]) as threads:
            starts: Sequence[TransductiveStart | None] = [None] * len(inputs)
            if calibrating := self._transductive(kwargs):
                source, measure = calibrating
                draw = partial(_first, source, self._clock)
                firsts = list(threads.map(draw, inputs, configs))
                starts = _starts(firsts, measure, source)
            running = {
                threads.submit(decide, value, one, start): index
                for index, (value, one, start) in enumerate(zip(inputs, configs, starts, strict=True))
            }
            try:
                for done in as_completed(running):
                    yield running[done], done.result()
            finally:
                for waiting in running:  # after a failure, what has not begun is not paid for
                    waiting.cancel()

    async def _acompleted(
        self, inputs: Sequence[LanguageModelInput], config: Any, return_exceptions: bool, kwargs: dict[str, Any]
    ) -> AsyncIterator[tuple[int, AIMessage | Exception]]:
        configs = get_config_list(config, len(inputs))
        if not configs:
            return
        gate = asyncio.Semaphore(configs[0].get("max_concurrency") or len(inputs))

        async def decide(index: int, start: TransductiveStart | None) -> tuple[int, AIMessage | Exception]:
            try:
                return index, await self.ainvoke(inputs[index], configs[index], start=start, **kwargs)
            except Exception as error:
                if not return_exceptions:
                    raise
                return index, error

        starts: Sequence[TransductiveStart | None] = [None] * len(inputs)
        if calibrating := self._transductive(kwargs):
            source, measure = calibrating
            drawing = (_afirst(source, self._clock, value, one) for value, one in zip(inputs, configs, strict=True))
            firsts = await asyncio.gather(*(gated_coro(gate, one) for one in drawing))
            starts = await asyncio.to_thread(_starts, firsts, measure, source)  # fits mixtures
        tasks = [asyncio.create_task(gated_coro(gate, decide(*pair))) for pair in enumerate(starts)]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _first(
    source: PreparedModel, clock: Callable[[], QuestionClock], value: LanguageModelInput, config: RunnableConfig
) -> Sample:
    """The first response to one input; a failure comes back as a failed sample, and costs only itself."""
    try:
        [sample] = wave(source, to_messages(value), range(1), config, threading.Event(), clock().wave())
        return sample
    except Exception as error:
        return Sample(0, None, "failed", error)


async def _afirst(
    source: PreparedModel, clock: Callable[[], QuestionClock], value: LanguageModelInput, config: RunnableConfig
) -> Sample:
    try:
        drawing = awave(source, to_messages(value), range(1), config, threading.Event(), clock().wave())
        [sample] = [sample async for sample in drawing]
        return sample
    except Exception as error:
        return Sample(0, None, "failed", error)


def _starts(firsts: Sequence[Sample], measure: Measure, source: PreparedModel) -> list[TransductiveStart]:
    """Algorithm 2 on the first responses; where it is not possible, every input counts votes and says why."""
    scores, shorter, made_of = _scores(firsts, measure)
    notices: tuple[str, ...] = ()
    if measure.score != "mean" and 2 * shorter > len(scores) > 0:
        notices = (
            f"{shorter} of {len(scores)} first responses are shorter than the window ({measure.window} tokens) and are "
            "scored by their plain mean; pass a measure with a smaller window",
        )
    calibration = None
    try:
        calibration = calibrate_online(scores, measure=measure, fingerprint=source.fingerprint(), **made_of)
        if why := calibration.gate.closed_because:
            notices += (f"the gate is closed: {why}",)
    except CalibrationDataError as error:
        notices += (f"counting votes (ASC), because online calibration was not possible: {error}",)
    return [TransductiveStart(sample, calibration, notices) for sample in firsts]


def _scores(firsts: Sequence[Sample], measure: Measure) -> tuple[list[float], int, Provenance]:
    """The scores, how many responses are shorter than the window, and the k and V that most scores were made of.

    Scores made of another k or V say nothing beside them and are left out; their own decisions report that.
    """
    scored: list[tuple[float, bool, Provenance]] = []
    for sample in firsts:
        if sample.status != "complete" or sample.message is None:
            continue
        with suppress(LogprobsUnavailable, ConfidenceError):  # its own decision reports that
            reading = read_signals(sample.message)
            short = len(reading.signals.get(measure.signal, ())) < measure.window
            scored.append((reading.score(measure), short, reading.provenance(measure.signal)))
    k = _most_common(one["top_k"] for *_, one in scored)
    size = _most_common(one["vocabulary_size"] for *_, one in scored)
    kept = [
        (score, short)
        for score, short, one in scored
        if one["top_k"] in (None, k) and one["vocabulary_size"] in (None, size)
    ]
    return [score for score, _ in kept], sum(short for _, short in kept), Provenance(top_k=k, vocabulary_size=size)


def _most_common(values: Iterable[int | None]) -> int | None:
    known = Counter(value for value in values if value is not None)
    return max(known, key=known.__getitem__, default=None)
