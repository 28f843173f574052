"""Limits per key and minute: samples and tokens, reported or estimated, also if a client disconnects."""

import asyncio
import json
import math
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from langchain_reasc_server.metering import Meter
from langchain_reasc_server.serve_options import LimitOptions
from servers.chat_wire import PROMPT_TOKENS, Chat
from servers.exchange import Answer, Exchange, refuses

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.usage import estimated_tokens

from .serving import HELLO, TOOL, Front, Said, eventually, front

pytestmark = pytest.mark.full

MINUTE = 60_000
ASKED: dict[str, Any] = {"model": "tiny", "messages": HELLO}
VOTED = {**ASKED, "tools": [TOOL]}
TOLD = PROMPT_TOKENS + 3  # of "it is 42"
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def estimated(body: dict[str, Any]) -> int:
    return math.ceil(len(json.dumps(body)) / 4)


@contextmanager
def limited(answer: Answer, **options: Any) -> Iterator[tuple[Front, Any]]:
    """Yield a server whose clock stands still, and a function that returns the tokens charged."""
    limits = {"tokens_per_minute": MINUTE, "samples_per_minute": MINUTE, "clock": lambda: 0.0}
    with front(answer, admission=limits, **options) as server:
        client = server.gateway.admission.client({})
        yield server, lambda: MINUTE - round(client.tokens.left)


async def responses(exchange: Exchange) -> None:
    """The Responses API, with the two events that matter."""
    usage = {"input_tokens": 20, "output_tokens": 3, "total_tokens": 23}
    response = {"object": "response", "output": [], "usage": usage, "metadata": {}}
    if exchange.body.get("stream"):
        said = {"type": "response.output_text.delta", "delta": "hi"}
        await exchange.stream([said, {"type": "response.completed", "response": response}])
    else:
        await exchange.reply(200, response)


def replies(body: Any, **options: Any) -> Answer:
    return lambda exchange: exchange.reply(200, body, **options)


STREAM = {**ASKED, "stream": True}
STATEFUL = {"model": "tiny", "input": "hi", "previous_response_id": "r"}
SPOOF = {
    "choices": [{"message": {"content": '"usage": {"total_tokens": 9}'}}],
    "usage": {"total_tokens": 8},
    "metadata": {"usage": {"total_tokens": 1}},
}
TOO_LITTLE = [{"choices": [{"delta": {"content": "so"}}]}] * 50 + [{"choices": [], "usage": {"total_tokens": 1}}]
CHARGED: dict[str, tuple[Answer, str, dict[str, Any], int]] = {
    "a reply tells": (Said(), "/chat/completions", ASKED, TOLD),
    "a stream tells": (Said(), "/chat/completions", {**ASKED, **USAGE}, TOLD),
    "a stream tells nothing: an event is a token": (Said(), "/chat/completions", STREAM, estimated(STREAM) + 5),
    "a stream tells too little": (lambda exchange: exchange.stream(TOO_LITTLE), "/chat/completions", STREAM, 51),
    "a reply tells nothing": (replies("x" * 400), "/chat/completions", ASKED, estimated(ASKED) + 100),
    "the words of a reply are no usage": (replies(SPOOF), "/chat/completions", ASKED, 8),
    "an error costs nothing": (refuses(500), "/chat/completions", ASKED, 0),
    "embeddings": (replies({"usage": {"prompt_tokens": 5, "total_tokens": 5}}), "/embeddings", {"input": "x"}, 5),
    "a sound": (replies("\x00" * 9, content_type="audio/mpeg"), "/audio/speech", {"input": "x"}, 4),
    "Responses": (responses, "/responses", STATEFUL, 23),
    "Responses, streamed": (responses, "/responses", {**STATEFUL, "stream": True}, 23),
}


@pytest.mark.parametrize("case", CHARGED)
def test_what_passes_through_is_charged_what_it_tells_or_an_estimate(case: str) -> None:
    answer, path, body, tokens = CHARGED[case]
    with limited(answer, paths=["*"]) as (server, charged):
        reply = server.post(body, path)
        # A reply of known length is whole for its client before the server has ended.
        assert reply.headers["x-reasc-passed-through"] and eventually(lambda: charged() == tokens)
        direct = httpx.post(server.upstream.url + path, json=body)
        assert reply.content == direct.content and reply.status_code == direct.status_code


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_a_vote_is_charged_its_bill(path: str, streamed: bool) -> None:
    body: dict[str, Any] = {**VOTED, "stream": streamed}
    if path == "/messages":
        body["tools"] = [{"name": "weather", "input_schema": {"type": "object"}}]
    if path == "/responses":
        body = {"model": "tiny", "input": "hi", "tools": [{"type": "function", **TOOL["function"]}], "stream": streamed}
    with limited(Said()) as (server, charged):
        text = server.post(body, path).text
        [spent] = {int(one.split(",")[0].strip("}")) for one in text.split('"spent":')[1:]}
        assert charged() == spent > 0


@pytest.mark.parametrize("streamed", [False, True])
def test_a_message_that_is_not_voted_on_is_charged_what_its_chat_completion_tells(streamed: bool) -> None:
    with limited(Said()) as (server, charged):
        assert server.post({**ASKED, "stream": streamed}, "/messages").status_code == 200
        assert eventually(lambda: charged() == TOLD)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("voted", [False, True])
