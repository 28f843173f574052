"""Waves of models that sample in parallel themselves: they are given the whole wave."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import closing, contextmanager

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.contract import FailedSample, SampleStream
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.sampling.sample import Sample
from langchain_reasc.sampling.time_limit import TimeLimit
from langchain_reasc.sampling.tracing import AsyncSampleRuns, SampleRuns

__all__ = ["aparallel", "parallel"]


def parallel(
    source: PreparedModel,
    messages: list[BaseMessage],
    indices: Sequence[int],
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None,
) -> Generator[Sample]:
    """See :func:`langchain_reasc.sampling.wave`."""
    runs, course = SampleRuns(source, messages, indices, config), _Course(indices, stop, limit)
    try:
        assert source.sampler is not None
        stream = source.sampler.sample(messages, n=len(indices), first=indices[0], **source.kwargs)
        with closing(stream), course.timed(stream):
            for index, outcome in stream:
                sample = course.ended(index, outcome)
                runs.end(index, _traced(sample, outcome))
                yield sample
                if stop.is_set():
                    stream.cancel()
        lost = course.lost()
        runs.fail(lost)
        if not stop.is_set():  # else they were cancelled before their first token, and cost nothing
            yield from course.rest(lost)
    except Exception as error:
        runs.fail(error)
        yield from course.rest(error)
    except BaseException as error:
        runs.fail(error)
        raise


async def aparallel(
    source: PreparedModel,
    messages: list[BaseMessage],
    indices: Sequence[int],
    config: RunnableConfig,
    stop: threading.Event,
    limit: TimeLimit | None,
) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`parallel`."""
    runs, course = await AsyncSampleRuns.start(source, messages, indices, config), _Course(indices, stop, limit)
    try:
        assert source.sampler is not None
        stream = source.sampler.asample(messages, n=len(indices), first=indices[0], **source.kwargs)
        with closing(stream), course.atimed(stream):
            async for index, outcome in stream:
                sample = course.ended(index, outcome)
                await runs.end(index, _traced(sample, outcome))
                yield sample
                if stop.is_set():
                    stream.cancel()
        lost = course.lost()
        await runs.fail(lost)
        if not stop.is_set():
            for sample in course.rest(lost):
                yield sample
    except Exception as error:
        await runs.fail(error)
        for sample in course.rest(error):
            yield sample
    except BaseException as error:
        await runs.fail(error)
        raise


class _Course:
    """Which samples of a wave have come out, and whether its time is over."""

    def __init__(self, indices: Sequence[int], stop: threading.Event, limit: TimeLimit | None) -> None:
        self._missing, self._stop, self._limit = set(indices), stop, limit
        self._late = False

    @contextmanager
    def timed(self, stream: SampleStream) -> Iterator[None]:
        """Cancel a stream when its time is over."""
        if self._limit is None:
            yield
            return
        timer = threading.Timer(self._limit.seconds, self._expire, [stream])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def atimed(self, stream: SampleStream) -> Iterator[None]:
        """The same in an event loop."""
        if self._limit is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(self._limit.seconds, self._expire, stream)
        try:
            yield
        finally:
            timer.cancel()

    def ended(self, index: int, outcome: AIMessage | FailedSample) -> Sample:
        """What came out, as a sample."""
        self._missing.discard(index)
        if isinstance(outcome, FailedSample):
            return Sample(index, outcome.message, "failed", outcome.error)
        if outcome.response_metadata.get("finish_reason") != "cancelled":
            return Sample(index, outcome)
        if self._late and self._limit and not self._stop.is_set():
            return Sample(index, outcome, "failed", self._limit.error())
        return Sample(index, outcome, "cancelled")

    def lost(self) -> SamplingError:
        """Why samples did not come out of a stream that has ended."""
        if self._late and self._limit:
            return self._limit.error()
        if self._stop.is_set() or not self._missing:
            return SamplingError("cancelled before its first token")
        return SamplingError(f"the model handed over no sample {min(self._missing)}")

    def rest(self, error: Exception) -> Iterator[Sample]:
        """The samples that did not come out, as failed."""
        for index in sorted(self._missing):
            yield Sample(index, None, "failed", error)

    def _expire(self, stream: SampleStream) -> None:
        self._late = True
        stream.cancel()


def _traced(sample: Sample, outcome: AIMessage | FailedSample) -> AIMessage | FailedSample:
    return FailedSample(sample.error, sample.message) if sample.error else outcome
