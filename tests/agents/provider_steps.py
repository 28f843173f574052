"""What providers say in a step of an agent that calls tools: thoughts, signatures, text and calls, whole and streamed.

Each answers the first request so, and every later one, which brings the tools' results, with a text.
"""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from servers import responses_wire
from servers.chat_wire import PROMPT_TOKENS, Calling, words_of
from servers.exchange import Exchange

ARGUMENTS = [{"city": "Paris"}, {"city": "Zürich"}]
CALLS = [("get_weather", json.dumps(arguments)) for arguments in ARGUMENTS]
NOW = "Now the tools."
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
        {"type": "text", "text": NOW},
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
        [{"text": NOW}],
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


class OpenAI(Calling):
    """The chat API, and what those who copy it say of their reasoning beside it: see the fields of ``thought``."""

    history = "messages"
    text: Any = NOW

    def __init__(self, **thought: Any) -> None:
        super().__init__(words_of("it is sunny"), calls=lambda at: CALLS)
        self.thought = thought

    def called(self, request: dict[str, Any], at: int) -> list[dict[str, Any]]:
        return super().called(request, 0)  # with the same ids in every sample

    def whole(self, request: dict[str, Any], at: int = 0) -> Any:
        document = super().whole(request, at)
        if self.called(request, at):
            document["choices"][0]["message"] |= {**self.thought, "content": self.text}
        return document

    def events(self, request: dict[str, Any], at: int = 0) -> Iterator[Any]:
        if not (called := self.called(request, at)):
            yield from super().events(request, at)
            return
        words = [{"content": piece} for piece in pieces(NOW)]
        for fields in (self.thought, *words, {"content": "", "tool_calls": called}):
            yield self.delta(**fields)
        last = {"index": 0, "delta": {"content": ""}, "finish_reason": "tool_calls"}
        yield self.chunk(choices=[last], usage=self.usage([self.words]))


class Mistral(OpenAI):
    """https://docs.mistral.ai/capabilities/reasoning: what is thought is a part of the content."""

    thinking: ClassVar[dict[str, Any]] = {"type": "thinking", "thinking": [{"type": "text", "text": "two cities"}]}
    text: ClassVar[list[Any]] = [thinking, {"type": "text", "text": NOW}]

    def __init__(self) -> None:
        super().__init__(content=[self.thinking])


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
        super().__init__(pieces(NOW), lambda at: CALLS)

    def items(self, request: dict[str, Any], at: int) -> list[dict[str, Any]]:
        [*calls] = super().items(request, 0)  # with the same ids in every sample
        if calls[0]["type"] == "message":
            return calls
        text = {"type": "output_text", "text": "".join(self.words), "annotations": []}
        said = {"type": "message", "id": "msg-1", "role": "assistant", "status": "completed", "content": [text]}
        return [self.thought, self.search, said, *calls]
