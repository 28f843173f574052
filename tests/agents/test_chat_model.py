"""ChatReASC wherever a chat model is asked for."""

import asyncio
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import tool
from langgraph.errors import GraphInterrupt, ParentCommand
from runnable.conftest import AsyncRunner
from runnable.fakes import Reply, Scripted, saying

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.answers import free_text
from langchain_reasc.exceptions import ConfigurationError, Undecided

VOTES = {"answer": "auto", "concurrency": 1}


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"a {at}"


def calling(*places: str | None, text: str = "") -> Scripted:
    """A model whose sample i looks at ``places[i]``, or says that it is done."""
    return saying(*(Reply("done") if at is None else Reply(text, calls=(("look", {"at": at}),)) for at in places))


def account(message: AIMessage) -> dict[str, Any]:
    return message.response_metadata["reasc"]  # type: ignore[no-any-return]


def test_an_answer_may_win_over_a_call(runner: Any) -> None:
    message = runner.invoke(ChatReASC(model=calling("cat", None), concurrency=1).bind_tools([look]), "q")
    assert (message.text, message.tool_calls) == ("done", [])


def test_a_function_that_fails_on_it_costs_nothing(runner: Any, caplog: pytest.LogCaptureFixture) -> None:
    def when(message: AIMessage) -> bool:
        raise KeyError("nope")

    message = runner.invoke(ChatReASC(model=calling("cat"), when=when).bind_tools([look]), "q")
    assert message.tool_calls and account(message)["samples"] >= 4
    assert "KeyError('nope')" in " ".join(account(message)["notices"])
    assert "KeyError('nope')" in caplog.text


class Asking:
    """An object whose call is asynchronous."""

    def __init__(self, deserves: bool) -> None:
        self.deserves = deserves

    async def __call__(self, message: AIMessage) -> bool:
        await asyncio.sleep(0)
        return self.deserves


@pytest.mark.parametrize("deserves", [True, False])
@pytest.mark.parametrize("made", [Asking, lambda deserves: lambda message: Asking(deserves)(message)])
def test_an_async_function_is_awaited(made: Any, deserves: bool) -> None:
    model = calling("cat", "dog", "dog", "dog", "dog", "dog")
    chat = ChatReASC(model=model, when=made(deserves), concurrency=1).bind_tools([look])
    message = AsyncRunner().invoke(chat, "q")
    assert message.tool_calls[0]["args"] == {"at": "dog" if deserves else "cat"}
    assert (account(message)["reason"] == "alone") is not deserves
    asked = len(model.log.calls)
    with pytest.raises(ConfigurationError, match="call ainvoke"):
        chat.invoke("q")
    assert len(model.log.calls) - asked <= 1  # none, where the function itself is known to be asynchronous


@pytest.mark.parametrize("kind", [GraphInterrupt, ParentCommand])
def test_what_leaves_a_node_is_no_failure(runner: Any, kind: Any) -> None:
    def leaving(*given: Any) -> Any:
        raise kind(())

    for chat in (ChatReASC(model=calling("cat"), when=leaving), ChatReASC(model=saying("1"), answer=leaving)):
        with pytest.raises(kind):
            runner.invoke(chat, "q")
    compared = ReASCRunnable(model=saying("1", "2"), answer=free_text(same=leaving))
    with pytest.raises(kind):
        runner.invoke(compared, "q")


def test_it_speaks_for_the_model_inside() -> None:
    inside = saying("1").model_copy(update={"profile": {"structured_output": True}, "tags": ["mine"]})
    chat = ChatReASC(model=inside)
    assert isinstance(chat, BaseChatModel)
    assert (chat.model_name, chat.profile, chat.tags) == ("scripted", inside.profile, ["mine"])
    assert chat._get_ls_params()["ls_model_name"] == "scripted"
    assert chat.get_num_tokens_from_messages is not None
    other = chat.model_copy(update={"model": Scripted(script=None, model_name="other")})
    assert (other.model_name, other.profile, other.tags) == ("other", None, None)
    assert chat.model_copy(update={"tags": ["kept"]}).bind_tools([look]).bound.tags == ["kept"]  # type: ignore[attr-defined]


def test_a_model_that_is_bound_already_keeps_what_is_bound(runner: Any) -> None:
    model = calling("dog")
    chat = ChatReASC(model=model.bind_tools([look]).with_config(tags=["bound"]), concurrency=1)
    assert runner.invoke(chat, "q").tool_calls
    assert runner.invoke(chat.bind_tools([look], tool_choice="any"), "q").tool_calls
    assert {kwargs.get("tool_choice") for kwargs in model.log.kwargs} == {None, "any"}
    retried = ChatReASC(model=model.with_retry(), concurrency=1)
    assert runner.invoke(retried.bind_tools([look]), "q").tool_calls


class Copying(Scripted):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.model_copy().bind(tools=tools, **kwargs)


