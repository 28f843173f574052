"""Servers that cannot be reached as they are, or are somewhere else."""

import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SamplingError

from .conftest import KEY, WAYS, Chat, each_client, each_client_with
from .exchange import Answer, Exchange
from .fake_server import serving
from .faults import RIGHT


@pytest.fixture(scope="module")
def stranger() -> Iterator[ssl.SSLContext]:
    """A certificate of an authority that nobody trusts."""
    trustme = pytest.importorskip("trustme")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    yield context


def unreachable(runner: Any, model: Any) -> SamplingError:
    with pytest.raises(SamplingError) as caught:
        runner.invoke(ReASCRunnable(model=model), "q")
    assert len(caught.value.failures) == 4
    return caught.value


@each_client
def test_connection_refused(runner: Any, chat: Chat) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    assert re.search("Connection error", str(unreachable(runner, chat(url))))


@each_client
def test_a_certificate_nobody_trusts(runner: Any, chat: Chat, stranger: ssl.SSLContext) -> None:
    with serving(RIGHT, tls=stranger) as served:
        error = unreachable(runner, chat(served.url))
        assert not served.exchanges, "nothing was said to a stranger, the key least of all"
    assert "Connection error" in str(error)


@each_client
def test_https_where_http_is_spoken(runner: Any, chat: Chat) -> None:
    with serving(RIGHT) as served:
        assert "Connection error" in str(unreachable(runner, chat(served.url.replace("http:", "https:"))))


def redirect(code: int, target: str) -> Answer:
    return lambda exchange: exchange.reply(code, location=f"{target}/chat/completions")


@each_client_with("code", [307, 308])
def test_a_redirect_that_keeps_the_request_is_followed_without_the_key(code: int, runner: Any, chat: Chat) -> None:
    with serving(RIGHT) as elsewhere, serving(redirect(code, elsewhere.url)) as served:
        model = chat(served.url, default_headers={"x-team-key": "secret"})
        result = runner.solve(ReASCRunnable(model=model), "q")
    assert (result.answer, result.failures) == ("42", ())
    asked = {(headers["authorization"], headers["x-team-key"]) for headers in served.headers}
    assert asked == {(f"Bearer {KEY}", "secret")}
    assert not any("authorization" in headers for headers in elsewhere.headers), "another port: a stranger"
    if chat.name == "ChatOpenAICompatible":
        assert not any("secret" in headers.values() for headers in elsewhere.headers)


@each_client
def test_a_redirect_on_the_same_server_keeps_the_key(runner: Any, chat: Chat) -> None:
    async def once(exchange: Exchange) -> None:
        if "?there" in exchange.path:
            await RIGHT(exchange)
        else:
            await exchange.reply(307, location="/v1/chat/completions?there")

    with serving(once) as served:
        result = runner.solve(ReASCRunnable(model=chat(served.url, default_headers={"x-team-key": "secret"})), "q")
    assert (result.answer, result.failures) == ("42", ())
    assert {(one["authorization"], one["x-team-key"]) for one in served.headers} == {(f"Bearer {KEY}", "secret")}


@each_client_with("code", [303])
def test_a_redirect_that_loses_the_request_is_a_failure(code: int, runner: Any, chat: Chat) -> None:
    with serving(RIGHT) as elsewhere, serving(redirect(code, elsewhere.url)) as served:
        assert "404" in str(unreachable(runner, chat(served.url)))
    assert not elsewhere.exchanges


@pytest.mark.parametrize(("chat", "runner"), [("ChatOpenAICompatible", WAYS[0])], indirect=True)
def test_a_redirect_in_a_circle_ends(runner: Any, chat: Chat) -> None:
    async def around(exchange: Exchange) -> None:
        await exchange.reply(307, location=f"http://{exchange.headers['host']}/v1/chat/completions")

    with serving(around) as served:
        assert "Connection error" in str(unreachable(runner, chat(served.url)))
