"""Whoever counts tokens counts them once, whoever shows runs shows the samples, and no run stays open."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tracers import context
from langchain_core.tracers.schemas import Run
from runnable.conftest import cancelled
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted, saying
from sampling.tracers import Kept

from agents.acting import (
    ASKED,
    BY_ASC,
    Agents,
    Counted,
    Tree,
    acting,
    agent_of,
    billed,
    langsmith_total,
    samples_of,
    spent_on,
    two_cities,
    weather,
)
from langchain_reasc import ChatReASC, ReASCMiddleware

pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
ANSWERS = ("1", "2", "1", "1", "1", "1")
CONFIG_FREE: dict[str, Any] = {"answer": "auto", "max_samples": 8}


def by_generate(chat: ChatReASC, config: Any) -> Any:
    [[generation]] = chat.generate([[HumanMessage("q")]], **config).generations
    return generation.message  # type: ignore[union-attr]


async def by_astream(chat: ChatReASC, config: Any) -> Any:
    first, *chunks = [chunk async for chunk in chat.astream("q", config)]
    return sum(chunks, first)


async def by_events(chat: ChatReASC, config: Any) -> Any:
    return [event async for event in chat.astream_events("q", config, version="v2")][-1]["data"]["output"]


async def by_async_v3(chat: ChatReASC, config: Any) -> Any:
    stream = await chat.astream_events("q", config, version="v3")
    output = await stream.output
    await stream._producer_task  # which tells the handlers after that
    return output


WAYS: dict[str, Callable[[ChatReASC, Any], Any]] = {
    "invoke": lambda chat, config: chat.invoke("q", config),
    "ainvoke": lambda chat, config: chat.ainvoke("q", config),
    "astream": by_astream,
    "batch": lambda chat, config: chat.batch(["q"], config)[0],
    "generate": by_generate,
    "astream_events v2": by_events,
    "stream_events v3": lambda chat, config: chat.stream_events("q", config, version="v3").output,
    "astream_events v3": by_async_v3,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_handler_counts_what_was_billed_once(way: str) -> None:
    model = saying(*ANSWERS)
    chat = ChatReASC(model=model, **CONFIG_FREE)
    tree, handler, calls = Tree(), UsageMetadataCallbackHandler(), Counted()
    config = {"callbacks": [tree, handler, calls], "tags": ["mine"], "metadata": {"user": 7}}
    with get_usage_metadata_callback() as everywhere:
        given = WAYS[way](chat, config)
        message = asyncio.run(given) if asyncio.iscoroutine(given) else given
    launched = len(model.log.calls)
    counted = {"input_tokens": PROMPT_TOKENS * launched, "output_tokens": sum(model.log.tokens.values())}
    for usage in (message.usage_metadata, handler.usage_metadata["scripted"], everywhere.usage_metadata["scripted"]):
        assert usage.items() >= counted.items()
    assert message.response_metadata["reasc"]["launched"] == launched == 5
    assert calls.starts == calls.ends == 1

    [root] = tree.roots
    assert (root.run_type, root.name, root.error) == ("llm", "ChatReASC", None)
    assert langsmith_total(root) == billed(model)
    assert root.extra["metadata"].items() >= {"ls_model_name": "scripted", "ls_model_type": "chat", "user": 7}.items()
    assert [run.run_type for run in root.child_runs] == ["chain"] * launched
    assert {run.name for run in root.child_runs} == {"Scripted sample"}
    assert all({"mine", "nostream"} <= set(run.tags or []) for run in root.child_runs)
    for run in root.child_runs:  # those of the last wave may have been cut off
        [index] = [int(tag.rpartition(":")[2]) for tag in run.tags or [] if tag.startswith("reasc:sample:")]
        assert model.script("q", index).text.startswith(str((run.outputs or {})["output"].text))
    assert all(run.end_time for run in root.child_runs)


def test_handlers_set_on_the_model_inside_hear_of_the_vote_once(runner: Any) -> None:
    inside, bound = Counted(), Counted()
    model = saying(*ANSWERS).model_copy(update={"callbacks": [inside]})
    runner.invoke(ChatReASC(model=model.with_config(callbacks=[bound]), **CONFIG_FREE), "q")
    assert (inside.starts, inside.ends) == (bound.starts, bound.ends) == (1, 1)


def test_tracing_that_is_on_everywhere_hears_no_sample_twice(runner: Any) -> None:
    Kept.sent.clear()
    tracer = Kept()
    token = context.tracing_v2_callback_var.set(tracer)
    try:
        runner.invoke(ChatReASC(model=saying(*ANSWERS), **CONFIG_FREE), "q")
    finally:
        context.tracing_v2_callback_var.reset(token)
    assert [run.run_type for run in tracer.sent] == ["llm", *["chain"] * 5]


@pytest.mark.full
def test_cut_off_samples_are_counted_and_marked(runner: Any) -> None:
    model = saying("1", Reply("the answer is 1", endless=True, usage=False))
    message = runner.invoke(ChatReASC(model=model, answer="auto", max_samples=4, timeout=1.0), "q")
    assert message.response_metadata["usage_estimated"] is True
    assert message.response_metadata["reasc"]["tokens"]["estimated"] is True
    assert message.usage_metadata["output_tokens"] > 4


def runs_of(tree: Tree) -> Iterator[Run]:
    waiting = list(tree.roots)
    while waiting:
        run = waiting.pop(0)
        yield run
        waiting[:0] = run.child_runs


def test_a_step_of_an_agent_is_one_model_run_and_its_samples_are_counted_once(agents: Agents) -> None:
    model, usage, tree, counted = two_cities(), UsageMetadataCallbackHandler(), Tree(), Counted()
    state = agents.ask(agent_of(model, ReASCMiddleware(**BY_ASC)), config={"callbacks": [usage, tree, counted]})
    assert samples_of(state) == [7, 1]
    assert usage.usage_metadata["scripted"]["total_tokens"] == spent_on(state) == billed(model)
    assert sum(map(langsmith_total, tree.roots)) == billed(model)
    assert (counted.starts, counted.ends) == (2, 2)
    models = [run for run in runs_of(tree) if run.run_type == "llm"]
    assert [[child.run_type for child in run.child_runs] for run in models] == [["chain"] * 7, ["chain"]]
    assert [(run.name, run.extra["metadata"]["ls_model_name"]) for run in models] == [("ChatReASC", "scripted")] * 2
    assert all(run.end_time for run in runs_of(tree))


@pytest.mark.parametrize(
    ("method", "answer", "samples"), [("ainvoke", "auto", 4), ("astream", "auto", 4), ("astream", "message", 1)]
)
def test_a_cancelled_call_ends_its_run_and_its_samples(method: str, answer: Any, samples: int) -> None:
    """A text of which no vote is taken is streamed as it comes."""
    model = Scripted(script=lambda question, index: Reply("the answer is", endless=True))
    chat, tree = ChatReASC(model=model, answer=answer), Tree()
    config: Any = {"callbacks": [tree]}

    async def asked() -> AIMessage:
        return await (by_astream(chat, config) if method == "astream" else chat.ainvoke("q", config))

    cancelled(asked, lambda: model.log.live >= samples and model.log.tokens.total() > 3)
    assert model.log.live == 0
    [root] = tree.roots
    assert "CancelledError" in str(root.error)
    assert [run.run_type for run in root.child_runs] == ["chain"] * samples
    assert all(run.end_time and run.error for run in root.child_runs)


def test_a_cancelled_step_of_an_agent_closes_its_samples_and_its_runs() -> None:
    never, tree = threading.Event(), Tree()
    model = acting({ASKED: [weather("Rome"), weather("Paris", opens=never)]})
    agent, asked = agent_of(model, ReASCMiddleware(concurrency=4)), {"messages": [HumanMessage(ASKED)]}
    cancelled(lambda: agent.ainvoke(asked, {"callbacks": [tree]}), lambda: model.log.live == 3)
    assert model.log.live == 0
    assert tree.run_map == {} and len(tree.roots) == 1
