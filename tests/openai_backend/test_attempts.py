import email.utils
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_openai.routing.retrying import Fault, RetryPolicy, fault_of, retry_after

from benchmarks.loopback_chat import serving
from langchain_reasc.exceptions import ConfigurationError, SamplingError

from .pools import (
    AsyncCalls,
    Script,
    SyncCalls,
    cut_after,
    eventually,
    pool_of,
    prompts_of_all,
    refuses,
    says,
    silent,
    text_of,
)

REQUEST = httpx.Request("POST", "http://server/v1/chat/completions")


@pytest.fixture(params=[SyncCalls, AsyncCalls], ids=["sync", "async"])
def calls(request: pytest.FixtureRequest) -> Any:
    return request.param()


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


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 504])
def test_a_passing_error_is_tried_again(calls: Any, code: int) -> None:
    script = Script(refuses(code), refuses(code), says("forty two"))
    with serving(script) as url, pool_of(url) as pool:
        assert text_of(calls.stream(pool)) == "forty two"
    assert len(script.requests) == 3


@pytest.mark.parametrize("code", [400, 401, 403, 404, 422])
def test_an_error_that_stays_is_raised_at_once(calls: Any, code: int) -> None:
    script = Script(refuses(code))
    with serving(script) as url, pool_of(url) as pool, pytest.raises(openai.APIStatusError) as raised:
        calls.stream(pool)
    assert raised.value.status_code == code and len(script.requests) == 1


def test_no_more_than_the_allowed_attempts_are_made_and_the_last_error_is_raised(calls: Any) -> None:
    script = Script(refuses(500))
    policy = RetryPolicy(attempts=3, first_wait=0.01)
    with serving(script) as url, pool_of(url, retry=policy) as pool:
        with pytest.raises(openai.InternalServerError):
            calls.stream(pool)
        [state] = pool.status()
    assert len(script.requests) == 3 and (state.served, state.failed, state.healthy) == (0, 3, False)
    assert state.error is not None and "refused with 500" in state.error


def test_retry_after_is_waited_for(calls: Any) -> None:
    script = Script(refuses(429, retry_after="0.3"), says("forty two"))
    with serving(script) as url, pool_of(url) as pool:
        assert text_of(calls.stream(pool)) == "forty two"
    assert 0.3 <= script.times[1] - script.times[0] < 5


def test_others_leave_a_resting_server_alone_too(calls: Any) -> None:
    script = Script(refuses(429, retry_after="0.3"), says("forty two"))
    with serving(script) as url, pool_of(url) as pool:
        calls.sample(pool, n=1)
        calls.sample(pool, n=3)
    assert all(at - script.times[0] >= 0.3 for at in script.times[1:])


def test_a_server_that_asks_for_too_long_a_rest_is_not_waited_for(calls: Any) -> None:
    script = Script(refuses(429, retry_after="3600"))
    with serving(script) as url, pool_of(url) as pool:
        begun = time.monotonic()
        with pytest.raises(SamplingError, match=r"next 3600 s.*longest_retry_after=60 s") as raised:
            calls.stream(pool)
    assert time.monotonic() - begun < 10 and isinstance(raised.value.failures[0], openai.RateLimitError)


@pytest.mark.parametrize("code", [401, 404, 429, 500, 503])
def test_another_server_is_asked_without_waiting(calls: Any, code: int) -> None:
    bad, good = Script(refuses(code, retry_after="50")), Script(says("forty two"))
    slow = RetryPolicy(first_wait=1000, longest_wait=1000)
    with serving(bad) as first, serving(good) as second, pool_of(first, second, retry=slow) as pool:
        for prompt in prompts_of_all(pool, 8):
            assert text_of(calls.stream(pool, prompt)) == "forty two"
        states = pool.status()
    assert 1 <= len(bad.requests) <= 3 and states[0].failed == len(bad.requests) and states[1].served == 8


