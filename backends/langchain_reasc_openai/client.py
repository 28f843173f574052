"""The client of one server: langchain-openai's, with the server's own events."""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from openai import APIError
from pydantic import PrivateAttr, SecretStr
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from langchain_reasc.models.chunks import refuse_failed
from langchain_reasc.models.refusal import LogprobsMemory
from langchain_reasc_openai.errors import causes
from langchain_reasc_openai.events import Json
from langchain_reasc_openai.langchain_openai_internals import (
    AdaptedChatOpenAI,
    langchain_errors,
    unquoted,
)

WHOLE: Final = "whole"
"""Argument of a call: request the response in one piece, although the caller wants a
stream.
"""
RAW: Final = "raw"
"""Argument of a call: a :class:`RawRequest`, sent instead of a request made from the
messages and other arguments.
"""
EVENTS: Final = "upstream_events"
"""Key of the JSON of the server's own events in the metadata of a response to a
:class:`RawRequest`.
"""


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return the JSON of a request. Half of a surrogate pair, which a model may write,
    is escaped.
    """
    try:
        return to_json(body, inf_nan_mode="constants")
    except PydanticSerializationError:
        return json.dumps(body, default=to_jsonable_python).encode()


@dataclass(frozen=True)
class RawRequest:
    """A request that is sent unchanged, and whose response keeps the server's own
    events.

    Of the call's other arguments, only ``logprobs``, ``top_logprobs`` and the wish for
    a stream with its usage are added. The response's metadata has the JSON of each
    event under ``"upstream_events"``, which ``events_in`` reads. A response in one
    piece is a single event.

    Attributes:
        body: the JSON of the request.
        headers: further headers, which replace the model's own headers of the same
            names.
        on_events: called after each piece of the response, in the reading thread, with
            a list of the JSON of the response's events so far. A response that starts
            again has a new list, and a failed request an empty one.
    """

    body: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_events: Callable[[list[bytes]], None] = field(
        default=lambda events: None, repr=False
    )
    _encoded: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)

    def encoded(self, body: Mapping[str, Any]) -> bytes:
        """Return the JSON of this request with some fields added or changed, which
        samples in flight share.
        """
        changed = {
            name: value
            for name, value in body.items()
            if value is not self.body.get(name)
        }
        key = json.dumps(changed, sort_keys=True)
        if key not in self._encoded:
            self._encoded[key] = encoded(body)
        return self._encoded[key]


class ServerClient(AdaptedChatOpenAI):
    """Sends requests to one server, as langchain-openai does, and copes with servers
    other than OpenAI's.

    Raises:
        openai.APIError: from all calls. The key is removed from it, if the server
            quoted the key.
    """

    _logprobs: LogprobsMemory = PrivateAttr(default_factory=LogprobsMemory)

    async def whole(
        self, messages: list[BaseMessage], kwargs: Mapping[str, Any]
    ) -> ChatResult:
        """Return a response in one piece.

        This calls the method that langchain-core asks each chat model to define,
        because ``ainvoke`` would start a run of its own, which is traced and billed
        beside ours, and drop ``generation_info``.

        Raises:
            SamplingError: the server failed to generate the response.
        """
        result = await self._agenerate(messages, **kwargs)
        for generation in result.generations:
            refuse_failed(generation.generation_info or {})
        return result

    def events(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        on_event: Callable[[bytes, Json | None], None],
        beside: dict[str, Any],
        n: int = 1,
    ) -> AsyncGenerator[object]:
        """Request n responses, and yield after each piece of them.

        If the server refuses to stream, only the first response comes, in one event.

        Args:
            messages: the prompt, unless the arguments hold a :class:`RawRequest`.
            kwargs: the arguments of the call.
            on_event: called with the JSON and the content of each event, and at the end
                with None as the content.
            beside: receives the metadata of the responses that is not in their events.
            n: the number of responses.
        """

        def request(streamed: bool) -> AsyncGenerator[object]:
            whole = {**kwargs, WHOLE: True}
            return self._events(
                messages,
                kwargs if streamed else whole,
                on_event,
                beside,
                n if streamed else 1,
            )

        return self._logprobs.streamed(request, kwargs.get("model"))

    async def _events(
        self,
        messages: list[BaseMessage],
        kwargs: Mapping[str, Any],
        on_event: Callable[[bytes, Json | None], None],
        beside: dict[str, Any],
        n: int,
    ) -> AsyncGenerator[object]:
        raw: RawRequest | None = kwargs.get(RAW)
        rest = {
            name: value
            for name, value in kwargs.items()
            if name not in (RAW, WHOLE, "stream_usage")
        }
        options: Json = {"headers": dict(raw.headers)} if raw else {}
        asked = {
            name: rest.pop(name)
            for name in ("logprobs", "top_logprobs")
            if name in rest
        }
        own, options = (
            (dict(raw.body), options) if raw else self.body_of(messages, rest, n)
        )
        streamed = not kwargs.get(WHOLE)

        def body(wanted: bool) -> Json:
            # If not wanted, only the author's logprobs remain. Some servers refuse
            # these only in streams.
            streaming = streamed and (
                wanted or not own.get("logprobs") or bool(own.get("stream"))
            )
            made: Json = own | (asked if wanted else {}) | {"stream": streaming}
            if streaming and kwargs.get("stream_usage"):
                made["stream_options"] = {
                    **(made.get("stream_options") or {}),
                    "include_usage": True,
                }
            return made

        async def response(wanted: bool) -> AsyncGenerator[Any]:
            heard: list[bytes] = []

            def hear(data: bytes, event: Json | None) -> None:
                if event is not None:
                    heard.append(data)
                on_event(data, event)

            said = {EVENTS: heard} if raw else {}
            first: Any = ChatGenerationChunk(
                message=AIMessageChunk(content="", response_metadata=said)
            )
            content = raw.encoded(body(wanted)) if raw else encoded(body(wanted))
            arriving = self.raw_events(
                content, options, hear if raw else on_event, own.get("n") or 1
            )
            try:
                async with aclosing(arriving) as pieces:
                    async for _ in pieces:
                        if heard and raw:
                            raw.on_events(heard)
                        yield first
                        first = None
            finally:
                if heard and raw:
                    raw.on_events(heard)

        arriving = response(True)
        if asked.get("logprobs") and body(True) != body(False):
            arriving = self._logprobs.of_shape(own, streamed=streamed).astream(response)
        with (
            _without_key(self.openai_api_key),
            nullcontext() if raw else langchain_errors(),
        ):
            async with aclosing(arriving) as items:
                async for item in items:
                    if item is not None:
                        beside |= item.message.response_metadata
                    yield item

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def generate(with_logprobs: bool) -> ChatResult:
            left_out = () if with_logprobs else ("logprobs", "top_logprobs")
            kept = {
                name: value for name, value in kwargs.items() if name not in left_out
            }
            return await super(ServerClient, self)._agenerate(
                messages, stop, run_manager, **kept
            )

        memory = self._logprobs.of_shape(kwargs, streamed=False)
        with _without_key(self.openai_api_key):
            return await unquoted(
                memory.agenerate(generate) if kwargs.get("logprobs") else generate(True)
            )


@contextmanager
def _without_key(key: Any) -> Iterator[None]:
    """Remove the key from errors in which the server quoted it."""
    secret = key.get_secret_value() if isinstance(key, SecretStr) else None
    try:
        yield
    except Exception as error:
        # langchain-openai raises its own errors from the client's
        for cause in causes(error):
            if (
                secret
                and isinstance(cause, APIError)
                and secret in f"{cause} {cause.body}"
            ):
                cause.message = cause.message.replace(secret, "***")
                said = json.dumps(cause.body).replace(json.dumps(secret)[1:-1], "***")
                cause.args, cause.body = (cause.message,), json.loads(said)
            elif secret and secret in repr(cause.args):
                cause.args = tuple(
                    str(argument).replace(secret, "***") for argument in cause.args
                )
        raise
