"""Serve a LangChain chat model: a GGUF file in this process, the shipped model, or any
class.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_reasc_openai.events import CallRepairer
from starlette.requests import Request
from starlette.responses import Response

from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.models.calls import checked_calls
from langchain_reasc_server.calls import Call, Hear
from langchain_reasc_server.conversation import read_messages
from langchain_reasc_server.errors import Refused, refusal_of
from langchain_reasc_server.events import EventStream, Send
from langchain_reasc_server.wire import (
    DONE,
    Json,
    chunk_event,
    encoded,
    event_of,
    new_id,
    reply_of,
    usage_of,
)

_RENAMED: Final = {"max_completion_tokens": "max_tokens"}
_SAMPLING: Final = (
    *(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "typical_p",
        "max_tokens",
        "min_tokens",
        "seed",
    ),
    *(
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logprobs",
        "top_logprobs",
        "logit_bias",
    ),
)
"""Options that a client may set. Addresses and keys are not among them."""
_BINDING: Final = (
    *("grammar", "logit_bias", "functions", "structured_outputs"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
)
"""Options that clients rely on. A model that lacks one of them refuses the request."""
_WITH_GRAMMARS: Final = ("llama_cpp",)
"""LangChain's names of models that support ``grammar``."""
_MOST_MESSAGES: Final = 4096
_SHOWN: Final = 200  # characters of a wrong value
_BOUND: Final = ("tool_choice", "parallel_tool_calls")


class LangChainModel:
    """An upstream that is a LangChain chat model, with requests and replies in OpenAI's
    form.

    Attributes:
        chat_model: the model to sample.
        model: the model's name for clients. Requests may use any other name.
    """

    def __init__(self, chat_model: BaseChatModel, model: str) -> None:
        self.chat_model, self.model = chat_model, model
        self._since = int(time.time())

    def forwarded_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return no headers: there is no upstream that could see them."""
        return {}

    def is_own(self, model: str) -> bool:
        """Return True: there is only one model."""
        return True

    async def solve(
        self, solver: ChatReASC, call: Call, hear: Hear, limit: int | None
    ) -> AIMessage:
        """Return the winner, as the chat model's own message."""
        model, options = self._asked(solver, call.body)
        message: AIMessage = await model.ainvoke(
            _prompt(call.body), {"max_concurrency": limit}, **options
        )
        return message

    async def forward(
        self, request: Request, body: bytes, call: Call | None, why: str, send: Send
    ) -> None:
        """Answer a request that is not voted on: one response or ``n``, whole or
        streamed, or the list of models.

        Raises:
            Refused: the model does not support this request.
        """
        headers = {"x-reasc-passed-through": why}
        path = request.url.path
        if request.method == "GET" and path in (
            "/v1/models",
            f"/v1/models/{self.model}",
        ):
            row: Json = {
                "id": self.model,
                "object": "model",
                "created": self._since,
                "owned_by": "reasc",
            }
            listed: Json = {"object": "list", "data": [row]}
            await _send(listed if path == "/v1/models" else row, request, send, headers)
        elif call is None:
            raise Refused(404, f"this model has no {request.method} {path}")
        elif call.streamed:
            await self._stream(call, EventStream(send, headers))
        else:
            await _send(await self._whole(call), request, send, headers)

    def _asked(self, model: Any, body: Json) -> tuple[Any, dict[str, Any]]:
        """Bind the tools of a request to a model, and return it with the options that
        the model supports.

        Raises:
            Refused: a value has the wrong type, or the model does not support an
                option.
        """
        has = {*_SAMPLING} & {*type(self.chat_model).model_fields}
        has |= {"grammar"} if self.chat_model._llm_type in _WITH_GRAMMARS else set()
        known = {
            _RENAMED.get(name, name): value
            for name, value in body.items()
            if value is not None
        }
        for name in _BINDING:
            if name in known and name not in has:
                raise Refused(
                    400,
                    f"this model does not take {name}; leave it out",
                    param=name,
                    code="unsupported",
                )
        options: dict[str, Any] = {name: known[name] for name in has if name in known}
        if (stop := known.get("stop")) is not None:
            options["stop"] = stop = [stop] if isinstance(stop, str) else stop
            if not isinstance(stop, list) or not all(
                isinstance(one, str) and one for one in stop
            ):
                raise _wrong("stop", stop, "a text or a list of texts")
        form = known.get("response_format")
        if "json_schema" in known:  # as llama-server takes it
            form = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": known["json_schema"]},
            }
        if form is not None and form != {"type": "text"}:
            options["response_format"] = form
        if tools := known.get("tools"):
            if not isinstance(tools, list):
                raise _wrong("tools", tools, "a list of tools")
            model = model.bind_tools(
                tools, **{name: known[name] for name in _BOUND if name in known}
            )
        return model, options

    async def _whole(self, call: Call) -> Json:
        model, options = self._asked(self.chat_model, call.body)
        prompt, n = _prompt(call.body), _n(call)
        drawing = [
            asyncio.create_task(model.ainvoke(prompt, **options)) for _ in range(n)
        ]
        try:
            messages: list[AIMessage] = [
                checked_calls(message) for message in await asyncio.gather(*drawing)
            ]
        finally:
            for task in drawing:
                task.cancel()
        usage: UsageMetadata | None = None
        for message in messages:
            usage = add_usage(usage, message.usage_metadata)
        replies = [reply_of(message, call.model) for message in messages]
        choices = [
            {**reply["choices"][0], "index": index}
            for index, reply in enumerate(replies)
        ]
        return {**replies[0], "choices": choices, "usage": usage_of(usage)}

    async def _stream(self, call: Call, events: EventStream) -> None:
        model, options = self._asked(self.chat_model, call.body)
        prompt, n = _prompt(call.body), _n(call)
        head: Json = {"id": new_id(), "created": int(time.time()), "model": call.model}
        # of all events but the last
        beside: Json = {"usage": None} if call.wants_usage else {}
        usage: UsageMetadata | None = None
        try:
            for index in range(n):
                whole: Any = None
                repairer = CallRepairer()
                async for chunk in model.astream(prompt, **options):
                    if whole is None:
                        role: Json = {"role": "assistant", "content": ""}
                        await events.write(event_of(head, role, index=index) | beside)
                    whole = chunk if whole is None else whole + chunk
                    if (event := chunk_event(head, chunk, repairer, index)) is not None:
                        await events.write(event | beside)
                message = whole if whole is not None else AIMessage("")
                usage = add_usage(usage, message.usage_metadata)
                ended = reply_of(message, "")["choices"][0]["finish_reason"]
                last = repairer.repaired({}, ended)
                await events.write(
                    event_of(head, last, finish_reason=ended, index=index) | beside
                )
        except Exception as error:
            if events.begun:
                await events.write(refusal_of(error).body)
                await events.close()
            raise
        bill = (
            [{**event_of(head, None), "usage": usage_of(usage)}]
            if call.wants_usage
            else []
        )
        await events.write(*bill, DONE)
        await events.close()

    async def token_limit(self) -> str:
        """Return LangChain's name for the most tokens of a response."""
        return "max_tokens"

    async def ready(self) -> bool:
        """Return True: the model is in this process."""
        return True

    def health(self) -> dict[str, bool]:
        """Return nothing: there are no servers."""
        return {}

    async def close(self) -> None:
        """No-op: the caller owns the chat model."""


