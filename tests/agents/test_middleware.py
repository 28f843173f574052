"""What an agent's model is about to do is put to the vote, where it deserves that."""

import asyncio
import importlib
import sys
from typing import Any, get_args, get_type_hints

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from runnable.fakes import Reply

from agents.acting import (
    ASKED,
    ONE_BY_ONE,
    SUNNY,
    THREAD,
    Agents,
    Overriding,
    acting,
    agent_of,
    book_trip,
    calls,
    get_weather,
    samples_of,
    two_cities,
    weather,
)
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import ToolVotes
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, Undecided


def test_the_name_of_the_agent_and_model_settings_reach_the_model(agents: Agents) -> None:
    model, settings = acting(), Overriding(model_settings={"top_k": 5})
    state = agents.ask(agent_of(model, settings, ReASCMiddleware(**ONE_BY_ONE), name="helper"))
    assert {message.name for message in state["messages"] if isinstance(message, AIMessage)} == {"helper"}
    assert len(model.log.kwargs) == sum(samples_of(state))
    assert all(kwargs["top_k"] == 5 for kwargs in model.log.kwargs)
    assert all([tool["function"]["name"] for tool in kwargs["tools"]] == ["get_weather"] for kwargs in model.log.kwargs)


@pytest.mark.parametrize(
    ("called", "samples"),
    [
        ([("get_weather", {"city": "Paris"})], 1),
        ([("book_trip", {"city": "Paris"})], 3),
        ([("get_weather", {"city": "Paris"}), ("book_trip", {"city": "Paris"})], 3),
        ([("unheard_of", {})], 3),
    ],
    ids=["reads", "acts", "reads and acts", "no such tool"],
)
def test_calls_that_only_read_are_passed_on(agents: Agents, called: Any, samples: int) -> None:
    model = acting({ASKED: [calls(*called)], "": [SUNNY]})
    middleware = ReASCMiddleware(read_only=["get_weather"], max_samples=5, **ONE_BY_ONE)
    state = agents.ask(agent_of(model, middleware, tools=[get_weather, book_trip]))
    assert samples_of(state) == [samples, 1]
    assert [(call["name"], call["args"]) for call in state["messages"][1].tool_calls] == called


def test_a_call_that_cannot_be_read_deserves_a_vote(agents: Agents) -> None:
    half = calls(("get_weather", "Paris]"))
    model = acting({ASKED: [half, *[weather("Paris")] * 4], "": [SUNNY]})
    state = agents.ask(agent_of(model, ReASCMiddleware(read_only=["get_weather"], **ONE_BY_ONE)))
    assert state["messages"][1].tool_calls[0]["args"] == {"city": "Paris"}
    assert samples_of(state) == [5, 1]


class Renamed(ReASCMiddleware):
    """A user's own."""


@pytest.mark.parametrize("kind", [ReASCMiddleware, Renamed])
def test_only_a_budget_for_the_run_has_a_node(agents: Agents, kind: Any) -> None:
    name = f"{kind.__name__}.before_agent"
    for options, expected in (({}, {"model", "tools"}), ({"max_run_samples": 50}, {"model", "tools", name})):
        agent = agent_of(acting(), kind(**options))
        assert agent.get_graph().nodes.keys() - {"__start__", "__end__"} == expected
        assert {step for update in agents.stream(agent, stream_mode="updates") for step in update} == expected


@pytest.mark.parametrize("strays", [0, 1])
def test_whether_to_call_is_voted_on_until_a_tool_has_answered(agents: Agents, strays: int) -> None:
    def call_or_finish(request: Any, first: AIMessage) -> bool:
        return bool(first.tool_calls) or not any(message.type == "tool" for message in request.messages)

    model = acting({ASKED: [*[Reply("let me look")] * strays, *[weather("Paris")] * 9], "": [SUNNY]})
    state = agents.ask(agent_of(model, ReASCMiddleware(when=call_or_finish, **ONE_BY_ONE)))
    assert [message.text for message in state["messages"]][1:] == ["calling", "sunny in Paris", SUNNY]
    called, final = samples_of(state)
    assert called == 4 + 2 * strays and final == 1


def test_a_function_of_the_request_and_the_first_response_decides(agents: Agents) -> None:
    asked: list[tuple[list[str], bool]] = []

    def when(request: Any, response: AIMessage) -> bool:
        asked.append(([tool.name for tool in request.tools], bool(response.tool_calls)))
        return isinstance(request.messages[-1], HumanMessage)

    state = agents.ask(agent_of(acting({ASKED: [weather("Rome")], "": [SUNNY]}), ReASCMiddleware(when=when)))
    assert asked == [(["get_weather"], True), (["get_weather"], False)]
    assert [launched > 1 for launched in samples_of(state)] == [True, False]


def unknown_names(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "names '" in message]


