"""Clients that ask wrongly, too much, or leave; upstreams that fail."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from langchain_reasc_openai import RetryPolicy
from langchain_reasc_server.reading import Bodies
from servers.exchange import Answer, Exchange, refuses
from servers.fake_server import serving

from .serving import HELLO, SHAPE, TOOL, Front, Said, endless, events_in, eventually, front

pytestmark = pytest.mark.full

VOTED: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [TOOL]}
JSON = "application/json"
MALFORMED: dict[str, tuple[bytes, dict[str, str], int]] = {
    "no JSON": (b"{", {}, 400),
    "nothing": (b"", {}, 400),
    "no object": (b"[1]", {}, 400),
    "no UTF-8": (b'{"a": "\xff"}', {}, 400),
    "too deep": (b'{"a": ' + b"[" * 100_000, {}, 400),
    "an endless number": (b'{"a": ' + b"9" * 100_000 + b"}", {}, 400),
    "an infinite number": (b'{"a": 1e999}', {}, 400),
    "not a number": (b'{"a": NaN}', {}, 400),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), {}, 400),
    "too many values": (b'{"a": [' + b"[]," * 600_000 + b"1]}", {}, 400),
    "too large": (b'{"a": "' + b"x" * 2_000_000 + b'"}', {}, 413),
    "a form": (b"a=1", {"content-type": "application/x-www-form-urlencoded"}, 415),
    "compressed": (b"\x1f\x8b", {"content-encoding": "gzip"}, 415),
}


@pytest.fixture(scope="module")
def bounded() -> Iterator[Front]:
    with front(Said(), bodies=Bodies(2_000_000)) as server:
        yield server


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_gets_an_error_and_reaches_nobody(bounded: Front, case: str) -> None:
    body, headers, status = MALFORMED[case]
    before = len(bounded.upstream.exchanges)
    response = bounded.post(body, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error" and response.json()["error"]["message"]
    assert len(bounded.upstream.exchanges) == before
    assert bounded.chat(tools=[TOOL]).status_code == 200


def test_a_body_without_a_length_is_bounded_too(bounded: Front) -> None:
    parts = (b"x" * 10_000 for _ in range(250))
    headers = {"content-type": JSON}
    response = bounded.http.post(f"{bounded.url}/chat/completions", content=parts, headers=headers)
    assert response.status_code == 413


def test_a_flood_of_headers_is_refused(bounded: Front) -> None:
    flood = {f"x-{at}": "y" * 1000 for at in range(100)}
    # 400 where they come in pieces, and h11 gives up before the head is whole.
    assert bounded.post(VOTED, headers=flood).status_code in (431, 400)
    assert bounded.chat(tools=[TOOL]).status_code == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("POST", "/health", 405)])
def test_errors_of_routing_come_in_the_envelope(bounded: Front, method: str, path: str, status: int) -> None:
    response = bounded.http.request(method, bounded.url.removesuffix("/v1") + path)
    assert response.status_code == status and set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("voted", [False, True])
def test_where_the_client_goes_everything_upstream_is_closed(voted: bool, streamed: bool) -> None:
    body = {**VOTED, "stream": streamed, "response_format": {"type": "json_object"}} if voted else {"messages": HELLO}
    body |= {"model": "tiny", "stream": streamed or not voted}
    with front(endless, ping=0.05) as server:
        sent = json.dumps(body)
        with httpx.Client(timeout=0.7) as client, pytest.raises(httpx.TimeoutException):
            path, headers = f"{server.url}/chat/completions", {"content-type": JSON}
            with client.stream("POST", path, content=sent, headers=headers) as response:
                began = time.monotonic()
                for _ in response.iter_bytes():
                    if time.monotonic() - began > 0.4:
                        raise httpx.ReadTimeout("enough")
        assert server.upstream.exchanges
        assert eventually(lambda: all(one.gone.is_set() for one in server.upstream.exchanges), 15)
        counted = [one.sent for one in server.upstream.exchanges]
        time.sleep(0.1)
        assert [one.sent for one in server.upstream.exchanges] == counted
        metrics = server.http.get(server.url.replace("/v1", "/metrics")).text
        assert 'status="499"' in metrics and "reasc_requests_running 0.0" in metrics


def test_a_stream_shows_life_while_it_is_voted_on() -> None:
    shown = threading.Event()

    async def slow(exchange: Exchange) -> None:
        await asyncio.to_thread(shown.wait, 20)
        await Said()(exchange)

    with front(slow, ping=0.1, votes={"max_samples": 2}) as server:
        text = ""
        sent = json.dumps({**VOTED, "stream": True})
        path, headers = f"{server.url}/chat/completions", {"content-type": JSON}
        with server.http.stream("POST", path, content=sent, headers=headers) as response:
            for part in response.iter_text():
                text += part
                if ": ping" in text:
                    shown.set()
        comment, *_ = text.split("\n\n")
        assert comment == ": ping"
        assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [404, 503])
def test_a_vote_that_the_upstream_refuses_keeps_its_status(status: int, streamed: bool) -> None:
    with front(refuses(status, retry_after="0.01")) as server:
        response = server.post({**VOTED, "stream": streamed})
        error = response.json()["error"]
        assert response.status_code == status and error["message"] == f"refused with {status}"
        assert error["type"] == "test"  # the upstream's own
        assert "x-reasc-passed-through" not in response.headers
        assert response.headers.get("retry-after") == "1"


PATIENT = RetryPolicy(attempts=2, longest_retry_after=5.0)  # as of reasc serve


@pytest.mark.parametrize(("first", "streamed"), [(1, False), (4, True)])
@pytest.mark.parametrize(("status", "rest"), [(400, None), (429, None), (503, "1")])
def test_a_refused_vote_costs_few_requests(status: int, rest: str | None, first: int, streamed: bool) -> None:
    asked = VOTED if first == 1 else {"model": "tiny", "messages": HELLO, "response_format": SHAPE}
    headers = {} if rest is None else {"retry_after": rest}
    with front(refuses(status, **headers), retry=PATIENT) as server:
        response = server.post({**asked, "stream": streamed})
        assert response.status_code == status and response.json()["error"]["message"] == f"refused with {status}"
        assert response.headers.get("retry-after") == rest
        assert len(server.upstream.requests) <= 2 * first


@pytest.mark.parametrize(("status", "expected"), [(400, 200), (500, 200), (401, 401), (404, 404), (422, 422)])
def test_a_first_response_that_is_refused_is_drawn_again_where_that_may_help(status: int, expected: int) -> None:
    async def first_refused(exchange: Exchange) -> None:
        await (exchange.refuse(status) if exchange.at == 0 else Said()(exchange))

    with front(first_refused, retry=RetryPolicy(attempts=1)) as server:
        assert server.post(VOTED).status_code == expected


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [429, 503])
def test_an_upstream_that_asks_for_a_long_rest_is_used_as_soon_as_it_answers(status: int, streamed: bool) -> None:
    asked, well = {**VOTED, "stream": streamed}, threading.Event()

    async def answer(exchange: Exchange) -> None:
        await (Said()(exchange) if well.is_set() else exchange.refuse(status, retry_after="3600"))

    with front(answer, retry=RetryPolicy(attempts=2, longest_retry_after=1.0)) as server:
        begun = time.monotonic()
        responses = [server.post(asked) for _ in range(3)]
        assert time.monotonic() - begun < 1.0, "the clients decide whether to wait"
        assert [response.status_code for response in responses] == [status, 429, 429]
        assert [response.headers["retry-after"] for response in responses] == ["3600", "1", "1"]
        first, *others = (response.json()["error"] for response in responses)
        assert first["message"] == f"refused with {status}" and len(server.upstream.requests) == 1
        for error in others:
            assert error["code"] == "upstream_busy" and "refused" not in error["message"]  # the first client's words
        time.sleep(1.0)
        well.set()
        with ThreadPoolExecutor(4) as threads:
            responses = [*threads.map(lambda _: server.post(asked), range(4))]
        assert [response.status_code for response in responses] == [200] * 4


def test_a_resting_upstream_is_asked_by_one_request_at_a_time() -> None:
    with front(refuses(429, retry_after="3600"), retry=RetryPolicy(attempts=2, longest_retry_after=0.3)) as server:
        begun = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            while time.monotonic() - begun < 3.0:
                statuses = {response.status_code for response in threads.map(lambda _: server.post(VOTED), range(8))}
                assert statuses == {429}
        # At 0, 1, 3 and 7 seconds by the policy; the first requests may arrive together.
        assert len(server.upstream.requests) <= 3 + 8


def only(well: dict[str, str], status: int, **headers: str) -> Answer:
    """Answer requests with this key, or for this model; refuse all others."""

    async def answer(exchange: Exchange) -> None:
        key = exchange.headers["authorization"]
        if well in ({"key": key}, {"model": exchange.body["model"]}):
            await Said()(exchange)
        else:
            await exchange.refuse(status, f"refused to {key} and {exchange.body['model']}", **headers)

    return answer


@pytest.mark.parametrize("apart", ["key", "model"])
@pytest.mark.parametrize(
    ("status", "headers"),
    [*((code, {"retry_after": "86400"}) for code in (429, 503)), *((code, {}) for code in (401, 403, 404))],
)
def test_what_one_key_or_model_is_refused_stops_no_other(apart: str, status: int, headers: dict[str, str]) -> None:
    well = only({"key": "Bearer B"} if apart == "key" else {"model": "tiny"}, status, **headers)
    with front(well, well, pass_keys=apart == "key") as server:

        def ask(key: str, model: str) -> httpx.Response:
            return server.post({**VOTED, "model": model}, headers={"authorization": f"Bearer {key}"})

        for _ in range(2):
            refused = ask("A", "tiny") if apart == "key" else ask("B", "other")
            assert refused.status_code in (status, 429)  # unasked while its servers want to be left alone
            assert ask("B", "tiny").status_code == 200
            states = server.gateway.upstream.chat_model.status()
            assert status == 503 or {state.healthy for state in states} == {True}


@pytest.mark.parametrize("body", [VOTED, {**VOTED, "stream": True}, {"model": "tiny", "messages": HELLO}])
def test_an_upstream_that_is_not_there_is_a_bad_gateway(body: dict[str, Any]) -> None:
    with front(None) as server:
        response = server.post(body)
        assert response.status_code == 502 and response.json()["error"]["type"] == "server_error"
        assert "127.0.0.1" not in response.text
        ready = server.http.get(server.url.replace("/v1", "/health/ready"))
        assert ready.status_code == 503
        assert server.http.get(server.url.replace("/v1", "/health/live")).status_code == 200


ASKED = {"model": "tiny", "input": "2 + 2?", "tools": [{**TOOL["function"], "type": "function"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", VOTED),
        ("/chat/completions", {**VOTED, "stream": True}),
        ("/responses", {**ASKED, "max_output_tokens": 9}),
    ],
)
def test_requests_to_an_upstream_that_never_answered_all_fail_within_their_own_time(
    path: str, body: dict[str, Any]
) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.hang()

    fields = {"preset": "auto", "stream_chunk_timeout": 1.0}
    with front(silent, get=silent, fields=fields) as server, ThreadPoolExecutor(4) as threads:
        begun = time.monotonic()
        responses = [*threads.map(lambda _: server.post(body, path), range(4))]
        assert time.monotonic() - begun < 2.5, "and not one after the other"
        for response in responses:
            error = events_in(response.text)[-1] if body.get("stream") else response.json()
            assert response.status_code == (200 if body.get("stream") else 504)
            assert error["error"]["code"] == "timeout" and "127.0.0.1" not in response.text


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("body", [VOTED, {**VOTED, "stream": True}, {"model": "tiny", "messages": HELLO}])
def test_a_redirect_of_the_upstream_is_followed_by_nobody(
    body: dict[str, Any], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Said(), get=Said()) as elsewhere:

        async def redirects(exchange: Exchange) -> None:
            await exchange.reply(code, location=f"{elsewhere.url}/chat/completions")

        with front(redirects, get=redirects) as server:
            response = server.post(body)
            assert response.status_code == 502 and response.json()["error"]["code"] == "upstream_error"
            assert "127.0.0.1" not in f"{response.text} {response.headers}" and elsewhere.url in caplog.text
            assert server.http.get(server.url.replace("/v1", "/health/ready")).status_code == 503
        assert not elsewhere.exchanges and not elsewhere.gets


def test_an_error_that_comes_as_a_reply_is_none() -> None:
    async def fails(exchange: Exchange) -> None:
        await exchange.reply(200, {"error": {"message": "overloaded", "type": "own", "code": 529}})

    with front(fails) as server:
        response = server.post(VOTED)
        assert response.status_code == 529 and response.json()["error"]["message"] == "overloaded"
        text = server.http.get(server.url.replace("/v1", "/metrics")).text
        assert 'reasc_upstream_errors_total{status="529"} 1.0' in text
        assert server.post({**VOTED, "reasc": {"rule": "no-such-rule"}}).status_code == 400
        text = server.http.get(server.url.replace("/v1", "/metrics")).text
        assert 'reasc_upstream_errors_total{status="400"}' not in text  # it was ours


def test_an_error_in_the_middle_of_a_stream_comes_as_an_event() -> None:
    async def fails(exchange: Exchange) -> None:
        await asyncio.sleep(0.7)  # after the head has gone out
        await exchange.refuse(400, "too long", retry_after="0.01")

    with front(fails) as server:
        *_, last = server.events(tools=[TOOL])
        assert last["error"]["message"] == "too long"


def test_without_a_key_nobody_is_answered() -> None:
    with front(Said(), admission={"keys": ("sk-one", "sk-two")}) as server:
        for given in ({}, {"authorization": "Bearer sk-three"}, {"authorization": "Basic sk-one"}):
            for path in ("/chat/completions", "/embeddings"):
                response = server.post(VOTED, path, headers=given)
                assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"
                assert "sk-one" not in response.text
        for given in ({"authorization": "Bearer sk-one"}, {"authorization": "bearer  sk-two"}, {"x-api-key": "sk-two"}):
            assert server.post(VOTED, headers=given).status_code == 200
        assert not any("sk-one" in str(sent) for sent in server.upstream.headers)


SAME: dict[str, bytes] = {
    "a key twice": b'"model": "other", "model": "tiny"',
    "half a pair": b'"user": "\\ud800"',
    "a large number": b'"big": 123456789012345678901234567890',
    "many commas in a text": b'"user": "' + b"1,[{" * 60_000 + b'"',
}


@pytest.mark.parametrize("voted", [False, True])
@pytest.mark.parametrize("case", SAME)
def test_what_is_odd_but_json_is_answered(bounded: Front, case: str, voted: bool) -> None:
    tools = b', "tools": ' + json.dumps([TOOL]).encode() if voted else b""
    body = b'{"messages": ' + json.dumps(HELLO).encode() + b", " + SAME[case] + tools + b"}"
    assert bounded.post(body).status_code == 200


@contextmanager
def held(server: Any, **options: Any) -> Iterator[None]:
    """A request that is being answered."""
    thread = threading.Thread(target=lambda: server.post(VOTED, **options))
    before = len(server.upstream.exchanges)
    thread.start()
    assert eventually(lambda: len(server.upstream.exchanges) > before)
    yield
    thread.join()


async def slowly(exchange: Exchange) -> None:
    await asyncio.sleep(0.2)
    await Said()(exchange)


def test_a_full_queue_says_when_to_come_again() -> None:
    with front(slowly, admission={"requests": 1, "queue": 0}) as server:
        with held(server):
            response = server.post(VOTED)
            assert response.status_code == 429 and response.headers["retry-after"] == "1"
            assert response.json()["error"]["code"] == "queue_full"
        assert server.post(VOTED).status_code == 200


def test_a_request_in_the_queue_is_answered_in_its_turn() -> None:
    with front(slowly, admission={"requests": 1, "queue": 1}) as server, held(server):
        assert server.post(VOTED).status_code == 200


def test_one_key_cannot_take_all_places() -> None:
    one, two = ({"authorization": f"Bearer {name}"} for name in ("one", "two"))
    with front(slowly, admission={"keys": ("one", "two"), "each": 1}) as server, held(server, headers=one):
        assert server.post(VOTED, headers=one).json()["error"]["code"] == "too_many_requests"
        assert server.post(VOTED, headers=two).status_code == 200


def test_samples_a_minute_are_those_that_were_drawn() -> None:
    now = [0.0]
    limits = {"samples_per_minute": 6, "clock": lambda: now[0]}
    votes = {"max_samples": 8, "concurrency": 8, "rule": "fixed_budget"}
    with front(Said(), admission=limits, votes=votes) as server:
        assert server.post(VOTED).json()["reasc"]["samples"] == 8
        refused = server.post(VOTED)
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "too_many_samples"
        now[0] += float(refused.headers["retry-after"])
        assert server.chat(n=2).status_code == 200  # not voted on, and two samples all the same
        assert server.chat().status_code == 429


def test_part_of_a_sample_is_none() -> None:
    now = [0.0]
    with front(Said(), admission={"samples_per_minute": 2, "clock": lambda: now[0]}) as server:
        assert [server.chat().status_code for _ in range(3)] == [200, 200, 429]
        now[0] += 29.0
        assert server.chat().status_code == 429
        now[0] += 1.0
        assert server.chat().status_code == 200


def test_what_is_counted_is_told() -> None:
    with front(Said()) as server:
        account = server.post(VOTED).json()["reasc"]
        server.chat()
        text = server.http.get(server.url.replace("/v1", "/metrics")).text
        assert 'reasc_requests_total{status="200",way="vote"} 1.0' in text
        assert 'reasc_requests_total{status="200",way="pass"} 1.0' in text
        assert f"reasc_samples_total {account['samples']}.0" in text
        assert f"reasc_tokens_total {account['tokens']['spent']}.0" in text
        assert f"reasc_saved_tokens_total {account['tokens']['saved']}.0" in text
        assert 'reasc_stops_total{reason="agreement"} 1.0' in text


@pytest.mark.parametrize(
    "message",
    [
        {"role": "critic", "content": "of no role that anybody knows"},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
        {"role": "user", "content": [{"type": "hologram", "at": [1, 2]}]},
        {"role": "user"},
    ],
)
def test_messages_that_are_not_understood_are_the_upstreams_to_refuse(message: dict[str, object]) -> None:
    with front(Said()) as server:
        reply = server.post({"model": "tiny", "messages": [message], "tools": [TOOL]})
        assert reply.status_code == 200 and reply.json()["reasc"]["samples"] > 1
        assert all(sent["messages"] == [message] for sent in server.upstream.requests)
