import asyncio
import gc
import threading
import time
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_openai.drawing.draw import Draw
from servers.chat_wire import PROMPT_TOKENS
from servers.exchange import Exchange

from backends.openai.pools import (
    PROMPT,
    Script,
    cut_after,
    endless,
    eventually,
    hangs,
    pool_of,
    refuses,
    sample,
    says,
    serving,
    silent,
)
from langchain_reasc.exceptions import ConfigurationError, ModelClosedError, SamplingError
from langchain_reasc.models.contract import FailedSample


async def says_its_seed(exchange: Exchange) -> None:
    await exchange.say(f"the seed is {exchange.body.get('seed')}")


def test_every_sample_comes_once_with_its_index_seed_and_usage(calls: Any) -> None:
    with serving(says_its_seed) as url, pool_of(url) as pool:
        ended = calls.sample(pool, n=5, first=3, seeds=[10, 11, None, 13, 14], kwargs={"temperature": 0.7})
    assert {index: message.text for index, message in ended} == {
        index: f"the seed is {seed}" for index, seed in zip(range(3, 8), [10, 11, None, 13, 14], strict=True)
    }
    for _, message in ended:
        assert (message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]) == (PROMPT_TOKENS, 4)
        assert len(message.response_metadata["logprobs"]["content"]) == 4
        assert message.response_metadata["finish_reason"] == "stop"
        assert message.response_metadata["server"] == url
        assert not message.response_metadata.keys() & {"failed_attempts", "received_tokens"}


def test_the_arguments_reach_the_server(calls: Any) -> None:
    script = Script(says("forty two"))
    with serving(script) as url, pool_of(url) as pool:
        calls.sample(pool, n=2, kwargs={"temperature": 0.7, "stop": ["\n"], "extra_body": {"min_p": 0.05}})
    for body in script.requests:
        assert (body["temperature"], body["stop"], body["min_p"], body["stream"]) == (0.7, ["\n"], 0.05, True)
        assert "n" not in body and body["stream_options"] == {"include_usage": True}


def test_samples_come_in_the_order_they_end(calls: Any) -> None:
    first_may_end = threading.Event()

    async def by_seed(exchange: Exchange) -> None:
        await exchange.begin()
        while exchange.body["seed"] == 0 and not first_may_end.is_set():
            await exchange.token("wait ")
            await asyncio.sleep(0.01)
        await exchange.say("done")

    def then(stream: Any, pair: Any) -> None:
        if pair[0] == 1:
            first_may_end.set()

    with serving(by_seed) as url, pool_of(url) as pool:
        assert [index for index, _ in calls.sample(pool, n=2, seeds=[0, 1], then=then)] == [1, 0]


def test_a_sample_whose_server_breaks_off_moves_and_is_paid_for_once(calls: Any) -> None:
    breaks, whole = Script(cut_after(3)), Script(says("the answer is 42"))
    with serving(breaks) as first, serving(whole) as second, pool_of(first, second, affinity=False) as pool:
        ended = calls.sample(pool, n=4, seeds=[1, 2, 3, 4])
        broken, good = pool.status()
    assert sorted(index for index, _ in ended) == [0, 1, 2, 3] and (broken.served, good.served) == (0, 4)
    moved = [message for _, message in ended if "failed_attempts" in message.response_metadata]
    assert len(moved) == len(breaks.requests) == broken.failed == 2
    for _, message in ended:
        assert message.text == "the answer is 42" and message.usage_metadata["output_tokens"] == 4
        assert len(message.response_metadata["logprobs"]["content"]) == 4
    for message in moved:
        [lost] = message.response_metadata["failed_attempts"]
        assert lost["server"] == first and lost["received_tokens"] == 3 and "finish_reason" in lost["error"]
    assert sorted(body["seed"] for body in whole.requests) == [1, 2, 3, 4]  # a moved sample keeps its seed


def test_a_failed_sample_costs_only_itself_and_keeps_what_it_said(calls: Any) -> None:
    async def by_seed(exchange: Exchange) -> None:
        await (cut_after(2) if exchange.body["seed"] == 1 else says("forty two"))(exchange)

    with serving(by_seed) as url, pool_of(url) as pool:
        ended = dict(calls.sample(pool, n=3, seeds=[0, 1, 2]))
    assert ended[0].text == ended[2].text == "forty two"
    failed = ended[1]
    assert isinstance(failed, FailedSample) and isinstance(failed.error, SamplingError)
    assert failed.message is not None and failed.message.text == "half half "
    said = failed.message.response_metadata
    assert failed.message.usage_metadata is None and (said["received_tokens"], said["finish_reason"]) == (2, "error")
    assert [lost["received_tokens"] for lost in said["failed_attempts"]] == [2, 2, 2]  # the fourth is the message


