"""OpenAI's Responses API, wherever the caller or langchain-openai chooses it: by each face, whole and streamed."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, message_chunk_to_message
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from runnable.fakes import calibration
from servers.chat_wire import PROMPT_TOKENS
from servers.fake_server import serving
from servers.responses_wire import Responses

from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.exceptions import LogprobsUnavailable, SamplingError

WEB_SEARCH = {"type": "web_search"}
CHOSEN: dict[str, Callable[[Any], Any]] = {
    "use_responses_api": lambda openai: openai(use_responses_api=True),
    "v1 blocks": lambda openai: openai(use_responses_api=True, output_version="v1"),
    "a built-in tool": lambda openai: openai().bind_tools([WEB_SEARCH]),
    "reasoning for a call": lambda openai: openai().bind(reasoning={"effort": "low"}),
    "not streamed": lambda openai: openai(reasoning={"effort": "low"}, disable_streaming=True).with_retry(),
}
CALLS: Any = Responses(calls=lambda at: [("weather", '{"city": "Paris"}')])
MADE: dict[str, Any] = {"calibration": calibration(), "allow_fingerprint_mismatch": True}


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class City(BaseModel):
    """A city."""

    name: str


def openai_at(url: str) -> Callable[..., Any]:
    return lambda **fields: ChatOpenAI(model="gpt-4o", base_url=url, api_key="none", max_retries=0, **fields)


@pytest.mark.full  # computes for long
@pytest.mark.parametrize(
    ("name", "way"),
    [*((name, "stream") for name in CHOSEN), ("not streamed", "invoke")],
)
def test_votes_are_counted_and_the_chat_model_gives_the_message(runner: Any, name: str, way: str) -> None:
    with serving(Responses()) as served:
        reasc = ChatReASC(model=CHOSEN[name](openai_at(served.url)), answer="number")
        if way == "invoke":
            message = runner.invoke(reasc, "q")
        else:
            first, *rest = runner.stream(reasc, "q")
            message = message_chunk_to_message(sum(rest, first))
    assert isinstance(message, AIMessage)
    account = message.response_metadata["reasc"]
    assert (message.text, message.response_metadata["status"]) == ("the answer is 42", "completed")
    assert (account["answer"], account["samples"], account["failed"]) == ("42", 4, 0)
    assert message.usage_metadata is not None
    assert message.usage_metadata["input_tokens"] == 4 * PROMPT_TOKENS and not account["tokens"]["estimated"]


@pytest.mark.parametrize("face", ["chat model", "middleware", "streamed"])
def test_an_agent_calls_its_tool(runner: Any, face: str) -> None:
    question = {"messages": [HumanMessage("weather?")]}
    with serving(CALLS) as served:
        model = openai_at(served.url)(use_responses_api=True)
        if face == "middleware":
            agent = create_agent(model, [weather], middleware=[ReASCMiddleware()])
        else:
            agent = create_agent(ChatReASC(model=model), [weather])
        if face == "streamed":
            *_, (_, state) = runner.stream(agent, question, stream_mode=["messages", "values"])
        else:
            state = runner.invoke(agent, question)
    _, asked, answered, said = state["messages"]
    assert asked.tool_calls[0]["args"] == {"city": "Paris"} and asked.response_metadata["reasc"]["launched"] > 1
    assert (answered.content, said.text) == ("sunny in Paris", "the answer is 42")


def test_structured_output(runner: Any) -> None:
    with serving(Responses(words=('{"name": ', '"Paris"}'))) as served:
        reasc = ChatReASC(model=openai_at(served.url)(use_responses_api=True), answer="json")
        assert runner.invoke(reasc.with_structured_output(City), "q") == City(name="Paris")


@pytest.mark.parametrize(
    ("reason", "fields"), [("max_output_tokens", {"disable_streaming": True}), ("content_filter", {})]
)
def test_an_incomplete_response_casts_no_vote(runner: Any, reason: str, fields: dict[str, Any]) -> None:
    with serving(Responses(words=("it may", " be 41"), incomplete=reason)) as served:
        model = openai_at(served.url)(use_responses_api=True, **fields)
        result = runner.solve(ReASCRunnable(model=model, max_samples=2), "q")
    assert (result.answer, result.failures) == (None, ())


def test_a_stream_that_breaks_off_fails(runner: Any) -> None:
    with serving(Responses(breaks=True)) as served, pytest.raises(SamplingError, match="ended without a finish reason"):
        runner.invoke(ReASCRunnable(model=openai_at(served.url)(use_responses_api=True)), "q")


def test_where_a_calibration_needs_logprobs_the_callers_choice_holds(runner: Any) -> None:
    with serving(Responses()) as served:
        chosen = openai_at(served.url)(use_responses_api=True)
        with pytest.raises(LogprobsUnavailable, match="langchain-openai drops the logprobs of the Responses API"):
            ReASCRunnable(model=chosen, **MADE)
        late = ReASCRunnable(model=openai_at(served.url)().bind_tools([WEB_SEARCH]), **MADE)
        with pytest.raises(LogprobsUnavailable):
            runner.invoke(late, "q")
        assert not served.requests
        counted = runner.solve(ReASCRunnable(model=chosen, on_missing_confidence="count", **MADE), "q")
    assert counted.answer == "42"
    assert sum("Responses API" in notice for notice in counted.notices) == 1


class Noted(BaseModel):
    """A city, perhaps with a note."""

    name: str
    note: str | None = None


def test_a_strict_schema_is_sent_as_openai_takes_it(runner: Any) -> None:
    """Without defaults, as langchain-openai sends it in whole responses and not in streams."""
    with serving(Responses(words=['{"name": "Paris",', ' "note": null}'])) as served:
        model = openai_at(served.url)(use_responses_api=True)
        for one in (model, ChatReASC(model=model, max_samples=1)):
            asked = one.with_structured_output(Noted, method="json_schema", strict=True)
            assert runner.invoke(asked, "q") == Noted(name="Paris")
    plain, ours = (request["text"]["format"]["schema"] for request in served.requests)
    assert plain == ours and "default" not in str(ours)
