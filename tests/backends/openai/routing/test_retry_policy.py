"""What an error of a server means, and how long to wait after it."""

import email.utils
import json
import ssl
import time
from typing import Any

import httpx
import openai
import pytest
from langchain_reasc_openai.routing.retrying import Fault, RetryPolicy, fault_of, retry_after

from langchain_reasc.exceptions import ConfigurationError, SamplingError

REQUEST = httpx.Request("POST", "http://server/v1/chat/completions")


def status(code: int, **headers: str) -> openai.APIStatusError:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return openai.APIStatusError("no", response=httpx.Response(code, headers=given, request=REQUEST), body=None)


def tls(cause: ssl.SSLError) -> Exception:
    error = openai.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx.ConnectError("handshake")
    error.__cause__.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (status(400), Fault.REQUEST),
        (status(413), Fault.REQUEST),
        (status(422), Fault.REQUEST),
        (status(401), Fault.REFUSED),
        (status(403), Fault.REFUSED),
        (status(404), Fault.REFUSED),
        (status(408), Fault.ONCE),
        (status(409), Fault.ONCE),
        (status(429), Fault.BUSY),
        (status(500), Fault.ONCE),
        (status(501), Fault.ONCE),
        (status(502), Fault.DOWN),
        (status(503), Fault.DOWN),
        (status(504), Fault.DOWN),
        (openai.APIConnectionError(request=REQUEST), Fault.DOWN),
        (openai.APITimeoutError(REQUEST), Fault.DOWN),
        (TimeoutError("no chunk for 120 s"), Fault.DOWN),
        (ConnectionResetError(), Fault.DOWN),
        (httpx.RemoteProtocolError("cut"), Fault.DOWN),
        (SamplingError("ended before the response did"), Fault.DOWN),
        (tls(ssl.SSLCertVerificationError("self-signed")), Fault.REFUSED),
        (tls(ssl.SSLError("wrong version number")), Fault.REFUSED),
        (tls(ssl.SSLEOFError("the server went away")), Fault.DOWN),
        (tls(ssl.SSLWantReadError("no answer to the handshake yet")), Fault.DOWN),
        (json.JSONDecodeError("no", "{", 1), Fault.ONCE),
        (openai.APIError("overloaded", REQUEST, body={"code": 503}), Fault.DOWN),
        (openai.APIError("bad grammar", REQUEST, body={"code": 400}), Fault.REQUEST),
        (openai.APIError("out of memory", REQUEST, body={"code": "cuda"}), Fault.ONCE),
        (ValueError("our own mistake"), Fault.REQUEST),
    ],
)
def test_what_an_error_means(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "0.25"}, 0.25),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "-3"}, 0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "Wed, 99 Foo 2026 00:00:00 GMT"}, None),
        ({}, None),
    ],
)
def test_how_long_the_server_asks_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(status(429, **headers)) == seconds


def test_retry_after_may_be_a_date() -> None:
    assert retry_after(status(429, retry_after=email.utils.formatdate(time.time() + 30, usegmt=True))) == pytest.approx(
        30, abs=2
    )
    assert retry_after(status(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")) == 0


def test_the_waits_double_up_to_a_bound_and_are_random() -> None:
    policy = RetryPolicy(first_wait=1, longest_wait=4)
    state: Any = type("State", (), {})()
    drawn = []
    for state.attempt_number in (1, 2, 3, 4, 5):
        waits = [policy.wait(state) for _ in range(300)]
        assert min(waits) < 0.2 * max(waits)
        drawn.append(max(waits))
    assert drawn == pytest.approx([1, 2, 4, 4, 4], rel=0.1)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"attempts": 1.5}, {"first_wait": -1}, {"sideline": float("nan")}])
def test_a_wrong_policy_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        RetryPolicy(**wrong)
