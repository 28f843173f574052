"""A client gets the same from our server as from its upstream, except for the documented differences."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_reasc_server.wire import events_of
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from properties import examples
from servers.chat_wire import DONE
from servers.exchange import Answer, Exchange

from .serving import HELLO, TOOL, Front, Said, front
from .test_responses import chat_alone

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
VOTED: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [TOOL]}
PASSED: dict[str, Any] = {**VOTED, "temperature": 0}


@dataclass(frozen=True)
class Way:
    """A valid way to write server-sent events."""

    line_end: str = "\n"
    space: str = " "
    comment: str = ""
    named: bool = False
    done: bool = True
    size: int = 1 << 20

    def pieces(self, events: Sequence[Any]) -> list[bytes]:
        """Return the bytes of a stream in pieces of one size, which may split a character."""
        data = [json.dumps(one, ensure_ascii=False) for one in events] + [DONE] * self.done
        head = self.comment + ("event: chunk\nid: 1\n" if self.named else "")
        text = "".join(f"{head}data:{self.space}{one}\n\n" for one in data).replace("\n", self.line_end)
        raw = text.encode()
        return [raw[at : at + self.size] for at in range(0, len(raw), self.size)]

    def sends(self, events: Sequence[Any]) -> Answer:
        async def answer(exchange: Exchange) -> None:
            await exchange.begin_stream()
            for piece in self.pieces(events):
                await exchange.write(piece)

        return answer


def events_in(raw: bytes) -> list[Any]:
    """The events of a stream, by the rules for server-sent events."""
    lines = raw.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data = [line.removeprefix("data:").removeprefix(" ") for line in lines if line.startswith("data:")]
    return [one if one == DONE else json.loads(one) for one in data]


def chunk(delta: Any, finish: str | None = None, beside: Any = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **(beside or {})}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny", **fields, "choices": [choice]}


def call(index: int | None, identifier: str | None, arguments: Any, name: str | None = "weather", **f: Any) -> Any:
    fields = {"index": index, "id": identifier, "type": "function"}
    function = {"name": name, "arguments": arguments}
    return {**{name: value for name, value in fields.items() if value is not None}, "function": function, **f}


def calls(*called: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [*called]}


# Deltas, some with fields that no API has

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
unknown = st.dictionaries(
    st.sampled_from(["x_own", "service_tier", "obfuscation"]), st.sampled_from(["default", "flex"]), max_size=2
)
beside = st.dictionaries(
    st.sampled_from(["content_filter_results", "token_ids"]), st.just({"hate": {"filtered": False}}), max_size=1
)


@st.composite
def responses(draw: st.DrawFn) -> list[Any]:
    """The events of a response that calls a tool, after what else it may say."""
    said: list[Any] = [{"role": "assistant", "content": draw(st.sampled_from(["", None]))}]
    for name in draw(st.permutations(["reasoning_content", "content", "refusal"])):
        said += [{name: word} for word in draw(st.lists(words, max_size=3))]
    for index in range(draw(st.integers(0, 2))):
        arguments = json.dumps({"city": draw(words)}, ensure_ascii=draw(st.booleans()))
        cut = draw(st.integers(0, len(arguments)))
        own = draw(st.sampled_from([{}, {"extra_content": {"signature": "s"}}]))
        said.append({"tool_calls": [call(index, f"call-{index}", arguments[:cut], **own)]})
        said.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[cut:]}}]})
    said += draw(st.sampled_from([[], [{}], [{"annotations": [{"type": "url_citation"}]}]]))
    own, at = draw(unknown), draw(beside)
    usage = draw(st.sampled_from([{}, {"usage": None}, {"usage": USAGE}]))
    events = [chunk(delta, beside=at, **own, **usage) for delta in said]
    events.append(chunk({}, draw(st.sampled_from(["stop", "tool_calls", "length"])), **own))
    first = {**events[0], "usage": None, "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    last = {**events[0], "choices": [], "usage": USAGE, "timings": {"predicted_n": 2}}
    return [*[first] * draw(st.booleans()), *events, last]


ways = st.builds(
    Way,
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    space=st.sampled_from([" ", ""]),
    comment=st.sampled_from(["", ": keep-alive\n\n", ":\n"]),
    named=st.booleans(),
    done=st.booleans(),
    size=st.sampled_from([7, 64, 1 << 20]),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Front]:
    with front(Said(), votes={"max_samples": 2, "concurrency": 1}) as made:
        yield made


def both(server: Front, answer: Answer, body: Any, path: str = "/chat/completions") -> list[httpx.Response]:
    """Return the upstream's response and ours."""
    server.upstream.answer = answer
    return [server.http.post(server.upstream.url + path, json=body), server.post(body, path)]