def test_a_client_that_leaves_pays_for_what_was_drawn(voted: bool, streamed: bool) -> None:
    async def three_words(exchange: Exchange) -> None:
        for word in ("one ", "two ", "three "):
            await exchange.token(word)
        await exchange.hang()

    body = {**ASKED, "stream": streamed}
    asked = {**body, "reasc": {"answer": "number", "max_samples": 4 if voted else 1}}
    with limited(three_words) as (server, charged):
        text = json.dumps(asked).encode()
        host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
        with socket.create_connection((host, int(port))) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(text)}\r\n\r\n"
            client.sendall(head.encode() + text)
            samples = 3 if voted else 1  # three could decide
            assert eventually(lambda: [one.sent for one in server.upstream.exchanges] == [3] * samples)
            time.sleep(0.1)  # for the words to arrive
        each = estimated(body) + (3 if streamed or voted else 0)
        assert eventually(lambda: charged() > 0)
        assert abs(charged() - samples * each) <= 2 * samples  # what JSON is written like
        assert MINUTE - server.gateway.admission.client({}).samples.left == samples


def test_tokens_come_back_bit_by_bit_and_one_request_may_go_below_none() -> None:
    now = [0.0]
    with front(Said(), admission={"tokens_per_minute": 15, "clock": lambda: now[0]}) as server:
        assert [server.chat().status_code for _ in range(3)] == [200, 200, 429]
        refused = server.chat()
        assert refused.json()["error"]["code"] == "too_many_tokens"
        seconds = int(refused.headers["retry-after"])
        assert seconds == math.ceil((1 - (15 - 2 * TOLD)) * 60 / 15)
        now[0] += seconds - 1
        assert server.chat().status_code == 429
        now[0] += 1
        assert server.chat().status_code == 200


def test_each_key_has_its_own() -> None:
    one, two = ({"authorization": f"Bearer {key}"} for key in ("one", "two"))
    with front(Said(), admission={"keys": ("one", "two"), "tokens_per_minute": TOLD}) as server:
        statuses = [server.post(ASKED, headers=key).status_code for key in (one, one, two, two)]
        assert statuses == [200, 429, 200, 429]


def test_each_of_several_workers_has_its_share_of_a_key_s_limits() -> None:
    client = LimitOptions(key_samples=10, key_tokens=100).admission(workers=4).client({})
    assert (client.samples.left, client.tokens.left) == (2.5, 25)
    with pytest.raises(ConfigurationError, match=r"--key-samples .*3.*4 --workers"):
        LimitOptions(key_samples=3).admission(workers=4)


def test_the_largest_request_may_be_voted_on() -> None:
    assert LimitOptions(max_body=3).bodies().most_voted == 30_000_000
    assert LimitOptions(max_body=3, max_voted=3.5).bodies().most_voted == 3_500_000
    with pytest.raises(ConfigurationError, match=r"--max-voted .*2.*--max-body.*3"):
        LimitOptions(max_body=3, max_voted=2).bodies()


PIECES = Chat(counts=True)
WHOLE = b"".join(
    b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
    for event in PIECES.events({"stream_options": {"include_usage": True}})
)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize(("sent", "expected"), [(WHOLE, TOLD), (WHOLE[: WHOLE.index(b'"usage"')], 2 + 5)])
def test_wherever_a_stream_is_cut_the_count_is_the_same_and_not_a_byte_changes(
    size: int, sent: bytes, expected: int
) -> None:
    got, paid = bytearray(), list[int]()

    async def send(message: Any) -> None:
        got.extend(message.get("body", b""))

    async def main() -> None:
        meter = Meter(send, b"12345678", paid.append)
        head = [(b"content-type", b"text/event-stream")]
        await meter({"type": "http.response.start", "status": 200, "headers": head})
        for at in range(0, len(sent), size):
            await meter({"type": "http.response.body", "body": sent[at : at + size], "more_body": True})
        assert not paid
        await meter({"type": "http.response.body", "body": b"", "more_body": False})
        meter.charge()

    asyncio.run(main())
    assert paid == [expected] and got == sent


def test_an_image_counts_as_a_thousand_tokens_and_not_by_its_bytes() -> None:
    assert estimated_tokens(b'{"url": "data:image/png;base64,' + b"iVBORw0KGgo" * 20_000 + b'"}') == 1009
    assert estimated_tokens(b"word " * 400) == 500


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_requests_at_the_same_time_do_not_share_what_is_left(path: str) -> None:
    """A key with ten samples a minute sends a hundred requests at once. Few are answered."""
    said = {"messages": HELLO} if path == "/chat/completions" else {"input": "hi"}
    body = {
        "model": "tiny",
        **said,
        "tools": [TOOL if path == "/chat/completions" else {"type": "function", **TOOL["function"]}],
    }
    with front(Said(), admission={"samples_per_minute": 10, "clock": lambda: 0.0}) as server:
        with ThreadPoolExecutor(100) as pool:
            replies = [*pool.map(lambda _: server.post(body, path), range(100))]
        statuses = [one.status_code for one in replies]
        answered = statuses.count(200)
        assert answered >= 1 and statuses.count(429) == 100 - answered
        assert len(server.upstream.exchanges) <= 10 + 15  # the last may go beyond, by the samples of one vote
        refused = next(one for one in replies if one.status_code == 429)
        assert refused.json()["error"]["code"] == "too_many_samples" and int(refused.headers["retry-after"]) >= 1
        assert server.gateway.admission.client({}).samples.left == 10 - len(server.upstream.exchanges)
