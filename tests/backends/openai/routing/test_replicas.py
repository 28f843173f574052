import asyncio
import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_core.language_models import FakeListChatModel
from langchain_reasc_openai.routing.replicas import ReplicaPool
from langchain_reasc_openai.routing.retrying import RetryPolicy

from backends.openai.pools import (
    FAST,
    PROMPT,
    AsyncCalls,
    Script,
    SyncCalls,
    client,
    endless,
    eventually,
    hangs,
    pool_of,
    refuses,
    says,
    serving,
    text_of,
)
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "openai-replicas"]


def test_a_stream_gives_the_servers_chunks(calls: Any) -> None:
    script = Script(says("the answer is 42"))
    with serving(script) as url, pool_of(url) as pool:
        chunks = calls.stream(pool, stop=["\n"], temperature=0.5)
        [state] = pool.status()
    assert text_of(chunks) == "the answer is 42"
    assert chunks[-1].message.usage_metadata["output_tokens"] == 4
    assert (script.requests[0]["stop"], script.requests[0]["temperature"]) == (["\n"], 0.5)
    assert (state.url, state.served, state.failed, state.in_flight) == (url, 1, 0, 0)
    assert state.healthy and state.retry_at is None and state.error is None


def test_the_status_tells_what_each_server_does(calls: Any) -> None:
    seen: list[Any] = []
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:
        calls.cancelled_when(pool, lambda: script.open == 3 and not seen.append(pool.status()), n=3)
        assert eventually(lambda: pool.status()[0].in_flight == 0)
        assert seen[0][0].in_flight == 3 and pool.status()[0].failed == 0  # one cut off has not failed


def test_a_sidelined_server_comes_back(calls: Any) -> None:
    flaky, steady = Script(refuses(503), says("forty two")), Script(says("forty two"))
    policy = RetryPolicy(first_wait=0.01, sideline=0.5)
    with serving(flaky) as one, serving(steady) as two, pool_of(one, two, retry=policy, affinity=False) as pool:
        assert eventually(lambda: calls.stream(pool) and pool.status()[0].failed)
        assert not pool.status()[0].healthy and pool.status()[0].retry_at
        assert eventually(lambda: calls.stream(pool) and pool.status()[0].served)
        assert pool.status()[0].healthy and pool.status()[0].retry_at is None


@pytest.mark.parametrize("urls", [[], ["http://host/v1", "http://host/v1/"]])
def test_servers_must_be_given_each_once(urls: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="each once"):
        ReplicaPool([(url, client(url)) for url in urls])


def test_a_wrong_burst_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="burst"):
        ReplicaPool([("http://host/v1", client("http://host/v1"))], burst=0)


def test_the_pool_makes_the_retries_and_not_its_clients(calls: Any) -> None:
    script = Script(refuses(500))
    with serving(script) as url, pool_of(url, fields={"max_retries": 5}) as pool:
        assert calls.sample(pool, n=1)[0][1].error.status_code == 500
    assert len(script.requests) == FAST.attempts


def test_many_event_loops_and_threads_share_a_pool() -> None:
    with serving(Script(says("forty two"))) as url, pool_of(url) as pool:
        for _ in range(3):
            assert text_of(AsyncCalls().stream(pool)) == text_of(SyncCalls().stream(pool)) == "forty two"
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: AsyncCalls().sample(pool, n=2), range(4)))
        assert pool.status()[0].served == 14 and len(pool_threads()) == 1


def test_connections_are_not_shared_with_other_models() -> None:
    one = client("http://host/v1")
    pool = ReplicaPool([("http://host/v1", one)])
    ours = pool.router.replicas[0].client
    assert ours.root_async_client._client is not one.root_async_client._client  # type: ignore[attr-defined]
    assert one.root_async_client._client is client("http://host/v1").root_async_client._client
    assert ours.stream_chunk_timeout is None and pool.router.replicas[0].silence == one.stream_chunk_timeout  # type: ignore[attr-defined]


def test_models_of_other_packages_are_taken_as_they_are(calls: Any) -> None:
    model = FakeListChatModel(responses=["forty two"])
    pool = ReplicaPool([("http://host/v1", model)], retry=FAST)
    assert pool.router.replicas[0].client is model
    assert calls.generate(pool).generations[0].text == "forty two"
    pool.close()


class Tokens(BaseCallbackHandler):
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[Any] = []

    def on_llm_new_token(self, token: str, *, logprobs: Any = None, **kwargs: Any) -> None:
        self.texts.append(token)
        self.logprobs.append(logprobs)


def test_callbacks_hear_every_token_with_its_logprobs(calls: Any) -> None:
    tokens = Tokens()
    kind = CallbackManagerForLLMRun if isinstance(calls, SyncCalls) else AsyncCallbackManagerForLLMRun
    manager = kind.get_noop_manager()
    manager.handlers.append(tokens)
    with serving(Script(refuses(500), says("forty two"))) as url, pool_of(url) as pool:
        calls.stream(pool, run_manager=manager)
    assert "".join(tokens.texts) == "forty two"
    assert [listed["content"][0]["token"] for listed in tokens.logprobs if listed] == ["forty", " two"]


def test_a_stream_that_nobody_reads_on_is_closed() -> None:
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:
        chunks = pool.stream(PROMPT)
        next(chunks)
        assert script.open == 1
        chunks.close()
        assert eventually(lambda: script.open == 0 and pool.status()[0].in_flight == 0)


async def test_an_async_stream_that_nobody_reads_on_is_closed() -> None:
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:
        chunks = pool.astream(PROMPT)
        await anext(chunks)
        await chunks.aclose()
        assert await asyncio.to_thread(eventually, lambda: script.open == 0)


async def test_a_cancelled_generation_is_cut_off() -> None:
    script = Script(hangs)
    with serving(script) as url, pool_of(url) as pool:
        task = asyncio.create_task(pool.agenerate(PROMPT))
        assert await asyncio.to_thread(eventually, lambda: script.open == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(eventually, lambda: script.open == 0)


def test_the_thread_starts_with_the_first_request_and_ends_with_the_pool(calls: Any) -> None:
    with serving(Script(says("forty two"))) as url:
        pool = ReplicaPool([(url, client(url))])
        assert not pool_threads()
        calls.stream(pool)
        assert len(pool_threads()) == 1
        pool.close()
        assert not pool_threads()
        pool.close()
        with pytest.raises(ModelClosedError):
            calls.stream(pool)


@pytest.mark.slow  # an interpreter that loads langchain-openai
def test_a_program_that_forgets_its_pool_ends_quietly() -> None:
    code = (
        "import sys; sys.path[:0] = ['tests']\n"
        "from backends.openai.pools import *\n"
        "with serving(Script(endless)) as url:\n"
        "    pool = ReplicaPool([(url, client(url))])\n"
        "    stream = pool.stream(PROMPT)\n"
        "    print(next(stream).text, flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "on", "")


def test_nothing_is_logged_and_no_key_is_shown(calls: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="langchain_reasc_openai")
    with serving(Script(refuses(500))) as url, pool_of(url) as pool:
        [(_, failed)] = calls.sample(pool, n=1)
        shown = f"{failed!r} {pool.status()!r} {pool.router.replicas!r} {pool!r} {failed.error!s}"
    assert "sk-loopback" not in shown and "sk-loopback" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("langchain_reasc_openai")]
