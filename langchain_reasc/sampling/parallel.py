"""Waves of models that sample in parallel themselves: they are given the whole wave."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial

from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models.contract import (
    CANCELLED,
    FINISH_REASON,
    USAGE_ESTIMATED,
    FailedSample,
    is_cancelled,
)
from langchain_reasc.models.usage import estimated_usage, reported_usage
from langchain_reasc.sampling.sample import Sample
from langchain_reasc.sampling.time_limit import within
from langchain_reasc.sampling.tracing import AsyncSampleRuns, SampleRuns
from langchain_reasc.sampling.wave import Wave

__all__ = ["aparallel", "parallel"]


def parallel(wave: Wave) -> Generator[Sample]:
    """See :func:`langchain_reasc.sampling.drawn`."""
    runs, out = SampleRuns(wave.model, wave.messages, wave.indices, wave.config), _Outcomes(wave)
    try:
        assert wave.model.sampler is not None
        begin = partial(wave.model.sampler.sample, n=len(wave.indices), first=wave.indices[0], **wave.model.kwargs)
        with _timed(wave):
            # To begin may take long: a server is asked what it supports, a model is loaded.
            stream = within(None, partial(begin, wave.messages), wave.cutoff)
            with closing(stream), wave.cutoff.heard_by(stream.cancel):
                for index, outcome in stream:
                    sample = out.ended(index, outcome)
                    runs.end(index, _traced(sample))
                    yield sample
        for sample in out.rest():
            runs.end(sample.index, _traced(sample))
            if sample.error:  # what was cut off before its first token cost nothing
                yield sample
    except Exception as failure:
        error = wave.cutoff.error if wave.cutoff.given_up else failure
        runs.fail(error or failure)
        for sample in out.rest(error):
            if sample.error:
                yield sample
    except BaseException as error:
        runs.fail(error)
        raise


async def aparallel(wave: Wave) -> AsyncGenerator[Sample]:
    """The asynchronous :func:`parallel`."""
    runs = await AsyncSampleRuns.start(wave.model, wave.messages, wave.indices, wave.config)
    out = _Outcomes(wave)
    try:
        assert wave.model.sampler is not None
        stream = wave.model.sampler.asample(
            wave.messages, n=len(wave.indices), first=wave.indices[0], **wave.model.kwargs
        )
        with closing(stream), wave.cutoff.heard_by(stream.cancel), _atimed(wave):
            async for index, outcome in stream:
                sample = out.ended(index, outcome)
                await runs.end(index, _traced(sample))
                yield sample
        for sample in out.rest():
            await runs.end(sample.index, _traced(sample))
            if sample.error:  # what was cut off before its first token cost nothing
                yield sample
    except Exception as error:
        await runs.fail(error)
        for sample in out.rest(error):
            yield sample
    except BaseException as error:
        await runs.fail(error)
        raise


class _Outcomes:
    """What comes out of a stream, as samples; and which never came."""

    def __init__(self, wave: Wave) -> None:
        self._missing, self._cutoff = set(wave.indices), wave.cutoff

    def ended(self, index: int, outcome: AIMessage | FailedSample) -> Sample:
        """What came out, as a sample."""
        self._missing.discard(index)
        if isinstance(outcome, FailedSample):
            return Sample(index, outcome.message and self._with_usage(outcome.message), "failed", outcome.error)
        if not is_cancelled(outcome):
            self._cutoff.prompt_tokens = (reported_usage(outcome) or {"input_tokens": None})["input_tokens"]
            return Sample(index, outcome)
        return self._cut_off(index, self._with_usage(outcome))

    def rest(self, error: Exception | None = None) -> Iterator[Sample]:
        """The samples that did not come out: lost, or cancelled before their first token."""
        for index in sorted(self._missing):
            if error or not self._cutoff.stopped:
                lost = error or SamplingError(f"the model handed over no sample {index}")
                yield Sample(index, None, "failed", lost)
            else:
                yield self._cut_off(index, None)

    def _cut_off(self, index: int, message: AIMessage | None) -> Sample:
        if self._cutoff.error is None:
            return Sample(index, message, "cancelled")
        return Sample(index, message, "failed", self._cutoff.error)

    def _with_usage(self, message: AIMessage) -> AIMessage:
        if message.usage_metadata is not None:
            return message
        usage = estimated_usage(message, prompt_tokens=self._cutoff.prompt_tokens or 0)
        metadata = message.response_metadata | {USAGE_ESTIMATED: True}
        return message.model_copy(update={"usage_metadata": usage, "response_metadata": metadata})


@contextmanager
def _timed(wave: Wave) -> Iterator[None]:
    """Give a wave up when its time is over."""
    if wave.limit is None:
        yield
        return
    timer = threading.Timer(wave.limit.seconds, wave.cutoff.give_up, [wave.limit.error()])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _atimed(wave: Wave) -> Iterator[None]:
    """The same in an event loop."""
    if wave.limit is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(wave.limit.seconds, wave.cutoff.give_up, wave.limit.error())
    try:
        yield
    finally:
        timer.cancel()


def _traced(sample: Sample) -> AIMessage | FailedSample:
    """How its run ends: a sample that was cut off ends in good order, with what it had said."""
    if sample.error:
        return FailedSample(sample.error, sample.message)
    return sample.message or AIMessage("", response_metadata={FINISH_REASON: CANCELLED})
