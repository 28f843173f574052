"""Samples as parts of one model call: every handler hears of them as steps below it, and none counts them.

A chat model's run tells what the call cost. Were each sample a model's run too, handlers that count tokens would count
them twice. So the calls of the model inside are told to nobody, and in place of them each sample is a step, a run of
type "chain", whose output is the sample's message.
"""

from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.tracers import context as tracing

from langchain_reasc.models.contract import CANCELLED, FINISH_REASON
from langchain_reasc.sampling.runs import AsyncRun, Run
from langchain_reasc.sampling.sample import Sample
from langchain_reasc.sampling.wave import Wave

__all__ = ["asteps", "steps", "unheard"]

T = TypeVar("T")


@contextmanager
def unheard() -> Iterator[None]:
    """Within the block, handlers that listen to every call of a context hear nothing: tracers, counters of usage."""
    from langsmith.run_helpers import tracing_context  # slow to import, as langchain-core says too

    listening: list[ContextVar[Any]] = [
        tracing.tracing_v2_callback_var,
        *(hook[0] for hook in tracing._configure_hooks),
    ]
    before = [(variable, variable.set(None)) for variable in listening]
    try:
        with tracing_context(enabled=False):
            yield
    finally:
        for variable, token in before:
            variable.reset(token)


def steps(wave: Wave, samples: Generator[T]) -> Generator[T]:
    """The samples of a wave as they end, each told of as a step below the run of ``wave.config``; chunks pass by."""
    runs = {index: Run(_name(wave), _asked(wave), _config(wave, index)) for index in wave.indices}
    try:
        with closing(samples):
            for sample in samples:
                if isinstance(sample, Sample):
                    run = runs.pop(sample.index)
                    if sample.error:
                        run.fail(sample.error)
                    else:
                        run.end(_given(sample))
                yield sample
        while runs:
            runs.popitem()[1].end(_given(None))
    except BaseException as error:
        while runs:
            runs.popitem()[1].fail(error)
        raise


async def asteps(wave: Wave, samples: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The asynchronous :func:`steps`."""
    runs = {index: AsyncRun(_name(wave), _asked(wave), _config(wave, index)) for index in wave.indices}
    try:
        for run in runs.values():
            await run.begin()
        async with aclosing(samples):
            async for sample in samples:
                if isinstance(sample, Sample):
                    run = runs.pop(sample.index)
                    if sample.error:
                        await run.fail(sample.error)
                    else:
                        await run.end(_given(sample))
                yield sample
        while runs:
            await runs.popitem()[1].end(_given(None))
    except BaseException as error:
        while runs:
            await runs.popitem()[1].fail(error)
        raise


def _name(wave: Wave) -> str:
    return f"{wave.model.model.get_name()} sample"


def _asked(wave: Wave) -> dict[str, Any]:
    return {"messages": wave.messages}


def _config(wave: Wave, index: int) -> RunnableConfig:
    told = wave.model.call_config(wave.config, index)
    return {**told, "callbacks": wave.config.get("callbacks"), "tags": told.get("tags") or []}


def _given(sample: Sample | None) -> Any:
    """What a step gives; of a sample that was cut off before its first token, which cost nothing, that alone."""
    return sample.message if sample and sample.message else {FINISH_REASON: CANCELLED}
