"""What providers say in a step of an agent that calls tools: thoughts, signatures, text and calls, whole and streamed.

Each answers the first request so, and every later one, which brings the tools' results, with a text.
"""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from servers import responses_wire
from servers.chat_wire import DONE, PROMPT_TOKENS
from servers.exchange import Exchange

ARGUMENTS = [{"city": "Paris"}, {"city": "Zürich"}]
OUTPUT_TOKENS = 5


def pieces(text: str) -> list[str]:
    return [text[:4], text[4:]]


class Anthropic:
    """https://docs.claude.com/en/api/messages-streaming: every kind of block that stands in a response.

    The arguments of a call that are a string are streamed as they stand.
    """

    history = "messages"
    search: ClassVar[dict[str, Any]] = {"type": "web_search_result", "title": "Skies", "url": "https://skies.test"}
    step: ClassVar[list[dict[str, Any]]] = [
        {"type": "thinking", "thinking": "two cities", "signature": "SIGNATURE=="},
        {"type": "redacted_thinking", "data": "REDACTED=="},
        {"type": "text", "text": "I search first."},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "skies"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [search | {"encrypted_content": "E=="}]},
        {"type": "text", "text": "Now the tools."},
        *(
            {"type": "tool_use", "id": f"toolu_{at}", "name": "get_weather", "input": arguments}
            for at, arguments in enumerate(ARGUMENTS)
        ),
    ]

    async def __call__(self, exchange: Exchange) -> None:
        blocks = self.step if len(exchange.body["messages"]) == 1 else [{"type": "text", "text": "it is sunny"}]
        if exchange.body.get("stream"):
            await exchange.stream(self.events(blocks))
        else:
            await exchange.reply(200, self.message(blocks, stop_reason="tool_use"))

    def message(self, blocks: Any, **fields: Any) -> dict[str, Any]:
        usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        head = {"id": "m-1", "type": "message", "role": "assistant", "model": "m"}
        return {**head, "content": blocks, "stop_reason": None, "usage": usage, **fields}

    def events(self, blocks: Any) -> Iterator[Any]:
        yield {"type": "message_start", "message": self.message([])}
        for at, block in enumerate(blocks):
            start, deltas = self.streamed(block)
            yield {"type": "content_block_start", "index": at, "content_block": start}
            yield from ({"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas)
            yield {"type": "content_block_stop", "index": at}
        ending = {"stop_reason": "tool_use", "stop_sequence": None}
        yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": OUTPUT_TOKENS}}
        yield {"type": "message_stop"}

    def streamed(self, block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """How a block starts, and what is added to it."""
        match block:
            case {"type": "text", "text": text}:
                words = [{"type": "text_delta", "text": piece} for piece in pieces(text)]
                return {"type": "text", "text": ""}, words
            case {"type": "thinking", "thinking": thought, "signature": signature}:
                words = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(thought)]
                signed = {"type": "signature_delta", "signature": signature}
                return {"type": "thinking", "thinking": "", "signature": ""}, [*words, signed]
            case {"input": arguments}:
                said = ["", *pieces(arguments if isinstance(arguments, str) else json.dumps(arguments))]
                return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": one} for one in said]
        return block, []


class Gemini:
    """https://ai.google.dev/gemini-api/docs/thought-signatures: the first of parallel calls is signed."""

    history = "contents"
    calls: ClassVar[list[dict[str, Any]]] = [
        {"functionCall": {"name": "get_weather", "args": arguments}} for arguments in ARGUMENTS
    ]
    step: ClassVar[list[list[dict[str, Any]]]] = [
        [{"text": "two cities", "thought": True}],
        [{"text": "Now the tools."}],
        [calls[0] | {"thoughtSignature": "U0lH"}, calls[1]],
    ]

    async def __call__(self, exchange: Exchange) -> None:
        said = self.step if len(exchange.body["contents"]) == 1 else [[{"text": "it is sunny"}]]
        if ":streamGenerateContent" in exchange.path:
            await exchange.stream(self.document(parts, last=parts is said[-1]) for parts in said)
        else:
            await exchange.reply(200, self.document([part for parts in said for part in parts]))

    def document(self, parts: Any, *, last: bool = True) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        if not last:
            return {"candidates": [candidate], "modelVersion": "m"}
        usage = {"promptTokenCount": PROMPT_TOKENS, "candidatesTokenCount": OUTPUT_TOKENS}
        total = {"totalTokenCount": PROMPT_TOKENS + OUTPUT_TOKENS}
        return {"candidates": [candidate | {"finishReason": "STOP"}], "usageMetadata": usage | total}


class OpenAI:
    """The chat API, and what those who copy it say of their reasoning beside it: see the fields of ``thought``."""

    history = "messages"
    calls: ClassVar[list[dict[str, Any]]] = [
        {
            "index": at,
            "id": f"call-{at}-id",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps(arguments)},
        }
        for at, arguments in enumerate(ARGUMENTS)
    ]

    def __init__(self, **thought: Any) -> None:
        self.thought = thought

    async def __call__(self, exchange: Exchange) -> None:
        calling = len(exchange.body["messages"]) == 1
        if exchange.body.get("stream"):
            await exchange.stream([*self.events(calling), DONE])
        else:
            message = self.message() if calling else {"content": "it is sunny"}
            choice = {"message": {"role": "assistant"} | message, "finish_reason": "stop"}
            await exchange.reply(200, self.document("chat.completion", choice))

    def message(self) -> dict[str, Any]:
        return {"content": "Now the tools.", "tool_calls": self.calls, **self.thought}

    def events(self, calling: bool) -> Iterator[Any]:
        deltas = self.deltas() if calling else [{"content": "it is sunny"}]
        for delta in [{"role": "assistant", "content": ""}, *deltas]:
            yield self.document("chat.completion.chunk", {"delta": delta, "finish_reason": None})
        yield self.document("chat.completion.chunk", {"delta": {"content": ""}, "finish_reason": "stop"})

    def deltas(self) -> list[dict[str, Any]]:
        words = [{"content": piece} for piece in pieces("Now the tools.")]
        return [self.thought, *words, {"content": "", "tool_calls": self.calls}]

    def document(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 12}
        ended = {"usage": usage} if choice["finish_reason"] else {}
        head = {"id": "1", "object": kind, "created": 1, "model": "m", "system_fingerprint": None}
        return {**head, "choices": [{"index": 0, **choice}], **ended}


class Mistral(OpenAI):
    """https://docs.mistral.ai/capabilities/reasoning: what is thought is a part of the content."""

    thinking: ClassVar[dict[str, Any]] = {"type": "thinking", "thinking": [{"type": "text", "text": "two cities"}]}

    def message(self) -> dict[str, Any]:
        return super().message() | {"content": [self.thinking, {"type": "text", "text": "Now the tools."}]}

    def deltas(self) -> list[dict[str, Any]]:
        return [{"content": [self.thinking]}, *super().deltas()[1:]]


class Responses(responses_wire.Responses):
    """https://platform.openai.com/docs/guides/reasoning: encrypted thoughts, and a search on the server."""

    history = "input"
    thought: ClassVar[dict[str, Any]] = {
        "type": "reasoning",
        "id": "rs-1",
        "summary": [{"type": "summary_text", "text": text} for text in ("two cities", "so two calls")],
        "encrypted_content": "ENCRYPTED==",
    }
    search: ClassVar[dict[str, Any]] = {
        "type": "web_search_call",
        "id": "ws-1",
        "status": "completed",
        "action": {"type": "search", "query": "skies"},
    }

    def __init__(self) -> None:
        super().__init__(pieces("Now the tools."), lambda at: [("get_weather", json.dumps(one)) for one in ARGUMENTS])

    def items(self, request: dict[str, Any], at: int) -> list[dict[str, Any]]:
        [*calls] = super().items(request, 0)  # with the same ids in every sample
        if calls[0]["type"] == "message":
            return calls
        text = {"type": "output_text", "text": "".join(self.words), "annotations": []}
        said = {"type": "message", "id": "msg-1", "role": "assistant", "status": "completed", "content": [text]}
        return [self.thought, self.search, said, *calls]
