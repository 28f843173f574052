"""A call whose arguments are no JSON object never runs and is not voted for: it stays what ``invoke`` makes of it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, message_chunk_to_message
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langchain_reasc_openai import ChatOpenAICompatible
from pydantic import BaseModel
from runnable.conftest import AsyncRunner, Runner
from runnable.fakes import Reply, Scripted
from servers.chat_wire import Calling
from servers.fake_server import serving

from agents.acting import acting, calls
from agents.provider_steps import Anthropic
from langchain_reasc import ASC, ChatReASC, ReASCMiddleware, ReASCRunnable

pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
ran: list[dict[str, Any]] = []
BY_ASC: dict[str, Any] = {"rule": ASC(), "max_samples": 4, "concurrency": 2}
GOOD = '{"folder": "/tmp/x", "force": true}'
HALF = '{"folder": "/tm'
MALFORMED = [
    HALF,
    '{"folder": "/tmp/x"',
    "{folder: /tmp/x",
    "{",
    '{"folder": "/tmp/x"}{"folder": "/tmp/y"}',
    '{"folder": "/tmp/x"} and so on',
    "[1]",
    "5",
]


@tool
def remove(folder: str = "/", force: bool = False) -> str:
    """Remove a folder."""
    ran.append({"folder": folder, "force": force})
    return "removed"


class Removal(BaseModel):
    """What is removed."""

    folder: str = "/"
    force: bool = False


@pytest.fixture(autouse=True)
def nothing_has_run() -> Iterator[None]:
    ran.clear()
    yield


def saying(*args: str) -> Calling:
    """Request i calls the tool with the i-th arguments, the last ones for all beyond."""
    return Calling(calls=lambda at: [("remove", args[min(at, len(args) - 1)])], finish="tool_calls")


def openai(url: str, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", base_url=url, api_key="none", max_retries=0, **fields)  # type: ignore[arg-type]


def compatible(url: str) -> ChatOpenAICompatible:
    return ChatOpenAICompatible(model="m", base_url=url, preset="openai", api_key="none")


def with_fallback(url: str) -> Any:
    return openai(url, streaming=True).with_fallbacks([openai(url)])


def other(name: str, url: str) -> Any:
    """A model of LangChain's package for another provider."""
    package, _, kind = name.rpartition(".")
    return getattr(pytest.importorskip(package), kind)(model="m", base_url=url, api_key="none")


Ask = Callable[[Any, Any], AIMessage]
"""(runner, model) -> what the agent's model said at last."""
QUESTION = {"messages": [HumanMessage("clean up")]}


def said(state: Any) -> AIMessage:
    return next(message for message in reversed(state["messages"]) if isinstance(message, AIMessage))


def invoked(runner: Any, model: Any) -> AIMessage:
    return said(runner.invoke(create_agent(ChatReASC(model=model, **BY_ASC), [remove]), QUESTION))


def by_middleware(runner: Any, model: Any) -> AIMessage:
    agent = create_agent(model, [remove], middleware=[ReASCMiddleware(**BY_ASC)])
    return said(runner.invoke(agent, QUESTION))


def streamed_by_agent(runner: Any, model: Any) -> AIMessage:
    """Someone listens to tokens, so that LangGraph makes every call of a model a stream."""
    agent = create_agent(ChatReASC(model=model, **BY_ASC), [remove])
    *_, (_, state) = runner.stream(agent, QUESTION, stream_mode=["messages", "values"])
    return said(state)


def by_events(runner: Any, model: Any) -> AIMessage:
    """Chunks become events of version 3, and those the message whose calls run."""
    agent = create_agent(ChatReASC(model=model, **BY_ASC), [remove])

    async def collected() -> Any:
        run = await agent.astream_events(QUESTION, version="v3")
        return await run.output()

    return said(asyncio.run(collected()) if runner.is_async else agent.stream_events(QUESTION, version="v3").output)


def calls_run(message: Any) -> AIMessage:
    for call in message.tool_calls:
        remove.invoke(call["args"])
    return message  # type: ignore[no-any-return]


def streamed(runner: Any, model: Any) -> AIMessage:
    """Chunks that are added up by whoever reads them, and whose calls are then run."""
    first, *rest = runner.stream(ChatReASC(model=model, **BY_ASC).bind_tools([remove]), "clean up")
    return calls_run(message_chunk_to_message(sum(rest, first)))


def by_runnable(runner: Any, model: Any) -> AIMessage:
    runnable = ReASCRunnable(model=model.bind_tools([remove]), answer="message", **BY_ASC)
    return calls_run(runner.invoke(runnable, "clean up"))


FACES = [invoked, by_middleware, streamed_by_agent, by_events, streamed, by_runnable]
RUNNERS = [Runner(), AsyncRunner()]
CASES = [(FACES[at % 6], args, RUNNERS[at % 2]) for at, args in enumerate(MALFORMED)]
CASES += [(ask, HALF, RUNNERS[(at + 1) % 2]) for at, ask in enumerate(FACES)]  # each face is called in both ways


