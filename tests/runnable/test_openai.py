"""langchain_openai.ChatOpenAI as it is, against a loopback server."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from langchain_reasc import ReASCRunnable, calibrate
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.method import Measure
from langchain_reasc.models import read_signals
from langchain_reasc.models.fingerprint import Fingerprint

from .chat_server import ChatServer, chat_server, scripted
from .fakes import PROMPT_TOKENS, TOP_K, Reply, calibration

langchain_openai = pytest.importorskip("langchain_openai")

KEY = "sk-this-is-a-secret"
ON_GPT = Fingerprint(model="gpt-test", sampling={"temperature": 0.7})


def chat(served: ChatServer, **fields: Any) -> Any:
    return langchain_openai.ChatOpenAI(
        model="gpt-test", base_url=served.url, api_key=KEY, temperature=0.7, max_retries=0, **fields
    )


def always(reply: Reply) -> Callable[[str, int], Reply]:
    return lambda question, index: reply


def test_samples_logprobs_and_usage_arrive_whole(runner: Any) -> None:
    with chat_server(always(Reply("it is 42", -1.25))) as served:
        reasc = ReASCRunnable(model=chat(served), calibration=calibration(fingerprint=ON_GPT, mean=3.0))
        result = runner.solve(reasc, "q")
    assert (result.answer, result.decision.samples, result.decision.reason) == ("42", 4, "evidence")
    for response in (one for one in result.responses if one.used):
        assert response.message.text == "it is 42"
        assert read_signals(response.message).signals["top_k"].tolist() == [1.25] * 3
        assert response.score == 1.25
    assert (result.usage.input_tokens, result.usage.output_tokens) == (4 * PROMPT_TOKENS, 4 * 3)
    assert not result.usage.estimated
    for request in served.requests:
        assert (request["stream"], request["logprobs"], request["top_logprobs"]) == (True, True, 20)


@pytest.mark.parametrize(
    ("options", "bound", "alternatives"),
    [
        ({"calibration": "online"}, {}, 1),
        ({"calibration": "online", "confidence": Measure("token_logprob", "bottom_group", 8)}, {}, 1),
        ({"calibration": "online", "confidence": TOP_K}, {}, 20),
        ({"calibration": "mixture"}, {}, 20),
        ({"calibration": "online"}, {"top_logprobs": 5}, 5),
    ],
)
def test_alternatives_are_asked_for_where_they_are_read(
    runner: Any, options: dict[str, Any], bound: dict[str, int], alternatives: int
) -> None:
    with chat_server(always(Reply("it is 42"))) as served:
        reasc = ReASCRunnable(model=chat(served).bind(**bound), **options)
        assert runner.account(reasc, "q")["answer"] == "42"
    assert {request["top_logprobs"] for request in served.requests} == {alternatives}


@pytest.mark.parametrize(("right", "alternatives"), [("42", 20), (None, 1)])
def test_calibrating_asks_for_what_it_chooses_among(right: str | None, alternatives: int) -> None:
    with chat_server(always(Reply("it is 42"))) as served:
        calibrate(chat(served), [(f"q{number}", right) for number in range(4)])
    assert {request["top_logprobs"] for request in served.requests} == {alternatives}


def test_a_seed_is_moved_on_and_bound_arguments_are_sent(runner: Any) -> None:
    with chat_server(always(Reply("it is 42"))) as served:
        runner.invoke(ReASCRunnable(model=chat(served, seed=3).bind(stop=["END"])), "q")
    assert sorted(request["seed"] for request in served.requests) == [3, 4, 5, 6]
    assert {request["stop"][0] for request in served.requests} == {"END"}


def test_the_api_key_is_sent_and_shown_nowhere(runner: Any) -> None:
    with chat_server(lambda q, index: Reply("it is 42", error=ValueError("no") if index == 1 else None)) as served:
        reasc = ReASCRunnable(model=chat(served), calibration="mixture", confidence=TOP_K)
        result = runner.solve(reasc, "q")
        assert served.headers[0]["authorization"] == f"Bearer {KEY}"
        assert len(result.failures) == 1
        served.answer = scripted(always(Reply(error=ValueError("no"))))
        with pytest.raises(SamplingError) as caught:
            runner.invoke(reasc, "q")
    shown = [repr(result), repr(reasc), str(caught.value), json.dumps(result.message.response_metadata)]
    assert not any(KEY in text for text in (*shown, *result.notices))
