"""One traced run per sample, for models that draw several samples in one call.

A run says what ``BaseChatModel.invoke`` would say of a call of its own, down to the metadata that LangSmith reads.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from langchain_core.callbacks import (
    AsyncCallbackManager,
    AsyncCallbackManagerForLLMRun,
    CallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models._utils import _filter_invocation_params_for_tracing
from langchain_core.language_models.chat_models import _format_for_tracing, _format_ls_structured_output
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.utils.utils import LC_ID_PREFIX

from langchain_reasc.models.contract import FailedSample, sample_id
from langchain_reasc.models.prepared import PreparedModel

__all__ = ["AsyncSampleRuns", "SampleRuns"]

Manager = TypeVar("Manager", CallbackManager, AsyncCallbackManager)


class SampleRuns:
    """Starts a chat-model run per sample and ends each on its own, as separate calls would have."""

    def __init__(
        self, source: PreparedModel, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig
    ):
        self._runs: dict[int, CallbackManagerForLLMRun] = {}
        for index in indices:
            if described := _described(CallbackManager, source, messages, index, config):
                manager, told = described
                [self._runs[index]] = manager.on_chat_model_start(**told)

    def end(self, index: int, outcome: AIMessage | FailedSample) -> None:
        """Report a sample, cancelled ones too: their tokens are paid for. Its message is named after its run."""
        run = self._runs.pop(index, None)
        if run and isinstance(outcome, FailedSample):
            run.on_llm_error(outcome.error, response=_result(outcome.message, run))
        elif run and isinstance(outcome, AIMessage):
            run.on_llm_end(_result(outcome, run))

    def fail(self, error: BaseException) -> None:
        """Report an error to every run that is still open."""
        while self._runs:
            self._runs.popitem()[1].on_llm_error(error, response=LLMResult(generations=[]))


class AsyncSampleRuns:
    """:class:`SampleRuns` for async callbacks."""

    def __init__(self) -> None:
        self._runs: dict[int, AsyncCallbackManagerForLLMRun] = {}

    @classmethod
    async def start(
        cls, source: PreparedModel, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig
    ) -> "AsyncSampleRuns":
        """Start a run per sample."""
        runs = cls()
        for index in indices:
            if described := _described(AsyncCallbackManager, source, messages, index, config):
                manager, told = described
                [runs._runs[index]] = await manager.on_chat_model_start(**told)
        return runs

    async def end(self, index: int, outcome: AIMessage | FailedSample) -> None:
        """Report a sample, cancelled ones too. Its message is named after its run."""
        run = self._runs.pop(index, None)
        if run and isinstance(outcome, FailedSample):
            await run.on_llm_error(outcome.error, response=_result(outcome.message, run))
        elif run and isinstance(outcome, AIMessage):
            await run.on_llm_end(_result(outcome, run))

    async def fail(self, error: BaseException) -> None:
        """Report an error to every run that is still open."""
        while self._runs:
            await self._runs.popitem()[1].on_llm_error(error, response=LLMResult(generations=[]))


def _described(
    kind: type[Manager], source: PreparedModel, messages: list[BaseMessage], index: int, config: RunnableConfig
) -> tuple[Manager, dict[str, Any]] | None:
    """A manager of callbacks for one sample, and what it is to tell them; None where nobody listens."""
    if source.quiet:
        return None
    model, call = source.model, ensure_config(source.call_config(config, index))
    assert isinstance(model, BaseChatModel)
    callbacks = call.get("callbacks"), model.callbacks, model.verbose
    if not kind.configure(*callbacks).handlers:
        return None
    arguments = source.call_kwargs(index)
    stop = arguments.pop("stop", None)
    structured = arguments.pop("ls_structured_output_format", None) or arguments.pop("structured_output_format", None)
    params = model._get_invocation_params(stop=stop, **arguments)
    metadata = {**(call.get("metadata") or {}), **model._get_ls_params_with_defaults(stop=stop, **arguments)}
    manager = kind.configure(
        *callbacks,
        call.get("tags"),
        model.tags,
        metadata,
        model.metadata,
        langsmith_inheritable_metadata=_filter_invocation_params_for_tracing(params),
    )
    return manager, {
        "serialized": model._serialized,
        "messages": [_format_for_tracing(messages)],
        "invocation_params": params,
        "options": {"stop": stop, **_format_ls_structured_output(structured)},
        "name": call.get("run_name"),
        "batch_size": 1,
    }


def _result(message: AIMessage | None, run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun) -> LLMResult:
    if message is None:
        return LLMResult(generations=[])
    if message.id is None or message.id.startswith(LC_ID_PREFIX):  # else the provider has named it
        message.id = sample_id(run.run_id)
    return LLMResult(generations=[[ChatGeneration(message=message)]])
