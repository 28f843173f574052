"""All uses of langchain-openai beyond its public interface, each with its reason and
replacement.

``tests/backends/openai/test_langchain_openai_internals.py`` names what a release of
langchain-openai has changed.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models.base import (
    _handle_openai_api_error,
    _handle_openai_bad_request,
)
from openai import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    BadRequestError,
    BaseModel,
    pydantic_function_tool,
)
from openai._models import FinalRequestOptions
from pydantic import PrivateAttr

from langchain_reasc.exceptions import ConfigurationError, SamplingError
from langchain_reasc_openai.errors import HTTP_ERRORS, HTTP_TIMEOUTS
from langchain_reasc_openai.events import EventDecoder, Json, parsed, usable

T = TypeVar("T")
_DRAINED_WITHIN: Final = 0.1  # seconds
_DONE: Final = b"[DONE]"
_OF_ONE_REQUEST: Final = (b"content-length", b"cookie")
CLIENT_FIELDS: Final = ("client", "async_client", "root_client", "root_async_client")
"""Fields of ChatOpenAI with its connections. Needed because a pickle cannot hold them;
replaced when ChatOpenAI can be pickled by itself.
"""


class AdaptedChatOpenAI(ChatOpenAI):
    """ChatOpenAI, with requests and answers adapted to other servers."""

    _last_built: tuple[Any, Json, Any] = PrivateAttr(default=(None, {}, None))

    def body_of(
        self, messages: list[BaseMessage], kwargs: Mapping[str, Any], n: int
    ) -> tuple[Json, Json]:
        """Return the body of a request for n streamed responses, and the request's
        options for openai's client.

        Needed because langchain-openai reads only the first choice of each event, and
        makes a pydantic object of each: :meth:`raw_events` sends its
        ``_get_request_payload``. Reading several choices would replace this.
        """
        payload = self._get_request_payload(messages, **kwargs)
        names = {
            "extra_headers": "headers",
            "extra_query": "params",
            "timeout": "timeout",
        }
        options = {
            names[name]: payload.pop(name) for name in [*payload] if name in names
        }
        more = payload.pop("extra_body", None) or {}
        body = {**payload, **more, **({"n": n} if n > 1 else {})}
        if isinstance(schema := body.get("response_format"), type):
            function = pydantic_function_tool(schema)["function"]
            kept = {
                "name": function["name"],
                "schema": function["parameters"],
                "strict": True,
            }
            body["response_format"] = {"type": "json_schema", "json_schema": kept}
        return body, options

    async def raw_events(
        self,
        content: bytes,
        options: Mapping[str, Any],
        on_event: Callable[[bytes, Json | None], None],
        n: int,
    ) -> AsyncGenerator[None]:
        """Request n responses. Call ``on_event`` with the JSON and the content of each
        usable event of them.

        This yields after each piece of the response, and once before the first event.
        The content of the end, ``[DONE]``, is None. A reply in one piece is one event
        and the end. Each event is dropped before the next is parsed, because with many
        objects Python's garbage collector takes longer than the parser.

        Raises:
            openai.APIError: the server refuses, or an event is an error.
        """
        begun = False
        async with aclosing(self._pieces(content, options)) as pieces:
            async for response, datas in pieces:
                for data in datas:
                    done = data.startswith(_DONE)
                    event = (
                        None
                        if done
                        else usable(_checked(parsed(data), response.request), n)
                    )
                    if not (begun or event is None):
                        begun = True
                        yield
                    if done or event is not None:
                        on_event(data, event)
                    if done:
                        await _drain(response)
                        return
                yield

    async def _pieces(
        self, content: bytes, options: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[Any, list[bytes]]]:
        """Yield the response, with the data of the events in each of its pieces.

        Needed because openai's ``post`` reads single lines, makes a pydantic object of
        each event, and takes as long for a request as httpx and aiohttp together.
        ``root_async_client`` still builds the request and classifies its errors. A
        public way to build and send a request would replace this.
        """
        client = self.root_async_client
        request = await unquoted(self._request(content, options))
        with _openai_errors(request):
            response = await client._client.send(request, stream=True)
            try:
                if not response.is_success:
                    await response.aread()
                    raise client._make_status_error_from_response(response)
                decoder = EventDecoder()
                if "json" in response.headers.get("content-type", ""):
                    reply = await response.aread()
                    # some servers call a stream JSON
                    is_stream = reply.lstrip().startswith(b"data:")
                    yield (
                        response,
                        decoder.decoded(reply + b"\n\n")
                        if is_stream
                        else [reply, _DONE],
                    )
                    return
                is_packed = "content-encoding" in response.headers
                async for piece in (
                    response.aiter_bytes() if is_packed else response.stream
                ):
                    if datas := decoder.decoded(piece):
                        yield response, datas
                if datas := decoder.decoded(b"\n\n"):
                    yield response, datas
            finally:
                await response.aclose()

    async def _request(self, content: bytes, options: Mapping[str, Any]) -> Any:
        """Build a request. Only its body differs from that of the client's last request
        with equal options.

        Needed because openai's client takes 0.4 ms to build a request, and this takes
        0.06 ms.
        """
        client, (built_by, known, built) = self.root_async_client, self._last_built
        new_key = callable(self.openai_api_key)
        if new_key or built_by is not client or known != options:
            asked = FinalRequestOptions.construct(
                method="post", url="/chat/completions", content=b"{}", **options
            )
            built = client._build_request(await client._prepare_options(asked))
            self._last_built = client, dict(options), built
        headers = [
            (name, value)
            for name, value in built.headers.raw
            if name.lower() not in _OF_ONE_REQUEST
        ]
        given: Any = {"cookies": client._client.cookies, "extensions": built.extensions}
        return type(built)("POST", built.url, headers=headers, content=content, **given)

    def chunk_of(self, event: Json, choice: Json | None) -> ChatGenerationChunk:
        """Convert a normalized choice of an event to a chunk, or the event's usage if
        there is no choice.

        Needed because we send the requests ourselves; langchain-openai's
        ``_convert_chunk_to_generation_chunk`` reads the answers.
        """
        choices = (
            []
            if choice is None
            else [{**choice, "delta": {**choice["delta"], "role": "assistant"}}]
        )
        usage = event.get("usage") if choice is None else None
        given = {**event, "choices": choices, "usage": usage}
        chunk = self._convert_chunk_to_generation_chunk(given, AIMessageChunk, None)
        assert chunk is not None
        # which langchain-openai leaves out
        if choice is not None and (said := choice["delta"].get("refusal")):
            chunk.message.additional_kwargs |= {"refusal": said}
        return chunk

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Needed because Ollama and LM Studio know only ``max_tokens``; ChatOpenAI
        writes ``max_completion_tokens``.

        A field of ChatOpenAI that names the limit would replace this.
        """
        payload: dict[str, Any] = super()._get_request_payload(
            input_, stop=stop, **kwargs
        )
        if "max_tokens" in kwargs and "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")
        return payload

    def _create_chat_result(
        self,
        response: dict[str, Any] | BaseModel,
        generation_info: dict[str, Any] | None = None,
    ) -> ChatResult:
        """Needed because langchain-openai gives each of n choices the usage of all, so
        that a sum bills it n times.

        Here only the first choice has it. Replaced when langchain-openai reports the
        usage of a request once. Needed, too, because it raises a plain error for a
        reply that is an error or not a chat completion; classes of its own would
        replace this.

        Raises:
            openai.APIError: the reply is an error.
            SamplingError: the reply is not a chat completion.
        """
        no_request: Any = None
        said = (
            response.get("error")
            if isinstance(response, dict)
            else getattr(response, "error", None)
        )
        _checked({"error": said}, no_request)
        failure = ""
        try:
            result = super()._create_chat_result(response, generation_info)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            failure = str(error) or type(error).__name__
        # raised outside the except clause, because the other error may quote the key
        if failure:
            raise SamplingError(
                f"the server's reply is not a chat completion: {failure}"
            )
        for generation in result.generations[1:]:
            if isinstance(generation.message, AIMessage):
                generation.message.usage_metadata = None
        return result


