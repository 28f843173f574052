"""A budget holds for a run of an agent; once it is gone, each further step takes one sample."""

import time
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from runnable.fakes import Reply, Scripted, saying
from runnable.judges import PARIS, city, judging

from agents.acting import (
    ASKED,
    BY_ASC,
    SUNNY,
    THREAD,
    acting,
    agent_of,
    billed,
    book_trip,
    calls,
    get_weather,
    samples_of,
    spent_on,
    weather,
)
from langchain_reasc import ReASCMiddleware
from langchain_reasc.answers import free_text
from langchain_reasc.exceptions import Undecided

CALL_TOKENS = 9  # seven of the prompt, a word and a call


def two_steps(**budget: Any) -> tuple[Scripted, Any]:
    """A model that votes twice in a run, each time wanting seven samples, and its agent."""
    first, then = ([weather("Rome"), *[weather(city)] * 6] for city in ("Paris", "Oslo"))
    model = acting({ASKED: first, "sunny in Paris": then, "": [SUNNY]})
    return model, agent_of(model, ReASCMiddleware(**BY_ASC | budget), checkpointer=InMemorySaver())


def spent(agent: Any) -> Any:
    return agent.get_state(THREAD).values["reasc_spent"]


@pytest.mark.parametrize(
    ("budget", "samples"),
    [
        ({}, [7, 7, 1]),
        ({"max_run_samples": 10}, [7, 3, 1]),
        ({"max_run_samples": 7}, [7, 1, 1]),
        ({"max_run_samples": 1}, [1, 1]),
        ({"max_run_tokens": 10 * CALL_TOKENS}, [7, 3, 1]),
        ({"max_run_tokens": 10 * CALL_TOKENS - 1}, [7, 3, 1]),
        ({"max_run_samples": 12, "max_run_tokens": 10 * CALL_TOKENS}, [7, 3, 1]),
        ({"max_run_samples": 12, "max_samples": 2}, [2, 1]),
        ({"max_run_seconds": 1e-9}, [1, 1]),
    ],
    ids=str,
)
def test_what_is_left_bounds_each_call(agents: Any, budget: Any, samples: list[int]) -> None:
    model, agent = two_steps(**budget)
    state = agents.ask(agent, config=THREAD)
    assert samples_of(state) == samples
    assert spent_on(state) == billed(model)
    if any(name.startswith("max_run") for name in budget):
        voted = [m.usage_metadata for m in state["messages"] if "reasc" in m.response_metadata]
        counted = spent(agent)
        assert counted["samples"] == sum(samples_of(state))
        assert counted["tokens"] == sum(usage["total_tokens"] for usage in voted)
        assert 0 < counted["seconds"] < 60


def test_it_holds_where_no_usage_is_reported(agents: Any) -> None:
    """Calls of 625 tokens each, all unlike."""
    replies = [weather(f"{index} {'word ' * 500}", usage=False) for index in range(16)]
    agent = agent_of(acting({ASKED: replies, "": [SUNNY]}), ReASCMiddleware(max_run_tokens=3000, concurrency=1))
    first = samples_of(agents.ask(agent))[0]
    assert 3 <= first <= 5


def test_when_it_is_gone_a_line_in_the_log_says_so_once(agents: Any, caplog: pytest.LogCaptureFixture) -> None:
    _, agent = two_steps(max_run_samples=4)
    for _ in range(2):
        caplog.clear()
        agents.ask(agent, config=THREAD)
        [line] = [record for record in caplog.records if record.name.startswith("langchain_reasc.agents")]
        assert "(max_run_samples=4)" in line.getMessage()


def test_time_bounds_what_is_launched_and_cuts_no_response_off(agents: Any) -> None:
    model, agent = two_steps(max_run_seconds=0.08)
    script = model.script

    def slowly(last: str, index: int) -> Reply:
        time.sleep(0.05)
        return script(last, index)

    model.script = slowly
    state = agents.ask(agent, config=THREAD)
    first, *rest = samples_of(state)
    assert 1 <= first <= 2
    assert set(rest) == {1}
    assert state["messages"][1].response_metadata["reasc"]["reason"] == "budget"


def test_what_a_failed_step_has_cost_counts_when_it_is_made_again(agents: Any) -> None:
    model, agent = two_steps(max_run_samples=9)
    script = model.script
    model.script = lambda last, index: Reply(text="", error=ConnectionError("the line is dead"))
    with pytest.raises(ConnectionError, match="the line is dead"):
        agents.ask(agent, config=THREAD)
    failed, model.script = len(model.log.calls), script
    model.log.calls.clear()
    state = agents.ask(agent, None, THREAD)
    assert failed == 2
    assert samples_of(state)[:2] == [7, 1]
    assert spent(agent)["samples"] == failed + sum(samples_of(state))


