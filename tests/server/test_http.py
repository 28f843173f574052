"""HTTP clients differ: paths, request ids, protocol versions, and browsers."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from langchain_reasc_server.middleware import browser_access
from servers.exchange import Exchange

from langchain_reasc.exceptions import ConfigurationError

from .serving import HELLO, TOOL, Front, Said, front

VOTED: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [TOOL]}
ORIGIN = "https://chat.example.org"


async def listed(exchange: Exchange) -> None:
    """Allow all origins, as some upstreams do."""
    await exchange.reply(200, {"object": "list", "data": []}, access_control_allow_origin="*")


@pytest.fixture(scope="module")
def server() -> Iterator[Front]:
    with front(Said(), votes={"max_samples": 2}, origins=[ORIGIN]) as made:
        made.upstream.get = listed
        yield made


PATHS = {
    "/v1/chat/completions/": "/v1/chat/completions",
    "//v1/chat/completions": "/v1/chat/completions",
    "/v1//chat//completions//": "/v1/chat/completions",
    "/v1/models/": "/v1/models",
    "/v1/models/some/tiny:reasc-8": "/v1/models/some/tiny",
    "/v1/models/tiny%3Areasc": "/v1/models/tiny",
    "/v1/models/tiny:latest": "/v1/models/tiny:latest",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_read_as_it_is_meant(server: Front, path: str) -> None:
    root, chat = server.url.removesuffix("/v1"), "chat" in path
    response = server.http.request("POST" if chat else "GET", root + path, json=VOTED if chat else None)
    assert response.status_code == 200 and ("x-reasc-samples" in response.headers) == chat
    assert (server.upstream.exchanges[-1].path if chat else server.upstream.gets[-1]) == PATHS[path]


def test_an_address_without_v1_says_what_is_missing(server: Front) -> None:
    response = server.http.post(server.url.removesuffix("/v1") + "/chat/completions", json=VOTED)
    assert response.status_code == 404 and "below /v1" in response.json()["error"]["message"]
    assert server.http.get(server.url).status_code == 404  # and leads nowhere


@pytest.mark.parametrize("body", [VOTED, {**VOTED, "stream": True}, {**VOTED, "seed": 1}, {"n": 0, "reasc": 7}])
def test_the_id_of_a_request_comes_back_and_goes_to_the_upstream(server: Front, body: Any) -> None:
    assert server.post(body, headers={"x-request-id": "r1"}).headers["x-request-id"] == "r1"
    assert server.upstream.headers[-1].get("x-request-id") == "r1" or "reasc" in body
    assert "x-request-id" not in server.post(body).headers


@pytest.mark.parametrize("origin", [ORIGIN, "https://elsewhere.example"])
def test_pages_of_the_origins_that_are_named_may_ask(server: Front, origin: str) -> None:
    asked = {"origin": origin, "access-control-request-method": "POST"}
    asked |= {"access-control-request-headers": "authorization,content-type,x-stainless-lang"}
    path, allowed = f"{server.url}/chat/completions", origin == ORIGIN
    before = server.http.options(path, headers=asked)
    assert (before.status_code == 200) == allowed
    asked = [server.http.get(f"{server.url}/models", headers={"origin": origin})]
    asked += [server.post(body, headers={"origin": origin}) for body in (VOTED, {**VOTED, "stream": True}, [])]
    assert [one.status_code for one in asked] == ([200, 200, 200, 400] if allowed else [403] * 4)
    for response in (before, *asked):
        assert response.headers.get_list("access-control-allow-origin") == ([origin] if allowed else [])
    assert not allowed or "x-stainless-lang" in before.headers["access-control-allow-headers"]
    page = server.http.get(server.url.removesuffix("/v1"), headers={"origin": origin})
    assert page.status_code == 200 and "access-control-allow-origin" not in page.headers


@pytest.fixture(scope="module", params=[(), ("one",)], ids=["without keys", "with keys"])
def unnamed(request: pytest.FixtureRequest) -> Iterator[Front]:
    """A server that names no origins."""
    with front(Said(), votes={"max_samples": 2}, admission={"keys": request.param}) as made:
        yield made


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (ORIGIN, None, 403),  # a page of another site, whose request needs no permission by CORS
        ("null", None, 403),
        ("http://localhost:3000", None, 403),
        ("http://evil.example:8080", "evil.example:8080", 403),  # the owner points this name to the server
        ("http://reasc:8080", "reasc:8080", 200),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", 200),
        ("http://[::1]:8080", "[::1]:8080", 200),
        ("https://reasc.local", "reasc.local", 200),
        (None, "reasc.example.org", 200),  # not a page
    ],
)
def test_without_named_origins_no_page_may_ask(unnamed: Front, origin: Any, host: Any, status: int) -> None:
    named = {name: value for name, value in (("origin", origin), ("host", host)) if value}
    headers = {**named, "authorization": "Bearer one"}
    unnamed.upstream.exchanges.clear()
    for content_type in ({"content-type": "application/json"}, {}):
        sent: Any = {"content": json.dumps(VOTED).encode(), "headers": headers | content_type}
        response = unnamed.http.post(f"{unnamed.url}/chat/completions", **sent)
        assert response.status_code == status and "access-control-allow-origin" not in response.headers
    assert bool(unnamed.upstream.exchanges) == (status == 200)


@pytest.mark.parametrize("origin", ["chat.example.org", "https://chat.example.org/", ""])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-origin"):
        browser_access([origin])


def spoken(server: Front, sent: bytes) -> bytes:
    """Return everything until the server closes the connection."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port or 0), timeout=20) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def posted(body: Any, *headers: str, version: str = "1.1") -> bytes:
    raw = json.dumps(body).encode()
    head = [f"POST /v1/chat/completions HTTP/{version}", "host: x", "content-type: application/json", *headers]
    return "\r\n".join([*head, f"content-length: {len(raw)}", "", ""]).encode() + raw


@pytest.mark.parametrize("streamed", [False, True])
def test_older_and_odd_ways_to_speak_http(server: Front, streamed: bool) -> None:
    body = {**VOTED, "stream": streamed}
    older = spoken(server, posted(body, version="1.0"))
    assert b"transfer-encoding" not in older.lower() and (
        b"[DONE]\n\n" in older[-9:] if streamed else older[-2:] == b"}}"
    )
    waiting = spoken(server, posted(body, "expect: 100-continue", "connection: close"))
    assert waiting.startswith(b"HTTP/1.1 100 ") and waiting.count(b"HTTP/1.1 200 OK") == 1
    in_a_row = spoken(server, posted(body) + posted({**body, "seed": 1}) + posted(body, "connection: close"))
    assert in_a_row.count(b"HTTP/1.1 200 OK") == 3 and in_a_row.count(b"x-reasc-passed-through: seed") == 1
    assert httpx.get(f"{server.url}/models").status_code == 200
