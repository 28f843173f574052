"""LangGraph's stream of messages shows the answer, and no candidate."""

import asyncio
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from servers.fake_server import serving

from langchain_reasc import Measure, ReASCRunnable

from .providers import PROVIDERS

graph = pytest.importorskip("langgraph.graph")
ASKED = {"messages": [("human", "q")]}


def app(call: Any, acall: Any) -> Any:
    """A graph of one node, whose message comes of a call."""

    def node(state: Any) -> Any:
        return {"messages": [call(state["messages"])]}

    async def anode(state: Any) -> Any:
        return {"messages": [await acall(state["messages"])]}

    built = graph.StateGraph(graph.MessagesState)
    built.add_node("answer", RunnableLambda(node, anode))
    built.add_edge(graph.START, "answer")
    return built.compile()


async def collected(stream: Any) -> list[Any]:
    return [shown async for shown in stream]


@pytest.mark.parametrize(("name", "is_async"), [("ChatOpenAI", False), ("ChatOllama", True)])
def test_candidates_are_not_shown(name: str, is_async: bool) -> None:
    with serving(PROVIDERS[name].wire) as served:
        reasc = ReASCRunnable(model=PROVIDERS[name].model(served.root))
        runs = app(reasc.invoke, reasc.ainvoke)
        if is_async:
            shown = asyncio.run(collected(runs.astream(ASKED, stream_mode="messages")))
        else:
            shown = list(runs.stream(ASKED, stream_mode="messages"))
        assert len(served.requests) == 4
    assert [message.content for message, _ in shown] == ["the answer is 42"]


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.parametrize(("wrapped", "is_async"), [(False, False), (True, False), (True, True)])
def test_events_of_the_third_version_lose_no_logprobs(wrapped: bool, is_async: bool) -> None:
    """LangChain's bridge for them overwrites the metadata of earlier chunks where a model is invoked, not streamed."""
    results: list[Any] = []

    async def consumed(runs: Any) -> list[Any]:
        return await collected(await runs.astream_events(ASKED, version="v3"))

    with serving(PROVIDERS["ChatOpenAI"].wire) as served:
        model = PROVIDERS["ChatOpenAI"].model(served.root)
        measure = Measure("top_k", "mean")
        reasc = ReASCRunnable(model=model.with_retry() if wrapped else model, calibration="mixture", confidence=measure)

        def call(messages: Any) -> Any:
            results.append(reasc.solve(messages))
            return results[-1].message

        async def acall(messages: Any) -> Any:
            results.append(await reasc.asolve(messages))
            return results[-1].message

        runs = app(call, acall)
        assert asyncio.run(consumed(runs)) if is_async else list(runs.stream_events(ASKED, version="v3"))
    [result] = results
    assert [response.score is None for response in result.responses] == [False] * 4
    told = [response.message.response_metadata["logprobs"]["content"] for response in result.responses]
    assert [len(tokens) for tokens in told] == [4] * 4
