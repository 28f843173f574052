"""Requests that are not voted on pass through unchanged."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_reasc_openai import ChatOpenAICompatible
from langchain_reasc_server.proxy import Servers
from servers.exchange import Exchange, refuses
from servers.fake_server import serving

from .serving import HELLO, KEY, SHAPE, TOOL, Front, Said, breaks_off, front

pytestmark = pytest.mark.full

CHAT: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [TOOL]}
REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "several": ({**CHAT, "n": 3}, "n"),
    "greedy": ({**CHAT, "temperature": 0}, "temperature"),
    "greedy by top_p": ({**CHAT, "top_p": 0}, "top_p"),
    "greedy by top_k": ({**CHAT, "top_k": 1}, "top_k"),
    "seeded": ({**CHAT, "seed": 7}, "seed"),
    "audio": ({**CHAT, "modalities": ["text", "audio"]}, "modalities"),
    "older calls": ({**CHAT, "functions": [{"name": "f"}]}, "functions"),
    "one sample": ({**CHAT, "reasc": {"max_samples": 1}}, "max_samples"),
    "text": ({"model": "tiny", "messages": HELLO}, "nothing to vote on"),
    "no tools allowed": ({**CHAT, "tool_choice": "none"}, "nothing to vote on"),
    "plain text": ({"model": "tiny", "messages": HELLO, "response_format": {"type": "text"}}, "nothing to vote on"),
    "no messages": ({"model": "tiny", "messages": "hello", "tools": [TOOL]}, "not understood"),
    "odd tools": ({"model": "tiny", "messages": HELLO, "tools": {"a": 1}}, "not understood"),
}


async def echo(exchange: Exchange) -> None:
    """Answer with what was asked."""
    await exchange.reply(200, {"asked": exchange.body, "path": exchange.path}, x_own="жук", set_cookie="a=b")


@pytest.fixture(scope="module")
def echoing() -> Iterator[Front]:
    with front(echo) as server:
        yield server


@pytest.mark.parametrize("case", REASONS)
def test_what_cannot_be_voted_on_is_forwarded_and_says_why(echoing: Front, case: str) -> None:
    body, why = REASONS[case]
    response = echoing.post(body)
    assert response.headers["x-reasc-passed-through"] == why
    assert response.headers["x-own"] == "жук" and "x-reasc-samples" not in response.headers
    asked = {name: value for name, value in body.items() if name != "reasc"}
    assert response.json() == {"asked": asked, "path": "/v1/chat/completions"}


def test_a_body_that_need_not_change_goes_on_byte_for_byte() -> None:
    received: list[str] = []

    async def keep(exchange: Exchange) -> None:
        received.append(exchange.headers["content-length"])
        await exchange.reply(200, {})

    odd = b'{ "model":"tiny",\n "messages": [ {"role":"user","content":"\\u00e4"} ], "big": 12345678901234567890 }'
    with front(keep) as server:
        assert server.post(odd).json() == {}
        assert received == [str(len(odd))]
        assert server.upstream.requests[0]["big"] == 12345678901234567890


def test_other_paths_that_are_open_go_through_with_their_query() -> None:
    with front(echo, paths=["*"]) as server:
        embedded = server.post({"input": "x"}, "/embeddings?dimensions=8")
        assert embedded.json() == {"asked": {"input": "x"}, "path": "/v1/embeddings?dimensions=8"}
        assert embedded.headers["x-reasc-passed-through"] == "not a chat completion"
        assert server.http.get(f"{server.url}/models").json()["data"][0]["id"] == "tiny"
        for path in ("/%2e%2e/slots", "/a/%2E%2E/%2e%2e/slots", "/%252e%252e/slots", "/..%2fslots", "/..;/slots"):
            target = httpx.Request("POST", server.url + "/x", content=b"{}")
            target.url = target.url.copy_with(raw_path=f"/v1{path}".encode())
            assert server.http.send(target).status_code == 404, path
        assert len(server.upstream.exchanges) == 1


SHUT = [
    *("DELETE /files/f-1", "POST /load_lora_adapter", "GET /organization/usage/costs", "POST /embeddings"),
    *("GET /chat/completions", "GET /chat/completions/c/messages", "DELETE /chat/completions/c"),
    *("GET /responses/r-1", "DELETE /responses/r-1", "POST /responses/r-1/cancel", "POST /responses/compact"),
    *("DELETE /models/ft:mine", "POST /models/tiny", "GET /modelsx", "GET /models%2F..%2Ffiles"),
    *("GET /models/..;/files", "GET /%66iles", "GET /files%2f..%2fmodels"),
]


@pytest.mark.parametrize("asked", SHUT)
def test_a_clients_key_is_not_the_operators_for_all_that_the_upstream_has(echoing: Front, asked: str) -> None:
    before = len(echoing.upstream.exchanges), len(echoing.upstream.gets)
    method, _, path = asked.partition(" ")
    response = echoing.http.send(_request(method, f"{echoing.url}{path}"))
    assert response.status_code in (404, 405) and response.json()["error"]["type"]
    assert (len(echoing.upstream.exchanges), len(echoing.upstream.gets)) == before


OPENED = {
    "embeddings": ("POST /embeddings", "POST /embeddings/batch"),
    "/v1/files/": ("GET /files", "DELETE /files/f-1", "GET /files/f-1/content"),
    "*": ("POST /audio/speech", "GET /organization/costs"),
}


@pytest.mark.parametrize("path", OPENED)
def test_an_operator_opens_a_path_with_all_below_it(path: str) -> None:
    with front(echo, paths=[path]) as server:
        for asked in OPENED[path]:
            method, _, rest = asked.partition(" ")
            assert server.http.send(_request(method, server.url + rest)).status_code == 200, asked
        if path != "*":
            assert server.post({}, f"/{rest.split('/')[1]}x").status_code == 404


def _request(method: str, url: str) -> httpx.Request:
    """Return a request whose path is sent without normalization."""
    request = httpx.Request(method, url, content=b"{}" if method == "POST" else None)
    request.url = request.url.copy_with(raw_path=url.partition("/v1")[2].join(("/v1", "")).encode())
    return request


def test_the_upstreams_key_goes_to_it_and_to_nobody_else() -> None:
    async def quote(exchange: Exchange) -> None:
        await exchange.refuse(401, f"Incorrect API key provided: {exchange.headers['authorization']}")

    for body in ({}, {"tools": [TOOL]}, {"tools": [TOOL], "stream": True}, {"response_format": SHAPE}):
        with front(quote) as server:
            response = server.post(
                {"model": "tiny", "messages": HELLO, **body}, headers={"authorization": "Bearer mine"}
            )
            assert KEY not in response.text and "Incorrect API key" in response.text
            assert {sent["authorization"] for sent in server.upstream.headers} == {f"Bearer {KEY}"}
            assert response.status_code == 401


def test_a_clients_own_key_is_passed_on_where_the_operator_says_so() -> None:
    asked = {"model": "tiny", "messages": HELLO}
    ways = [("/chat/completions", {**asked, **body}) for body in ({}, {"stream": True}, {"tools": [TOOL]})]
    with front(Said(), pass_keys=True) as server:
        for path, body in ways:
            server.post(body, path, headers={"authorization": "Bearer mine"})
        before = len(server.upstream.exchanges)
        for path, body in (*ways, ("/responses", {"input": "hi"})):
            reply = server.post(body, path)
            assert reply.status_code == 401 and reply.json()["error"]["code"] == "invalid_api_key"
        assert server.http.get(f"{server.url}/models").status_code == 401
        assert len(server.upstream.exchanges) == before and not server.upstream.gets, "the operator's key is not theirs"
        assert {sent["authorization"] for sent in server.upstream.headers} == {"Bearer mine"}


def test_headers_of_the_client_reach_the_upstream_and_those_of_the_connection_do_not() -> None:
    given = {"x-trace": "t1", "openai-organization": "o", "cookie": "c=1", "x-reasc-answer": "message"}
    given |= {"api-key": "mine", "x-api-key": "mine"}
    given |= {"x-stainless-raw-response": "true", "accept": "text/plain"}  # which openai's own client obeys
    with front(Said()) as server:
        for body in ({}, {"tools": [TOOL]}):
            server.post({"model": "tiny", "messages": HELLO, **body}, headers=given)
        assert len(server.upstream.headers) > 2
        for sent in server.upstream.headers:
            assert (sent["x-trace"], sent["openai-organization"]) == ("t1", "o")
            assert not sent.keys() & {"cookie", "x-reasc-answer", "api-key", "x-api-key"}
            assert sent["accept-encoding"] == "identity"


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_it_goes_through_the_environments_proxy_and_keeps_no_cookies(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(echo) as proxy, ChatOpenAICompatible(base_url="http://gpu.example/v1", model="tiny") as model:
        monkeypatch.setenv(variable, proxy.root)
        servers = Servers(model)
        monkeypatch.delenv(variable)
        with front(served=servers) as server:
            for _ in range(2):
                assert server.chat().headers["set-cookie"] == "a=b"
                server.http.cookies.clear()
        assert [one.path for one in proxy.exchanges] == ["http://gpu.example/v1/chat/completions"] * 2
        assert all("cookie" not in sent for sent in proxy.headers)


def test_the_next_server_is_asked_where_one_is_not_there() -> None:
    with front(None, Said()) as server:
        for body in ({}, {}, {}, {"tools": [TOOL]}):
            assert server.chat(**body).status_code == 200


async def half_a_reply(exchange: Exchange) -> None:
    """Break off in the middle of a reply in one piece."""
    await exchange.begin_stream("application/json")
    await exchange.write('{"half":')
    await exchange.cut()


@pytest.mark.parametrize("fault", [half_a_reply, refuses(503), refuses(429)])
def test_a_chat_completion_that_one_server_fails_is_answered_by_another(fault: Any) -> None:
    with front(fault, Said()) as server:
        for _ in range(30):  # servers are chosen at random
            reply = server.chat().json()
            assert reply["choices"][0]["message"]["content"] == "it is 42 "
        assert server.upstreams[0].exchanges and len(server.upstreams[1].exchanges) == 30


def test_what_no_server_answers_is_an_error_and_not_half_a_reply() -> None:
    with front(half_a_reply) as server:
        assert server.chat().json()["error"]["code"] == "unreachable"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_chunk_that_is_not_of_http_s_form_ends_the_wait(streamed: bool) -> None:
    async def malformed(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.token("half ")
        await asyncio.sleep(0.3)
        exchange.writer.write(b"no size\r\nand no end")
        await exchange.hang()

    with front(malformed) as server:
        response = server.chat(stream=streamed)
    if streamed:
        assert response.status_code == 200 and '"code":"upstream_error"' in response.text
    else:
        assert response.status_code == 502


def test_a_stream_that_breaks_off_ends_in_an_error() -> None:
    with front(breaks_off) as server:
        first, last = server.events()
        assert first["choices"][0]["delta"]["content"] == "half " and last["error"]["code"] == "upstream_error"
