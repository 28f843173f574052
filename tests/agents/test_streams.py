"""A text that needs no vote is streamed as it comes; of what is put to the vote, the winner alone is streamed."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import ConfigurableField, RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted, calibration, saying

from agents.acting import (
    ASKED,
    BY_ASC,
    SUNNY,
    Agents,
    Counted,
    Telling,
    Tree,
    acting,
    agent_of,
    billed,
    get_weather,
    two_cities,
)
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.exceptions import SampleTimeout

INPUT = {"messages": [HumanMessage("q")]}
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


def summed(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    return sum(chunks[1:], chunks[0])


# What is streamed as it comes


def words_of_chunks(stream: Iterator[Any]) -> Iterator[str]:
    return (chunk.text for chunk in stream)


def words_of_events(events: Iterator[Any]) -> Iterator[str]:
    return (event["delta"]["text"] for event in events if event["event"] == "content-block-delta")


async def awords(chat: ChatReASC) -> AsyncIterator[str]:
    async for chunk in chat.astream("q"):
        yield chunk.text


async def awords_of_agent(chat: ChatReASC) -> AsyncIterator[str]:
    async for chunk, _ in agent_of(chat, tools=()).astream(INPUT, stream_mode="messages"):
        yield chunk.text


def words_of_agent(agent: Any) -> Iterator[str]:
    return (chunk.text for chunk, _ in agent.stream(INPUT, stream_mode="messages"))


def through_middleware(chat: ChatReASC, **options: Any) -> Iterator[str]:
    return words_of_agent(agent_of(chat.model, ReASCMiddleware(**options), tools=()))


WAYS: dict[str, Callable[[ChatReASC], Any]] = {
    "stream": lambda chat: words_of_chunks(chat.stream("q")),
    "stream_events v3": lambda chat: words_of_events(iter(chat.stream_events("q", version="v3"))),
    "astream": awords,
    "agent, messages, async": awords_of_agent,
    "middleware with read_only": lambda chat: through_middleware(chat, read_only=["search"]),
    "middleware with a budget": lambda chat: through_middleware(chat, max_run_tokens=1000),
    "tools": lambda chat: words_of_chunks(chat.bind_tools([get_weather]).stream("q")),
    "tools, set before": lambda chat: words_of_chunks(
        ChatReASC(model=chat.model.bind(model_kwargs={"tools": [{"type": "web_search"}]})).stream("q")
    ),
    "tools, agent": lambda chat: words_of_agent(agent_of(chat)),
    "tools, middleware": lambda chat: words_of_agent(agent_of(chat.model, ReASCMiddleware())),
    "tools, middleware with read_only": lambda chat: words_of_agent(
        agent_of(chat.model, ReASCMiddleware(read_only=["get_weather"], max_run_tokens=1000))
    ),
    "tools, learning": lambda chat: words_of_chunks(
        ChatReASC(model=chat.model, calibration="online").bind_tools([get_weather]).stream("q")
    ),
    "no tool may be called": lambda chat: words_of_chunks(
        chat.bind_tools([get_weather], tool_choice="none").stream("q")
    ),
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
    usage, reply = UsageMetadataCallbackHandler(), Reply("the answer is 1", metadata={"token_usage": {"total": 1}})
    whole = summed(runner.stream(ChatReASC(model=saying(reply)), "q", {"callbacks": [usage]}))
    message = runner.invoke(ChatReASC(model=saying(reply)), "q")
    assert (whole.content, whole.usage_metadata) == (message.content, message.usage_metadata)
    assert whole.response_metadata == message.response_metadata and "token_usage" not in whole.response_metadata
    assert whole.response_metadata["reasc"]["reason"] == "alone"
    assert usage.usage_metadata["scripted"]["total_tokens"] == message.usage_metadata["total_tokens"]


@pytest.mark.parametrize(("kind", "kept"), [(Scripted, False), (Telling, True)])
def test_logprobs_pass_where_the_user_asked_for_them(runner: Any, kind: type[Scripted], kept: bool) -> None:
    chunks = runner.stream(ChatReASC(model=kind(script=lambda question, index: Reply("one two"))), "q")
    assert ["logprobs" in chunk.response_metadata for chunk in chunks] == [kept, kept, False, False]
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_failure_in_the_middle_is_the_model_s_own(runner: Any) -> None:
    """Another sample cannot go on where this one broke off."""
    error = ConnectionError("gone")
    chat = ChatReASC(model=saying(Reply("one two", error=error), "2"))
    counted = Counted()
    with pytest.raises(ConnectionError) as raised:
        runner.stream(chat, "q", {"callbacks": [counted]})
    assert raised.value is error and counted.tokens == 2


def test_a_time_limit_ends_it_in_the_middle(runner: Any, never: threading.Event) -> None:
    chat = ChatReASC(model=saying(Reply("one two three", opens=never, wait_at=1)), sample_timeout=0.1)
    with pytest.raises(SampleTimeout, match=r"sample_timeout=0.1"):
        runner.stream(chat, "q")


def test_calls_that_nobody_offered_are_voted_on(runner: Any) -> None:
    """The text before them has passed; the calls are those that have won."""
    rome, paris = (Reply("let me see", calls=(("get_weather", {"city": city}),)) for city in ("Rome", "Paris"))
    whole = summed(runner.stream(ChatReASC(model=saying(rome, *[paris] * 9), concurrency=1), "q"))
    assert whole.text == "let me see"
    assert [call["args"] for call in whole.tool_calls] == [{"city": "Paris"}]
    assert whole.response_metadata["reasc"]["samples"] > 4
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["input_tokens"] == PROMPT_TOKENS * whole.response_metadata["reasc"]["launched"]


def calling(text: str, city: str, **reply: Any) -> Reply:
    return Reply(text, calls=(("get_weather", {"city": city}),), **reply)


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (calling("let me see", "Paris"), "let me see"),
        (calling("let me see", "Rome"), "let me see"),
        (calling("Rome it is", "Rome"), "Rome it is\n\nlet me see"),
        (calling("let me", "Rome"), "let me see"),
        (calling("", "Rome"), "let me see"),
    ],
    ids=["it wins", "the winner says the same", "the winner says something else", "more", "it says nothing"],
)
def test_text_before_a_call_passes_and_the_call_is_voted_on(agents: Agents, first: Reply, text: str) -> None:
    others = [calling("let me see", "Paris")] * 9
    model = acting({ASKED: [first, *others], "": [SUNNY]})
    chunks = agents.stream(agent_of(model, ReASCMiddleware(**BY_ASC)), stream_mode=["messages", "values"])
    said = [given[0] for mode, given in chunks if mode == "messages" and isinstance(given[0], AIMessageChunk)]
    [state] = [given for mode, given in chunks if mode == "values"][-1:]
    _, calling_paris, _, final = state["messages"]
    assert [calling_paris.text, final.text] == [text, SUNNY]
    assert [call["args"] for call in calling_paris.tool_calls] == [{"city": "Paris"}]
    assert "".join(chunk.text for chunk in said) == f"{text}{SUNNY}"
    assert len({chunk.id for chunk in said}) == 2
    assert said[0].text == (first.text.split() or ["let me see"])[0]
    assert calling_paris.response_metadata["reasc"]["samples"] >= 4


def test_a_response_that_wins_is_given_where_its_text_has_passed(runner: Any) -> None:
    """Others that make the same call, and say something else before it, may be more confident."""
    first, other = calling("one", "Paris", logprob=-0.2), calling("two", "Paris", logprob=-4.0)
    made = Telling(script=lambda question, index: first if index == 0 else other)
    chat = ChatReASC(model=made, calibration=calibration(), allow_fingerprint_mismatch=True).bind_tools([get_weather])
    whole = summed(runner.stream(chat, "q"))
    assert whole.text == "one" and runner.invoke(chat, "q").text == "two"
    assert whole.response_metadata["reasc"]["without_confidence"] == 0


# What is streamed when it is known


@pytest.mark.parametrize(
    "chat",
    [
        ChatReASC(model=saying("1").bind_tools([get_weather]).with_retry()),
        ChatReASC(model=saying("1").bind(response_format={"type": "json_object"})),
        ChatReASC(model=saying("1"), when=lambda first: False),
        ChatReASC(model=saying("1"), answer="auto"),
        ChatReASC(model=saying("1"), confidence="stated"),
    ],
    ids=["tools and retries", "structure", "when", "answer", "stated confidence"],
)
def test_what_may_be_voted_on_passes_when_it_is_known(runner: Any, chat: Any) -> None:
    counted = Counted()
    [chunk] = runner.stream(chat, "q", {"callbacks": [counted]})
    assert (chunk.text, chunk.chunk_position, counted.tokens) == ("the answer is 1", "last", 1)


ANTHROPIC: list[Any] = [
    {"type": "thinking", "thinking": "hm", "signature": "abc"},
    {"type": "text", "text": "I look."},
    {"type": "text", "text": "And again."},
    {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "é"}},
]
JSON = st.none() | st.integers(-5, 5) | st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=2)
CALLS = st.lists(
    st.builds(
        lambda name, args, number: {"name": name, "args": args, "id": f"c{number}", "type": "tool_call"},
        st.text("abc", min_size=1, max_size=3),
        st.dictionaries(st.text(max_size=4), JSON | st.dictionaries(st.text(max_size=4), JSON, max_size=2), max_size=3),
        st.integers(0, 9),
    ),
    max_size=3,
)


@given(content=st.text(max_size=30) | st.just(ANTHROPIC), calls=CALLS)
def test_a_message_as_chunks_is_that_message_whatever_is_in_it(content: Any, calls: Any) -> None:
    message = AIMessage(
        content,
        tool_calls=calls,
        id="mine",
        additional_kwargs={"refusal": None},
        response_metadata={"model_name": "m", "model_provider": "anthropic"},
        usage_metadata=UsageMetadata(input_tokens=3, output_tokens=4, total_tokens=7),
    )
    chat = ChatReASC(model=FakeMessagesListChatModel(responses=[message]), max_samples=1, when=lambda first: False)
    [chunk] = chat.stream("q")
    said = chat.invoke("q")
    assert message_chunk_to_message(chunk) == said
    assert (said.content, said.tool_calls, said.additional_kwargs) == (content, calls, message.additional_kwargs)
    assert [call["index"] for call in chunk.tool_call_chunks] == [*range(len(calls))]
    whole = AIMessageChunk(content="" if isinstance(content, str) else []) + chunk
    assert (whole.content, whole.tool_calls) == (content, calls)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_stream_of_messages_of_an_agent_has_the_winners_alone(agents: Agents, concurrency: int) -> None:
    agent = agent_of(two_cities(), ReASCMiddleware(concurrency=concurrency))
    chunks = [chunk for chunk, _ in agents.stream(agent, stream_mode="messages")]
    said = [chunk for chunk in chunks if isinstance(chunk, AIMessage)]
    assert all(isinstance(chunk, AIMessageChunk) for chunk in said)
    assert [call["args"] for chunk in said for call in chunk.tool_call_chunks] == ['{"city": "Paris"}']
    assert "".join(chunk.text for chunk in said) == f"calling{SUNNY}"
    assert [chunk.response_metadata["reasc"]["launched"] > 1 for chunk in said if chunk.usage_metadata] == [True, False]


@pytest.mark.parametrize("face", ["node", "chat model", "middleware"])
def test_the_events_of_version_2_lose_the_samples_by_their_tag(face: str) -> None:
    """Each sample is a run, whose events LangChain gives to whoever does not leave them out."""
    model = acting({ASKED: ["it is 1", *["it is 2"] * 9]})

    def node(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [ReASCRunnable(model=model, concurrency=1).invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState).add_node(node).add_edge(START, "node").compile()
    runnable: Any = {
        "node": graph,
        "chat model": agent_of(ChatReASC(model=model, answer="auto", concurrency=1)),
        "middleware": agent_of(model, ReASCMiddleware(answer="auto", concurrency=1)),
    }[face]

    async def said(**options: Any) -> str:
        asked = {"messages": [HumanMessage(ASKED)]}
        return str([event["data"] async for event in runnable.astream_events(asked, version="v2", **options)])

    assert "it is 1" in asyncio.run(said())
    left = asyncio.run(said(exclude_tags=["nostream"]))
    assert "it is 2" in left and "it is 1" not in left


def test_the_events_of_version_3_have_the_winners_and_lose_no_logprobs(agents: Agents) -> None:
    model = two_cities(Telling)
    agent, asked = agent_of(model, ReASCMiddleware(**BY_ASC)), {"messages": [HumanMessage(ASKED)]}

    async def collected() -> list[Any]:
        return [event async for event in await agent.astream_events(asked, version="v3")]

    events = asyncio.run(collected()) if agents.is_async else list(agent.stream_events(asked, version="v3"))
    told = [event["params"]["data"][0] for event in events if event["method"] == "messages"]
    finished = [event for event in told if event["event"] == "message-finish"]
    blocks = [event["content"] for event in told if event["event"] == "content-block-finish"]
    assert [block["args"] for block in blocks if block["type"] == "tool_call"] == [{"city": "Paris"}]
    assert [event["metadata"]["reasc"]["launched"] for event in finished] == [7, 1]
    assert sum(event["usage"]["total_tokens"] for event in finished) == billed(model)
    [last] = [event["params"]["data"] for event in events if event["method"] == "values"][-1:]
    assert last["messages"][1].response_metadata["logprobs"]["content"][0]["token"] == "calling"


def test_a_stream_that_is_left_has_ended_its_sample_and_its_runs_at_once(runner: Any) -> None:
    """In an event loop, garbage collection would end them later, in another task; a thread ends a moment after."""
    model, tree = saying(Reply("one two three", stall_at=2)), Tree()
    chat = ChatReASC(model=model)

    async def aread() -> None:
        chunks = chat.astream("q", {"callbacks": [tree]})
        assert (await anext(chunks)).text == "one"
        await chunks.aclose()  # type: ignore[attr-defined]
        ended()

    def ended() -> None:
        [root] = tree.roots
        left = time.monotonic() + (0 if runner.is_async else 30)
        while model.log.live and time.monotonic() < left:
            time.sleep(0.001)
        assert model.log.live == 0
        assert all(run.end_time and root.end_time and run.end_time <= root.end_time for run in root.child_runs)

    if runner.is_async:
        return runner.run(aread())
    chunks = chat.stream("q", {"callbacks": [tree]})
    assert next(chunks).text == "one"
    chunks.close()  # type: ignore[attr-defined]
    ended()