@pytest.mark.parametrize(("ask", "args", "runner"), CASES)
def test_a_malformed_call_does_not_run(ask: Ask, args: str, runner: Any) -> None:
    with serving(saying(args)) as served:
        message = ask(runner, openai(served.url))
    assert ran == [] and message.tool_calls == []
    [call] = message.invalid_tool_calls
    assert call["name"] == "remove" and call["args"] is not None and call["args"].endswith(args)
    account = message.response_metadata["reasc"]
    assert account["answer"] is None
    assert any("invalid tool calls (3)" in notice for notice in account["notices"])


@pytest.mark.parametrize(("ask", "runner"), [(invoked, RUNNERS[1]), (by_events, RUNNERS[0]), (streamed, RUNNERS[1])])
def test_nor_does_one_that_stands_in_additional_kwargs_too(ask: Ask, runner: Any) -> None:
    with serving(saying(HALF)) as served:
        message = ask(runner, other("langchain_groq.ChatGroq", served.url.removesuffix("/v1")))
    assert ran == [] and message.tool_calls == []
    assert [(call["args"] or "").removeprefix("]") for call in message.invalid_tool_calls] == [HALF]


@pytest.mark.parametrize(("ask", "runner"), [(by_events, RUNNERS[1]), (streamed_by_agent, RUNNERS[0])])
@pytest.mark.parametrize(("args", "runs"), [([HALF], 0), (["[1]"], 0), ([HALF, GOOD], 1)])
def test_a_malformed_call_in_blocks_of_content_does_not_run(ask: Ask, runner: Any, args: list[str], runs: int) -> None:
    wire = Anthropic()
    uses = [{"type": "tool_use", "id": f"toolu_{at}", "name": "remove", "input": one} for at, one in enumerate(args)]
    wire.step = [{"type": "text", "text": "I remove it."}, *uses]  # type: ignore[misc]
    with serving(wire) as served:
        message = ask(runner, other("langchain_anthropic.ChatAnthropic", served.url.removesuffix("/v1")))
    assert ran == [{"folder": "/tmp/x", "force": True}] * runs
    if not runs:
        assert [(call["args"] or "").removeprefix("]") for call in message.invalid_tool_calls] == args
        assert (message.tool_calls, message.text) == ([], "I remove it.")


@pytest.mark.parametrize(
    ("ask", "make"),
    [(invoked, openai), (by_middleware, compatible), (streamed, openai), (by_events, with_fallback)],
)
def test_malformed_calls_do_not_outvote_a_valid_one(runner: Any, ask: Ask, make: Callable[[str], Any]) -> None:
    with serving(saying(HALF, HALF, GOOD, HALF)) as served:
        ask(runner, make(served.url))
    assert ran == [{"folder": "/tmp/x", "force": True}]


@pytest.mark.parametrize("args", ["", "{}", "null", " \n", "None"])
def test_no_arguments_are_the_tools_defaults_as_in_plain_langchain(args: str) -> None:
    with serving(saying(args)) as served:
        invoked(RUNNERS[0], openai(served.url))
    assert ran == [{"folder": "/", "force": False}]


def test_of_calls_at_once_the_malformed_one_casts_no_vote() -> None:
    both = Calling(calls=lambda at: [("remove", GOOD), ("remove", GOOD if at > 1 else HALF)])
    with serving(both) as served:
        invoked(RUNNERS[0], openai(served.url))
    assert len(ran) == 2


@pytest.mark.parametrize("face", [lambda model: model, lambda model: ChatReASC(model=model, **BY_ASC)])
def test_structured_output_by_a_tool_is_not_made_of_half_a_call(runner: Any, face: Any) -> None:
    half = Calling(calls=lambda at: [("Removal", HALF if at < 4 else GOOD)])
    method: dict[str, Any] = {"method": "function_calling", "include_raw": True}
    with serving(half) as served:
        found = runner.invoke(face(openai(served.url)).with_structured_output(Removal, **method), "clean up")
    assert found["parsed"] is None
    with serving(half) as served:  # LangChain's agents ask again until there is some
        agent = create_agent(face(openai(served.url)), [], response_format=ToolStrategy(Removal))
        assert runner.invoke(agent, QUESTION)["structured_response"] == Removal(folder="/tmp/x", force=True)


class WithoutIndex(Scripted):
    """Sends a call in pieces that have no index. The first has a name alone, and would be a call with the defaults."""

    def _calls(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        for name, arguments in reply.calls:
            pieces = [(name, ""), *((None, piece) for piece in (arguments[:9], arguments[9:]))]
            for at, (named, piece) in enumerate(pieces):
                call = tool_call_chunk(name=named, args=piece, id=None if at else f"call-{key[1]}")
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


@pytest.mark.parametrize(("args", "runs"), [(GOOD, 1), (HALF, 0)])
def test_pieces_without_an_index_are_one_call(runner: Any, args: str, runs: int) -> None:
    message = invoked(runner, acting({"clean up": [calls(("remove", args))], "": ["done"]}, WithoutIndex))
    assert ran == [{"folder": "/tmp/x", "force": True}] * runs
    assert [call["args"] for call in message.invalid_tool_calls] == ([] if runs else [args])
