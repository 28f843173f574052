"""One traced run per sample, for models that draw several samples in one call."""

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_async_callback_manager_for_config, get_callback_manager_for_config

from langchain_reasc.models.contract import FailedSample
from langchain_reasc.models.prepared import PreparedModel

__all__ = ["AsyncSampleRuns", "SampleRuns"]


class SampleRuns:
    """Starts a chat-model run per sample and ends each on its own, as separate calls would have."""

    def __init__(
        self, source: PreparedModel, messages: list[BaseMessage], indices: Sequence[int], config: RunnableConfig
    ):
        self._runs: dict[int, CallbackManagerForLLMRun] = {}
        for index in indices:
            manager = get_callback_manager_for_config(source.call_config(config, index))
            if manager.handlers:
                [run] = manager.on_chat_model_start(_serialized(source), [messages], **_params(source, index))
                self._runs[index] = run

    def end(self, index: int, outcome: AIMessage | FailedSample) -> None:
        """Report a sample, cancelled ones too: their tokens are paid for."""
        run = self._runs.pop(index, None)
        if run and isinstance(outcome, FailedSample):
            run.on_llm_error(outcome.error, response=_result(outcome.message))
        elif run and isinstance(outcome, AIMessage):
            run.on_llm_end(_result(outcome))

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
            manager = get_async_callback_manager_for_config(source.call_config(config, index))
            if manager.handlers:
                [run] = await manager.on_chat_model_start(_serialized(source), [messages], **_params(source, index))
                runs._runs[index] = run
        return runs

    async def end(self, index: int, outcome: AIMessage | FailedSample) -> None:
        """Report a sample, cancelled ones too."""
        run = self._runs.pop(index, None)
        if run and isinstance(outcome, FailedSample):
            await run.on_llm_error(outcome.error, response=_result(outcome.message))
        elif run and isinstance(outcome, AIMessage):
            await run.on_llm_end(_result(outcome))

    async def fail(self, error: BaseException) -> None:
        """Report an error to every run that is still open."""
        while self._runs:
            await self._runs.popitem()[1].on_llm_error(error, response=LLMResult(generations=[]))


def _serialized(source: PreparedModel) -> dict[str, Any]:
    return {"name": source.model.get_name(), "kwargs": {}, "id": [], "lc": 1, "type": "not_implemented"}


def _params(source: PreparedModel, index: int) -> dict[str, Any]:
    if not isinstance(source.model, BaseChatModel):
        return {"name": source.model.get_name()}
    described = {**source.model._get_ls_params(**source.kwargs)}
    return {"name": source.model.get_name(), "invocation_params": {**source.call_kwargs(index)}, "options": described}


def _result(message: AIMessage | None) -> LLMResult:
    return LLMResult(generations=[[ChatGeneration(message=message)]] if message else [])
