"""Which server is asked, what happens when one fails, and whose connections are whose."""

import asyncio
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_openai import RetryPolicy
from servers.chat_wire import Chat
from servers.exchange import Exchange

from backends.openai.fake_server import Fake
from backends.openai.loopback import (
    PROMPT,
    Face,
    Script,
    cut_after,
    endless,
    eventually,
    hangs,
    model_at,
    pool_of,
    refuses,
    says,
    serving,
    silent,
    text_of,
)
from langchain_reasc.exceptions import ModelClosedError, SamplingError

pytestmark = pytest.mark.full

PROMPTS = [f"question {at}" for at in range(12)]
"""So many that each of two servers gets some: which gets which depends on the ports."""


@pytest.mark.parametrize("code", [408, 409, 429, 500, 503])
def test_a_passing_error_is_tried_again(face: Face, code: int) -> None:
    script = Script(refuses(code), refuses(code), says("forty two"))
    with serving(script) as url, pool_of(url) as model:
        assert text_of(face.stream(model)) == "forty two"
    assert len(script.requests) == 3


@pytest.mark.parametrize("code", [400, 401, 404])
def test_an_error_that_stays_is_raised_at_once(face: Face, code: int) -> None:
    script = Script(refuses(code))
    with serving(script) as url, pool_of(url) as model, pytest.raises(openai.APIStatusError) as raised:
        face.stream(model)
    assert raised.value.status_code == code and len(script.requests) == 1


def test_no_more_than_the_allowed_attempts_are_made_and_the_last_error_is_raised(face: Face) -> None:
    script = Script(refuses(500))
    policy = RetryPolicy(attempts=3, first_wait=0.01)
    with serving(script) as url, pool_of(url, retry=policy, max_retries=5) as model:
        with pytest.raises(openai.InternalServerError):
            face.stream(model)
        [state] = model.status()
    assert len(script.requests) == 3 and (state.served, state.failed, state.healthy) == (0, 3, False)
    assert state.error is not None and "refused with 500" in state.error


def test_max_retries_is_read_where_no_policy_is_given(face: Face) -> None:
    script = Script(refuses(500))
    with serving(script) as url, pool_of(url, retry=None, max_retries=1) as model:
        assert face.sample(model, n=1)[0][1].error.status_code == 500
    assert len(script.requests) == 2


def test_others_leave_a_resting_server_alone_too(face: Face) -> None:
    script = Script(refuses(429, retry_after="0.2"), says("forty two"))
    with serving(script) as url, pool_of(url) as model:
        face.sample(model, n=1)
        face.sample(model, n=3)
    assert all(at - script.times[0] >= 0.2 for at in script.times[1:])


def test_a_server_that_asks_for_too_long_a_rest_is_not_waited_for(face: Face) -> None:
    script = Script(refuses(429, retry_after="3600"))
    with serving(script) as url, pool_of(url) as model:
        begun = time.monotonic()
        with pytest.raises(SamplingError, match=r"3600 s.*longest_retry_after=60") as raised:
            face.stream(model)
    assert time.monotonic() - begun < 60 and isinstance(raised.value.failures[0], openai.RateLimitError)


async def names_its_role(exchange: Exchange) -> None:
    """Ends after its first event, which says nothing yet."""
    await exchange.event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])


@pytest.mark.parametrize(
    ("step", "most", "healthy"),
    [
        *((refuses(code, retry_after="50"), 3, code in (429, 500)) for code in (401, 429, 500, 503)),
        (refuses(429), 1, True),
        (None, 3, False),
        (silent, 3, False),
        (names_its_role, 3, False),
    ],
)
def test_another_server_is_asked_without_waiting(face: Face, gone: Fake, step: Any, most: int, healthy: bool) -> None:
    """Without a step nobody is there."""
    bad, good = Script(step), Script(says("forty two"))
    policy = RetryPolicy(first_wait=1000, longest_wait=1000, sideline=60)
    options: dict[str, Any] = {"retry": policy, "timeout": 1.0 if step is silent else 60}
    with (
        serving(bad) as first,
        serving(good) as second,
        pool_of(first if step else gone.url, second, **options) as model,
    ):
        for prompt in PROMPTS:
            assert text_of(face.stream(model, prompt)) == "forty two"
        states = model.status()
    assert 1 <= states[0].failed <= most and (states[0].served, states[1].served) == (0, len(PROMPTS))
    assert len(bad.requests) == (states[0].failed if step else 0)
    assert states[0].healthy is healthy and states[0].retry_at is not None
    assert eventually(lambda: bad.open == 0)


def test_servers_that_are_all_busy_are_asked_again(face: Face) -> None:
    both = [Script(refuses(429), says("forty two")) for _ in range(2)]
    policy = RetryPolicy(first_wait=0.01, sideline=60)
    with serving(both[0]) as first, serving(both[1]) as second, pool_of(first, second, retry=policy) as model:
        assert text_of(face.stream(model)) == "forty two"
    assert sorted(len(script.requests) for script in both) == [1, 2]


def test_a_stream_cut_in_the_middle_is_an_error_and_its_part_stays(face: Face) -> None:
    script = Script(cut_after(2), says("forty two"))
    with serving(script) as url, pool_of(url) as model, pytest.raises(SamplingError, match="finish_reason"):
        face.stream(model)
    assert len(script.requests) == 1


def test_the_silence_of_a_stream_is_limited_and_not_its_length(face: Face) -> None:
    async def slow(exchange: Exchange) -> None:
        for _ in range(8):
            await exchange.token("so ")
            await asyncio.sleep(0.1)
        await exchange.finish()

    script = Script(slow, silent)
    with serving(script) as url, pool_of(url, stream_chunk_timeout=0.7) as model:
        assert text_of(face.stream(model)) == "so " * 8
        with pytest.raises(TimeoutError, match=r"0.7 s \(stream_chunk_timeout\)"):
            face.stream(model)
    assert len(script.requests) == 2  # it is not asked again


