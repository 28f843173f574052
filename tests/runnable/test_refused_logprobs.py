"""Servers that refuse a request because it asks for logprobs, as reasoning models and many gateways do."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers.chat_wire import Chat
from servers.exchange import Exchange
from servers.fake_server import Served, serving

from langchain_reasc import ASC, ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.exceptions import LogprobsUnavailable, SamplingError
from langchain_reasc.models.fingerprint import Fingerprint

from .conftest import AsyncRunner, Runner
from .fakes import calibration

pytestmark = pytest.mark.full

langchain_openai = pytest.importorskip("langchain_openai")
backend = pytest.importorskip("langchain_reasc_openai")

ON_GPT = Fingerprint(model="gpt-test", sampling={"temperature": 0.7})
SAID = "Unsupported parameter: 'logprobs' is not supported with this model"
OPENAI = {"error": {"message": f"{SAID}.", "type": "invalid_request_error", "param": "logprobs", "code": "unsupported"}}
NOT_ALLOWED = {"error": {"message": "You are not allowed to request logprobs from this model", "param": None}}
OF_TEMPERATURE = {"error": {"message": "Unsupported value: 'temperature'", "param": "temperature"}}
REFUSALS: list[tuple[int, Any]] = [
    (400, OPENAI),
    (400, {"error": {"message": "Model does not support log probabilities", "code": 400}}),
    (400, {"message": "extraneous key [top_logprobs] is not permitted"}),
    (400, {"object": "error", "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'logprobs'), 'input': True}]"}),
    (422, {"detail": [{"loc": ["body", "logprobs"], "msg": "extra fields not permitted"}]}),
    (501, {"error": "logprobs: not implemented"}),
    (403, NOT_ALLOWED),
    (404, {"error": {"message": "No endpoints found that can handle the requested parameters.", "code": 404}}),
    (400, "this endpoint cannot return logprobs"),
]
OTHERS: list[tuple[int, Any]] = [
    (400, OF_TEMPERATURE),
    (422, {"detail": [{"loc": ["body", "messages"], "msg": "missing", "input": {"logprobs": True, "n": None}}]}),
    (400, {"error": {"message": "no messages; you sent request: {'logprobs': True, 'extra': 1}", "param": None}}),
    (401, {"error": {"message": "your key may not ask for logprobs", "param": "logprobs"}}),
]


def refusing(
    status: int = 400,
    body: Any = OPENAI,
    *,
    only: Callable[[Exchange], bool] = lambda exchange: True,
    other: Any = None,
) -> Any:
    """Refuses requests that ask for logprobs, and says 42 to the others."""

    async def answer(exchange: Exchange) -> None:
        asks = "logprobs" in exchange.body or "top_logprobs" in exchange.body
        if asks and only(exchange):
            await exchange.reply(status, body)
        else:
            await (other or Chat(("it", " is", " 42")))(exchange)

    return answer


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(refusing()) as running:
        yield running


def chat(served: Served, **fields: Any) -> Any:
    options = {"model": "gpt-test", "api_key": "none", "temperature": 0.7, "max_retries": 0, **fields}
    return langchain_openai.ChatOpenAI(base_url=served.url, **options)


def compatible(served: Served, **fields: Any) -> Any:
    options = {"model": "gpt-test", "temperature": 0.7, "preset": "vllm", **fields}
    return backend.ChatOpenAICompatible(base_url=served.url, **options)


def refused(served: Served) -> int:
    return sum("logprobs" in request or "top_logprobs" in request for request in served.requests)


ONLINE: dict[str, Any] = {"calibration": "online"}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (chat, ONLINE),
        (compatible, ONLINE),
        (lambda served: chat(served).with_retry(stop_after_attempt=3, wait_exponential_jitter=False), ONLINE),
        (lambda served: chat(served).with_fallbacks([chat(served)]), ONLINE),
        (lambda served: compatible(served, samples_per_request=4), ONLINE),
        (chat, {"calibration": calibration(fingerprint=ON_GPT), "on_missing_confidence": "count"}),
        (chat, {"calibration": "mixture", "on_missing_confidence": "count"}),
    ],
)
def test_where_no_confidence_is_needed_it_goes_on_without(
    runner: Any, served: Served, caplog: Any, model: Any, options: dict[str, Any]
) -> None:
    reasc = ReASCRunnable(model=model(served), max_samples=4, concurrency=1, **options)
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        accounts = [runner.account(reasc, f"q{at}") for at in range(3)]
    assert [(account["answer"], account["failed"]) for account in accounts] == [("42", 0)] * 3
    assert refused(served) == 1  # the first request of all
    [record] = caplog.records
    assert SAID in record.getMessage()
    assert all(sum(SAID in notice for notice in account["notices"]) <= 1 for account in accounts)


@pytest.mark.parametrize("rule", [None, ASC()])
def test_no_logprobs_are_asked_for_where_nothing_reads_them(runner: Any, served: Served, rule: Any) -> None:
    """The calibration counts votes, or a rule is given that does; then its measure is of no use."""
    advice = {} if rule else {"fallback": "the score separates nothing"}
    made = calibration(fingerprint=ON_GPT, **advice)
    result = runner.solve(ReASCRunnable(model=chat(served), calibration=made, rule=rule, max_samples=4), "q")
    assert result.answer == "42" and refused(served) == 0
    assert not any("logprobs" in notice or "confidence" in notice for notice in result.notices)


@pytest.mark.parametrize(("status", "body"), REFUSALS)
@pytest.mark.parametrize(("model", "runner"), [(chat, Runner), (compatible, AsyncRunner)], indirect=["runner"])
def test_servers_refuse_in_many_words(runner: Any, model: Any, status: int, body: Any) -> None:
    with serving(refusing(status, body)) as served:
        reasc = ReASCRunnable(model=model(served), calibration="online", max_samples=4, concurrency=1)
        assert runner.account(reasc, "q")["answer"] == "42"
        assert refused(served) == 1
        needed = ReASCRunnable(model=chat(served), calibration=calibration(fingerprint=ON_GPT))
        with pytest.raises(LogprobsUnavailable, match=r"(log.?prob|requested parameters).*confidence='stated'"):
            runner.invoke(needed, "q")


@pytest.mark.parametrize("model", [chat, compatible])
def test_what_is_refused_beside_tools_is_asked_for_without_them(runner: Any, model: Any) -> None:
    with serving(refusing(only=lambda exchange: "tools" in exchange.body)) as served:
        reasc = ChatReASC(model=model(served), answer="number", calibration="online", max_samples=4)
        for _ in range(2):
            assert runner.invoke(reasc.bind_tools([weather]), "q").text == "it is 42"
            asked = len(served.requests)
            assert runner.invoke(reasc, "q").text == "it is 42"
            assert all(request["logprobs"] for request in served.requests[asked:])
        assert sum("logprobs" in request for request in served.requests if "tools" in request) in range(1, 5)


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: where.
    """
    return city


