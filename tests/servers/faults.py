"""Faults of servers, by their names in the table of docs/servers.md."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from .chat_wire import DONE, Chat, words_of
from .exchange import EVENTS, JSON, Answer, Exchange, refuses

__all__ = ["FAULTS", "RIGHT", "TOKENS", "drip", "keep_alives"]

RIGHT: Final = Chat(logprob=-1.25)  # what a server in good health says
TOKENS: Final = len(RIGHT.words)


def sends(
    *given: Any,
    chat: Chat = RIGHT,
    only: int | None = None,
    alter: Callable[[int, Any], Any] = lambda at, event: event,
    then: Callable[[Exchange], Awaitable[None]] = Exchange.end_stream,
    content_type: str = EVENTS,
) -> Answer:
    """The right stream or ``only`` its first events, each put through ``alter(position, event)``; then ``given``."""

    async def behave(exchange: Exchange) -> None:
        events = [*chat.events(exchange.body)][:only]
        await exchange.stream([*(alter(at, event) for at, event in enumerate(events)), *given], content_type)
        await then(exchange)

    return behave


async def unstreamed(exchange: Exchange) -> None:
    await exchange.reply(200, RIGHT.whole(exchange.body))


async def html(exchange: Exchange) -> None:
    await exchange.reply(200, "<html><body>Please log in</body></html>", content_type="text/html")


def without_logprobs(event: Any) -> Any:
    return event | {"choices": [choice | {"logprobs": None} for choice in event["choices"]]}


def with_finish_reason(word: str) -> Callable[[int, Any], Any]:
    return lambda at, event: event | {"choices": [one | {"finish_reason": word} for one in event["choices"]]}


async def ten_megabytes(exchange: Exchange) -> None:
    times = 2 + RIGHT.alternatives_of(exchange.body)  # that the token stands in its event
    thought = "thinking " * (10 * 2**20 // 9 // times) + "\n"
    await exchange.stream([RIGHT.token(thought, exchange.body)])
    await RIGHT(exchange)


def drip(pause: float = 0.01) -> Answer:
    async def behave(exchange: Exchange) -> None:
        await exchange.begin_stream()
        texts = [*(json.dumps(event) for event in RIGHT.events(exchange.body)), DONE]
        whole = "".join(f"data: {text}\n\n" for text in texts)
        size = max(1, len(whole) // 40)
        for at in range(0, len(whole), size):
            await exchange.write(whole[at : at + size])
            await asyncio.sleep(pause)

    return behave


async def keep_alives(exchange: Exchange) -> None:
    """Send comments without end, and no event."""
    await exchange.begin_stream()
    while True:
        await exchange.write(": so\n\n")
        await asyncio.sleep(0.02)


def usage(*given: Any) -> Answer:
    reported = dict(zip(("prompt_tokens", "completion_tokens", "total_tokens"), given, strict=True))
    return sends(DONE, alter=lambda at, event: event | ({"usage": reported} if event.get("usage") else {}))


FAULTS: Final[dict[str, Answer]] = {
    "429": refuses(429),
    "429 with Retry-After": refuses(429, retry_after="0.5"),
    "5xx": refuses(503),
    "no first token": Exchange.hang,
    "no second token": sends(only=1, then=Exchange.hang),
    "cut stream": sends(only=1, then=Exchange.cut),
    # In good order for HTTP, but with neither a finish reason nor the end mark, and before the last digit.
    "stream ended early": sends(chat=Chat(words_of("it is 4 2"), -1.25), only=TOKENS),
    "finish reason null": sends(chat=Chat(words_of("it is 4 2"), -1.25), only=TOKENS, alter=with_finish_reason("null")),
    "finish reason error": sends(
        RIGHT.chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "error"}]), DONE, only=TOKENS - 1
    ),
    "malformed JSON": sends('{"id": "c", "choices": [{"index": 0, "del', only=1),
    "HTML": html,
    "unstreamed reply": unstreamed,
    "events as JSON": sends(DONE, content_type=JSON),
    "error event": sends({"error": {"message": "CUDA out of memory", "type": "server_error", "code": 500}}, only=1),
    "half the logprobs": sends(DONE, alter=lambda at, event: without_logprobs(event) if at else event),
    "empty choices": sends(DONE, alter=lambda at, event: event | {"choices": []}),
    "content filter": sends(
        RIGHT.chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}]),
        RIGHT.chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "content_filter"}]),
        DONE,
        only=0,
    ),
    "duplicate indices": sends(DONE, alter=lambda at, event: event | {"choices": event["choices"] * 2}),
    "10 MB line": ten_megabytes,
    "slow drip": drip(),
    "usage null": usage(None, None, None),
    "usage zero": usage(0, 0, 0),
    "usage negative": usage(-5, -7, -12),
    "usage in words": usage("many", "few", "some"),
}