def test_a_tool_that_is_not_there_is_told_once(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    middleware = ReASCMiddleware(read_only=["get_wether", "book_trip", "search"], **ONE_BY_ONE)
    tools = [get_weather, book_trip, {"type": "web_search", "name": "web"}]
    agents.ask(agent_of(acting(), middleware, tools=tools))
    agents.ask(agent_of(acting(), Overriding(tools=[get_weather]), middleware, tools=tools))
    misspelt, missing = unknown_names(caplog)
    assert "'get_wether'" in misspelt and "'get_weather'" in misspelt
    assert "'search'" in missing and "book_trip, get_weather, web" in missing


@pytest.mark.parametrize("make", [lambda **options: (ReASCMiddleware(**options),), lambda **options: ()])
def test_an_argument_that_no_tool_has_is_told(agents: Agents, caplog: pytest.LogCaptureFixture, make: Any) -> None:
    votes = ToolVotes(exclude_args=["citty", "reasoning"], tolerance={"get_weather.city": 0})
    model: Any = acting()
    [*middleware] = make(tool_votes=votes, **ONE_BY_ONE)
    state = agents.ask(agent_of(model if middleware else ChatReASC(model=model, tool_votes=votes), *middleware))
    told = (
        "tool_votes: exclude_args names 'citty', an argument that no tool here has (get_weather); did you mean 'city'?"
    )
    assert unknown_names(caplog) == [told]
    assert told in state["messages"][1].response_metadata["reasc"]["notices"]


def is_approved(request: Any, response: AIMessage) -> bool:
    return bool(interrupt(response.tool_calls)) if response.tool_calls else False


async def ais_approved(request: Any, response: AIMessage) -> bool:
    await asyncio.sleep(0)
    return is_approved(request, response)


@pytest.mark.parametrize("approved", [True, False])
def test_what_decides_may_interrupt_the_agent(agents: Agents, approved: bool) -> None:
    when = ais_approved if agents.is_async else is_approved
    middleware = ReASCMiddleware(when=when, max_run_samples=50, **ONE_BY_ONE)
    agent = agent_of(two_cities(), middleware, checkpointer=InMemorySaver())
    [asked] = agents.ask(agent, config=THREAD)["__interrupt__"]
    assert asked.value[0]["args"] == {"city": "Rome"}
    state = agents.ask(agent, Command(resume=approved), THREAD)
    assert state["messages"][1].tool_calls[0]["args"] == {"city": "Paris" if approved else "Rome"}
    assert samples_of(state) == [6 if approved else 1, 1]
    spent = agent.get_state(THREAD).values["reasc_spent"]["samples"]
    assert spent == sum(samples_of(state)) + 1  # the response on which it was interrupted was paid for, too


def test_texts_vote_where_it_is_said_where_their_answer_is(agents: Agents) -> None:
    model = acting({"": ["the answer is 1", *["the answer is 2"] * 6]})
    state = agents.ask(agent_of(model, ReASCMiddleware(answer="number", read_only=["get_weather"], **ONE_BY_ONE)))
    assert state["messages"][-1].text == "the answer is 2"
    assert samples_of(state) == [6]


@pytest.mark.parametrize("inside", [ChatReASC, lambda model: ChatReASC(model=model).bind(stop=["x"]), ReASCRunnable])
def test_votes_on_votes_are_refused(agents: Agents, inside: Any) -> None:
    class Another(ReASCMiddleware):
        pass

    model = acting()
    with pytest.raises(ConfigurationError, match="two ReASCMiddleware"):
        agents.ask(agent_of(model, ReASCMiddleware(), Another()))
    with pytest.raises(ConfigurationError, match="ReASC"):
        agents.ask(agent_of(inside(model=model), ReASCMiddleware(), tools=[]))
    assert not model.log.calls


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"read_only": [get_weather]}, "read_only"),
        ({"read_only": ["search"], "when": lambda request, first: True}, "when=.*read_only="),
        ({"max_run_token": 3}, "unknown: max_run_token"),
        ({"max_run_samples": True}, "max_run_samples.*True"),
        ({"max_run_seconds": float("nan")}, "max_run_seconds.*nan"),
    ],
)
def test_what_cannot_be_is_refused_when_the_middleware_is_made(options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ReASCMiddleware(**options)


def test_it_takes_every_option_of_the_chat_model() -> None:
    [options] = get_args(get_type_hints(ReASCMiddleware.__init__, include_extras=True)["options"])
    assert options.__annotations__.keys() == ReASCRunnable.model_fields.keys() - {"model", "name"}
    assert not options.__required_keys__


def test_without_langchain_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware.types", None)
    monkeypatch.delitem(sys.modules, "langchain_reasc.agents.middleware")
    with pytest.raises(MissingExtraError, match=r"langchain-reasc\[agents\]"):
        importlib.import_module("langchain_reasc.agents.middleware")


@pytest.mark.parametrize("on_undecided", ["answer", "raise", "abstain"])
def test_an_act_that_most_samples_do_not_ask_for_is_not_done_where_that_was_asked_for(
    agents: Agents, on_undecided: Any
) -> None:
    cities = (
        "Rome",
        "Oslo",
        "Bonn",
        "Kyiv",
        "Rome",
        "Oslo",
        "Bonn",
        "Kyiv",
        "Lima",
        "Rome",
        "Lima",
        "Rome",
        "Cork",
        "Graz",
    )
    model = acting({ASKED: [calls(("book_trip", {"city": city})) for city in cities], "": [SUNNY]})
    votes = ReASCMiddleware(read_only=["get_weather"], on_undecided=on_undecided, **ONE_BY_ONE)
    agent = agent_of(model, votes, tools=[get_weather, book_trip])
    if on_undecided == "raise":
        with pytest.raises(Undecided, match=r" \d of \d+ responses"):
            agents.ask(agent)
        return
    said = [message.text for message in agents.ask(agent)["messages"]]
    assert ("booked Rome" in said) == (on_undecided == "answer")
