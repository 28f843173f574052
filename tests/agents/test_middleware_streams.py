"""One model call to whoever counts, draws runs or watches a stream; candidates show in none of them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tracers.schemas import Run
from runnable.fakes import Scripted

from agents.acting import ASKED, BY_ASC, SUNNY, Agents, agent_of, billed, samples_of, spent_on, two_cities
from agents.test_accounting import Counted, Tree, langsmith_total
from langchain_reasc import ReASCMiddleware

INPUT = {"messages": [HumanMessage(ASKED)]}
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


def runs(tree: Tree) -> Iterator[Run]:
    waiting = list(tree.roots)
    while waiting:
        run = waiting.pop(0)
        yield run
        waiting[:0] = run.child_runs


class Telling(Scripted):
    """A model that is asked for logprobs by whoever made it, and not by ReASC alone."""

    logprobs: bool = True
    top_logprobs: int = 2


def test_a_step_is_one_model_run_and_every_counter_counts_its_samples_once(agents: Agents) -> None:
    model, usage, tree, counted = two_cities(), UsageMetadataCallbackHandler(), Tree(), Counted()
    state = agents.ask(agent_of(model, ReASCMiddleware(**BY_ASC)), config={"callbacks": [usage, tree, counted]})
    assert samples_of(state) == [7, 1]
    assert usage.usage_metadata["scripted"]["total_tokens"] == spent_on(state) == billed(model)
    assert sum(map(langsmith_total, tree.roots)) == billed(model)
    assert (counted.starts, counted.ends) == (2, 2)
    models = [run for run in runs(tree) if run.run_type == "llm"]
    assert [[child.run_type for child in run.child_runs] for run in models] == [["chain"] * 7, ["chain"]]
    assert all(run.end_time for run in runs(tree))
    assert [run.name for run in models] == ["ChatReASC", "ChatReASC"]
    assert {run.extra["metadata"]["ls_model_name"] for run in models} == {"scripted"}


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_stream_of_messages_has_the_winners_alone(agents: Agents, concurrency: int) -> None:
    agent = agent_of(two_cities(), ReASCMiddleware(concurrency=concurrency))
    chunks = [chunk for chunk, _ in agents.stream(agent, stream_mode="messages")]
    said = [chunk for chunk in chunks if isinstance(chunk, AIMessage)]
    assert all(isinstance(chunk, AIMessageChunk) for chunk in said)
    assert [call["args"] for chunk in said for call in chunk.tool_call_chunks] == ['{"city": "Paris"}']
    assert "".join(chunk.text for chunk in said) == f"calling{SUNNY}"
    assert [chunk.response_metadata["reasc"]["launched"] > 1 for chunk in said if chunk.usage_metadata] == [True, False]


def test_the_events_of_version_3_have_the_winners_and_lose_no_logprobs(agents: Agents) -> None:
    model = two_cities(Telling)
    agent = agent_of(model, ReASCMiddleware(**BY_ASC))

    async def collected() -> list[Any]:
        return [event async for event in await agent.astream_events(INPUT, version="v3")]

    events = asyncio.run(collected()) if agents.is_async else list(agent.stream_events(INPUT, version="v3"))
    told = [event["params"]["data"][0] for event in events if event["method"] == "messages"]
    finished = [event for event in told if event["event"] == "message-finish"]
    blocks = [event["content"] for event in told if event["event"] == "content-block-finish"]
    assert [block["args"] for block in blocks if block["type"] == "tool_call"] == [{"city": "Paris"}]
    assert [event["metadata"]["reasc"]["launched"] for event in finished] == [7, 1]
    assert sum(event["usage"]["total_tokens"] for event in finished) == billed(model)
    [last] = [event["params"]["data"] for event in events if event["method"] == "values"][-1:]
    winner = last["messages"][1]
    assert winner.response_metadata["logprobs"]["content"][0]["token"] == "calling"
