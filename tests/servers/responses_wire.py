"""What a server of OpenAI's Responses API says, whole or streamed: a text, or calls of functions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .chat_wire import PROMPT_TOKENS, Refused, Request

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["Responses"]

_KNOWN = frozenset(
    {"model", "input", "stream", "store", "tools", "tool_choice", "reasoning", "text", "temperature", "include"}
) | {"instructions", "max_output_tokens", "parallel_tool_calls", "previous_response_id", "top_p", "truncation", "user"}


@dataclass
class Responses:
    """``POST /responses`` (https://platform.openai.com/docs/api-reference/responses-streaming).

    ``calls`` says which functions request number ``at`` is answered with, each a name and its arguments as they stand;
    a request that comes after a function's output gets the words. ``incomplete`` is why it ended early, and a stream
    that ``breaks`` has no last event.
    """

    words: Sequence[str] = ("the", " answer", " is", " 42")
    calls: Callable[[int], Sequence[tuple[str, str]]] = lambda at: ()
    incomplete: str | None = None
    breaks: bool = False

    async def __call__(self, exchange: "Exchange") -> None:
        if not exchange.path.endswith("/responses"):
            raise Refused(f"no such endpoint: {exchange.path}", 404)
        if unknown := exchange.body.keys() - _KNOWN:
            raise Refused(f"Unknown parameter: {sorted(unknown)}")
        items = self.items(exchange.body, exchange.at)
        whole = self.response(items, exchange.at, text=exchange.body.get("text"))
        if exchange.body.get("stream"):
            await exchange.stream(self.events(items, exchange.at, whole))
        else:
            await exchange.reply(200, whole)

    def items(self, request: Request, at: int) -> list[dict[str, Any]]:
        """What is said: items of the response's output."""
        last = request["input"][-1]
        called = () if last.get("type") == "function_call_output" else self.calls(at)
        if called:
            return [
                {
                    "type": "function_call",
                    "id": f"fc-{at}-{place}",
                    "call_id": f"call-{at}-{place}",
                    "name": name,
                    "arguments": arguments,
                    "status": "completed",
                }
                for place, (name, arguments) in enumerate(called)
            ]
        text = {"type": "output_text", "text": "".join(self.words), "annotations": []}
        return [{"type": "message", "id": f"msg-{at}", "role": "assistant", "status": "completed", "content": [text]}]

    def response(self, items: list[dict[str, Any]], at: int, **fields: Any) -> dict[str, Any]:
        output = len(self.words)
        return {
            "id": f"resp-{at}",
            "object": "response",
            "created_at": 1,
            "model": "gpt-test",
            "status": "incomplete" if self.incomplete else "completed",
            "incomplete_details": {"reason": self.incomplete} if self.incomplete else None,
            "error": None,
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": PROMPT_TOKENS,
                "output_tokens": output,
                "total_tokens": PROMPT_TOKENS + output,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
            **fields,
        }

    def events(self, items: list[dict[str, Any]], at: int, whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
        begun = self.response([], at, status="in_progress", usage=None, incomplete_details=None)
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        for place, item in enumerate(items):
            where = {"output_index": place, "item_id": item["id"]}
            if item["type"] == "message":
                [text] = item["content"]
                where["content_index"] = 0
                empty = {**item, "content": [], "status": "in_progress"}
                events.append({"type": "response.output_item.added", "output_index": place, "item": empty})
                events.append({"type": "response.content_part.added", **where, "part": {**text, "text": ""}})
                for word in self.words:
                    events.append({"type": "response.output_text.delta", **where, "delta": word, "logprobs": []})
                events.append({"type": "response.output_text.done", **where, "text": text["text"], "logprobs": []})
                events.append({"type": "response.content_part.done", **where, "part": text})
            elif item["type"] == "reasoning":
                events.append(
                    {"type": "response.output_item.added", "output_index": place, "item": item | {"summary": []}}
                )
                for at_part, part in enumerate(item["summary"]):
                    where["summary_index"] = at_part
                    empty = part | {"text": ""}
                    events.append({"type": "response.reasoning_summary_part.added", **where, "part": empty})
                    events.append({"type": "response.reasoning_summary_text.delta", **where, "delta": part["text"]})
                    events.append({"type": "response.reasoning_summary_text.done", **where, "text": part["text"]})
            elif item["type"] != "function_call":
                empty = {**item, "status": "in_progress"}
                events.append({"type": "response.output_item.added", "output_index": place, "item": empty})
            else:
                empty = {**item, "arguments": "", "status": "in_progress"}
                events.append({"type": "response.output_item.added", "output_index": place, "item": empty})
                arguments = item["arguments"]
                for begin in range(0, len(arguments), 5):
                    piece = arguments[begin : begin + 5]
                    events.append({"type": "response.function_call_arguments.delta", **where, "delta": piece})
                events.append({"type": "response.function_call_arguments.done", **where, "arguments": arguments})
            events.append({"type": "response.output_item.done", "output_index": place, "item": item})
        if not self.breaks:
            kind = "response.incomplete" if self.incomplete else "response.completed"
            events.append({"type": kind, "response": whole})
        yield from ({**event, "sequence_number": number} for number, event in enumerate(events))
