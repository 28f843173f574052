"""Beside LangChain's own middleware, in either order."""

import itertools
import threading
from typing import Any

import pytest
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
)
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from runnable.fakes import Reply, Scripted

from agents.acting import (
    BY_ASC,
    SUNNY,
    THREAD,
    Agents,
    acting,
    agent_of,
    billed,
    samples_of,
    spent_on,
    two_cities,
    weather,
)
from langchain_reasc import ReASCMiddleware

ORDERS = pytest.mark.parametrize("reasc_first", [True, False], ids=["reasc outside", "reasc inside"])


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


@ORDERS
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


@ORDERS
def test_a_retry_that_gives_up_has_the_models_own_error(agents: Agents, reasc_first: bool) -> None:
    model = failing(10_000)
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0)
    state = agents.ask(agent_of(model, *ordered(reasc_first, retry)))
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


@pytest.mark.parametrize(("reasc_first", "decision"), [(True, "approve"), (False, "edit"), (True, "reject")])
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
    told = {"approve": "sunny in Paris", "edit": "sunny in Oslo", "reject": "User rejected"}
    assert told[decision] in state["messages"][2].content
    assert agent().get_state(THREAD).values["reasc_spent"]["samples"] == 8
    assert spent_on(state) == billed(model)


@ORDERS
def test_a_step_is_one_call_to_a_limit_of_calls(agents: Agents, reasc_first: bool) -> None:
    limit = ModelCallLimitMiddleware(run_limit=2, thread_limit=3, exit_behavior="error")
    agent = agent_of(acting(), *ordered(reasc_first, limit), checkpointer=InMemorySaver())
    agents.ask(agent, config=THREAD)
    assert agent.get_state(THREAD).values["thread_model_call_count"] == 2
    with pytest.raises(ModelCallLimitExceededError):
        agents.ask(agent, config=THREAD)


@ORDERS
def test_what_is_personal_is_redacted_before_the_vote_and_in_the_winner(agents: Agents, reasc_first: bool) -> None:
    asked = "what is the weather at [REDACTED_EMAIL]?"
    model = acting({asked: [weather("Paris")], "": ["ask bob@example.com"]})
    pii = PIIMiddleware("email", apply_to_input=True, apply_to_output=True)
    question = "what is the weather at ann@example.com?"
    state = agents.ask(agent_of(model, *ordered(reasc_first, pii)), question)
    assert {question for question, _ in model.log.calls} == {asked, "sunny in Paris"}
    assert state["messages"][-1].text == "ask [REDACTED_EMAIL]"
    assert samples_of(state) == [4, 1]
