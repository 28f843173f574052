"""All uses of langchain-openai beyond its public interface, each with its reason and replacement.

``tests/backends/openai/test_langchain_openai_internals.py`` names what a release of langchain-openai has changed.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from openai import APIError, AsyncStream, BaseModel

from langchain_reasc.models.contract import FINISH_REASON

__all__ = ["CLIENT_FIELDS", "AdaptedChatOpenAI", "RawReading", "default_parameters", "messages_of"]

T = TypeVar("T")
CLIENT_FIELDS: Final = ("client", "async_client", "root_client", "root_async_client")
"""What ChatOpenAI connects with, and keeps in fields. Needed to leave them out of a pickle, which cannot hold them;
replaced when ChatOpenAI can be pickled by itself."""


class AdaptedChatOpenAI(ChatOpenAI):
    """ChatOpenAI, with what it sends and what it makes of an answer put right for other servers."""

    async def send_streamed(self, messages: list[BaseMessage], stop: Any, **kwargs: Any) -> Any:
        """Return the open stream of a request as openai's client has it, with every choice in it.

        Needed as langchain-openai reads the first choice of each chunk and drops its index, so that responses of one
        request (``n``) would run into each other: its payload (``_get_request_payload``) goes out by its own
        ``async_client``. Streams with several choices in langchain-openai would replace it and :meth:`chunk_of`.
        """
        options = {"stream": True, "stream_options": {"include_usage": True}}
        return await self.async_client.create(**self._get_request_payload(messages, stop=stop, **{**kwargs, **options}))

    async def raw_events(
        self, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[dict[str, Any] | None]:
        """Send a body as it is, and yield the events of its response as they are, and None for its end, ``[DONE]``.

        A reply in one piece, asked for or not, is one event and the end. Needed as langchain-openai writes a body of
        its own, from messages that know OpenAI's fields alone, and reads as much of a reply: it goes out by openai's
        documented way for undocumented requests (``client.post``), on ChatOpenAI's ``root_async_client``.

        Raises:
            openai.APIError: the server refuses, or an event is an error.
        """
        stream = await self.root_async_client.post(
            "/chat/completions",
            cast_to=object,
            content=json.dumps(body).encode(),  # openai's own fails at half of a surrogate pair
            options={"headers": dict(headers)},
            stream=True,
            stream_cls=_MarkedStream[object],
        )
        async with stream:
            if "json" in stream.response.headers.get("content-type", ""):
                reply = json.loads(await stream.response.aread())
                if error := reply.get("error"):
                    said = error.get("message") if isinstance(error, dict) else error
                    raise APIError(str(said), request=stream.response.request, body=error)
                yield _as_event(reply)
                yield None
                return
            async for event in stream:
                if isinstance(event, dict):
                    yield event
            if stream.done:
                yield None

    def chunk_of(self, event: dict[str, Any]) -> ChatGenerationChunk | None:
        """Return an event of :meth:`send_streamed` as LangChain's chunk, by ``_convert_chunk_to_generation_chunk``."""
        return self._convert_chunk_to_generation_chunk(_readable(event), AIMessageChunk, None)

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


class _MarkedStream(AsyncStream[T]):
    """A stream that knows whether it has ended by ``[DONE]``, which openai's client reads and does not hand on.

    Needed as some servers name no finish reason, so that nothing else tells a whole response from a broken one; by
    ``_iter_events``. A public sign of the end would replace it.
    """

    done = False

    async def _iter_events(self) -> AsyncIterator[Any]:
        async for event in super()._iter_events():
            self.done = self.done or event.data.startswith("[DONE]")
            if event.data:  # else it is none by the rules for server-sent events, and would be read as JSON
                yield event


class RawReading:
    """Reads one response from its raw events, as LangChain's chunks.

    Servers differ in what LangChain takes for granted: some leave the index of a call out, or say its name in each
    piece; give its arguments as an object; name no finish reason; or send choices that nobody asked for.

    Attributes:
        complete: whether the response came to its end, be it without a finish reason.
    """

    def __init__(self, client: AdaptedChatOpenAI) -> None:
        self.complete = False
        self._client = client
        self._begun = self._ended = False
        self._named: dict[Any, tuple[Any, Any]] = {}

    def chunk_of(self, event: dict[str, Any]) -> ChatGenerationChunk | None:
        """Return what an event adds to the response."""
        choices = [self._choice(one) for one in event.get("choices") or () if not one.get("index")]
        return self._client.chunk_of({**event, "choices": choices})

    def last_chunk(self) -> ChatGenerationChunk | None:
        """Return that the response has stopped, where it is complete without a finish reason."""
        if not self.complete or self._ended or not self._begun:
            return None
        return ChatGenerationChunk(message=AIMessageChunk(content=""), generation_info={FINISH_REASON: "stop"})

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        self._begun, self._ended = True, self._ended or bool(choice.get("finish_reason"))
        delta = _delta(choice.get("delta"))
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [self._call(call) for call in calls]
        return {**choice, "delta": delta}

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), dict | list):
            function["arguments"] = json.dumps(function["arguments"])
        before, _ = known = self._named.get(call["index"], (None, None))
        said = (call.get("id") or before, function.get("name"))
        if said == known:
            function["name"] = None
        elif function.get("name"):
            self._named[call["index"]] = said
        return {**call, "function": function}


def _as_event(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply in one piece as the only event of a stream."""
    choices = [
        {**{name: value for name, value in choice.items() if name != "message"}, "delta": _delta(choice.get("message"))}
        for choice in reply.get("choices") or ()
    ]
    return {**reply, "object": "chat.completion.chunk", "choices": choices}


def _readable(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event with what langchain-openai cannot do without, and some servers leave out."""
    choices = [{**choice, "delta": _delta(choice.get("delta"))} for choice in event.get("choices") or ()]
    return {**event, "choices": choices}


def _delta(said: dict[str, Any] | None) -> dict[str, Any]:
    delta = dict(said or {})
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    return delta


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
