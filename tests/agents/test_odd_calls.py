"""Calls without arguments, and calls in two parts: what is voted for, what runs, and what is sent on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from runnable.fakes import Reply, Scripted
from servers.odd_calls import LOST, ODD_CALLS, OddCalls

from langchain_reasc import ASC, ReASCMiddleware, ReASCRunnable

from .acting import agent_of

BY_ASC: dict[str, Any] = {"rule": ASC(), "max_samples": 4, "concurrency": 1}
ran: list[tuple[str, dict[str, Any]]] = []


@tool
def f(x: int | None = None) -> str:
    """Do one thing."""
    ran.append(("f", {} if x is None else {"x": x}))
    return "done"


@tool
def g(x: int | None = None) -> str:
    """Do another thing."""
    ran.append(("g", {} if x is None else {"x": x}))
    return "done"


class Odd(Scripted):
    """Streams the pieces of odd calls, also as raw calls in ``additional_kwargs``; then says that it is done."""

    odd: Any

    def _calls(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        if key[0] == "done":
            return
        for piece in self.odd.pieces:
            chunk = tool_call_chunk(name=piece.name, args=piece.arguments, id=piece.id, index=piece.index)
            message = AIMessageChunk(
                content="", tool_call_chunks=[chunk], additional_kwargs={"tool_calls": [piece.delta()]}
            )
            yield ChatGenerationChunk(message=message)


def model_of(odd: OddCalls) -> Odd:
    return Odd(script=lambda question, index: Reply("", metadata={"finish_reason": odd.finish}), odd=odd)


@pytest.mark.parametrize("case", ODD_CALLS)
def test_odd_calls_vote_for_what_they_mean(runner: Any, case: str) -> None:
    odd = ODD_CALLS[case]
    message = runner.invoke(ReASCRunnable(model=model_of(odd), answer="message", **BY_ASC), "?")
    assert all(call["name"] for call in (*message.tool_calls, *message.invalid_tool_calls))
    raw = message.additional_kwargs["tool_calls"]
    if odd.calls is None:
        assert message.response_metadata["reasc"]["answer"] is None and message.tool_calls == []
        return
    assert [(call["name"], call["args"]) for call in message.tool_calls] == [*odd.calls]
    assert message.invalid_tool_calls == []
    assert message.response_metadata["reasc"]["answer"] is not None
    if case != "one index for all":  # whose raw pieces LangChain adds up in another order
        assert [one["function"]["name"] for one in raw if one["function"]["name"]] == [name for name, _ in odd.calls]


@pytest.mark.parametrize("case", ["empty", "null", "arguments under the next index"])
def test_raw_calls_have_the_arguments_too(case: str) -> None:
    odd = ODD_CALLS[case]
    message = ReASCRunnable(model=model_of(odd), answer="message", **BY_ASC).invoke("?")
    [raw] = message.additional_kwargs["tool_calls"]
    assert raw["function"] == {"name": "f", "arguments": "{}" if odd.calls == [("f", {})] else '{"x": 1}'}


@pytest.mark.parametrize("case", ["empty", "null", "arguments under the next index", LOST, "empty, cut off"])
def test_odd_calls_run_once_or_not_at_all(case: str) -> None:
    ran.clear()
    agent = agent_of(model_of(ODD_CALLS[case]), ReASCMiddleware(**BY_ASC), tools=[f, g])
    agent.invoke({"messages": [("user", "?")]})
    assert ran == [*(ODD_CALLS[case].calls or ())]


def test_all_spellings_of_no_arguments_vote_together() -> None:
    cases = ["empty", "an empty object", "null", "the word null", "white space"]

    class Mixed(Odd):
        def _calls(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
            self.odd = ODD_CALLS[cases[key[1] % len(cases)]]
            yield from super()._calls(reply, key)

    model = Mixed(script=lambda question, index: Reply(""), odd=None)
    message = ReASCRunnable(model=model, answer="message", **BY_ASC).invoke("?")
    assert message.response_metadata["reasc"]["evidence"] == {'[{"args": {}, "name": "f"}]': 4.0}


def test_a_tool_that_needs_arguments_refuses_a_call_without() -> None:
    @tool
    def needy(x: int) -> str:
        """Do one thing."""
        return "done"

    odd = OddCalls([replace(ODD_CALLS["empty"].pieces[0], name="needy")], None)
    message = ReASCRunnable(model=model_of(odd).bind_tools([needy]), answer="message", **BY_ASC).invoke("?")
    assert message.response_metadata["reasc"]["answer"] is None
    assert "schema refuses" in str(message.response_metadata["reasc"]["notices"])


class Whole(Scripted):
    """Answers in one piece."""

    message: Any
    disable_streaming: Any = True

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.message.model_copy())])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


def raw_call(arguments: Any) -> dict[str, Any]:
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}


CALL_F = tool_call(name="f", args={}, id="a")
IN_BLOCK: Any = {"type": "function_call", "name": "f", "arguments": "", "call_id": "a", "id": "fc"}
WHOLE: dict[str, tuple[AIMessage, list[Any]]] = {
    "white space": (
        AIMessage("", invalid_tool_calls=[invalid_tool_call(name="f", args=" ", id="a", error="")]),
        [CALL_F],
    ),
    "null": (AIMessage("", invalid_tool_calls=[invalid_tool_call(name="f", args=None, id="a", error="")]), [CALL_F]),
    "a raw copy": (AIMessage("", tool_calls=[CALL_F], additional_kwargs={"tool_calls": [raw_call("")]}), [CALL_F]),
    "a block": (AIMessage([IN_BLOCK], tool_calls=[CALL_F]), [CALL_F]),
    "no name": (AIMessage("", tool_calls=[CALL_F, tool_call(name="", args={"x": 1}, id=None)]), []),
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_messages_are_read_alike(runner: Any, case: str) -> None:
    given, calls = WHOLE[case]
    model = Whole(script=None, message=given.model_copy(update={"response_metadata": {"finish_reason": "tool_calls"}}))
    message = runner.invoke(ReASCRunnable(model=model, answer="message", **BY_ASC), "?")
    assert message.tool_calls == calls and all(call["name"] for call in message.invalid_tool_calls)
    assert (message.response_metadata["reasc"]["answer"] is None) == (not calls)
    for raw in message.additional_kwargs.get("tool_calls", ()):
        assert raw == raw_call("{}")
    for block in message.content:
        assert block == {**IN_BLOCK, "arguments": "{}"}


def test_a_call_as_it_should_be_is_left_alone() -> None:
    call = tool_call(name="f", args={"x": 1.0}, id="a")
    given = AIMessage("so", tool_calls=[call], additional_kwargs={"tool_calls": [raw_call('{"x":1.0}')]})
    message = ReASCRunnable(model=Whole(script=None, message=given), answer="message", **BY_ASC).invoke("?")
    assert (message.text, message.tool_calls) == ("so", [call])
    assert message.additional_kwargs == given.additional_kwargs
