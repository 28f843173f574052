"""Whoever counts tokens counts them once, and whoever shows runs shows the samples."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tracers import context
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from runnable.fakes import PROMPT_TOKENS, Reply, saying
from sampling.tracers import Kept

from langchain_reasc import ChatReASC

pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
ANSWERS = ("1", "2", "1", "1", "1", "1")
CONFIG_FREE: dict[str, Any] = {"answer": "auto", "max_samples": 8}


class Tree(BaseTracer):
    """Keeps the run trees, as a tracer that sends them somewhere would."""

    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Run] = []

    def _persist_run(self, run: Run) -> None:
        self.roots.append(run)


class Counted(BaseCallbackHandler):
    """Model calls that a handler hears of."""

    run_inline = True

    def __init__(self) -> None:
        self.starts = self.ends = self.tokens = 0

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.starts += 1

    def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self.ends += 1

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> None:
        self.tokens += 1


def langsmith_total(run: Run) -> int:
    """Tokens of a run tree as LangSmith adds them up: those of all model runs."""
    own = 0
    if run.run_type == "llm":
        [[generation]] = (run.outputs or {})["generations"]
        own = generation["message"]["kwargs"]["usage_metadata"]["total_tokens"]
    return own + sum(map(langsmith_total, run.child_runs))


def summed(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    return sum(chunks[1:], chunks[0])


def by_generate(chat: ChatReASC, config: Any) -> Any:
    [[generation]] = chat.generate([[HumanMessage("q")]], **config).generations
    return generation.message  # type: ignore[union-attr]


def by_events(chat: ChatReASC, config: Any) -> AIMessage:
    async def last() -> Any:
        return [event async for event in chat.astream_events("q", config, version="v2")][-1]

    return asyncio.run(last())["data"]["output"]  # type: ignore[no-any-return]


async def astreamed(chat: ChatReASC, config: Any) -> list[AIMessageChunk]:
    return [chunk async for chunk in chat.astream("q", config)]


async def by_async_v3(chat: ChatReASC, config: Any) -> Any:
    stream = await chat.astream_events("q", config, version="v3")
    output = await stream.output
    await stream._producer_task  # which tells the handlers after that
    return output


WAYS: dict[str, Callable[[ChatReASC, Any], Any]] = {
    "invoke": lambda chat, config: chat.invoke("q", config),
    "ainvoke": lambda chat, config: asyncio.run(chat.ainvoke("q", config)),
    "stream": lambda chat, config: summed(list(chat.stream("q", config))),
    "astream": lambda chat, config: summed(asyncio.run(astreamed(chat, config))),
    "batch": lambda chat, config: chat.batch(["q"], config)[0],
    "generate": by_generate,
    "astream_events v2": by_events,
    "stream_events v3": lambda chat, config: chat.stream_events("q", config, version="v3").output,
    "astream_events v3": lambda chat, config: asyncio.run(by_async_v3(chat, config)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_handler_counts_what_was_billed_once(way: Callable[[ChatReASC, Any], Any]) -> None:
    model = saying(*ANSWERS)
    chat = ChatReASC(model=model, **CONFIG_FREE)
    tree, handler, calls = Tree(), UsageMetadataCallbackHandler(), Counted()
    config = {"callbacks": [tree, handler, calls], "tags": ["mine"], "metadata": {"user": 7}}
    with get_usage_metadata_callback() as everywhere:
        message = way(chat, config)
    generated = sum(model.log.tokens.values())
    launched = len(model.log.calls)
    billed = {"input_tokens": PROMPT_TOKENS * launched, "output_tokens": generated}
    assert message.usage_metadata.items() >= billed.items()
    assert handler.usage_metadata["scripted"].items() >= billed.items()
    assert everywhere.usage_metadata["scripted"].items() >= billed.items()
    assert message.response_metadata["reasc"]["launched"] == launched == 8
    assert calls.starts == calls.ends == 1

    [root] = tree.roots
    assert (root.run_type, root.name, root.error) == ("llm", "ChatReASC", None)
    assert langsmith_total(root) == PROMPT_TOKENS * launched + generated
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
    assert (inside.starts, inside.ends) == (1, 1)
    assert (bound.starts, bound.ends) == (1, 1)


def test_a_stream_tells_handlers_its_chunks_and_no_candidate(runner: Any) -> None:
    calls = Counted()
    chunks = runner.stream(ChatReASC(model=saying(*ANSWERS), **CONFIG_FREE), "q", {"callbacks": [calls]})
    assert "".join(str(chunk.text) for chunk in chunks) == "the answer is 1"
    assert calls.tokens == len(chunks)
    assert len({chunk.id for chunk in chunks}) == 1 and chunks[-1].chunk_position == "last"


def test_tracing_that_is_on_everywhere_hears_no_sample_twice(runner: Any) -> None:
    Kept.sent.clear()
    tracer = Kept()
    token = context.tracing_v2_callback_var.set(tracer)
    try:
        runner.invoke(ChatReASC(model=saying(*ANSWERS), **CONFIG_FREE), "q")
    finally:
        context.tracing_v2_callback_var.reset(token)
    assert [run.run_type for run in tracer.sent] == ["llm", *["chain"] * 8]


def test_cut_off_samples_are_counted_and_marked(runner: Any) -> None:
    model = saying("1", Reply("the answer is 1", endless=True, usage=False))
    chat = ChatReASC(model=model, answer="auto", max_samples=4, timeout=0.4)
    message = runner.invoke(chat, "q")
    assert message.response_metadata["usage_estimated"] is True
    assert message.response_metadata["reasc"]["tokens"]["estimated"] is True
    assert message.usage_metadata["output_tokens"] > 4
