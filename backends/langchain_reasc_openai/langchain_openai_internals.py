"""All uses of langchain-openai beyond its public interface, each with its reason and replacement.

``tests/backends/openai/test_langchain_openai_internals.py`` names what a release of langchain-openai has changed.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import _handle_openai_api_error, _handle_openai_bad_request
from openai import APIError, AsyncStream, BadRequestError, BaseModel, pydantic_function_tool
from pydantic_core import to_jsonable_python

from langchain_reasc_openai.events import EventDecoder, Json, parsed, usable

__all__ = ["CLIENT_FIELDS", "AdaptedChatOpenAI", "default_parameters", "langchain_errors", "messages_of"]

_DRAINED_WITHIN: Final = 0.1  # seconds
CLIENT_FIELDS: Final = ("client", "async_client", "root_client", "root_async_client")
"""What ChatOpenAI connects with, and keeps in fields. Needed to leave them out of a pickle, which cannot hold them;
replaced when ChatOpenAI can be pickled by itself."""


class AdaptedChatOpenAI(ChatOpenAI):
    """ChatOpenAI, with what it sends and what it makes of an answer put right for other servers."""

    def body_of(self, messages: list[BaseMessage], kwargs: Mapping[str, Any], n: int) -> tuple[Json, Json]:
        """Return the body of a request for n streamed responses, and the options that openai's client takes with it.

        Needed as langchain-openai reads the first choice of each event alone, by a pydantic model for each: its
        ``_get_request_payload`` is sent by :meth:`raw_events`. Reading several choices would replace it.
        """
        payload = self._get_request_payload(messages, **kwargs)
        names = {"extra_headers": "headers", "extra_query": "params", "timeout": "timeout"}
        options = {names[name]: payload.pop(name) for name in [*payload] if name in names}
        more = payload.pop("extra_body", None) or {}
        body = {**payload, **more, **({"n": n} if n > 1 else {})}
        if isinstance(schema := body.get("response_format"), type):
            function = pydantic_function_tool(schema)["function"]
            kept = {"name": function["name"], "schema": function["parameters"], "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": kept}
        return body, options

    async def raw_events(
        self, body: Mapping[str, Any], options: Mapping[str, Any], hear: Callable[[bytes], None] | None = None
    ) -> AsyncGenerator[list[Json | None]]:
        """Send a body as it is, and yield the events of its response that can be used, in lists as they come together.

        None stands for the end, ``[DONE]``. A reply in one piece, asked for or not, is one event and the end.
        ``hear`` gets the JSON of each. Needed as langchain-openai writes a body of its own, from messages that know
        OpenAI's fields alone, and reads as much of a reply: it goes out by openai's documented way for undocumented
        requests (``client.post``), on ChatOpenAI's ``root_async_client``.

        Raises:
            openai.APIError: the server refuses, or an event is an error.
        """
        content, n = json.dumps(body, default=to_jsonable_python).encode(), body.get("n") or 1
        stream = await self.root_async_client.post(
            "/chat/completions",
            cast_to=object,
            content=content,  # openai's own fails at half of a surrogate pair
            options=options,
            stream=True,
            stream_cls=_DecodedStream,
        )
        async with stream:
            if "json" in stream.response.headers.get("content-type", ""):
                reply = await stream.response.aread()
                if not reply.lstrip().startswith(b"data:"):  # as some servers name events
                    yield [*_read([reply], n, stream.response.request, hear), None]
                    return
            async for datas in stream._iter_events():
                at = next((at for at, data in enumerate(datas) if data.startswith(b"[DONE]")), None)
                kept: list[Json | None] = []
                try:
                    kept += _read(datas[:at], n, stream.response.request, hear)
                except Exception:
                    if kept:  # what came before was paid for
                        yield kept
                    raise
                yield kept if at is None else [*kept, None]
                if at is not None:
                    await _drain(stream.response)
                    return

    def chunk_of(self, event: Json, choice: Json | None) -> ChatGenerationChunk:
        """Return one choice of an event, normalized, as a chunk; or its usage, where there is no choice.

        Needed as the requests are ours: langchain-openai's ``_convert_chunk_to_generation_chunk`` reads what comes.
        """
        choices = [] if choice is None else [{**choice, "delta": {**choice["delta"], "role": "assistant"}}]
        usage = event.get("usage") if choice is None else None
        given = {**event, "choices": choices, "usage": usage}
        chunk = self._convert_chunk_to_generation_chunk(given, AIMessageChunk, None)
        assert chunk is not None
        if choice is not None and (said := choice["delta"].get("refusal")):  # which langchain-openai leaves out
            chunk.message.additional_kwargs |= {"refusal": said}
        return chunk

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Needed as Ollama and LM Studio know ``max_tokens`` only; ChatOpenAI always writes ``max_completion_tokens``.

        A field of ChatOpenAI that names the limit would replace it.
        """
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "max_tokens" in kwargs and "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")
        return payload

    def _create_chat_result(
        self, response: dict[str, Any] | BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        """Needed as each of several choices is said to have the usage of all, so that a sum bills it n times.

        Replaced when langchain-openai reports the usage of a request once: here, with the first choice.
        """
        result = super()._create_chat_result(response, generation_info)
        for generation in result.generations[1:]:
            if isinstance(generation.message, AIMessage):
                generation.message.usage_metadata = None
        return result


@contextmanager
def langchain_errors() -> Iterator[None]:
    """Turn openai's errors into langchain-openai's, as its own requests do; a public way would replace it."""
    try:
        yield
    except BadRequestError as error:
        _handle_openai_bad_request(error)
    except APIError as error:
        _handle_openai_api_error(error)


class _DecodedStream(AsyncStream[Any]):
    """A stream whose ``_iter_events`` yields what :class:`EventDecoder` does.

    Needed as openai's client reads lines one by one and makes a pydantic object of each event, at ten times the cost,
    and hides whether a stream ended by ``[DONE]``. A choice of the decoder would replace it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._decoder: Any = EventDecoder()


def _read(datas: Iterable[bytes], n: int, request: Any, hear: Callable[[bytes], None] | None) -> Iterator[Json]:
    """Yield the events that can be used."""
    for data in datas:
        event = parsed(data)
        if isinstance(event, dict) and (error := event.get("error")):
            said = error.get("message") if isinstance(error, dict) else error
            raise APIError(str(said or "the server sent an error"), request=request, body=error)
        if (kept := usable(event, n)) is not None:
            if hear:
                hear(data)
            yield kept


async def _drain(response: Any) -> None:
    """Read what follows the last event, for HTTP/1.1's sake, so that the connection can be used again."""
    with suppress(Exception):
        async with asyncio.timeout(_DRAINED_WITHIN):
            async for _ in response.stream:
                pass


def default_parameters(model: ChatOpenAI) -> dict[str, Any]:
    """Return what the model's fields say of a request, by ``_default_params``.

    Needed as a request is made by another object, the server's client, from the fields of the model that a caller (or
    ``model_copy``) has set. Public access to a model's request parameters would replace it.
    """
    return dict(model._default_params)


def messages_of(model: BaseChatModel, prompt: LanguageModelInput) -> list[BaseMessage]:
    """Return the prompt in any form that ``invoke`` takes, as messages, by langchain-core's ``_convert_input``.

    Needed by ``sample``, which takes what ``invoke`` takes; a public conversion would replace it.
    """
    return model._convert_input(prompt).to_messages()
