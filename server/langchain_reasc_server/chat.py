"""Write the winner of a vote as its client asked for it: whole, or as the events of a
stream.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_reasc_openai.client import EVENTS
from langchain_reasc_openai.events import events_in, merged, repaired_events

from langchain_reasc.answers import ending_of, finish_of
from langchain_reasc_server.calls import HEADER, Call
from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import (
    Json,
    event_of,
    events_of,
    message_in,
    new_id,
    reply_of,
    usage_of,
    with_message,
)


@dataclass(frozen=True, eq=False)
class Won:
    """The winner of a request, in the form that its client asked for."""

    call: Call
    message: AIMessage
    max_samples: int
    notice: str | None = None

    @property
    def account(self) -> Json:
        """The account of the vote: samples, votes, tokens, and how certain the answer
        is.
        """
        told = self.message.response_metadata["reasc"]
        said: Json = {
            name: told[name] for name in ("id", "kind", "answer") if name in told
        }
        # How a model failed (``failed_because``, with an address, say) is not for
        # clients.
        of_two = ("answered_by", "failed_model", "shadowed", "guarantee", "models")
        said |= {name: told[name] for name in of_two if name in told}
        said["notices"] = [*([self.notice] if self.notice else []), *told["notices"]]
        probabilities = {
            name: told[name]["value"]
            for name in ("p_correct", "p_agree")
            if name in told
        }
        if "p_correct" in told:
            probabilities["p_correct_interval"] = told["p_correct"]["interval"]
        abstained = {
            name: told[name]
            for name in ("abstained", "abstained_because")
            if name in told
        }
        return {
            "samples": told["samples"],
            "launched": told["launched"],
            "stop": told["reason"],
            "votes": told["evidence"],
            **said,
            **probabilities,
            **abstained,
            "tokens": self._tokens,
            "winner": self._own_usage(),
        }

    @property
    def _tokens(self) -> dict[str, int | None]:
        """Tokens spent, tokens of an average response, and how many more
        ``max_samples`` responses would have cost.

        With two models the last is None: nobody knows of which model these responses
        would have been.
        """
        told: Json = self.message.response_metadata["reasc"]
        tokens: dict[str, int] = told["tokens"]
        spent = tokens["input"] + tokens["output"]
        if told["reason"] == "alone" or not told["samples"]:
            return {"spent": spent, "saved": 0, "one_response": spent}
        if "models" in told:
            return {
                "spent": spent,
                "saved": None,
                "one_response": sum(self._own_usage().values()),
            }
        each = (
            tokens["input"] / told["launched"]
            + (tokens["output"] - tokens["unused_output"]) / told["samples"]
        )
        return {
            "spent": spent,
            "saved": max(0, int(self.max_samples * each - spent)),
            "one_response": round(each),
        }

    def _own_usage(self) -> Json:
        """Return the winner's own tokens, as far as they are known."""
        own = self._upstream_reply.get("usage") or {}
        if not own:
            told = self.message.response_metadata["reasc"]
            both = {"input": told["tokens"]["input"], "launched": told["launched"]}
            of_model = told.get("models", {}).get(told.get("answered_by"), both)
            prompt = round(of_model["input"] / of_model["launched"])
            return {
                "prompt_tokens": prompt,
                "completion_tokens": told["tokens"]["winner"],
            }
        return {name: own.get(name) for name in ("prompt_tokens", "completion_tokens")}

    @property
    def usage(self) -> Json | None:
        """The tokens of all samples, or the winner's own if the client asks for these
        to measure its context.
        """
        bill = usage_of(self.message.usage_metadata)
        if bill is None or self.call.usage == "all":
            return bill
        prompt, generated = (count or 0 for count in self._own_usage().values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
        }

    @property
    def cut_off(self) -> bool:
        """Whether the winner reached the limit of tokens."""
        return ending_of(self.message) == "cut off"

    @property
    def headers(self) -> dict[str, str]:
        """The part of the account that is given in headers."""
        account = self.account
        said = {"samples": account["samples"], "stop": account["stop"]}
        if (saved := account["tokens"]["saved"]) is not None:
            said["tokens-saved"] = saved
        if "p_correct" in account:
            said["p-correct"] = format(account["p_correct"], ".4f")
        said |= {
            name.replace("_", "-"): account[name]
            for name in ("id", "answered_by")
            if name in account
        }
        return {HEADER + name: str(value) for name, value in said.items()}

    @property
    def whole(self) -> Json:
        """The whole reply. It has the field ``refusal``, which OpenAI's schema
        requires.
        """
        reply, _ = self._reply()
        choices = [
            {
                **one,
                "message": {**one["message"], "refusal": one["message"].get("refusal")},
            }
            for one in reply["choices"]
        ]
        return {**reply, "choices": choices, "usage": self.usage, "reasc": self.account}

    def events(
        self, head: Mapping[str, Any], passed: Sequence[Json] = ()
    ) -> Iterator[Json]:
        """Yield the remaining events of a stream that has begun with the id and the
        time of ``head``.

        Raises:
            Refused: the client has seen events of a response (``passed``) that another
                response cannot continue.
        """
        reply, is_own = self._reply()
        own = [*repaired_events(self._upstream_events())]
        said = own if is_own else [*events_of(reply)]
        events = [*self.call.shown(_left(said, passed), head)]
        if self.call.wants_usage:
            kept = next((event for event in reversed(own) if event.get("usage")), {})
            last = event_of(
                {**reply, "id": head["id"], "created": head["created"]}, None
            )
            events.append({**kept, **last, "usage": self.usage})
        events[-1] = {**events[-1], "reasc": self.account}
        yield from events

    def _upstream_events(self) -> Iterator[Json]:
        return events_in(self.message.response_metadata.get(EVENTS) or ())

    @cached_property
    def _upstream_reply(self) -> Json:
        """The upstream's own events with their usage; empty if unknown."""
        return (
            merged(self._upstream_events())
            if self.message.response_metadata.get(EVENTS)
            else {}
        )

    def _reply(self) -> tuple[Json, bool]:
        """Return the reply, and whether it is exactly the upstream's own."""
        reply = self._upstream_reply or reply_of(self.message, self.call.model)
        changed = with_message(reply, self.message) if self._upstream_reply else reply
        reply = changed or reply
        return {
            **reply,
            "choices": self.call.trimmed(reply["choices"]),
        }, changed is None


