"""The client of one server: langchain-openai's, told everything with the call."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from openai import APIError
from pydantic import PrivateAttr, SecretStr

from langchain_reasc.models.refusal import LogprobsMemory
from langchain_reasc_openai.langchain_openai_internals import AdaptedChatOpenAI

__all__ = ["WHOLE", "ServerClient", "keyless", "without_logprobs"]

WHOLE = "whole"
"""Argument of a call: take the response in one piece, though it is asked for as a stream."""


class ServerClient(AdaptedChatOpenAI):
    """Talks to one server; does what langchain-openai does, but for what other servers differ in.

    Raises:
        openai.APIError: by all calls; the key is not in it, though a server may have quoted it.
    """

    _logprobs: LogprobsMemory = PrivateAttr(default_factory=LogprobsMemory)

    @property
    def logprobs_memory(self) -> LogprobsMemory:
        """What is known of whether the server gives logprobs."""
        return self._logprobs

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Streams, or where the server's streams lack what is wanted one chunk with the whole response."""
        if kwargs.pop(WHOLE, False):
            kwargs.pop("stream_usage", None)
            yield _as_chunk(await self._agenerate(messages, stop=stop, run_manager=run_manager, **kwargs))
            return
        given: Any = {"stop": stop, "run_manager": run_manager}
        streaming = partial(super()._astream, messages, **given)
        with keyless(self.openai_api_key):
            if not kwargs.get("logprobs"):
                async for chunk in streaming(**kwargs):
                    yield chunk
                return

            def request(with_logprobs: bool) -> AsyncIterator[ChatGenerationChunk]:
                return streaming(**(kwargs if with_logprobs else without_logprobs(kwargs)))

            async with aclosing(self.logprobs_memory.astream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = partial(super()._agenerate, messages, stop=stop, run_manager=run_manager)
        with keyless(self.openai_api_key):
            if not kwargs.get("logprobs"):
                return await answer(**kwargs)
            return await self.logprobs_memory.agenerate(
                lambda with_logprobs: answer(**(kwargs if with_logprobs else without_logprobs(kwargs)))
            )


@contextmanager
def keyless(key: Any) -> Iterator[None]:
    """Takes the key out of errors in which the server quoted it."""
    try:
        yield
    except APIError as error:
        secret = key.get_secret_value() if isinstance(key, SecretStr) else None
        cause: BaseException | None = error
        while secret and cause is not None:  # langchain-openai raises its own errors from the client's
            if isinstance(cause, APIError) and secret in f"{cause} {cause.body}":
                cause.message = cause.message.replace(secret, "***")
                cause.args, cause.body = (cause.message,), None
            cause = cause.__cause__ or cause.__context__
        raise


def without_logprobs(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that does not ask for logprobs."""
    return {name: value for name, value in arguments.items() if name not in ("logprobs", "top_logprobs")}


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    generation: ChatGeneration = result.generations[0]
    message = generation.message
    assert isinstance(message, AIMessage)
    chunk = AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata={**message.response_metadata, "model_name": (result.llm_output or {}).get("model_name")},
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
        usage_metadata=message.usage_metadata,
        id=message.id,
    )
    return ChatGenerationChunk(message=chunk, generation_info=generation.generation_info)