def test_a_model_that_binds_tools_to_a_copy_keeps_what_is_bound(runner: Any) -> None:
    model = Copying(script=calling("dog").script)
    chat = ChatReASC(model=model.bind(stop=["END"]), concurrency=1).bind_tools([look])
    assert runner.invoke(chat, "q").tool_calls
    assert {tuple(kwargs["stop"]) for kwargs in model.log.kwargs} == {("END",)}


def test_arguments_of_a_call_reach_every_sample(runner: Any) -> None:
    model = saying("1")
    runner.invoke(ChatReASC(model=model, temperature=0.3, **VOTES), "q", stop=["END"], n=3)
    assert {tuple(kwargs["stop"]) for kwargs in model.log.kwargs} == {("END",)}
    assert {kwargs["temperature"] for kwargs in model.log.kwargs} == {0.3}
    assert not any("n" in kwargs for kwargs in model.log.kwargs)


def test_it_falls_back_and_is_fallen_back_on(runner: Any) -> None:
    broken = Scripted(script=lambda question, index: Reply("", error=TimeoutError("down")))
    chat = ChatReASC(model=broken, **VOTES).with_fallbacks([ChatReASC(model=saying("2"), **VOTES)])
    assert runner.invoke(chat, "q").text == "the answer is 2"
    inside = ChatReASC(model=broken.with_fallbacks([saying("3")]), **VOTES)
    assert runner.invoke(inside, "q").text == "the answer is 3"
    tools = ChatReASC(model=broken.with_fallbacks([calling("dog")]), concurrency=1).bind_tools([look])
    assert runner.invoke(tools, "q").tool_calls


def test_options_and_models_may_be_set_by_a_config(runner: Any) -> None:
    chat = ChatReASC(model=saying("1"), **VOTES).configurable_fields(max_samples=ConfigurableField(id="budget"))
    message = runner.invoke(chat, "q", {"configurable": {"budget": 2}})
    assert account(message)["samples"] == 2
    alternatives = saying("1").configurable_alternatives(ConfigurableField(id="model"), other=saying("2"))
    inside = ChatReASC(model=alternatives, **VOTES)
    assert runner.invoke(inside, "q", {"configurable": {"model": "other"}}).text == "the answer is 2"
    streamed = runner.stream(inside, "q", {"configurable": {"model": "other"}})
    assert streamed[0].text == "the answer is 2"


def test_a_cache_keeps_the_vote_and_not_a_sample(runner: Any) -> None:
    model = saying("1")
    chat = ChatReASC(model=model, cache=InMemoryCache(), **VOTES)
    runner.invoke(chat, "q")
    once = len(model.log.calls)
    assert once >= 4
    runner.invoke(chat, "q")
    assert len(model.log.calls) == once
    runner.invoke(chat.model_copy(update={"max_samples": 5}), "q")
    assert len(model.log.calls) > once


@pytest.mark.parametrize("error", [ContextOverflowError("long"), ValueError("bad request")])
def test_where_no_sample_succeeds_the_error_is_the_model_s_own(runner: Any, error: Exception) -> None:
    chat = ChatReASC(model=Scripted(script=lambda question, index: Reply("", error=error)))
    with pytest.raises(type(error)) as raised:
        runner.invoke(chat, "q")
    assert raised.value is error
    chain: list[Any] = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None:
        assert inner not in chain, "whoever reports errors would go in circles"
        chain.append(inner)


def test_nothing_but_a_chat_model_will_do() -> None:
    with pytest.raises(ConfigurationError, match=r"RunnableLambda"):
        ChatReASC(model=RunnableLambda(lambda value: AIMessage("1")))


@pytest.mark.parametrize("face", [ChatReASC, ReASCRunnable])
def test_reasc_inside_reasc_is_refused(face: Any) -> None:
    inside = ChatReASC(model=saying("1"))
    for model in (inside, inside.bind_tools([look]), inside.with_retry(), ReASCRunnable(model=saying("1"))):
        with pytest.raises(ConfigurationError, match="ReASC model"):
            face(model=model)


@pytest.mark.parametrize("choice", ["any", {"type": "function", "function": {"name": "look"}}])
def test_it_does_not_abstain_where_a_call_is_demanded(runner: Any, choice: Any) -> None:
    """An agent that wants structured output by a tool would ask again and again."""
    chat = ChatReASC(model=calling("cat", "dog"), concurrency=1, max_samples=2, on_undecided="abstain")
    with pytest.raises(Undecided, match="required") as raised:
        runner.invoke(chat.bind_tools([look], tool_choice=choice), "q")
    assert len(raised.value.result.responses) == 2
    assert account(runner.invoke(chat.bind_tools([look]), "q"))["abstained"]
    assert account(runner.invoke(chat.bind_tools([look], tool_choice="auto"), "q"))["abstained"]
