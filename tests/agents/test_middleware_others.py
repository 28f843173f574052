"""Beside LangChain's own middleware, in either order, and with a calibration."""

import itertools
import threading
from typing import Any

import pytest
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
)
from langchain_core.messages import SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from runnable.fakes import Reply, Scripted, calibration

from agents.acting import (
    ASKED,
    BY_ASC,
    ONE_BY_ONE,
    SUNNY,
    THREAD,
    Agents,
    acting,
    agent_of,
    billed,
    book_trip,
    get_weather,
    samples_of,
    spent_on,
    two_cities,
    weather,
)
from langchain_reasc import Calibration, ReASCMiddleware
from langchain_reasc.exceptions import FingerprintMismatch
from langchain_reasc.models.fingerprint import fingerprint_of


def ordered(reasc_first: bool, *others: Any, **options: Any) -> list[Any]:
    reasc = ReASCMiddleware(**BY_ASC | options)
    return [reasc, *others] if reasc_first else [*others, reasc]


def failing(times: int, said: dict[str, Any] | None = None) -> Scripted:
    """A model whose first calls fail, however they are counted."""
    model, calls, lock = acting(said), itertools.count(), threading.Lock()
    script = model.script

    def reply(last: str, index: int) -> Reply:
        with lock:
            fails = next(calls) < times
        return Reply(text="", error=ConnectionError("the line is dead")) if fails else script(last, index)

    model.script = reply
    return model


@pytest.mark.parametrize("reasc_first", [True, False], ids=["reasc outside", "reasc inside"])
def test_a_retry_repeats_a_vote_in_which_no_sample_succeeded(agents: Agents, reasc_first: bool) -> None:
    model = failing(2)  # the first sample, and the one that shows that this was no bad luck
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0)
    agent = agent_of(model, *ordered(reasc_first, retry, max_run_samples=50), checkpointer=InMemorySaver())
    state = agents.ask(agent, config=THREAD)
    assert [launched > 1 for launched in samples_of(state)] == [True, False]
    assert state["messages"][-1].text == SUNNY
    assert spent_on(state) + 2 * 7 == billed(model)  # of what failed, nobody knows what it cost
    spent = agent.get_state(THREAD).values["reasc_spent"]
    assert spent["samples"] == sum(samples_of(state)) + 2 == len(model.log.calls)


def test_a_retry_that_gives_up_has_the_models_own_error(agents: Agents) -> None:
    model = failing(10_000)
    state = agents.ask(agent_of(model, *ordered(True, ModelRetryMiddleware(max_retries=2, initial_delay=0))))
    assert state["messages"][-1].text.startswith("Model call failed after 3 attempts with ConnectionError: the line")
    assert len(model.log.calls) == 3 * 2


@pytest.mark.parametrize(("reasc_first", "voted"), [(False, [True, False]), (True, [False, False])])
def test_fallbacks_outside_are_voted_on_and_those_inside_taken_as_they_are(
    agents: Agents, reasc_first: bool, voted: list[bool]
) -> None:
    broken, fallback = failing(10_000), acting()
    state = agents.ask(agent_of(broken, *ordered(reasc_first, ModelFallbackMiddleware(fallback))))
    assert [launched > 1 for launched in samples_of(state)] == voted
    assert samples_of(state)[1] == (0 if reasc_first else 1)
    assert spent_on(state) == billed(fallback)


@pytest.mark.parametrize(("reasc_first", "decision"), [(True, "approve"), (False, "edit")])
def test_a_person_decides_on_the_winner_and_nothing_is_paid_again(
    agents: Agents, reasc_first: bool, decision: str
) -> None:
    model, saver = two_cities(), InMemorySaver()

    def agent() -> Any:
        others = ordered(reasc_first, HumanInTheLoopMiddleware({"get_weather": True}), max_run_samples=10)
        return agent_of(model, *others, checkpointer=saver)

    stopped = agents.ask(agent(), config=THREAD)
    [asked] = stopped["__interrupt__"]
    assert asked.value["action_requests"][0]["args"] == {"city": "Paris"}
    assert len(model.log.calls) == 7
    edited = {"edited_action": {"name": "get_weather", "args": {"city": "Oslo"}}} if decision == "edit" else {}
    state = agents.ask(agent(), Command(resume={"decisions": [{"type": decision, **edited}]}), THREAD)
    assert len(model.log.calls) == 8
    assert f"sunny in {'Oslo' if edited else 'Paris'}" in state["messages"][2].content
    assert agent().get_state(THREAD).values["reasc_spent"]["samples"] == 8
    assert spent_on(state) == billed(model)


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