def without_ours(events: Sequence[Any]) -> list[Any]:
    """Return the events of a stream without the fields that may differ: id, time, role and usage."""
    kept = []
    for event in events:
        left = {name: value for name, value in event.items() if name not in ("id", "created", "usage", "reasc")}
        choices = [{**one, "delta": {**one["delta"], "role": None}} for one in event["choices"]]
        if choices or "prompt_filter_results" in event:
            kept.append({**left, "choices": choices})
    return kept


def added_up(events: Sequence[Any]) -> Any:
    """The choice of a stream, as openai's client adds its events up."""
    state: Any = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(ChatCompletionChunk.construct(None, **event))
    [choice] = state.current_completion_snapshot.to_dict()["choices"]
    return choice


def compare(server: Front, events: Sequence[Any], way: Way) -> None:
    """Ask for a stream that passes through, for one that is voted on, and for the winner in one piece."""
    answer = way.sends(events)
    theirs, ours = both(server, answer, {**PASSED, "stream": True})
    assert ours.content == theirs.content and ours.headers["content-type"] == theirs.headers["content-type"]
    voted = server.post({**VOTED, "stream": True})
    role, *following, done = events_in(voted.content)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""} and done == DONE
    sent = [event for event in events_in(theirs.content) if event != DONE]
    assert without_ours(following) == without_ours(sent)
    expected, whole = added_up(sent), server.post(VOTED).json()
    [choice] = whole["choices"]
    assert choice["finish_reason"] == expected["finish_reason"]
    assert said(choice["message"]) == said(expected["message"])
    assert whole["usage"]["total_tokens"] == whole["reasc"]["samples"] * USAGE["total_tokens"]


def said(value: Any) -> Any:
    """Return a value without the nulls, empty texts and indices that openai's client adds."""
    if isinstance(value, list):
        return [said(one) for one in value]
    if isinstance(value, dict):
        return {name: said(one) for name, one in value.items() if one not in (None, "") and name != "index"}
    return value


def check(server: Front, count: int) -> None:
    @settings(examples(count), derandomize=True)
    @given(responses(), ways)
    def any_response(events: Sequence[Any], way: Way) -> None:
        compare(server, events, way)

    any_response()


@pytest.mark.full
def test_any_stream_comes_as_from_the_upstream(server: Front) -> None:
    check(server, 10)


@pytest.mark.slow
def test_many_streams_come_as_from_the_upstream(server: Front) -> None:
    check(server, 500)


def finished(*deltas: Any, finish: str | None = "tool_calls") -> list[Any]:
    return [*(chunk(delta) for delta in deltas), chunk({}, finish)]


