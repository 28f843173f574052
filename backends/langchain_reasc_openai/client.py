"""The client of one server: langchain-openai's, told everything with the call."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from openai import APIError
from pydantic import SecretStr

from langchain_reasc_openai.langchain_openai_internals import AdaptedChatOpenAI

__all__ = ["WHOLE", "ServerClient", "keyless"]

WHOLE = "whole"
"""Argument of a call: take the response in one piece, though it is asked for as a stream."""


class ServerClient(AdaptedChatOpenAI):
    """Talks to one server; does what langchain-openai does, but for what other servers differ in.

    Raises:
        openai.APIError: by all calls; the key is not in it, though a server may have quoted it.
    """

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Streams, or where the server's streams lack what is wanted one chunk with the whole response."""
        if not kwargs.pop(WHOLE, False):
            with keyless(self.openai_api_key):
                async for chunk in super()._astream(messages, stop=stop, run_manager=run_manager, **kwargs):
                    yield chunk
            return
        kwargs.pop("stream_usage", None)
        result = await self._agenerate(messages, stop=stop, run_manager=run_manager, **kwargs)
        yield _as_chunk(result)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with keyless(self.openai_api_key):
            return await super()._agenerate(messages, stop=stop, run_manager=run_manager, **kwargs)


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
