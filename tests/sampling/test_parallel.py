"""Models that sample in parallel themselves: whole waves, one traced run per sample, a stop that cancels the stream."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from runnable.fakes import TIMEOUT, Scripted, Unforeseen

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models import FailedSample, prepare_model, to_messages
from langchain_reasc.sampling import Wave, samples
from langchain_reasc.threads import blocking_items


class Stream:
    """Hands over samples in the given order, and last those that wait to be cancelled; once that is done, the rest."""

    def __init__(self, indices: list[int], fails: set[int], blocks: set[int]) -> None:
        self.waiting, self.fails, self.blocks = sorted(indices, key=blocks.__contains__), fails, blocks
        self.cancelled, self.closed = threading.Event(), False

    def __iter__(self) -> Iterator[tuple[int, AIMessage | FailedSample]]:
        while self.waiting:
            index = self.waiting.pop(0)
            assert index not in self.blocks or self.cancelled.wait(TIMEOUT)
            reason = "cancelled" if self.cancelled.is_set() else "stop"
            usage = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
            message = AIMessage("it is 1", response_metadata={"finish_reason": reason}, usage_metadata=usage)
            yield index, FailedSample(RuntimeError(f"cut {index}"), message) if index in self.fails else message

    async def __aiter__(self) -> AsyncIterator[tuple[int, AIMessage | FailedSample]]:
        pairs = iter(self)
        while (pair := await asyncio.to_thread(next, pairs, None)) is not None:
            yield pair

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.closed = True


class Parallel(Scripted):
    """Samples in parallel; ``loses`` some of them, others come out as failed, and others when they are cancelled."""

    loses: set[int]
    fails: set[int]
    blocks: set[int]
    streams: Any

    def sample(self, messages: Any, *, n: int, first: int = 0, **kwargs: Any) -> Stream:
        given = [index for index in range(first, first + n) if index not in self.loses]
        stream = Stream(given, self.fails, self.blocks)
        self.streams.append((range(first, first + n), kwargs, stream))
        return stream

    asample = sample


def parallel(*, loses: Iterable[int] = (), fails: Iterable[int] = (), blocks: Iterable[int] = ()) -> Parallel:
    return Parallel(script=None, loses=set(loses), fails=set(fails), blocks=set(blocks), streams=[])


def test_a_wave_is_asked_for_at_once_with_the_bound_arguments(runner: Any) -> None:
    model = parallel()
    result = runner.solve(ReASCRunnable(model=model.bind(stop=["END"]), concurrency=3), "q")
    assert [(indices, kwargs) for indices, kwargs, _ in model.streams] == [
        (range(3), {"stop": ["END"]}),
        (range(3, 4), {"stop": ["END"]}),
    ]
    assert result.decision.samples == 4
    assert all(stream.closed for *_, stream in model.streams)


def test_a_decision_cancels_the_rest_which_are_paid_and_traced(runner: Any, runs: Any) -> None:
    result = runner.solve(ReASCRunnable(model=parallel(), rule=Unforeseen(), concurrency=6), "q", {"callbacks": [runs]})
    assert [response.status for response in result.responses] == ["complete"] * 4 + ["cancelled"] * 2
    assert (result.usage.output_tokens, result.usage.unused_output_tokens, result.usage.estimated) == (18, 6, False)
    assert [runs.ended[run_id] for run_id in runs.of("model")] == ["end"] * 6


def test_a_sample_that_never_comes_out_has_failed(runner: Any, runs: Any) -> None:
    result = runner.solve(ReASCRunnable(model=parallel(loses=[1]), concurrency=4), "q", {"callbacks": [runs]})
    assert [response.status for response in result.responses][:4] == ["complete", "failed", "complete", "complete"]
    assert "no sample 1" in str(result.failures[0])
    with pytest.raises(SamplingError, match="no sample 0"):
        runner.invoke(ReASCRunnable(model=parallel(loses=range(16))), "q")


def test_a_sample_that_failed_costs_only_itself_and_what_it_had_said_is_paid(runner: Any, runs: Any) -> None:
    result = runner.solve(
        ReASCRunnable(model=parallel(fails={1}), rule=Unforeseen(), concurrency=5), "q", {"callbacks": [runs]}
    )
    assert [response.status for response in result.responses] == ["complete", "failed", *["complete"] * 3]
    assert [str(error) for error in result.failures] == ["cut 1"]
    assert (result.usage.output_tokens, result.usage.unused_output_tokens) == (15, 3)
    assert sorted(runs.ended[run_id] for run_id in runs.of("model")) == ["end"] * 4 + ["error"]


def test_a_wave_abandoned_in_the_middle_closes_its_stream_and_runs(runs: Any) -> None:
    model = parallel()
    wave = Wave(prepare_model(model), to_messages("q"), range(4), {"callbacks": [runs]})
    drawing = blocking_items(samples(wave))
    next(drawing)
    drawing.close()
    assert model.streams[0][2].closed
    assert sorted(runs.ended.values()) == ["end"] + ["error"] * 3
