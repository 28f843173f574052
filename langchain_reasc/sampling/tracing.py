"""Traced runs of samples, where a model draws several in one call or is called without
tracing.

A sample's run says what ``BaseChatModel.invoke`` would say of a call of its own, down
to the metadata that LangSmith reads.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import (
    patch_config,
    set_config_context,
)

from langchain_reasc.concurrency import Concurrency
from langchain_reasc.langchain_internals import is_provider_id, listeners, traced_call
from langchain_reasc.models.contract import CANCELLED, FINISH_REASON, sample_id
from langchain_reasc.sampling.response import SampledResponse
from langchain_reasc.sampling.wave import Wave
from langchain_reasc.threads import result_of

T = TypeVar("T")


class TracedRun:
    """A run from its start to its end, with any number of steps between; it begins with
    the first.

    ``Runnable._call_with_config`` does the same for a run of one step; in a batch that
    calibrates on all first responses, each input has two, and waits for the others
    between them. A run of a synchronous call never waits for an event loop.
    """

    def __init__(
        self, name: str, value: Any, config: RunnableConfig | None, io: Concurrency
    ) -> None:
        self._name = name
        self._value = value
        self._config = ensure_config(config)
        self._manager: Any = None
        self._io = io
        self._open = True

    async def start(self) -> None:
        """Start the run, if that has not been done."""
        if self._manager is None:
            manager = self._io.callback_manager_of(self._config)
            started = manager.on_chain_start(
                None,
                self._value,
                run_type="chain",
                name=self._config.get("run_name") or self._name,
                run_id=self._config.pop("run_id", None),
            )
            self._manager = await result_of(started)

    async def step(self, work: Callable[[RunnableConfig], Coroutine[Any, Any, T]]) -> T:
        """Do something below the run; an error ends it."""
        await self.start()
        below = patch_config(self._config, callbacks=self._manager.get_child())
        try:
            with set_config_context(below) as context:
                return await self._io.run_in(context, work(below))
        except BaseException as error:
            await self.fail(error)
            raise

    async def last(self, work: Callable[[RunnableConfig], Coroutine[Any, Any, T]]) -> T:
        """Do the step that ends the run with its result."""
        output = await self.step(work)
        await self.end(output)
        return output

    async def end(self, output: Any) -> None:
        """End the run with its result."""
        self._open = False
        await result_of(self._manager.on_chain_end(output))

    async def fail(self, error: BaseException, message: object = None) -> None:
        """End the run with an error, if it has begun and not ended; it has no place for
        a message.
        """
        if self._open and self._manager is not None:
            self._open = False
            await result_of(self._manager.on_chain_error(error))


class _ModelRun:
    """A chat model's run for one sample of a wave, as a call of its own would have;
    none where nobody listens.
    """

    def __init__(self, wave: Wave, index: int) -> None:
        self._wave = wave
        self._index = index
        self._run: Any = None

    async def start(self) -> None:
        """Start the run."""
        described = _run_arguments(self._wave, self._index)
        if described is not None:
            manager, arguments = described
            [self._run] = await result_of(manager.on_chat_model_start(**arguments))

    async def end(self, message: AIMessage) -> None:
        """End the run with a message, and name the message after the run."""
        if self._run:
            await result_of(self._run.on_llm_end(_result(message, self._run)))

    async def fail(
        self, error: BaseException, message: AIMessage | None = None
    ) -> None:
        """End the run with an error, and with what had been said."""
        if self._run:
            await result_of(
                self._run.on_llm_error(error, response=_result(message, self._run))
            )


@contextmanager
def suppress_tracing() -> Iterator[None]:
    """Within the block, suppress handlers that listen to every call of a context:
    tracers, counters of usage.
    """
    # Slow to import, as langchain-core says too.
    from langsmith.run_helpers import tracing_context

    before = [(variable, variable.set(None)) for variable in listeners()]
    try:
        with tracing_context(enabled=False):
            yield
    finally:
        for variable, token in before:
            variable.reset(token)


async def traced(wave: Wave, samples: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield the samples of a wave as they end, each with a run of its own.

    Of a model that samples in parallel, it is a run of the chat model. Of a quiet
    model, it is a step of the model call around them: a chat model's run tells what the
    call cost, and were each sample a model's run too, handlers that count tokens would
    count them twice. So the calls of the model inside are not traced, and each sample
    is a run of type "chain" below ``wave.config``, whose output is the sample's
    message.
    """
    runs, cancelled = _runs(wave)
    try:
        for run in runs.values():
            await run.start()
        async with aclosing(samples):
            async for sample in samples:
                if isinstance(sample, SampledResponse):
                    run = runs.pop(sample.index)
                    if sample.error:
                        await run.fail(sample.error, sample.message)
                    else:
                        await run.end(sample.message or cancelled)
                yield sample
        while runs:
            await runs.popitem()[1].end(cancelled)
    except BaseException as error:
        while runs:
            await runs.popitem()[1].fail(error)
        raise


def _runs(wave: Wave) -> tuple[dict[int, Any], Any]:
    """Return a run for each sample, and the output of one cut off before its first
    token, which cost nothing.
    """
    cancelled = {FINISH_REASON: CANCELLED}
    if not wave.model.quiet:
        runs = {index: _ModelRun(wave, index) for index in wave.indices}
        return runs, AIMessage("", response_metadata=cancelled)
    inputs = {"messages": wave.messages}
    name = f"{wave.model.model.get_name()} sample"
    steps = {
        index: TracedRun(name, inputs, _step_config(wave, index), wave.io)
        for index in wave.indices
    }
    return steps, cancelled


def _step_config(wave: Wave, index: int) -> RunnableConfig:
    config = wave.model.call_config(wave.config, index)
    return {
        **config,
        "callbacks": wave.config.get("callbacks"),
        "tags": config.get("tags") or [],
    }


def _run_arguments(wave: Wave, index: int) -> tuple[Any, dict[str, Any]] | None:
    """Return a callback manager for one sample, and the arguments that start its run;
    None where nobody listens.
    """
    model = wave.model.model
    call = ensure_config(wave.model.call_config(wave.config, index))
    assert isinstance(model, BaseChatModel)
    callbacks = call.get("callbacks"), model.callbacks, model.verbose
    kind = wave.io.callback_manager
    if not kind.configure(*callbacks).handlers:
        return None
    traced = traced_call(model, wave.messages, wave.model.call_kwargs(index))
    manager = kind.configure(
        *callbacks,
        call.get("tags"),
        model.tags,
        {**(call.get("metadata") or {}), **traced.metadata},
        model.metadata,
        langsmith_inheritable_metadata=traced.inheritable,
    )
    return manager, {**traced.arguments, "name": call.get("run_name")}


def _result(message: AIMessage | None, run: Any) -> LLMResult:
    if message is None:
        return LLMResult(generations=[])
    if not is_provider_id(message.id):
        message.id = sample_id(run.run_id)
    return LLMResult(generations=[[ChatGeneration(message=message)]])
