"""Servers that answer whole and refuse to stream, as OpenAI does where an organization is not verified."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from servers.chat_wire import Calling, Chat
from servers.exchange import Exchange
from servers.fake_server import Served, serving

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SamplingError

from .test_refused_logprobs import OPENAI as LOGPROBS
from .test_refused_logprobs import chat, compatible

SAID = "Your organization must be verified to stream this model"
OPENAI = {"error": {"message": f"{SAID}.", "type": "invalid_request_error", "param": "stream", "code": "unsupported"}}
REFUSALS: list[tuple[int, Any]] = [
    (400, OPENAI),
    (400, {"error": {"message": "Streaming is not supported for this deployment", "code": 400}}),
    (422, {"detail": [{"loc": ["body", "stream"], "msg": "value is not permitted"}]}),
    (501, {"error": "stream: not implemented"}),
    (400, {"error": {"message": "Streams are not supported by this model"}}),
]
OTHERS: list[tuple[int, Any]] = [
    (400, {"error": {"message": "Unsupported parameter: 'stream_options'", "param": "stream_options"}}),
    (400, {"error": {"message": "no messages; you sent request: {'stream': True, 'extra': 1}", "param": None}}),
    (401, {"error": {"message": "your key may not stream", "param": "stream"}}),
    (500, {"error": {"message": "the stream is not available"}}),
]
MODELS = {"ChatOpenAI": chat, "ChatOpenAICompatible": compatible}


def refusing(status: int = 400, body: Any = OPENAI, *, whole: Any = None) -> Any:
    """Refuses streams, and says 42 in one piece."""

    async def answer(exchange: Exchange) -> None:
        if exchange.body.get("stream"):
            await exchange.reply(status, body)
        else:
            await (whole or Chat(("it", " is", " 42")))(exchange)

    return answer


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(refusing()) as running:
        yield running


def streamed(served: Served) -> list[bool]:
    return [bool(request.get("stream")) for request in served.requests]


@pytest.mark.parametrize("kind", MODELS)
def test_responses_are_taken_whole_and_the_refusal_is_remembered(
    runner: Any, served: Served, caplog: Any, kind: str
) -> None:
    model = MODELS[kind](served)
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        results = [runner.solve(ReASCRunnable(model=model, concurrency=2), f"q{at}") for at in range(2)]
    for result in results:
        account = result.message.response_metadata["reasc"]
        assert (result.answer, account["samples"], account["failed"], result.usage.estimated) == ("42", 4, 0, False)
        assert result.usage.bill["total_tokens"] == 4 * 10
    assert sum(streamed(served)) in (1, 2)  # those that were in flight together at first
    [record] = caplog.records
    assert SAID in record.getMessage()


@pytest.mark.parametrize(("status", "body"), REFUSALS)
@pytest.mark.parametrize("kind", MODELS)
def test_servers_refuse_in_many_words(runner: Any, kind: str, status: int, body: Any) -> None:
    with serving(refusing(status, body)) as served:
        model = MODELS[kind](served, max_retries=0)
        assert runner.account(ReASCRunnable(model=model, concurrency=1), "q")["answer"] == "42"
        assert streamed(served) == [True, False, False, False, False]


@pytest.mark.parametrize(("status", "body"), OTHERS)
def test_an_error_for_another_reason_stays_that_error(runner: Any, status: int, body: Any) -> None:
    with serving(refusing(status, body)) as served:
        with pytest.raises(SamplingError, match=f"Error code: {status}"):
            runner.invoke(ReASCRunnable(model=chat(served), concurrency=1, max_samples=2), "q")
        assert all(streamed(served))


@pytest.mark.parametrize("kind", MODELS)
def test_what_refuses_logprobs_as_well_is_asked_for_neither(runner: Any, kind: str) -> None:
    async def whole(exchange: Exchange) -> None:
        if exchange.body.get("logprobs"):
            await exchange.reply(400, LOGPROBS)
        else:
            await Chat(("it", " is", " 42"))(exchange)

    with serving(refusing(whole=whole)) as served:
        reasc = ReASCRunnable(model=MODELS[kind](served), calibration="online", concurrency=1)
        assert runner.account(reasc, "q")["answer"] == "42"
        assert streamed(served) == [True, *[False] * 5]


@pytest.mark.parametrize("kind", MODELS)
def test_calls_come_whole(runner: Any, kind: str) -> None:
    with serving(refusing(whole=Calling(calls=lambda at: [("look_up", '{"query": "x"}')]))) as served:
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
        reasc = ReASCRunnable(model=MODELS[kind](served), answer="auto").bind(tools=[tool])
        [call] = runner.invoke(reasc, "q").tool_calls
        assert (call["name"], call["args"]) == ("look_up", {"query": "x"})


@pytest.mark.usefixtures("whole_waves")
@pytest.mark.parametrize("known", [False, True])
def test_a_whole_response_that_is_paid_for_is_waited_for(runner: Any, known: bool) -> None:
    """The decision falls while the last one is on its way."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(0.5 * (exchange.sample == 4))
        await Chat(("it", " is", " 42"))(exchange)

    with serving(refusing(whole=slowly)) as served:
        model = chat(served, seed=0)
        if known:
            runner.invoke(ReASCRunnable(model=model, max_samples=1), "q")
        result = runner.solve(ReASCRunnable(model=model, concurrency=5), "q")
    assert [response.status for response in result.responses] == ["complete"] * 5
    assert result.usage.bill["total_tokens"] == 5 * 10 and not result.usage.estimated


@pytest.mark.sync_only
def test_samples_of_one_request_are_drawn_one_by_one(runner: Any, served: Served) -> None:
    reasc = ReASCRunnable(model=compatible(served, samples_per_request=4))
    assert runner.account(reasc, "q")["answer"] == "42"
    assert sum(streamed(served)) == 1