_TEXTS: Final = ("content", "reasoning", "reasoning_content", "refusal")


def _left(events: list[Json], passed: Sequence[Json]) -> list[Json]:
    """Return the winner's events that follow those that were already passed on.

    Raises:
        Refused: the winner has another text, so it cannot continue them.
    """
    count = len(passed)
    if events[:count] == passed:
        return events[count:]
    said, winner = message_in(merged(passed)), message_in(merged(events))
    if not any(said.get(name) for name in _TEXTS):
        return events
    if not winner.get("tool_calls") and any(winner.get(name) for name in _TEXTS):
        raise Refused(
            502,
            "the upstream broke off a response that was already being streamed",
            code="upstream_error",
        )
    return [
        {
            **event,
            "choices": [
                {**one, "delta": _calls_in(one)} for one in event.get("choices") or ()
            ],
        }
        for event in events
    ]


def _calls_in(choice: Mapping[str, Any]) -> Json:
    return {
        name: value
        for name, value in (choice.get("delta") or {}).items()
        if name == "tool_calls"
    }


class FirstResponse:
    """Passes on the text of the first response while it is written.

    If only tool calls are voted on, a response without calls is the answer, and its
    text does not have to wait. From the first call on, nothing more is passed on: the
    text before the call is kept, and the winner's calls follow.

    Attributes:
        opening: the first event of the first response; None before it has come.
        passed: the events that were passed on.
        refused: whether the upstream has refused a sample; the request may be tried
            again.
    """

    def __init__(self, *, live: bool) -> None:
        self.opening: Json | None = None
        self.passed: list[Json] = []
        self.refused = False
        self._live, self._followed, self._heard = live, list[bytes](), 0
        self._arrived: list[Json] = []
        self._news, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def hear(self, events: list[bytes]) -> None:
        """Receive the events of a response so far, from any thread. Ignore responses
        other than the first.
        """
        if not events:
            self.refused = True
            return
        self._followed = self._followed or events
        if events is self._followed and (self._live or not self._heard):
            new, self._heard = [*events_in(events[self._heard :])], len(events)
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._arrive, new)

    def wake(self, *_: object) -> None:
        """End the waiting."""
        self._news.set()

    def _arrive(self, events: list[Json]) -> None:
        self.opening = self.opening or next(iter(events), None)
        self._arrived += events
        self._news.set()

    async def news(self, seconds: float) -> list[Json] | None:
        """Wait for news, and return the events to pass on, or None if nothing happened
        in time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        arrived, self._arrived = self._arrived, []
        new = [event for event in arrived if self._passes(event)]
        self.passed += new
        return new

    def _passes(self, event: Json) -> bool:
        choices = event.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        goes_on = finish_of(choices[0].get("finish_reason")) is None and not delta.get(
            "tool_calls"
        )
        self._live = self._live and goes_on
        return self._live


def new_head() -> Json:
    """Return the id and the time of a stream."""
    return {"id": new_id(), "created": int(time.time())}


def role_event(call: Call, head: Json, opening: Json | None) -> Json:
    """Return the first event of a stream.

    Args:
        call: the request.
        head: the id and the time of the stream.
        opening: the first event of the upstream, whose other fields clients read from
            the first event (openai's client reads ``service_tier`` there); None if the
            upstream has no events.
    """
    beside = opening or {}
    named = {**beside, **head, "model": beside.get("model") or call.model}
    first = event_of(named, {"role": "assistant", "content": ""})
    return first | ({"usage": None} if call.wants_usage else {})
