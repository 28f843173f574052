import asyncio
import time
from typing import Any

import openai
import pytest
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_openai.routing.retrying import RetryPolicy
from servers.chat_wire import Chat
from servers.fake_server import in_thread, listening

from backends.openai.conftest import model_of
from backends.openai.fake_server import Fake
from backends.openai.pools import (
    Script,
    cut_after,
    eventually,
    pool_of,
    prompts_of_all,
    refuses,
    says,
    serving,
    silent,
    text_of,
)
from langchain_reasc.exceptions import SamplingError


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


def test_a_refused_connection_is_moved(calls: Any, gone: Fake) -> None:
    with serving(Script(says("forty two"))) as url, pool_of(gone.url, url) as pool:
        for prompt in prompts_of_all(pool, 8):
            assert text_of(calls.stream(pool, prompt)) == "forty two"
        down, up = pool.status()
    assert (down.served, up.served) == (0, 8) and not down.healthy and down.failed >= 1


def test_a_refused_connection_without_another_server_is_raised(calls: Any, gone: Fake) -> None:
    with pool_of(gone.url) as pool, pytest.raises(openai.APIConnectionError):
        calls.stream(pool)


def test_an_unencrypted_server_behind_an_https_address_is_not_asked_again(calls: Any) -> None:
    async def plain_text(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    with in_thread(listening(plain_text)) as port, pool_of(f"https://127.0.0.1:{port}/v1") as pool:
        with pytest.raises(openai.APIConnectionError):
            calls.stream(pool)
        assert pool.status()[0].failed == 1


def test_silence_before_the_first_token_is_moved(calls: Any) -> None:
    mute, good = Script(silent), Script(says("forty two"))
    fields = {"timeout": 0.5}  # seconds, in which the other must have answered
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
    script = Script(refuses(500), Chat(("forty", " two")))
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


@pytest.mark.parametrize(("per_request", "asked"), [(1, 4), (2, 2)])
def test_a_model_s_rate_limiter_is_asked_before_each_request(
    fake: Fake, face: Any, per_request: int, asked: int
) -> None:
    model = model_of(fake, rate_limiter=(limiter := Counted()), samples_per_request=per_request)
    assert len(face.sample(model, "2 + 2?", n=4)) == 4
    assert (limiter.count, len(fake.requests)) == (asked, asked)
