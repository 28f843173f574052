"""What an error of a server means: to LangChain's retries, and for another try here."""

import email.utils
import json
import pickle
import ssl
import time
from typing import Any

import httpx
import openai
import pytest
from langchain_core import exceptions as core
from langchain_reasc_openai import RetryPolicy, probe
from langchain_reasc_openai.errors import Fault, causes, classified, fault_of, retry_after
from pydantic import SecretStr, TypeAdapter, ValidationError
from servers import fake_server
from servers.exchange import JSON, Exchange

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake, serving, vllm
from backends.openai.loopback import Face, model_at
from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError, SamplingError, ServerError

REQUEST = httpx.Request("POST", "http://server/v1/chat/completions", headers={"authorization": "Bearer sk-secret"})


def status(
    code: int, kind: type[openai.APIStatusError] = openai.APIStatusError, **headers: str
) -> openai.APIStatusError:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return kind(f"no: {code}", response=httpx.Response(code, headers=given, request=REQUEST), body={"detail": "no"})


def tls(cause: ssl.SSLError) -> Exception:
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx.ConnectError("handshake")
    error.__cause__.__context__ = cause
    return error


ERRORS = [
    (status(400), Fault.REQUEST, core.ModelInvalidRequestError),
    (status(401), Fault.REFUSED, core.ModelAuthenticationError),
    (status(403), Fault.REFUSED, core.ModelPermissionDeniedError),
    (status(404), Fault.REFUSED, core.ModelNotFoundError),
    (status(408), Fault.ONCE, core.ModelTimeoutError),
    (status(409, openai.ConflictError), Fault.ONCE, core.ModelAPIError),
    (status(425), Fault.BUSY, core.ModelRateLimitError),
    (status(429, openai.RateLimitError), Fault.BUSY, core.ModelRateLimitError),
    (status(500, openai.InternalServerError), Fault.ONCE, core.ModelAPIError),
    (status(503, openai.InternalServerError), Fault.DOWN, core.ModelAPIError),
    (openai.APIError("overloaded", REQUEST, body={"code": 503}), Fault.DOWN, core.ModelAPIError),
    (openai.APIError("out of memory", REQUEST, body={"code": "cuda"}), Fault.ONCE, core.ModelAPIError),
    (openai.APIConnectionError(request=REQUEST), Fault.DOWN, core.ModelConnectionError),
    (openai.APITimeoutError(REQUEST), Fault.DOWN, core.ModelTimeoutError),
    (tls(ssl.SSLCertVerificationError("self-signed")), Fault.REFUSED, core.ModelPermissionDeniedError),
    (tls(ssl.SSLEOFError("the server went away")), Fault.DOWN, core.ModelConnectionError),
    (TimeoutError("silent for 5 s"), Fault.DOWN, core.ModelTimeoutError),
    (httpx.RemoteProtocolError("cut", request=REQUEST), Fault.DOWN, core.ModelConnectionError),
    (json.JSONDecodeError("no JSON", "{", 1), Fault.ONCE, core.ModelAPIError),
    (KeyError("choices"), Fault.REQUEST, core.ModelInvalidRequestError),
]


@pytest.mark.parametrize(("error", "fault", "kind"), ERRORS, ids=lambda value: repr(value)[:40])
def test_an_error_keeps_its_class_and_gets_a_kind(error: Exception, fault: Fault, kind: type[core.ModelError]) -> None:
    assert fault_of(error) is fault
    found: Any = classified(error)
    retryable = fault in (Fault.BUSY, Fault.ONCE, Fault.DOWN)
    assert isinstance(found, type(error)) and isinstance(found, kind) and found.is_retryable is retryable
    assert (type(found).__name__, str(found), found.args) == (type(error).__name__, str(error), error.args)
    for name, value in vars(error).items():
        assert getattr(found, name) is value
    assert type(classified(error)) is type(found)
    dumped = pickle.dumps(found)
    again = pickle.loads(dumped)
    assert b"sk-secret" not in dumped
    assert type(again) is type(found) and str(again) == str(error) and again.is_retryable is retryable


class Classified(openai.InternalServerError, core.ModelAPIError):
    """An error that langchain-openai has given a kind."""


@pytest.mark.parametrize(
    "error",
    [
        SamplingError("cut"),
        ServerError("HTTP 400"),
        ModelClosedError("closed"),
        Classified("no", response=httpx.Response(501, request=REQUEST), body=None),
    ],
    ids=repr,
)
def test_errors_that_have_a_kind_stay_as_they_are(error: Any) -> None:
    before = error.is_retryable
    assert classified(error) is error and error.is_retryable is (isinstance(error, Classified) or before)


def test_an_error_that_nothing_can_be_derived_from_keeps_its_name_and_words() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(int).validate_python("x")
    found = classified(raised.value)
    assert isinstance(found, core.ModelInvalidRequestError) and not found.is_retryable
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found) and type(found).__name__ == "ValidationError"
    assert str(again) == str(found) == str(raised.value)


@pytest.mark.parametrize(("code", "kind"), [(404, core.ModelNotFoundError), (500, core.ModelAPIError)])
def test_calls_raise_them_and_a_run_is_as_hopeful_as_its_samples(
    face: Face, code: int, kind: type[core.ModelError]
) -> None:
    with serving(vllm(status=code)) as fake, model_of(fake, max_retries=0) as model:
        for call in (face.invoke, face.stream):
            with pytest.raises(openai.APIStatusError) as raised:
                call(model, "How much is 2 + 2?")
            assert isinstance(raised.value, kind) and raised.value.is_retryable is (code == 500)
        [(_, failed)] = face.sample(model, "How much is 2 + 2?", n=1)
        assert isinstance(failed.error, kind) and failed.error.is_retryable is (code == 500)
        with pytest.raises(SamplingError) as all_failed:
            face.solve(ReASCRunnable(model=model), "How much is 2 + 2?")
        assert all_failed.value.is_retryable is (code == 500)