def test_a_busy_server_rests_while_another_is_well(calls: Any) -> None:
    busy, free = Script(refuses(429)), Script(says("forty two"))
    policy = RetryPolicy(first_wait=0.01, sideline=60)
    with serving(busy) as first, serving(free) as second, pool_of(first, second, retry=policy) as pool:
        for prompt in prompts_of_all(pool, 8):
            assert text_of(calls.stream(pool, prompt)) == "forty two"
        state = pool.status()[0]
    assert len(busy.requests) == 1 and state.healthy and state.retry_at is not None


def test_servers_that_are_all_busy_are_asked_again(calls: Any) -> None:
    both = [Script(refuses(429), says("forty two")) for _ in range(2)]
    policy = RetryPolicy(first_wait=0.01, sideline=60)
    with serving(both[0]) as first, serving(both[1]) as second, pool_of(first, second, retry=policy) as pool:
        assert text_of(calls.stream(pool)) == "forty two"
    assert sorted(len(script.requests) for script in both) == [1, 2]


def test_a_refused_connection_is_moved(calls: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(Script(says("forty two"))) as url, pool_of(f"http://127.0.0.1:{port}/v1", url) as pool:
        for prompt in prompts_of_all(pool, 8):
            assert text_of(calls.stream(pool, prompt)) == "forty two"
        down, up = pool.status()
    assert (down.served, up.served) == (0, 8) and not down.healthy and down.failed >= 1


def test_a_refused_connection_without_another_server_is_raised(calls: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pool_of(f"http://127.0.0.1:{port}/v1") as pool, pytest.raises(openai.APIConnectionError):
        calls.stream(pool)


def test_an_unencrypted_server_behind_an_https_address_is_not_asked_again(calls: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pool_of(f"https://{_address(server)}/v1") as pool:
        threading.Thread(target=_answer_in_plain_text, args=(server,), daemon=True).start()
        with pytest.raises(openai.APIConnectionError):
            calls.stream(pool)
        assert pool.status()[0].failed == 1


def _address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def _answer_in_plain_text(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_silence_before_the_first_token_is_moved(calls: Any) -> None:
    mute, good = Script(silent), Script(says("forty two"))
    fields = {"timeout": 0.3}
    with serving(mute) as first, serving(good) as second, pool_of(first, second, fields=fields) as pool:
        for prompt in prompts_of_all(pool, 4):
            assert text_of(calls.stream(pool, prompt)) == "forty two"
    assert eventually(lambda: mute.open == 0)


def test_a_stream_cut_before_its_first_token_is_begun_again(calls: Any) -> None:
    script = Script(cut_after(0), says("forty two"))
    with serving(script) as url, pool_of(url) as pool:
        assert text_of(calls.stream(pool)) == "forty two"


def test_a_stream_cut_in_the_middle_is_an_error_and_its_part_stays(calls: Any) -> None:
    script = Script(cut_after(2), says("forty two"))
    with serving(script) as url, pool_of(url) as pool, pytest.raises(SamplingError, match="finish_reason"):
        calls.stream(pool)
    assert len(script.requests) == 1


def test_a_response_in_one_piece_is_tried_again_too(calls: Any) -> None:
    async def whole(exchange: Any) -> None:
        message = {"role": "assistant", "content": "forty two"}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "loopback"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        text = json.dumps({**answer, "choices": choices})
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        await exchange.write(head + text)

    script = Script(refuses(500), whole)
    with serving(script) as url, pool_of(url) as pool:
        assert calls.generate(pool).generations[0].text == "forty two"
    assert len(script.requests) == 2


class Counted(BaseRateLimiter):
    count = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        raise AssertionError("the pool asks asynchronously")

    async def aacquire(self, *, blocking: bool = True) -> bool:
        self.count += 1
        return True


def test_the_rate_limiter_is_asked_once_for_each_attempt(calls: Any) -> None:
    with serving(Script(refuses(500), refuses(500), says("forty two"))) as url, pool_of(url) as pool:
        calls.stream(pool, rate_limiter=(further := Counted()))  # for the first, BaseChatModel asked it
    with serving(Script(refuses(500), says("forty two"))) as url, pool_of(url) as pool:
        calls.sample(pool, n=3, rate_limiter=(all_of_them := Counted()))
    assert (further.count, all_of_them.count) == (2, 4)
