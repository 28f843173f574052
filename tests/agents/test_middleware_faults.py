"""What goes wrong in an agent is a clear error, or what the documentation says; nothing paid for is lost."""

import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from runnable.conftest import cancelled
from runnable.fakes import calibration

from agents.acting import (
    ASKED,
    BY_ASC,
    ONE_BY_ONE,
    SUNNY,
    THREAD,
    Agents,
    acting,
    agent_of,
    book_trip,
    get_weather,
    samples_of,
    two_cities,
    weather,
)
from agents.test_accounting import Tree
from langchain_reasc import Calibration, ReASCMiddleware
from langchain_reasc.calibration import fingerprint_of
from langchain_reasc.exceptions import FingerprintMismatch

BRIEF = "be brief"


def measured_on(*tools: Any, system: str = BRIEF, gate: float | None = None) -> Calibration:
    """A calibration of the scripted model with these tools and this system message."""
    kwargs = {"tools": [convert_to_openai_tool(tool) for tool in tools], "tool_choice": None}
    found = fingerprint_of(acting(), kwargs=kwargs, messages=[SystemMessage(system)], answer="message")
    return calibration(gate=gate, fingerprint=found)


def test_a_calibration_holds_for_the_agents_tools_and_system_message(agents: Agents) -> None:
    model, confident = acting({ASKED: [weather("Paris", logprob=-3)], "": [SUNNY]}), measured_on(get_weather, gate=2)
    middleware = ReASCMiddleware(calibration=confident, **ONE_BY_ONE)
    state = agents.ask(agent_of(model, middleware, system_prompt=BRIEF))
    assert state["messages"][1].response_metadata["reasc"]["reason"] == "gate"
    model.log.calls.clear()
    others = {"system": {"system_prompt": "be long"}, "tools": {"tools": [book_trip], "system_prompt": BRIEF}}
    for said, other in others.items():
        with pytest.raises(FingerprintMismatch, match=said):
            agents.ask(agent_of(model, middleware, **other))
    with pytest.raises(FingerprintMismatch, match="model"):
        agents.ask(agent_of(model.model_copy(update={"model_name": "another"}), middleware, system_prompt=BRIEF))
    assert model.log.calls == []


def test_a_checkpoint_goes_on_with_the_calibration_of_whoever_takes_it_up(agents: Agents) -> None:
    model, saver = acting({ASKED: [weather("Paris", logprob=-3)], "": [weather("Oslo", logprob=-3)]}), InMemorySaver()

    def agent(measured: Calibration) -> Any:
        person = HumanInTheLoopMiddleware({"get_weather": True})
        votes = ReASCMiddleware(calibration=measured, **ONE_BY_ONE)
        return agent_of(model, votes, person, checkpointer=saver, system_prompt=BRIEF)

    first, fits = measured_on(get_weather, gate=2), measured_on(get_weather, gate=4)
    agents.ask(agent(first), config=THREAD)
    approved = Command(resume={"decisions": [{"type": "approve"}]})
    with pytest.raises(FingerprintMismatch, match="system"):
        agents.ask(agent(measured_on(get_weather, system="be long")), approved, THREAD)
    state = agents.ask(agent(fits), None, THREAD)
    told = [message.response_metadata["reasc"] for message in state["messages"] if message.type == "ai"]
    assert [(account["reason"], account["launched"]) for account in told] == [("gate", 1), ("evidence", 1)]
    assert [message.content for message in state["messages"] if message.type == "tool"] == ["sunny in Paris"]


def test_a_middleware_inside_that_fails_after_a_vote(agents: Agents) -> None:
    class Breaks(AgentMiddleware):
        broken = True

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return self.checked(handler(request))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return self.checked(await handler(request))

        def checked(self, response: Any) -> Any:
            if self.broken:
                self.broken = False
                raise RuntimeError("checked and found wanting")
            return response

    middleware = ReASCMiddleware(max_run_samples=9, **BY_ASC), Breaks()
    model = two_cities()
    agent = agent_of(model, *middleware, checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError, match="found wanting"):
        agents.ask(agent, config=THREAD)
    assert samples_of(agents.ask(agent, None, THREAD)) == [2, 1]  # of nine, seven had been spent
    assert agent.get_state(THREAD).values["reasc_spent"]["samples"] == 7 + 2 + 1


def test_a_step_that_is_cancelled_closes_its_samples_and_its_runs() -> None:
    never, tree = threading.Event(), Tree()
    model = acting({ASKED: [weather("Rome"), weather("Paris", opens=never)]})

    agent, asked = agent_of(model, ReASCMiddleware(concurrency=4)), {"messages": [HumanMessage(ASKED)]}
    cancelled(lambda: agent.ainvoke(asked, {"callbacks": [tree]}), lambda: model.log.live == 4)
    assert model.log.live == 0
    assert tree.run_map == {}
    assert len(tree.roots) == 1


class Both(TypedDict):
    said: Annotated[list[str], operator.add]


def test_an_interrupt_beside_an_agent_pays_for_none_of_its_steps_again(agents: Agents) -> None:
    model = two_cities()
    inner = agent_of(model, ReASCMiddleware(max_run_samples=9, **BY_ASC))
    asked = {"messages": [HumanMessage(ASKED)]}

    def agent(state: Any) -> Any:
        return {"said": [inner.invoke(asked)["messages"][-1].text]}

    async def aagent(state: Any) -> Any:
        return {"said": [(await inner.ainvoke(asked))["messages"][-1].text]}

    graph: Any = StateGraph(Both)
    graph.add_node("agent", aagent if agents.is_async else agent)
    graph.add_node("person", lambda state: {"said": [interrupt("well?")]})
    for name in ("agent", "person"):
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    compiled = graph.compile(checkpointer=InMemorySaver())
    assert agents.ask(compiled, {"said": []}, THREAD)["__interrupt__"][0].value == "well?"
    assert agents.ask(compiled, Command(resume="yes"), THREAD)["said"] == [SUNNY, "yes"]
    assert len(model.log.calls) == 8
