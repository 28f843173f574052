"""Servers that cannot be reached, or that redirect."""

import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SamplingError

from .conftest import KEY, Chat, each_client, each_client_with
from .exchange import Answer, Exchange
from .fake_server import serving
from .faults import RIGHT


@pytest.fixture(scope="module")
def stranger() -> Iterator[ssl.SSLContext]:
    """Return a certificate of an authority that no client trusts."""
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
def test_a_server_that_cannot_be_connected_to(runner: Any, chat: Chat, stranger: ssl.SSLContext) -> None:
    with serving(RIGHT) as plain, serving(RIGHT, tls=stranger) as untrusted:
        for url in (plain.url.replace("http:", "https:"), untrusted.url):
            assert "Connection error" in str(unreachable(runner, chat(url)))
        assert not untrusted.exchanges, "nothing was said to a stranger, the key least of all"
    assert "Connection error" in str(unreachable(runner, chat(plain.url))), "it is gone"


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


@each_client
def test_a_redirect_that_loses_the_request_or_goes_in_a_circle_is_a_failure(runner: Any, chat: Chat) -> None:
    async def around(exchange: Exchange) -> None:
        await exchange.reply(307, location=f"http://{exchange.headers['host']}/v1/chat/completions")

    with serving(RIGHT) as elsewhere, serving(redirect(303, elsewhere.url)) as served, serving(around) as circle:
        assert "404" in str(unreachable(runner, chat(served.url)))
        assert "Connection error" in str(unreachable(runner, chat(circle.url)))
    assert not elsewhere.exchanges
