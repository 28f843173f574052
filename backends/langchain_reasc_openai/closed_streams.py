"""Measure whether a server stops generating when a stream is closed.

It is seen by what the server tells of its work: ``/metrics`` of vLLM, SGLang and llama-server, ``/slots`` of
llama-server.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from langchain_reasc.exceptions import ServerError
from langchain_reasc_openai.server import Answer, Server

__all__ = ["stops_when_cut_off"]

_MESSAGES: Final = [{"role": "user", "content": "Count from 1 to 1000, in words."}]
_TOKENS: Final = 512
"""Of the response that is cut off: so many are generated at most, where the server goes on."""
_READ: Final = 8
"""Events of it that are read."""
_WATCHED: Final = 4.0
"""Seconds for which the server is watched afterwards; SGLang takes two to stop."""
_QUIET: Final = 1.0
"""Seconds without a new token after which a server that counts them one by one has stopped."""
_PAUSE: Final = 0.05
_SAFE: Final = 4.0
"""Seconds that are left are reckoned by events, and an event may carry several tokens: so much less may be left."""

_RUNNING: Final = {
    "llamacpp:requests_processing": True,
    "vllm:num_requests_running": False,
    "sglang:num_running_reqs": False,
}
"""Name in ``/metrics`` -> whether the number is right at once. vLLM's stays as it was when the last request is aborted
(vllm-project/vllm#22545), SGLang's comes with some steps only."""
_GENERATED: Final = tuple(
    f"{name}_total" for name in ("llamacpp:tokens_predicted", "vllm:generation_tokens", "sglang:generation_tokens")
)


class _NotKnown(Exception):
    """Why it cannot be told."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a server tells of its work: requests that run, whether that number is up to date, tokens since its start."""

    running: float
    up_to_date: bool
    generated: float | None

    def generated_since(self, before: "_Work") -> float:
        """Return how many tokens were generated in between; 0 where they are not counted."""
        return (self.generated or 0.0) - (before.generated or 0.0)


def stops_when_cut_off(
    server: Server, body: Callable[..., dict[str, Any]], endless: Mapping[str, Any]
) -> tuple[bool | None, str]:
    """Cut a long stream off, and find out what the server does.

    Args:
        server: whom to ask.
        body: makes the body of a request of so many tokens.
        endless: parameters by which a response goes on to its limit.

    Returns:
        Whether it stops, or None where that cannot be told; and a notice, where it does not or cannot be told.
    """
    try:
        stops = _stops(server, body(_TOKENS, messages=_MESSAGES, **endless))
    except (_NotKnown, ServerError) as error:
        return None, f"whether the server stops when a stream is closed is not known: {error}"
    return stops, "" if stops else (
        "the server goes on generating when a stream is closed: cutting samples off saves time and no tokens"
    )


def _stops(server: Server, request: Mapping[str, Any]) -> bool:
    before = _work_when_idle(server)
    with server.stream(request) as events:
        if isinstance(events, Answer):
            raise _NotKnown(f"a stream of {_TOKENS} tokens is refused ({events.message})")
        times = [time.monotonic() for _ in islice(events, _READ)]
        if len(times) < _READ:
            raise _NotKnown("the response that was to be cut off ended by itself")
        during = _wait_for(
            server, lambda work: work.running > before.running or work.generated_since(before) > 0, seconds=_QUIET
        )
    left = (times[-1] - times[1]) / (_READ - 2) * (_TOKENS - _READ)  # seconds; the first event names the role
    if during is None:
        raise _NotKnown("what it tells of its work comes late, or it generates too fast to see it")
    counts_each, closed = during.generated_since(before) > 0, time.monotonic()
    last, risen = during, closed

    def is_over(work: _Work) -> bool:
        nonlocal last, risen
        if work.generated_since(last) > 0:
            last, risen = work, time.monotonic()
        return time.monotonic() > risen + _QUIET if counts_each else work.running == 0

    after = _wait_for(server, is_over, seconds=_WATCHED)
    if after is None:
        if during.up_to_date or counts_each:
            return False
        raise _NotKnown("its number of running requests is not up to date")
    if (generated := after.generated_since(before)) > 0:
        return generated < 0.9 * _TOKENS
    if _SAFE * (time.monotonic() - closed) < left:
        return True
    raise _NotKnown("it generates too fast to see it")


def _work_when_idle(server: Server) -> _Work:
    """Return what the server tells when it has nothing to do."""
    first = _work_of(server)
    if (idle := _wait_for(server, lambda work: work.running == 0, seconds=_WATCHED / 2)) is not None:
        return idle
    last = _work_of(server)
    if last.up_to_date or last.generated is None or last.generated_since(first) > 0:
        raise _NotKnown("it is busy with other requests")
    return last  # the number is of old


def _wait_for(server: Server, condition: Callable[[_Work], bool], seconds: float) -> _Work | None:
    """Return what the server tells when the condition has come true; None where it does not in time."""
    until = time.monotonic() + seconds
    while not condition(work := _work_of(server)):
        if time.monotonic() > until:
            return None
        time.sleep(_PAUSE)
    return work


def _work_of(server: Server) -> _Work:
    """Return what the server tells of its work."""
    metrics = _metrics(server.get_native("/metrics").text)
    for name, up_to_date in _RUNNING.items():
        if name in metrics:
            generated = next((metrics[one] for one in _GENERATED if one in metrics), None)
            return _Work(metrics[name], up_to_date, generated)
    slots = server.get_native("/slots").body
    if not isinstance(slots, list) or not all(isinstance(slot, dict) and "is_processing" in slot for slot in slots):
        raise _NotKnown("it tells nothing of its work at /metrics or /slots")
    return _Work(sum(bool(slot["is_processing"]) for slot in slots), up_to_date=True, generated=None)


def _metrics(text: str) -> dict[str, float]:
    """Return name -> value, over all labels, in Prometheus's text format."""
    found: dict[str, float] = {}
    for name, value in re.findall(r"^([\w:]+)(?:\{.*\})? (\d[-+.\de]*)", text, re.MULTILINE):
        with suppress(ValueError):
            found[name] = found.get(name, 0.0) + float(value)
    return found