@pytest.mark.sync_only
def test_a_probe_does_not_take_a_refusal_of_logprobs_for_one_of_the_key(runner: Any) -> None:
    with serving(refusing(403, NOT_ALLOWED)) as served:
        model = compatible(served, preset="auto")
        assert runner.account(ReASCRunnable(model=model, max_samples=4), "q")["answer"] == "42"


@pytest.mark.sync_only
@pytest.mark.parametrize(("status", "body"), OTHERS)
def test_an_error_for_another_reason_stays_that_error(runner: Any, status: int, body: Any) -> None:
    with serving(refusing(status, body)) as served:
        for options in (ONLINE, {"calibration": calibration(fingerprint=ON_GPT)}):
            reasc = ReASCRunnable(model=chat(served), concurrency=1, max_samples=4, **options)
            with pytest.raises(SamplingError, match=f"Error code: {status}"):
                runner.invoke(reasc, "q")
        assert refused(served) == len(served.requests)


@pytest.mark.parametrize("streamed", [True, False])
def test_what_is_said_in_the_end_is_what_the_server_says_without_logprobs(runner: Any, streamed: bool) -> None:
    async def of_temperature(exchange: Exchange) -> None:
        await exchange.reply(400, OF_TEMPERATURE)

    with serving(refusing(other=of_temperature)) as served:
        model = chat(served, disable_streaming=not streamed)
        with pytest.raises(SamplingError, match=r"temperature"):
            runner.invoke(ReASCRunnable(model=model, concurrency=1, **ONLINE), "q")