SECRET = "sk-süß-secret"


def held(error: BaseException) -> str:
    """All that an error and those behind it hold."""
    return "".join(f"{one!r} {vars(one)}" for one in causes(error))


@pytest.mark.parametrize(
    "make",
    [
        lambda fake: model_of(fake, api_key=SECRET),
        lambda fake: model_of(fake, api_key=SecretStr(SECRET)),
        lambda fake: model_of(fake, default_headers={"x-key": SECRET}),
        lambda fake: probe(fake.url, api_key=SecretStr(SECRET)),
    ],
    ids=["key", "secret key", "header", "probe"],
)
def test_a_key_that_no_header_can_carry_is_refused_unquoted(fake: Fake, make: Any) -> None:
    with pytest.raises(ConfigurationError, match="not ASCII") as raised:
        make(fake)
    assert "secret" not in held(raised.value)


@pytest.mark.parametrize("key", ["", "  ", "sk-kept-secret\n", "sk-\x00kept-secret"])
@pytest.mark.parametrize("wrapped", [str, SecretStr])
def test_so_is_an_empty_or_broken_one(fake: Fake, key: str, wrapped: Any) -> None:
    for make in (lambda: model_of(fake, api_key=wrapped(key)), lambda: probe(fake.url, api_key=SecretStr(key))):
        with pytest.raises(ConfigurationError, match="api_key") as raised:
            make()
        assert "secret" not in held(raised.value)


QUOTED = "sk-kept-secret"
REPLIES: dict[str, Any] = {
    "an error": {"error": {"message": f"no such key: {QUOTED}", "code": 429}},
    "a text as the error": {"error": f"no such key: {QUOTED}"},
    "no choices": {"message": QUOTED},
    "choices of null": {"choices": None, "message": QUOTED},
    "wrong choices": {"choices": {QUOTED: 1}},
    "a text as a choice": {"choices": [QUOTED]},
    "a list": [QUOTED],
    "a text": QUOTED,
    "a page": f"<html>{QUOTED}</html>",
}


@pytest.mark.parametrize("call", ["invoke", "stream", "sample"])
@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_of_status_200_that_is_none_is_an_error_of_ours_or_openais_without_the_key(
    face: Face, reply: str, call: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        kind = "text/html" if reply == "a page" else JSON
        body = json.dumps(REPLIES[reply]) if reply == "a text" else REPLIES[reply]
        await exchange.reply(200, body, content_type=kind)

    with fake_server.serving(answer) as served:
        model = model_at(served.url, api_key=QUOTED, max_retries=0, retry=None)
        with model, pytest.raises((SamplingError, openai.APIError)) as raised:
            if call != "sample":
                getattr(face, call)(model, "Hello")
            [(_, failed)] = face.sample(model, "Hello", n=1)
            raise failed.error
    assert QUOTED not in held(raised.value)


@pytest.mark.parametrize("call", ["invoke", "stream", "sample"])
@pytest.mark.parametrize(
    ("fields", "options"),
    [({}, {"extra_headers": {"x-key": SECRET}}), ({"api_key": lambda: SECRET}, {})],
    ids=["header", "function"],
)
def test_so_is_one_that_is_first_known_with_the_call(
    fake: Fake, face: Face, call: str, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    with model_of(fake, **fields) as model, pytest.raises(ConfigurationError, match="not ASCII") as raised:
        if call != "sample":
            getattr(face, call)(model, "Hello", **options)
        [(_, failed)] = face.sample(model, "Hello", n=1, **options)
        raise failed.error
    assert "secret" not in held(raised.value)


def test_nobody_there_may_pass_and_a_refused_key_will_not(face: Face, gone: Fake) -> None:
    def error_at(*servers: Fake) -> Any:
        urls = [server.url for server in servers]
        model = model_of(servers[0], base_url=urls, preset="auto", api_key="wrong")
        with model, pytest.raises(ServerError) as raised:
            face.invoke(model, "q")
        return raised.value

    with serving(vllm(key="right")) as refusing:
        refused, either = error_at(refusing), error_at(refusing, gone)
    assert "refuses the key" in str(refused)
    assert isinstance(refused, core.ModelAuthenticationError) and not refused.is_retryable
    assert "refuses the key" in str(either) and "; no server at" in str(either)
    assert isinstance(either, core.ModelConnectionError) and either.is_retryable, "one that answers later is enough"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "0.25"}, 0.25),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "-3"}, 0),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "Wed, 99 Foo 2026 00:00:00 GMT"}, None),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_how_long_the_server_asks_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(status(429, **headers)) == seconds


def test_the_server_may_name_a_time_to_come_back() -> None:
    at = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert retry_after(status(429, retry_after=at)) == pytest.approx(30, abs=2)


def test_the_waits_double_up_to_a_bound_and_are_random() -> None:
    policy = RetryPolicy(first_wait=1, longest_wait=4)
    drawn = []
    for attempt in (1, 2, 3, 4, 5):
        waits = [policy.wait_after(attempt) for _ in range(300)]
        assert min(waits) < 0.2 * max(waits)
        drawn.append(max(waits))
    assert drawn == pytest.approx([1, 2, 4, 4, 4], rel=0.1)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"attempts": 1.5}, {"first_wait": -1}, {"sideline": float("nan")}])
def test_a_wrong_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        RetryPolicy(**wrong)