def test_agents_inside_tools_have_budgets_of_their_own(agents: Any) -> None:
    middleware = ReASCMiddleware(max_run_samples=8, **BY_ASC)  # the same object in both
    inner_model = acting({"inner": [weather("Rome"), *[weather("Paris")] * 6], "": [SUNNY]})
    inner = agent_of(inner_model, middleware)
    seen: list[list[int]] = []

    def ask_the_other() -> str:
        seen.append(samples_of(inner.invoke({"messages": [HumanMessage("inner")]})))
        return "sunny in Paris"

    async def aask_the_other() -> str:
        seen.append(samples_of(await inner.ainvoke({"messages": [HumanMessage("inner")]})))
        return "sunny in Paris"

    asks = StructuredTool.from_function(ask_the_other, aask_the_other, name="ask", description="Ask the other agent.")
    outer_model = acting({ASKED: [calls(("ask", {}))], "": [SUNNY]})
    outer = agent_of(outer_model, middleware, tools=[asks], checkpointer=InMemorySaver())
    assert samples_of(agents.ask(outer, config=THREAD)) == [4, 1]
    assert seen == [[7, 1]]
    assert spent(outer)["samples"] == 5


def test_what_a_judge_of_texts_costs_counts(agents: Any) -> None:
    model, judge = saying(*PARIS), judging(city)
    middleware = ReASCMiddleware(answer=free_text(judge=judge), max_run_tokens=10_000, **BY_ASC)
    agent = agent_of(model, middleware, tools=[], checkpointer=InMemorySaver())
    agents.ask(agent, "Which city?", THREAD)
    assert judge.log.calls
    assert spent(agent)["tokens"] == billed(model) + billed(judge)


BOOKED = "booked Rome"


def booking_last(left: int, **options: Any) -> Any:
    """An agent that votes on one step by seven samples, has so many left, and wants to book a trip in the next."""
    said = {
        ASKED: [weather("Rome"), *[weather("Paris")] * 6],
        "sunny in Paris": [calls(("book_trip", {"city": "Rome"}))],
    }
    votes = ReASCMiddleware(max_run_samples=7 + left, **BY_ASC | options)
    return agent_of(acting({**said, "": [SUNNY]}), votes, tools=[get_weather, book_trip])


@pytest.mark.parametrize(
    ("on_undecided", "left"), [("answer", 0), ("raise", 0), ("raise", 2), ("abstain", 1), ("abstain", 3)]
)
def test_too_little_budget_for_a_vote_is_undecided_whatever_is_left(agents: Any, on_undecided: str, left: int) -> None:
    agent = booking_last(left, on_undecided=on_undecided)
    if on_undecided == "raise":
        with pytest.raises(Undecided, match=f" {left or 1} of {left or 1} response"):
            agents.ask(agent)
        return
    said = [message.text for message in agents.ask(agent)["messages"]]
    assert (BOOKED in said) == (on_undecided == "answer")
    assert on_undecided == "answer" or said[-1] == ""


@pytest.mark.parametrize("samples", [2, 3])
def test_a_smaller_budget_is_no_reason_to_settle_for_less_evidence(agents: Any, samples: int) -> None:
    """Of three samples, two that agree decide what all three would answer; of the sixteen allowed, they do not."""
    votes = ReASCMiddleware(max_run_samples=samples, on_undecided="raise", concurrency=1)
    agent = agent_of(acting({"": [calls(("book_trip", {"city": "Rome"}))]}), votes, tools=[book_trip])
    with pytest.raises(Undecided, match=f" {samples} of {samples} response"):
        agents.ask(agent)


def test_what_needs_no_vote_goes_on_when_the_budget_is_spent(agents: Any) -> None:
    agent = booking_last(0, on_undecided="abstain", read_only=["book_trip"])
    said = [message.text for message in agents.ask(agent)["messages"]]
    assert BOOKED in said and said[-1] == SUNNY


def test_what_parallel_branches_spend_adds_up() -> None:
    graph: Any = StateGraph(ReASCMiddleware(max_run_tokens=1).state_schema)
    for name in ("one", "two"):
        graph.add_node(name, lambda state: {"reasc_spent": {"tokens": 3, "samples": 1, "seconds": 0.5}})
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    assert graph.compile().invoke({"messages": []})["reasc_spent"] == {"tokens": 6, "samples": 2, "seconds": 1.0}
