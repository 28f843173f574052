"""LangGraph's stream of messages shows the answer, and no candidate."""

import asyncio
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

from langchain_reasc import ReASCRunnable

from .providers import PROVIDERS
from .wire_server import serving

graph = pytest.importorskip("langgraph.graph")
NAMES = ["ChatOpenAI", "ChatFireworks", "ChatOllama"]


def app(reasc: ReASCRunnable) -> Any:
    def node(state: Any) -> Any:
        return {"messages": [reasc.invoke(state["messages"])]}

    async def anode(state: Any) -> Any:
        return {"messages": [await reasc.ainvoke(state["messages"])]}

    built = graph.StateGraph(graph.MessagesState)
    built.add_node("answer", RunnableLambda(node, anode))
    built.add_edge(graph.START, "answer")
    return built.compile()


async def collected(stream: Any) -> list[Any]:
    return [shown async for shown in stream]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_candidates_are_not_shown(name: str, is_async: bool) -> None:
    with serving(PROVIDERS[name].wire) as served:
        runs = app(ReASCRunnable(model=PROVIDERS[name].model(served.url)))
        asked = {"messages": [("human", "q")]}
        if is_async:
            shown = asyncio.run(collected(runs.astream(asked, stream_mode="messages")))
        else:
            shown = list(runs.stream(asked, stream_mode="messages"))
        assert len(served.requests) == 4
    assert [message.content for message, _ in shown] == ["the answer is 42"]
