"""What other middleware, streams and people see of a vote is what they would see of one model."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel, model_validator
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted, usage_of

from agents.acting import (
    ASKED,
    SUNNY,
    THREAD,
    acting,
    agent_of,
    billed,
    calls,
    get_weather,
    spent_on,
    two_cities,
    weather,
)
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import json_object
from langchain_reasc.exceptions import ConfigurationError

VOTED = {"answer": "text", "concurrency": 1, "max_samples": 4}


class Thinking(Scripted):
    """Writes what it thinks, or why it refuses, beside the text: in ``additional_kwargs``, by the sample's index."""

    beside: Any

    def _chunks(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        extra = self.beside(*key)
        if extra:
            yield ChatGenerationChunk(message=AIMessageChunk(content="", additional_kwargs=extra))
        yield from super()._chunks(reply, key)


def test_the_usage_of_the_winner_alone(runner: Any) -> None:
    model = acting({"": [SUNNY]})
    every = runner.invoke(ChatReASC(model=model, **VOTED), "q")
    winner = runner.invoke(ChatReASC(model=model, usage="winner", **VOTED), "q")
    launched = winner.response_metadata["reasc"]["launched"]
    assert launched > 1 and every.usage_metadata["input_tokens"] == launched * PROMPT_TOKENS
    assert winner.usage_metadata == usage_of(PROMPT_TOKENS, 3)
    assert winner.response_metadata["reasc"]["tokens"]["input"] == launched * PROMPT_TOKENS


def test_the_usage_of_a_winner_that_reports_none_is_estimated(runner: Any) -> None:
    model = acting({"": [Reply(SUNNY, usage=False)]})
    winner = runner.invoke(ChatReASC(model=model, usage="winner", **VOTED), "q")
    assert winner.usage_metadata["output_tokens"] == winner.response_metadata["reasc"]["tokens"]["winner"]
    assert winner.response_metadata["usage_estimated"]


def test_a_budget_counts_all_samples_whatever_the_usage(agents: Any) -> None:
    spent = {}
    for usage in ("all", "winner"):
        model = two_cities()
        votes = ReASCMiddleware(usage=usage, max_run_tokens=10_000, concurrency=1)  # type: ignore[arg-type]
        agent = agent_of(model, votes, checkpointer=InMemorySaver())
        state = agents.ask(agent, config=THREAD)
        counted = agent.get_state(THREAD).values["reasc_spent"]["tokens"]
        assert counted == billed(model)
        spent[usage] = spent_on(state)
    assert spent["winner"] < spent["all"] == billed(model)


def test_a_conversation_is_summarized_as_late_as_without_votes(agents: Any) -> None:
    """The summarizing middleware reads in the last message how long the conversation is."""

    class Known(Scripted):
        def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
            return {**super()._get_ls_params(stop, **kwargs), "ls_provider": "scripted"}

    def summaries(*middleware: Any) -> int:
        summarizer = acting({"": ["a summary"]}, Known)
        told = {"": [Reply(SUNNY, metadata={"model_provider": "scripted"})]}
        summarizing = SummarizationMiddleware(summarizer, trigger=("tokens", 25), keep=("messages", 2))
        summarizing.token_counter = lambda messages: 0  # so that only what is reported counts
        agent = agent_of(acting(told, Known), summarizing, *middleware, checkpointer=InMemorySaver())
        for turn in range(4):
            agents.ask(agent, f"turn {turn}", THREAD)
        return len(summarizer.log.calls)

    assert summaries() == summaries(ReASCMiddleware(usage="winner", **VOTED)) == 0
    assert summaries(ReASCMiddleware(**VOTED)) > 0


@pytest.mark.parametrize("first_wins", [True, False])
def test_a_stream_has_the_reasoning_of_the_winner_alone(runner: Any, first_wins: bool) -> None:
    losing, winning = weather("Rome"), weather("Paris")
    replies = [winning, losing, winning, winning, winning] if first_wins else [losing, *[winning] * 6]
    thinking = Thinking(
        script=lambda question, index: replies[min(index, len(replies) - 1)],
        beside=lambda question, index: {"reasoning_content": f"thought {index}"},
    )
    agent = ChatReASC(model=thinking, concurrency=1).bind_tools([get_weather])
    chunks = runner.stream(agent, [HumanMessage(ASKED)])
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.tool_calls[0]["args"] == {"city": "Paris"}
    account = whole.response_metadata["reasc"]
    assert account["launched"] > 1
    assert whole.additional_kwargs["reasoning_content"] == f"thought {0 if first_wins else 1}"


@pytest.mark.parametrize("face", ["chat model", "middleware"])
def test_a_refusal_of_the_small_model_goes_to_the_large_one(agents: Any, face: str) -> None:
    refusing = Thinking(
        script=lambda question, index: Reply(""), beside=lambda question, index: {"refusal": "I cannot do that."}
    )
    large = acting({"": [SUNNY]})
    if face == "middleware":
        agent = agent_of(refusing, ReASCMiddleware(rule="race", escalate_to=large, concurrency=1))
    else:
        agent = agent_of(ChatReASC(model=refusing, rule="race", escalate_to=large, concurrency=1))
    last = agents.ask(agent)["messages"][-1]
    assert last.text == SUNNY
    account = last.response_metadata["reasc"]
    assert (account["answered_by"], account["reason"]) == ("large", "escalated")
    assert len(refusing.log.calls) == 1


def test_without_a_large_model_a_refusal_is_seen(agents: Any) -> None:
    refusing = Thinking(
        script=lambda question, index: Reply(""), beside=lambda question, index: {"refusal": "I cannot do that."}
    )
    last = agents.ask(agent_of(ChatReASC(model=refusing)))["messages"][-1]
    assert last.additional_kwargs["refusal"] == "I cannot do that."


@pytest.mark.parametrize("face", ["chat model", "middleware", "middleware with request"])
def test_only_the_first_of_two_models_is_asked_about(agents: Any, face: str) -> None:
    asked: list[AIMessage] = []

    def when(first: AIMessage) -> bool:
        asked.append(first)
        return bool(first.tool_calls)

    def when_asked(request: Any, first: AIMessage) -> bool:
        assert request.tools
        return when(first)

    small = acting({ASKED: [weather("Paris"), weather("Rome")], "": [SUNNY]})
    large = acting({ASKED: [weather("Oslo")], "": [SUNNY]})
    if face == "chat model":
        agent = agent_of(ChatReASC(model=small, rule="race", escalate_to=large, when=when, concurrency=1))
    else:
        function: Any = when_asked if "request" in face else when
        agent = agent_of(small, ReASCMiddleware(rule="race", escalate_to=large, when=function, concurrency=1))
    state = agents.ask(agent)
    assert state["messages"][1].tool_calls[0]["args"] == {"city": "Oslo"}
    cities = [call["args"]["city"] for message in asked for call in message.tool_calls]
    assert cities == ["Paris"] and len(asked) == 2, "of each step the small model's first response"


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
def test_a_bound_temperature_reaches_both_models(runner: Any, face: Any) -> None:
    small, large = (Scripted(script=lambda question, index: Reply(f"the answer is {index}")) for _ in range(2))
    reasc = face(model=small, rule="race", escalate_to=large, answer="auto", concurrency=1)
    runner.invoke(reasc.bind(temperature=0.5), "q")
    assert {kwargs["temperature"] for kwargs in [*small.log.kwargs, *large.log.kwargs]} == {0.5}
    assert large.log.kwargs


class Sum(BaseModel):
    a: int
    b: int
    total: int

    @model_validator(mode="after")
    def adds_up(self) -> "Sum":
        if self.a + self.b != self.total:
            raise ValueError("it does not add up")
        return self


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
def test_what_is_put_together_by_field_parses_where_each_sample_does(runner: Any, face: Any) -> None:
    sums = [{"a": 1, "b": 2, "total": 3}, {"a": 1, "b": 3, "total": 4}, {"a": 4, "b": 2, "total": 6}]
    model = Scripted(script=lambda question, index: calls(("Sum", sums[index])))
    reasc = face(model=model, answer=json_object(by_field=True), max_samples=3, concurrency=1)
    parsed = runner.invoke(reasc.with_structured_output(Sum), "q")
    assert parsed.model_dump() in sums


def test_progress_is_in_the_custom_stream_of_a_graph(agents: Any) -> None:
    agent = agent_of(two_cities(), ReASCMiddleware(concurrency=1))
    events = [event for event in agents.stream(agent, stream_mode="custom") if event["type"] == "reasc"]
    first, *_, last = [event for event in events if event["status"] == "complete" and event["samples"] > 0]
    assert (first["response"], first["samples"], first["reason"]) == (0, 1, None)
    assert "Rome" in first["response_answer"]
    decided = [event for event in events if event["reason"] is not None]
    assert "Paris" in decided[0]["answer"] and decided[0]["evidence"] and 0 < decided[0]["posterior"] <= 1
    assert last["reason"] == "alone"


def test_progress_of_two_models_names_the_model(agents: Any) -> None:
    small = acting({ASKED: [weather("Paris"), weather("Rome")], "": [SUNNY]})
    large = acting({ASKED: [weather("Oslo")], "": [SUNNY]})
    agent = agent_of(small, ReASCMiddleware(rule="race", escalate_to=large, concurrency=1))
    events = agents.stream(agent, stream_mode="custom")
    assert [event["model"] for event in events] == ["small", "small", "large", "small"]


def test_progress_of_a_chat_model_in_a_node(runner: Any) -> None:
    def ask(state: MessagesState) -> Any:
        return {"messages": [voting.invoke(state["messages"])]}

    voting = ChatReASC(model=two_cities(), **VOTED)
    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    events = list(graph.compile().stream({"messages": [HumanMessage(ASKED)]}, stream_mode="custom"))
    assert events and all(event["type"] == "reasc" for event in events)


def test_a_stream_that_cannot_be_written_costs_no_vote(agents: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(event: Any) -> None:
        raise RuntimeError("the stream is closed")

    monkeypatch.setattr("langgraph.config.get_stream_writer", lambda: closed)
    state = agents.ask(agent_of(two_cities(), ReASCMiddleware(concurrency=1)))
    assert state["messages"][1].tool_calls[0]["args"] == {"city": "Paris"}


@pytest.mark.full
def test_a_call_outside_a_graph_does_not_import_langgraph() -> None:
    program = (
        "import sys\n"
        "from langchain_core.language_models import FakeListChatModel\n"
        "from langchain_reasc import ChatReASC\n"
        "ChatReASC(model=FakeListChatModel(responses=['the answer is 1'])).invoke('q')\n"
        "print('langgraph' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


def test_a_wrong_usage_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="usage"):
        ReASCMiddleware(usage="winer")  # type: ignore[arg-type]