OSLO, ROME = (json.dumps({"city": city}) for city in ("Oslo", "Rome"))
ONE = call(0, "a", OSLO)
WHOLE = {name: value for name, value in ONE.items() if name != "index"}
OTHER = {**WHOLE, "id": "b", "function": {"name": "weather", "arguments": ROME}}
VOTE = {"args": {"city": "Oslo"}, "name": "weather"}
VOTE_OF_BOTH = [VOTE, {"args": {"city": "Rome"}, "name": "weather"}]
HALVES = call(0, "a", OSLO[:5]), call(0, None, OSLO[5:], None)
END = chunk({}, "tool_calls")
QUIRKS: dict[str, tuple[list[Any], list[Any], Any, str]] = {
    "no finish reason": (finished(calls(ONE), finish=None), [WHOLE], [VOTE], "tool_calls"),
    "an empty finish reason": (finished(calls(ONE), finish=""), [WHOLE], [VOTE], "tool_calls"),
    "the finish reason null in each event": (
        [*(chunk(calls(half), "null") for half in HALVES), END],
        [WHOLE],
        [VOTE],
        "tool_calls",
    ),
    "the finish reason null in the last event, too": (
        [chunk(calls(ONE), "null"), chunk({}, "null")],
        [WHOLE],
        [VOTE],
        "tool_calls",
    ),
    "stopped": (finished(calls(ONE), finish="stop"), [WHOLE], [VOTE], "stop"),
    "usage so far in each event": (
        [{**event, "usage": USAGE} for event in finished(calls(ONE))],
        [WHOLE],
        [VOTE],
        "tool_calls",
    ),
    "no index": (
        finished(calls(call(None, "a", OSLO)), calls(call(None, "b", ROME))),
        [WHOLE, OTHER],
        VOTE_OF_BOTH,
        "tool_calls",
    ),
    "one index for all": (
        finished(calls(call(0, "a", OSLO)), calls(call(0, "b", ROME))),
        [WHOLE, OTHER],
        VOTE_OF_BOTH,
        "tool_calls",
    ),
    "no id": (
        finished(calls(call(0, None, OSLO))),
        [{"type": "function", "function": WHOLE["function"]}],
        [VOTE],
        "tool_calls",
    ),
    "a name in each piece": (
        finished(calls(call(0, "a", OSLO[:4])), calls(call(0, "a", OSLO[4:]))),
        [WHOLE],
        [VOTE],
        "tool_calls",
    ),
    "arguments as an object": (
        finished(calls(call(0, "a", {"city": "Oslo"}))),
        [{**WHOLE, "function": {"name": "weather", "arguments": {"city": "Oslo"}}}],
        [VOTE],
        "tool_calls",
    ),
    "a choice that nobody asked for": (
        [chunk(calls(ONE)), chunk({"content": "so"}, "stop", {"index": 1}), chunk({}, "tool_calls")],
        [WHOLE],
        [VOTE],
        "tool_calls",
    ),
}


@pytest.mark.parametrize("case", QUIRKS)
def test_what_servers_do_in_their_own_ways_is_voted_on_and_kept(server: Front, case: str) -> None:
    events, called, vote, finish = QUIRKS[case]
    server.upstream.answer = Way().sends(events)
    reply = server.post(VOTED).json()
    expected = {"role": "assistant", "content": None, "refusal": None, "tool_calls": called}
    assert reply["choices"][0]["message"] == expected
    assert reply["choices"][0]["finish_reason"] == finish and [*map(json.loads, reply["reasc"]["votes"])] == [vote]
    if "usage" in events[0]:
        assert reply["usage"] == {name: 2 * tokens for name, tokens in USAGE.items()}
    else:  # estimated
        assert reply["usage"]["prompt_tokens"] > 50 and reply["usage"]["completion_tokens"] > 5
    _, *following, done = events_in(server.post({**VOTED, "stream": True}).content)
    assert done == DONE
    if "index" in case:  # they get one, which clients need
        assert said(added_up(following)["message"]["tool_calls"]) == called
    else:
        assert without_ours(following) == without_ours([one for one in events if not one["choices"][0]["index"]])


