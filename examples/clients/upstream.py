"""A model behind OpenAI's API that answers from a script, to try clients of
``reasc serve`` offline.

    pip install ".[serve]"
    python examples/clients/upstream.py 9000
    reasc serve --url http://127.0.0.1:9000

It settles complaints of a shop's customers, and is mistaken one time in eight: as luck
would have it, the first time that it is asked something.
"""

import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]
EDIT = "shop.py\n```python\n<<<<<<< SEARCH\nprice = 42\n=======\nprice = 14\n>>>>>>> REPLACE\n```\n"
asked_before: Counter[str] = Counter()


def says(content: str) -> Json:
    return {"role": "assistant", "content": content}


def calls(name: str, *arguments: Json) -> Json:
    functions = [{"name": name, "arguments": json.dumps(one)} for one in arguments]
    made = [
        {
            "index": at,
            "id": f"call_{uuid.uuid4().hex}",
            "type": "function",
            "function": function,
        }
        for at, function in enumerate(functions)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def replies(body: Json) -> list[Json]:
    """What a request is answered with: mistaken and right, or the one thing that is
    said each time.
    """
    tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
    results = sum(message["role"] == "tool" for message in body["messages"])
    if "exec_command" in tools:  # Codex
        if results:
            return [says("There are 3 orders.")]
        return [
            calls("exec_command", {"cmd": "wc -c orders.csv"}),
            calls("exec_command", {"cmd": "wc -l orders.csv"}),
        ]
    if "Bash" in tools:  # Claude Code
        if results:
            return [says("There are 3 orders.")]
        return [
            calls("Bash", {"command": "wc -c orders.csv"}),
            calls("Bash", {"command": "wc -l orders.csv"}),
        ]
    if "find_order" in tools and results == 0:
        return [
            calls("find_order", {"order": 1024}),
            calls("find_order", {"order": 1042}, {"order": 1043}),
        ]
    if "find_order" in tools and results == 2:
        one, other = {"order": 1042, "euros": 14}, {"order": 1043, "euros": 14}
        return [
            calls("refund", {**one, "euros": 42}, other),
            calls("refund", one, other),
        ]
    if results:
        return [says("I have paid back 14 euros for each.")]
    if body.get("response_format"):
        return [
            says('{"order": 1042, "euros": 42}'),
            says('{"order": 1042, "euros": 14}'),
        ]
    if "SEARCH/REPLACE" in str(body["messages"]):  # aider
        return [says(EDIT)]
    return [
        says("3 lamps at 14 euros: that is 42 euros."),
        says("1 lamp was not ordered: that is 14 euros."),
    ]


def deltas(message: Json) -> Iterator[Json]:
    """A message as it is streamed: texts and arguments in pieces of eight characters."""
    yield {"role": "assistant", "content": ""}
    text = message["content"] or ""
    yield from ({"content": text[at : at + 8]} for at in range(0, len(text), 8))
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        yield {
            "tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]
        }
        for at in range(0, len(arguments), 8):
            yield {
                "tool_calls": [
                    {
                        "index": call["index"],
                        "function": {"arguments": arguments[at : at + 8]},
                    }
                ]
            }


async def chat(request: Request) -> Response:
    """Answer a chat completion, whole or streamed."""
    body = await request.json()
    conversation = json.dumps([body["messages"], body.get("tools")])
    either = replies(body)
    message = either[0 if asked_before[conversation] % 8 == 0 else -1]
    asked_before[conversation] += 1
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    asked, said = len(conversation) // 4, len(json.dumps(message)) // 4
    usage = {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": asked + said,
    }
    head = {"id": f"chatcmpl-{asked_before.total()}", "created": 1, "model": "shop"}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return JSONResponse(
            {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )

    def events() -> Iterator[str]:
        choices = [
            [{"index": 0, "delta": delta, "finish_reason": None}]
            for delta in deltas(message)
        ]
        for choice in [
            *choices,
            [{"index": 0, "delta": {}, "finish_reason": finish}],
            [],
        ]:
            event = {**head, "object": "chat.completion.chunk", "choices": choice}
            yield f"data: {json.dumps(event if choice else {**event, 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def models(request: Request) -> Response:
    """Name the only model."""
    return JSONResponse({"object": "list", "data": [{"id": "shop", "object": "model"}]})


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
