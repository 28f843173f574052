"""What servers do wrong: one behaviour each, by the name that the table in backends/README.md gives it."""

import json
import time
from itertools import islice
from typing import Any, Final

from runnable.chat_server import chunk, events
from runnable.fakes import Reply

from .fault_server import Behaviour, Exchange, answer, completion

__all__ = ["FAULTS", "TOKENS", "status"]

TOKENS: Final = 3  # of the right reply
_REPLY: Final = Reply("it is 42", -1.25)


def status(code: int, **headers: str) -> Behaviour:
    body = json.dumps({"error": {"message": f"the server said {code}", "type": "test", "code": None}})
    return lambda exchange: exchange.whole(code, body, **headers)


def _token(text: str, exchange: Exchange) -> str:
    return next(events(Reply(text, -1.25), exchange.request))


def no_first_token(exchange: Exchange) -> None:
    exchange.hang()


def no_second_token(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(_token("it", exchange))
    exchange.hang()


def cut(exchange: Exchange) -> None:
    """The connection closes before the reply has ended."""
    exchange.begin()
    exchange.event(_token("it", exchange))


def ended_early(exchange: Exchange) -> None:
    """In good order for HTTP, but with neither a finish reason nor the end mark, and before the last digit."""
    exchange.begin()
    for event in islice(events(Reply("it is 4 2", -1.25), exchange.request), TOKENS):
        exchange.event(event)
    exchange.end()


def malformed_json(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(_token("it", exchange))
    exchange.event('{"id": "c", "choices": [{"index": 0, "del')
    exchange.end()


def html(exchange: Exchange) -> None:
    exchange.whole(200, "<html><body>Please log in</body></html>", content_type="text/html")


def unstreamed(exchange: Exchange) -> None:
    exchange.whole(200, json.dumps(completion(_REPLY, exchange.request)))


def events_as_json(exchange: Exchange) -> None:
    answer(exchange, content_type="application/json")


def error_event(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(_token("it", exchange))
    exchange.event(json.dumps({"error": {"message": "CUDA out of memory", "type": "server_error", "code": 500}}))
    exchange.end()


def _altered(exchange: Exchange, alter: Any) -> None:
    """The right reply with each event put through ``alter(position, event)``."""
    exchange.begin()
    for at, event in enumerate(events(_REPLY, exchange.request)):
        exchange.event(event if event == "[DONE]" else json.dumps(alter(at, json.loads(event))))
    exchange.end()


def half_the_logprobs(exchange: Exchange) -> None:
    def alter(at: int, event: Any) -> Any:
        for choice in event["choices"] if at else ():
            choice["logprobs"] = None
        return event

    _altered(exchange, alter)


def empty_choices(exchange: Exchange) -> None:
    _altered(exchange, lambda at, event: event | {"choices": []})


def content_filter(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}]))
    exchange.event(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "content_filter"}]))
    exchange.event("[DONE]")
    exchange.end()


def duplicate_indices(exchange: Exchange) -> None:
    _altered(exchange, lambda at, event: event | {"choices": event["choices"] * 2})


def ten_megabytes(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(_token("thinking " * 1_165_085, exchange))
    for event in events(_REPLY, exchange.request):
        exchange.event(event)
    exchange.end()


def drip(exchange: Exchange, *, pause: float = 0.01) -> None:
    exchange.begin()
    whole = "".join(f"data: {event}\n\n" for event in events(_REPLY, exchange.request)).encode()
    size = max(1, len(whole) // 40)
    for at in range(0, len(whole), size):
        exchange.piece(whole[at : at + size])
        time.sleep(pause)
    exchange.end()


def usage(**reported: Any) -> Behaviour:
    return lambda exchange: _altered(
        exchange, lambda at, event: event | ({"usage": reported} if event.get("usage") else {})
    )


FAULTS: Final[dict[str, Behaviour]] = {
    "429": status(429),
    "429 with Retry-After": status(429, retry_after="1"),
    "500": status(500),
    "502": status(502),
    "503": status(503),
    "no first token": no_first_token,
    "no second token": no_second_token,
    "cut stream": cut,
    "stream ended early": ended_early,
    "malformed JSON": malformed_json,
    "HTML": html,
    "unstreamed reply": unstreamed,
    "events as JSON": events_as_json,
    "error event": error_event,
    "half the logprobs": half_the_logprobs,
    "empty choices": empty_choices,
    "content filter": content_filter,
    "duplicate indices": duplicate_indices,
    "10 MB line": ten_megabytes,
    "slow drip": drip,
    "usage null": usage(prompt_tokens=None, completion_tokens=None, total_tokens=None),
    "usage zero": usage(prompt_tokens=0, completion_tokens=0, total_tokens=0),
    "usage negative": usage(prompt_tokens=-5, completion_tokens=-7, total_tokens=-12),
    "usage in words": usage(prompt_tokens="many", completion_tokens="few", total_tokens="some"),
}