def test_where_confidence_is_needed_nothing_is_paid_for(runner: Any, served: Served) -> None:
    reasc = ReASCRunnable(model=chat(served), calibration=calibration(fingerprint=ON_GPT, gate=1.0))
    for _ in range(2):
        with pytest.raises(LogprobsUnavailable, match=r"confidence='stated'.*on_missing_confidence='count'") as raised:
            runner.invoke(reasc, "q")
        assert SAID in str(raised.value)
    assert len(served.requests) == refused(served) == 1
    counting = reasc.model_copy(update={"on_missing_confidence": "count"})
    account = runner.account(counting, "q")
    assert account["answer"] == "42" and SAID in account["notices"][0]
    assert refused(served) == 1  # what is known of a model is known to all that sample it


def test_a_fallback_that_gives_logprobs_is_taken(runner: Any, served: Served) -> None:
    with serving(Chat(("it", " is", " 42"))) as other:
        model = chat(served).with_fallbacks([chat(other)])
        reasc = ReASCRunnable(model=model, calibration=calibration(fingerprint=ON_GPT), allow_fingerprint_mismatch=True)
        account = runner.account(reasc, "q")
        assert account["answer"] == "42" and account["without_confidence"] == 0
    assert len(served.requests) == refused(served) <= 4


def test_one_sample_that_is_refused_counts_as_one_vote_and_the_others_keep_their_confidence(runner: Any) -> None:
    """Of several servers behind one address some refuse."""
    options: dict[str, Any] = {"on_missing_confidence": "count", "concurrency": 1, "max_samples": 4}
    with serving(refusing(only=lambda exchange: exchange.at == 1)) as served:
        made = calibration(fingerprint=ON_GPT)
        rule = made.rule(confidence=0.999, on_missing_confidence="count")
        result = runner.solve(ReASCRunnable(model=chat(served), calibration=made, rule=rule, **options), "q")
        assert [response.score is None for response in result.responses] == [False, True, False, False]
        assert result.message.response_metadata["reasc"]["without_confidence"] == 1
        assert "logprobs_refused" not in result.message.response_metadata


@pytest.mark.sync_only
def test_calibrating_goes_on_where_none_is_needed_or_another_stands_in(runner: Any, served: Served) -> None:
    made = runner.calibrate(chat(served), [f"q{at}" for at in range(6)], concurrency=1)
    assert (made.n, made.measure) == (6, None)
    assert refused(served) <= 4  # the samples that were in flight together at first

    async def stating(exchange: Exchange) -> None:
        sure = exchange.at % 2 == 0
        await exchange.say(f"it is {1 if sure else 2}\nConfidence: {90 if sure else 30 + exchange.at}%")

    with serving(refusing(other=stating)) as served:
        pairs = [(f"q{at}", "1") for at in range(16)]
        made = runner.calibrate(chat(served), pairs, ask_confidence=True, concurrency=1, max_samples=1)
        assert made.measure.signal == "verbalized"
        assert refused(served) == 1


def test_a_model_that_votes_in_an_agent_is_asked_once(runner: Any, served: Served) -> None:
    agents = pytest.importorskip("langchain.agents")
    options: dict[str, Any] = {"calibration": "online", "answer": "auto", "concurrency": 1, "max_samples": 4}
    model = chat(served)
    voting = agents.create_agent(ChatReASC(model=model, **options), tools=[])
    between = agents.create_agent(model, tools=[], middleware=[ReASCMiddleware(**options)])
    for agent in (voting, between, between):
        assert "42" in runner.invoke(agent, {"messages": [("user", "q")]})["messages"][-1].text
    assert refused(served) == 1
