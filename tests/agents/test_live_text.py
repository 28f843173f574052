"""A text that needs no vote is streamed as it comes; what may be put to the vote is not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.runnables import ConfigurableField
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted, saying

from agents.acting import agent_of, get_weather
from agents.test_accounting import summed
from agents.test_middleware_streams import Telling
from langchain_reasc import ChatReASC, ReASCMiddleware
from langchain_reasc.exceptions import SampleTimeout

INPUT = {"messages": [HumanMessage("q")]}
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


def words_of_chunks(stream: Iterator[Any]) -> Iterator[str]:
    return (chunk.text for chunk in stream)


def words_of_events(events: Iterator[Any]) -> Iterator[str]:
    for event in events:
        if event["event"] == "content-block-delta":
            yield event["delta"]["text"]


async def awords(model: Any) -> AsyncIterator[str]:
    async for chunk in model.astream("q"):
        yield chunk.text


async def awords_of_events(model: Any) -> AsyncIterator[str]:
    async for event in model.astream_events("q", version="v2"):
        if event["event"] == "on_chat_model_stream":
            yield event["data"]["chunk"].text


async def awords_of_events_v3(model: Any) -> AsyncIterator[str]:
    async for event in await model.astream_events("q", version="v3"):
        if event["event"] == "content-block-delta":
            yield event["delta"]["text"]


async def awords_of_agent(model: Any) -> AsyncIterator[str]:
    async for chunk, _ in agent_of(model, tools=()).astream(INPUT, stream_mode="messages"):
        yield chunk.text


def words_of_agent(agent: Any) -> Iterator[str]:
    return (chunk.text for chunk, _ in agent.stream(INPUT, stream_mode="messages"))


def through_middleware(model: ChatReASC, **options: Any) -> Iterator[str]:
    return words_of_agent(agent_of(model.model, ReASCMiddleware(**options), tools=()))


WAYS: dict[str, Callable[[Any], Any]] = {
    "stream": lambda chat: words_of_chunks(chat.stream("q")),
    "stream_events v3": lambda chat: words_of_events(iter(chat.stream_events("q", version="v3"))),
    "agent, messages": lambda chat: words_of_agent(agent_of(chat, tools=())),
    "middleware": through_middleware,
    "middleware with read_only": lambda chat: through_middleware(chat, read_only=["search"]),
    "middleware with a budget": lambda chat: through_middleware(chat, max_run_tokens=1000),
    "tools that may not be called": lambda chat: words_of_chunks(
        chat.bind_tools([get_weather], tool_choice="none").stream("q")
    ),
    "astream": awords,
    "astream_events v2": awords_of_events,
    "astream_events v3": awords_of_events_v3,
    "agent, messages, async": awords_of_agent,
}


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "bound": lambda model: model.bind(stop=["END"]).with_config(tags=["mine"]),
    "retried": lambda model: model.with_retry(),
    "with fallbacks": lambda model: model.with_fallbacks([saying("2")]),
    "configurable": lambda model: model.configurable_fields(temperature=ConfigurableField(id="temperature")),
}
CASES = [(way, lambda model: model) for way in WAYS.values()] + [(WAYS["stream"], wrap) for wrap in WRAPPED.values()]


@pytest.mark.parametrize(("way", "wrap"), CASES, ids=[*WAYS, *WRAPPED])
def test_each_token_passes_before_the_next_one_is_made(way: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> None:
    gate = threading.Event()
    model = saying(Reply("one two three", opens=gate, wait_at=1))
    words = way(ChatReASC(model=wrap(model)))
    heard: list[str] = []

    def hear(word: str) -> None:
        heard.append(word)
        gate.set()  # for the second token, which is so made after the first was heard

    async def main() -> None:
        async for word in words:
            hear(word)

    if isinstance(words, AsyncIterator):
        asyncio.run(main())
    else:
        for word in words:
            hear(word)
    assert "".join(heard) == "one two three"
    assert heard[:3] == ["one", " two", " three"]
    assert len(model.log.calls) == 1


def test_the_chunks_are_the_message_that_invoke_gives(runner: Any) -> None:
    usage = UsageMetadataCallbackHandler()
    whole = summed(runner.stream(ChatReASC(model=saying("1")), "q", {"callbacks": [usage]}))
    message = runner.invoke(ChatReASC(model=saying("1")), "q")
    assert (whole.content, whole.usage_metadata) == (message.content, message.usage_metadata)
    assert whole.response_metadata == message.response_metadata
    assert whole.response_metadata["reasc"]["reason"] == "alone"
    assert usage.usage_metadata["scripted"]["total_tokens"] == message.usage_metadata["total_tokens"]


@pytest.mark.parametrize(("kind", "kept"), [(Scripted, False), (Telling, True)])
def test_logprobs_pass_where_the_user_asked_for_them(runner: Any, kind: type[Scripted], kept: bool) -> None:
    chunks = runner.stream(ChatReASC(model=kind(script=lambda question, index: Reply("one two"))), "q")
    assert ["logprobs" in chunk.response_metadata for chunk in chunks] == [kept, kept, False, False]


@pytest.mark.parametrize(
    "chat",
    [
        ChatReASC(model=saying("1")).bind_tools([get_weather]),
        ChatReASC(model=saying("1").bind_tools([get_weather])),
        ChatReASC(model=saying("1").bind(model_kwargs={"tools": [{"type": "web_search"}]})),
        ChatReASC(model=saying("1").bind(response_format={"type": "json_object"})),
        ChatReASC(model=saying("1"), when=lambda first: False),
        ChatReASC(model=saying("1"), answer="auto"),
        ChatReASC(model=saying("1"), ask_confidence=True),
    ],
    ids=["tools", "bound before", "set before", "structure", "when", "answer", "stated confidence"],
)
def test_what_may_be_voted_on_passes_when_it_is_known(runner: Any, chat: Any) -> None:
    [chunk] = runner.stream(chat, "q")
    assert chunk.text == "the answer is 1"


def test_a_failure_in_the_middle_is_the_model_s_own(runner: Any) -> None:
    """Another sample cannot go on where this one broke off."""
    error, spent = ConnectionError("gone"), list[tuple[int, int]]()
    model = saying(Reply("one two", error=error), "2")
    chat = ChatReASC(model=model, on_spent=lambda *counts: spent.append(counts))
    heard: list[str] = []

    def read() -> None:
        for chunk in chat.stream("q"):
            heard.append(chunk.text)

    async def aread() -> None:
        async for chunk in chat.astream("q"):
            heard.append(chunk.text)

    with pytest.raises(ConnectionError) as raised:
        runner.run(aread()) if runner.is_async else read()
    assert raised.value is error
    assert heard == ["one", " two"]
    [(tokens, samples)] = spent
    assert samples == 1 and tokens > 0


def test_a_time_limit_ends_it_in_the_middle(runner: Any) -> None:
    gate = threading.Event()
    chat = ChatReASC(model=saying(Reply("one two three", opens=gate, wait_at=1)), sample_timeout=0.2)
    with pytest.raises(SampleTimeout, match=r"sample_timeout=0.2"):
        runner.stream(chat, "q")
    gate.set()


def test_calls_that_nobody_offered_are_voted_on(runner: Any) -> None:
    """The text before them has passed; the calls are those that have won."""
    rome, paris = (Reply("let me see", calls=(("get_weather", {"city": city}),)) for city in ("Rome", "Paris"))
    whole = summed(runner.stream(ChatReASC(model=saying(rome, *[paris] * 9), concurrency=1), "q"))
    assert whole.text == "let me see"
    assert [call["args"] for call in whole.tool_calls] == [{"city": "Paris"}]
    assert whole.response_metadata["reasc"]["samples"] > 4
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["input_tokens"] == PROMPT_TOKENS * whole.response_metadata["reasc"]["launched"]