JSON = "application/json"
ERROR = {"message": "slow down", "type": "rate", "param": None, "code": "often"}
ERRORS: dict[str, tuple[int, Any, str, dict[str, Any]]] = {
    "in OpenAI's form": (429, {"error": ERROR}, JSON, ERROR),
    "vLLM's": (400, {"object": "error", **ERROR}, JSON, ERROR),
    "FastAPI's": (422, {"detail": "no such field"}, JSON, {"message": "no such field"}),
    "FastAPI's, in a list": (422, {"detail": [{"msg": "no"}]}, JSON, {"message": '[{"msg": "no"}]'}),
    "in another form": (400, {"reason": "no"}, JSON, {"message": '{"reason": "no"}'}),
    "in words": (418, "not even JSON", JSON, {"message": "not even JSON"}),
    "a page": (500, "<html>oops</html>", "text/html", {"type": "server_error"}),
    "in a success": (200, {"error": ERROR}, JSON, ERROR),
    "in words in a success": (200, {"error": "no"}, JSON, {"message": "no", "type": "server_error"}),
    "in a stream": (
        200,
        f"data: {json.dumps({'error': {**ERROR, 'code': 429}})}\n\n",
        "text/event-stream",
        {**ERROR, "code": 429},
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ERRORS)
def test_an_error_keeps_its_words(server: Front, case: str, streamed: bool) -> None:
    status, said, kind, error = ERRORS[case]

    async def refuse(exchange: Exchange) -> None:
        await exchange.reply(status, said, content_type=kind, retry_after="0")

    theirs, ours = both(server, refuse, {**PASSED, "stream": streamed})
    assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
    assert ours.headers["retry-after"] == "0" and ours.headers["content-type"] == kind
    voted = server.post({**VOTED, "stream": streamed})
    expected = 429 if case == "in a stream" else 502 if status == 200 else status
    assert voted.status_code == expected and error.items() <= voted.json()["error"].items()


BESIDE: dict[str, dict[str, Any]] = {
    "OpenAI's": {"service_tier": "flex", "system_fingerprint": "fp_1", "obfuscation": "x"},
    "another model's name": {"model": "tiny-2026-11-29", "service_tier": "default"},
    "a field that no API has": {"x_timing": {"queued": 3}},
    "nothing": {},
}
"""Fields of each event of the upstream beside its choices."""


def beside_choices(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ("id", "created", "choices", "reasc")}


@pytest.mark.full
@pytest.mark.parametrize(("case", "waits"), [*((case, 0.0) for case in BESIDE), ("OpenAI's", 0.6)])
def test_each_event_of_a_vote_has_the_fields_of_an_event_that_passes(case: str, waits: float) -> None:
    async def answer(exchange: Exchange) -> None:
        wants_usage = "stream_options" in exchange.body
        beside = {**BESIDE[case], **({"usage": None} if wants_usage else {})}
        said: list[Any] = [{"role": "assistant", "content": ""}, {"content": "it"}, {"content": " is 42"}]
        said[1:] = [calls(call(0, "c1", "{}"))] if exchange.body.get("tools") else said[1:]
        events = [*(chunk(delta, **beside) for delta in said), chunk({}, "stop", **beside)]
        events += [{**events[0], "choices": [], "usage": USAGE}] if wants_usage else []
        await asyncio.sleep(waits)
        await Way().sends(events)(exchange)

    with front(answer, votes={"answer": "number", "max_samples": 2}, ping=0.1) as server:
        for asked in ({"tools": [TOOL]}, {"logprobs": True}, {"stream_options": {"include_usage": True}}):
            body = {"model": "tiny", "messages": HELLO, "stream": True, **asked}
            passed, voted = ([*events_in(server.post({**body, **own}).content)] for own in ({"seed": 1}, {}))
            assert passed[-1] == voted[-1] == DONE and "reasc" in voted[-2]
            expected = beside_choices(passed[0])
            assert expected.items() >= BESIDE[case].items()
            assert all(beside_choices(event) == expected for event in voted[:-1] if event["choices"])
            names = [event.keys() - {"reasc"} for event in (passed[0], voted[0], passed[-2], voted[-2])]
            assert names[0] == names[1] and names[2] == names[3]


@pytest.mark.full
@pytest.mark.parametrize(("tier", "waits"), [("flex", 0.0), ("flex", 0.6), (None, 0.0)])
def test_each_event_of_a_response_has_the_fields_of_the_first(tier: str | None, waits: float) -> None:
    own_tier = {} if tier is None else {"service_tier": tier}
    said = [chunk({"content": "it"}, **own_tier), chunk({"content": " is 42"}, **own_tier), chunk({}, "stop")]

    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(waits)
        await Way().sends(said)(exchange)

    with front(chat_alone(answer), votes={"answer": "number", "max_samples": 2}, ping=0.1) as server:
        for own in ({}, {"temperature": 0}):
            raw = server.post({"model": "tiny", "input": HELLO, "stream": True, **own}, "/responses").content
            responses = [event["response"] for event in events_in(raw) if "response" in event]
            assert [response["service_tier"] for response in responses] == [tier or "default"] * 3
            assert responses[-1]["status"] == "completed"


def test_a_changed_winner_has_the_fields_of_the_upstream() -> None:
    reply = {**chunk({}), "object": "chat.completion", "service_tier": "flex", "x_timing": 3, "usage": USAGE}
    reply["choices"] = [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}]
    for event in events_of(reply):
        assert (event["service_tier"], event["x_timing"], event["object"]) == ("flex", 3, "chat.completion.chunk")
        assert "usage" not in event