def test_a_response_in_one_piece_is_tried_again_too(face: Face) -> None:
    script = Script(refuses(500), Chat(("forty", " two")))
    with serving(script) as url, pool_of(url) as model:
        assert face.invoke(model, PROMPT).text == "forty two"
    assert len(script.requests) == 2


class Counted(BaseRateLimiter):
    count = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        self.count += 1
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        return self.acquire()


@pytest.mark.parametrize(("per_request", "asked"), [(1, 4), (2, 2)])
def test_the_rate_limiter_is_asked_once_for_each_attempt(face: Face, per_request: int, asked: int) -> None:
    options: dict[str, Any] = {"rate_limiter": (limiter := Counted()), "samples_per_request": per_request}
    script = Script(refuses(500), refuses(500), says("forty two"))
    with serving(script) as url, pool_of(url, **options) as model:
        face.stream(model)
        assert limiter.count == len(script.requests) == 3
    with serving(Chat(("forty", " two"))) as url, pool_of(url, **options) as model:
        assert len(face.sample(model, n=4)) == 4
        assert limiter.count == 3 + asked


def test_the_status_tells_what_each_server_does(face: Face) -> None:
    seen: list[Any] = []
    script = Script(endless)
    with serving(script) as url, pool_of(url) as model:
        face.cancelled_when(model, lambda: script.open == 3 and not seen.append(model.status()), n=3)
        assert eventually(lambda: model.status()[0].in_flight == 0)
        assert seen[0][0].in_flight == 3 and model.status()[0].failed == 0  # one cut off has not failed


def test_a_sidelined_server_comes_back(face: Face) -> None:
    flaky, steady = Script(refuses(503), says("forty two")), Script(says("forty two"))
    policy = RetryPolicy(first_wait=0.01, sideline=0.3)
    with serving(flaky) as one, serving(steady) as two, pool_of(one, two, retry=policy, affinity=False) as model:
        assert eventually(lambda: face.stream(model) and model.status()[0].failed)
        assert not model.status()[0].healthy and model.status()[0].retry_at
        assert eventually(lambda: face.stream(model) and model.status()[0].served)
        assert model.status()[0].healthy and model.status()[0].retry_at is None


@pytest.mark.parametrize("from_environment", [False, True])
def test_a_proxy_is_asked_instead_of_the_server(
    face: Face, from_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(says("forty two"))
    with serving(script) as url:
        proxy = url.removesuffix("/v1")
        monkeypatch.setenv("OPENAI_PROXY", proxy if from_environment else "")
        with pool_of("http://nowhere.invalid/v1", **({} if from_environment else {"openai_proxy": proxy})) as model:
            assert text_of(face.stream(model)) == text_of(face.stream(pickle.loads(pickle.dumps(model)))) == "forty two"


class Tokens(BaseCallbackHandler):
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[Any] = []

    def on_llm_new_token(self, token: str, *, chunk: Any = None, **kwargs: Any) -> None:
        self.texts.append(token)
        self.logprobs.append(chunk.generation_info and chunk.generation_info.get("logprobs"))


def test_callbacks_hear_every_token_with_its_logprobs(face: Face) -> None:
    tokens = Tokens()
    with serving(Script(refuses(500), says("forty two"))) as url, pool_of(url) as model:
        face.stream(model, config={"callbacks": [tokens]})
    assert "".join(tokens.texts) == "forty two"
    assert [listed["content"][0]["token"] for listed in tokens.logprobs if listed] == ["forty", " two"]


async def test_calls_that_nobody_waits_for_are_cut_off() -> None:
    script = Script(endless, endless, hangs)
    with serving(script) as url, pool_of(url) as model:

        async def ends() -> bool:
            return await asyncio.to_thread(eventually, lambda: script.open == 0 and model.status()[0].in_flight == 0)

        stream = model.stream(PROMPT)
        await asyncio.to_thread(next, stream)
        assert script.open == 1
        stream.close()  # type: ignore[attr-defined]
        assert await ends()

        later = model.astream(PROMPT)
        await anext(later)
        await later.aclose()  # type: ignore[attr-defined]
        assert await ends()

        task = asyncio.create_task(model.ainvoke(PROMPT))
        assert await asyncio.to_thread(eventually, lambda: script.open == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ends()


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "openai-replicas"]


def test_one_thread_serves_all_loops_and_threads_until_the_pool_is_closed() -> None:
    sync, asynchronous = Face(is_async=False), Face(is_async=True)
    with serving(Script(says("forty two"))) as url:
        model = model_at(url)
        assert not pool_threads()
        for _ in range(3):
            assert text_of(asynchronous.stream(model)) == text_of(sync.stream(model)) == "forty two"
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: asynchronous.sample(model, n=2), range(4)))
        assert model.status()[0].served == 14 and len(pool_threads()) == 1
        model.close()
        assert not pool_threads()
        model.close()
        with pytest.raises(ModelClosedError):
            sync.stream(model)


@pytest.mark.slow  # an interpreter that loads langchain-openai
def test_a_program_that_forgets_its_pool_ends_quietly() -> None:
    code = (
        "import sys; sys.path[:0] = ['tests']\n"
        "from backends.openai.loopback import *\n"
        "with serving(Script(endless)) as url:\n"
        "    model = model_at(url)\n"
        "    stream = model.stream(PROMPT)\n"
        "    print(next(stream).text, flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "on", "")