def test_a_sample_that_failed_before_its_first_token_has_no_message(calls: Any) -> None:
    with serving(Script(refuses(400))) as url, pool_of(url) as pool:
        [(index, failed)] = calls.sample(pool, n=1, first=5)
    assert index == 5 and failed.message is None and isinstance(failed.error, openai.BadRequestError)


def test_cancelled_samples_come_out_with_what_they_said(calls: Any) -> None:
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.cancelled_when(pool, lambda: len(script.requests) == 3, n=3)
        assert eventually(lambda: script.open == 0)
    assert sorted(index for index, _ in ended) == [0, 1, 2]
    for _, message in ended:
        assert isinstance(message, AIMessage) and message.usage_metadata is None
        said = message.response_metadata
        assert said["finish_reason"] == "cancelled" and said["received_tokens"] == message.text.count("on")


def test_a_cancelled_sample_that_said_nothing_yet_comes_out_too(calls: Any) -> None:
    script = Script(hangs)
    with serving(script) as url, pool_of(url) as pool:
        [(_, message)] = calls.cancelled_when(pool, lambda: len(script.requests) == 1, n=1)
        assert eventually(lambda: script.open == 0)
    assert message.text == "" and message.response_metadata["received_tokens"] == 0


def test_samples_that_were_never_sent_do_not_come_out(calls: Any) -> None:
    script = Script(refuses(429, retry_after="30"))
    with serving(script) as url, pool_of(url) as pool:
        calls.sample(pool, n=1, sample_timeout=0.3)
        assert calls.cancelled_when(pool, lambda: True, n=3) == []
    assert len(script.requests) == 1


def test_a_sample_that_takes_too_long_fails_with_what_it_said(calls: Any) -> None:
    async def by_seed(exchange: Exchange) -> None:
        await (endless if exchange.body["seed"] else says("forty two"))(exchange)

    with serving(by_seed) as url, pool_of(url) as pool:
        ended = dict(calls.sample(pool, n=2, seeds=[0, 1], sample_timeout=1.0))
    assert ended[0].text == "forty two"
    assert isinstance(ended[1], FailedSample) and "deadline" in str(ended[1].error)
    assert ended[1].message.text.startswith("on on") and ended[1].message.response_metadata["received_tokens"] > 1


@pytest.mark.parametrize("limit", ["sample_timeout", "timeout"])
def test_a_server_that_never_answers_is_given_up_in_time(calls: Any, limit: str) -> None:
    with serving(Script(silent)) as url, pool_of(url) as pool:
        begun = time.monotonic()
        ended = calls.sample(pool, n=2, **{limit: 0.2})
    assert time.monotonic() - begun < 8 and all(isinstance(failed.error, SamplingError) for _, failed in ended)


def test_a_dropped_stream_closes_its_connections() -> None:
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:
        stream = sample(pool, n=3)
        assert eventually(lambda: script.open == 3)
        del stream
        gc.collect()
        assert eventually(lambda: script.open == 0)


def test_cancelling_late_twice_or_after_the_pool_was_closed_does_nothing() -> None:
    with serving(says_its_seed) as url:
        with pool_of(url) as pool:
            stream = sample(pool, n=1)
            assert len(list(stream)) == 1
            stream.cancel()
            stream.cancel()
        stream.cancel()
        stream.close()
        assert list(stream) == []
        with pytest.raises(ModelClosedError):
            sample(pool, n=1)


def test_closing_the_pool_ends_the_streams_that_are_read() -> None:
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:
        stream = sample(pool, n=1)
        assert eventually(lambda: script.open == 1)
        pool.close()
        with pytest.raises(ModelClosedError):
            list(stream)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n": 0}, "n=0"),
        ({"n": 2, "seeds": [1]}, "seed"),
        ({"n": 1, "sample_timeout": 0}, "sample_timeout"),
        ({"n": 1, "timeout": float("nan")}, "timeout"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pool_of("http://127.0.0.1:9/v1") as pool, pytest.raises(ConfigurationError, match=said):
        Draw(pool, PROMPT, **wrong)