async def unquoted(request: Awaitable[T]) -> T:
    """Await a request without quoting a header that is not ASCII in the error, since
    the header may be a key.

    Raises:
        ConfigurationError: a header is not ASCII.
    """
    try:
        return await request
    except UnicodeEncodeError as error:
        if error.encoding != "ascii":
            raise
    # Raised outside the except clause, so that the other error, which quotes the
    # header, is not its context.
    raise ConfigurationError(
        "a header of the request is not ASCII; see api_key, default_headers and "
        "extra_headers"
    )


@contextmanager
def langchain_errors() -> Iterator[None]:
    """Turn openai's errors into langchain-openai's, as its own requests do; a public
    way would replace it.
    """
    try:
        yield
    except BadRequestError as error:
        _handle_openai_bad_request(error)
    except APIError as error:
        _handle_openai_api_error(error)


@contextmanager
def _openai_errors(request: Any) -> Iterator[None]:
    """Turn errors of the HTTP client into openai's."""
    try:
        yield
    except HTTP_ERRORS as error:
        kind = (
            APITimeoutError if isinstance(error, HTTP_TIMEOUTS) else APIConnectionError
        )
        raise kind(request=request) from error


def _checked(event: Any, request: Any) -> Any:
    """Return an event; raise it if it is an error."""
    if isinstance(event, dict) and (error := event.get("error")):
        said = error.get("message") if isinstance(error, dict) else error
        raise APIError(
            str(said or "the server sent an error"), request=request, body=error
        )
    return event


async def _drain(response: Any) -> None:
    """Read the rest of the response, so that HTTP/1.1 can use the connection again."""
    with suppress(Exception):
        async with asyncio.timeout(_DRAINED_WITHIN):
            async for _ in response.stream:
                pass


def default_parameters(model: ChatOpenAI) -> dict[str, Any]:
    """Return the request parameters in the model's fields, by ``_default_params``.

    Needed because another object, the server's client, makes the request from the
    fields that a caller (or ``model_copy``) has set. Public access to a model's request
    parameters would replace this.
    """
    return dict(model._default_params)


def messages_of(model: BaseChatModel, prompt: LanguageModelInput) -> list[BaseMessage]:
    """Convert a prompt in any form that ``invoke`` accepts to messages, by
    langchain-core's ``_convert_input``.

    Needed by ``sample``, which accepts the same. A public conversion would replace
    this.
    """
    return model._convert_input(prompt).to_messages()
