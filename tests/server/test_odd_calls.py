"""Calls without arguments, and calls in two parts: what clients of the server get."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_reasc_server.local import LangChainModel
from servers.exchange import Exchange
from servers.odd_calls import ODD_CALLS, OddCalls

from .serving import Front, front
from .test_differential import added_up, events_in
from .test_live import delta, says
from .test_local import Scripted
from .test_responses import whole_of

pytestmark = pytest.mark.full

NO_PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": NO_PARAMETERS}} for name in "fg"]
FLAT_TOOLS = [{"type": "function", "name": name, "parameters": NO_PARAMETERS} for name in "fg"]
PASSED = {"temperature": 0}
"""Keeps a request from being voted on."""


def upstream_of(odd: OddCalls) -> Any:
    return says([delta(tool_calls=[piece.delta()]) for piece in odd.pieces], odd.finish)


def chat_calls(server: Front, streamed: bool, **asked: Any) -> list[dict[str, Any]]:
    """The functions that a client gets, as openai's client adds them up."""
    if streamed:
        events = events_in(server.chat(tools=TOOLS, stream=True, **asked).content)
        message = added_up([event for event in events if event != "[DONE]"])["message"]
    else:
        message = server.chat(tools=TOOLS, **asked).json()["choices"][0]["message"]
    return [call["function"] for call in message.get("tool_calls") or ()]


def response_calls(server: Front, streamed: bool, **asked: Any) -> list[dict[str, Any]]:
    """The function calls of a Response."""
    output = whole_of(server, streamed, tools=FLAT_TOOLS, **asked)["output"]
    return [item for item in output if item["type"] == "function_call"]


def check(case: str, calls: list[dict[str, Any]]) -> None:
    odd = ODD_CALLS[case]
    assert all(call["name"] for call in calls)
    if odd.calls is not None:
        assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [*odd.calls]
        assert all(call["arguments"].strip() == "{}" for call in calls if json.loads(call["arguments"]) == {})
        return
    for call in calls:  # which no client can take for a call with or without arguments
        assert call["arguments"] or odd.finish == "length"
        with pytest.raises(json.JSONDecodeError):
            json.loads(call["arguments"] or "")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", ODD_CALLS)
def test_clients_get_whole_calls(case: str, streamed: bool) -> None:
    with front(upstream_of(ODD_CALLS[case]), votes={"max_samples": 2}) as server:
        check(case, chat_calls(server, streamed))
        check(case, response_calls(server, streamed))


@pytest.mark.parametrize("arguments", ["", None, " ", "null"])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_upstream_that_answers_in_one_piece_is_read_alike(arguments: Any, streamed: bool) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}

    async def in_one_piece(exchange: Exchange) -> None:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        await exchange.reply(
            200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    with front(in_one_piece, votes={"max_samples": 2}) as server:
        for calls in (chat_calls(server, streamed), response_calls(server, streamed)):
            assert [(one["name"], one["arguments"].strip()) for one in calls] == [("f", "{}")]


class Odd(Scripted):
    """A chat model in this process that says odd calls."""

    odd: Any = None

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[Any]:
        for piece in self.odd.pieces:
            call = tool_call_chunk(name=piece.name, args=piece.arguments, id=piece.id, index=piece.index)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        last = AIMessageChunk(content="", response_metadata={"finish_reason": self.odd.finish})
        yield ChatGenerationChunk(message=last)


@pytest.mark.parametrize("way", [{}, PASSED, {"seed": 3}], ids=["voted on", "no temperature", "seed"])
@pytest.mark.parametrize("case", ODD_CALLS)
def test_a_chat_model_in_this_process_is_read_alike(case: str, way: dict[str, Any]) -> None:
    served = LangChainModel(Odd(odd=ODD_CALLS[case]), "odd")
    with front(served=served, votes={"max_samples": 2}) as server:
        check(case, chat_calls(server, True, **way))
        check(case, response_calls(server, True, **way))


@pytest.mark.parametrize("way", [{}, PASSED], ids=["voted on", "passed through"])
def test_a_whole_message_of_a_chat_model_is_read_alike(way: dict[str, Any]) -> None:
    class Whole(Scripted):
        disable_streaming: Any = True

        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            blank = [
                invalid_tool_call(name=name, args=args, id="a", error="") for name, args in (("f", " "), (None, ""))
            ]
            message = AIMessage("", invalid_tool_calls=blank[: 1 + self.nameless])
            return ChatResult(generations=[ChatGeneration(message=message)])

        nameless: bool = False

    with front(served=LangChainModel(Whole(), "odd"), votes={"max_samples": 2}) as server:
        assert chat_calls(server, False, **way) == [{"name": "f", "arguments": "{}"}]
    with front(served=LangChainModel(Whole(nameless=True), "odd"), votes={"max_samples": 2}) as server:
        assert [call["name"] for call in chat_calls(server, False, **way)] == ["f"]
