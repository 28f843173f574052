"""Servers that cannot be reached, or that redirect."""

import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SamplingError, ServerError

from .conftest import KEY, Chat, each_client
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


@pytest.mark.parametrize("call", ["invoke", "stream", "solve"])
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_is_not_followed(code: int, call: str, runner: Any) -> None:
    chat = Chat("ChatOpenAICompatible")
    with serving(RIGHT, get=RIGHT) as elsewhere, serving(redirect(code, elsewhere.url)) as served:
        model = chat(served.url, default_headers={"x-team-key": "secret"})
        asked = ReASCRunnable(model=model) if call == "solve" else model
        with pytest.raises(ServerError) as raised:
            getattr(runner, call)(asked, "q")
    assert elsewhere.url in str(raised.value) and not raised.value.is_retryable
    assert not elsewhere.exchanges and not elsewhere.gets


@pytest.mark.parametrize("code", [301, 302, 303])
def test_a_redirect_that_loses_the_request_is_no_vote(code: int, runner: Any) -> None:
    async def once(exchange: Exchange) -> None:
        await exchange.reply(code, location="/v1/chat/completions?there")

    async def there(exchange: Exchange) -> None:
        exchange.body |= {"messages": [{"role": "user", "content": "q"}], "stream": True}
        await RIGHT(exchange)

    with serving(once, get=there) as served, pytest.raises(ServerError, match=str(code)):
        runner.solve(ReASCRunnable(model=Chat("ChatOpenAICompatible")(served.url)), "q")
    assert not served.gets


@pytest.mark.parametrize("location", ["http://[", "//x:99999/", "http://other/?key=" + KEY])
def test_an_odd_redirect_is_refused(location: str, runner: Any) -> None:
    answer = lambda exchange: exchange.reply(307, location=location)  # noqa: E731
    with serving(answer) as served, pytest.raises(ServerError) as raised:
        runner.invoke(Chat("ChatOpenAICompatible")(served.url), "q")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("code", [307, 308])
def test_langchains_client_follows_a_redirect_without_the_key(code: int, runner: Any) -> None:
    with serving(RIGHT) as elsewhere, serving(redirect(code, elsewhere.url)) as served:
        result = runner.solve(ReASCRunnable(model=Chat("ChatOpenAI")(served.url)), "q")
    assert (result.answer, result.failures) == ("42", ())
    assert {headers["authorization"] for headers in served.headers} == {f"Bearer {KEY}"}
    assert not any("authorization" in headers for headers in elsewhere.headers), "another port: a stranger"


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
def test_a_redirect_in_a_circle_is_a_failure(runner: Any, chat: Chat) -> None:
    async def around(exchange: Exchange) -> None:
        await exchange.reply(307, location=f"http://{exchange.headers['host']}/v1/chat/completions")

    with serving(around) as circle:
        assert "Connection error" in str(unreachable(runner, chat(circle.url)))