def _prompt(body: Json) -> list[BaseMessage]:
    """Return the messages of a request.

    Raises:
        Refused: one of them is not a message.
    """
    given = body.get("messages")
    if not isinstance(given, list) or not 1 <= len(given) <= _MOST_MESSAGES:
        raise _wrong("messages", given, f"a list of 1 to {_MOST_MESSAGES:,} messages")
    for number, one in enumerate(given):
        content = one.get("content") if isinstance(one, dict) else 0
        parts = isinstance(content, list) and all(
            isinstance(part, dict) for part in content
        )
        calls = content is None and one.get("role") == "assistant"
        if not (isinstance(content, str) or parts or calls):
            raise _wrong(
                f"messages[{number}]", one, "an object with a role and a content"
            )
    try:
        return read_messages(given)
    except Exception as error:
        raise _wrong("messages", given, f"messages of the chat API ({error})") from None


def _wrong(param: str, value: Any, takes: str) -> Refused:
    said = json.dumps(value)
    return Refused(
        400,
        f"{param} is {said[:_SHOWN]}; it takes {takes}",
        param=param,
        code="invalid_value",
    )


def _n(call: Call) -> int:
    n = 1 if call.body.get("n") is None else call.body["n"]
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 128:
        raise _wrong("n", n, "a whole number from 1 to 128")
    return n


async def _send(
    reply: Json, request: Request, send: Send, headers: Mapping[str, str]
) -> None:
    response = Response(encoded(reply), headers=headers, media_type="application/json")
    await response(request.scope, request.receive, send)
