"""Responses without an answer: calls refused alike are given to the agent; of an empty one the model is asked again."""

from typing import Any

import pytest
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage
from pydantic import BaseModel, Field
from runnable.fakes import Reply

from agents.acting import ASKED, SUNNY, acting, agent_of, calls, samples_of, weather
from langchain_reasc import ChatReASC, ReASCMiddleware
from langchain_reasc.exceptions import Undecided

PARIS, ROME = weather("Paris"), weather("Rome")
UNKNOWN = [calls(("get_wether", {"city": str(at)})) for at in range(6)]
REFUSED, OTHER = calls(("get_weather", {"town": "Paris"})), calls(("get_weather", {"town": "Rome"}))
MALFORMED, FILTERED = (Reply("", metadata={"finish_reason": one}) for one in ("MALFORMED_FUNCTION_CALL", "SAFETY"))
CUT_OFF, EMPTY, THOUGHT = Reply("so it", metadata={"finish_reason": "length"}), Reply(""), Reply("<think>so it</think>")


class Weather(BaseModel):
    """The weather."""

    degrees: int = Field(ge=-90)


def reasons(state: Any) -> list[str | None]:
    said = [one for one in state["messages"] if isinstance(one, AIMessage)]
    return [one.response_metadata["reasc"]["reason"] for one in said]


@pytest.mark.parametrize(
    ("replies", "samples", "reason"),
    [
        (UNKNOWN, 3, "unanswered"),
        ([REFUSED], 3, "unanswered"),
        ([REFUSED, OTHER, REFUSED, REFUSED], 4, "unanswered"),
        ([EMPTY, REFUSED], 4, "unanswered"),
        ([REFUSED, OTHER] * 3, 4, "unanswered"),
        ([REFUSED, REFUSED, PARIS], 6, "agreement"),  # what has an answer outvotes it
    ],
    ids=["unknown tool", "refused", "one other", "after nothing", "two kinds", "rare"],
)
def test_three_calls_that_are_refused_alike_are_given_to_the_agent(
    agents: Any, replies: list[Reply], samples: int, reason: str
) -> None:
    state = agents.ask(agent_of(acting({ASKED: replies, "": [SUNNY]}), ReASCMiddleware()))
    assert samples_of(state) == [samples, 1]
    assert reasons(state) == [reason, "alone"]
    plain = agents.ask(agent_of(acting({ASKED: [replies[-1]], "": [SUNNY]})))
    assert [type(one) for one in state["messages"]] == [type(one) for one in plain["messages"]]
    called, other = state["messages"][1].tool_calls[0], plain["messages"][1].tool_calls[0]
    assert (called["name"], called["args"].keys()) == (other["name"], other["args"].keys())


def test_an_agent_retries_structured_output_that_was_refused_three_times(agents: Any) -> None:
    refused, given = (calls(("Weather", {"degrees": degrees})) for degrees in (-100, 20))
    model = acting({ASKED: [refused], "": [given]})
    state = agents.ask(agent_of(model, ReASCMiddleware(), response_format=ToolStrategy(Weather)))
    assert state["structured_response"] == Weather(degrees=20)
    assert samples_of(state) == [3, 4]


@pytest.mark.parametrize("nothing", [MALFORMED, FILTERED, EMPTY, THOUGHT], ids=str)
@pytest.mark.parametrize("when", [None, lambda *_: False], ids=["default", "when"])
def test_a_first_response_that_says_nothing_is_asked_for_again(agents: Any, nothing: Reply, when: Any) -> None:
    model = acting({ASKED: [nothing, nothing, PARIS], "": [nothing, SUNNY]})
    state = agents.ask(agent_of(model, ReASCMiddleware(when=when)))
    assert [one.text for one in state["messages"][2:]] == ["sunny in Paris", SUNNY]
    assert samples_of(state) == ([3, 2] if when else [6, 2])
    assert len(model.log.calls) == sum(samples_of(state))


@pytest.mark.parametrize("said", [Reply("no", metadata={"finish_reason": "refusal"}), CUT_OFF], ids=str)
def test_a_refusal_and_the_beginning_of_a_text_are_taken_alone_as_ever(agents: Any, said: Reply) -> None:
    state = agents.ask(agent_of(acting({"": [said]}), ReASCMiddleware()))
    assert (samples_of(state), state["messages"][-1].text) == ([1], said.text)


@pytest.mark.parametrize("nothing", [MALFORMED, EMPTY], ids=str)
def test_where_all_say_nothing_it_ends_as_the_model_alone_would(agents: Any, nothing: Reply) -> None:
    state = agents.ask(agent_of(acting({"": [nothing]}), ReASCMiddleware()))
    assert (samples_of(state), reasons(state)) == ([4], ["unanswered"])
    assert (state["messages"][-1].text, state["messages"][-1].tool_calls) == ("", [])


def test_refused_calls_are_no_decision(agents: Any) -> None:
    agent = agent_of(acting({ASKED: [REFUSED], "": [SUNNY]}), ReASCMiddleware(on_undecided="raise"))
    with pytest.raises(Undecided, match="3 responses"):
        agents.ask(agent)


def test_a_stream_that_has_begun_is_not_begun_again(runner: Any) -> None:
    chunks = runner.stream(ChatReASC(model=acting({"": [Reply(""), SUNNY]})), ASKED)
    assert "".join(chunk.text for chunk in chunks) == ""
