"""Where a provider reports no usage, all that was sent and written is estimated, and budgets hold."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from servers.chat_wire import Chat
from servers.exchange import Exchange
from servers.fake_server import serving

from langchain_reasc import ReASCRunnable

from .fakes import Reply, Scripted

pytestmark = pytest.mark.full

langchain_openai = pytest.importorskip("langchain_openai")
langchain_reasc_openai = pytest.importorskip("langchain_reasc_openai")

WORDS = "word " * 500  # 625 tokens


class Thinking(Scripted):
    """A model that reasons before it answers."""

    def _chunks(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk("", additional_kwargs={"reasoning_content": WORDS}))
        yield from super()._chunks(reply, key)


def calling(index: int) -> Reply:
    return Reply("", calls=(("look_up", {"query": f"{index} {WORDS}"}),), usage=False)


SAYS: dict[str, Callable[[int], Reply]] = {
    "text": lambda index: Reply(f"{WORDS} it is {index}", logprob=None, usage=False),
    "a call": calling,
    "reasoning": lambda index: Reply(f"it is {index}", usage=False),
    "a long prompt": lambda index: Reply(f"it is {index}", usage=False),
}


@pytest.mark.parametrize("what", SAYS)
def test_a_budget_holds_where_nothing_is_reported(runner: Any, what: str) -> None:
    """Samples of 625 tokens each, all unlike, so that only the budget ends it."""
    kind = Thinking if what == "reasoning" else Scripted
    model = kind(script=lambda question, index: SAYS[what](index))
    options: dict[str, Any] = {"answer": "auto", "concurrency": 1, "on_missing_confidence": "count"}
    question = WORDS if what == "a long prompt" else "q"
    [message] = runner.batch(ReASCRunnable(model=model, **options), [question], total_tokens=3000)
    account = message.response_metadata["reasc"]
    assert 3 <= account["launched"] <= 5
    assert account["tokens"]["estimated"] and message.usage_metadata["total_tokens"] >= 625 * account["launched"]


@pytest.mark.usefixtures("whole_waves")
@pytest.mark.parametrize("what", ["a call", "reasoning"])
def test_what_was_cut_off_costs_the_calls_and_the_reasoning_that_had_come(runner: Any, what: str) -> None:
    waits: dict[str, Any] = {"wait_at": 1, "opens": (decided := threading.Event())}
    said = Reply("one two", **waits) if what == "reasoning" else Reply("", calls=calling(4).calls * 2, **waits)
    kind = Thinking if what == "reasoning" else Scripted
    model = kind(script=lambda question, index: Reply("it is 1", delay=0.05) if index < 4 else said)
    reasc = ReASCRunnable(model=model, concurrency=5, answer="auto")
    result = runner.solve(reasc, "q", on_response=lambda _, decision: decision.stop and decided.set())
    assert result.responses[4].status == "cancelled"
    assert 625 <= result.responses[4].output_tokens <= 1300  # of two calls, the second may have come
    assert result.usage.output_tokens >= 625


CALL: Any = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "look_up", "arguments": ""}}
PIECES: dict[str, list[Any]] = {
    "a call": [
        {"tool_calls": [CALL]},
        *[{"tool_calls": [{"index": 0, "function": {"arguments": WORDS[:250]}}]}] * 10,
    ],
    "reasoning, a token at a time": [{"reasoning_content": " word"}] * 60,
}


@pytest.mark.parametrize("what", PIECES)
@pytest.mark.parametrize("kind", ["ChatOpenAI", "ChatOpenAICompatible"])
@pytest.mark.usefixtures("whole_waves")
def test_what_a_server_had_sent_of_a_call_is_billed(runner: Any, kind: str, what: str) -> None:
    """Pieces of many tokens each, as servers send them that wait for a whole call."""
    sent = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        if exchange.sample == 4:
            for piece in PIECES[what]:
                await exchange.event(choices=[{"index": 0, "delta": piece, "finish_reason": None}])
            sent.set()
            return await exchange.hang()
        await sent.wait()
        await asyncio.sleep(1)  # until the client has read it
        return await Chat(logprob=None, counts=False)(exchange)

    with serving(answer) as served:
        options = {"base_url": served.url, "model": "m", "temperature": 0.7, "seed": 0}
        if kind == "ChatOpenAI":
            model: Any = langchain_openai.ChatOpenAI(**options, api_key="none")
        else:
            model = langchain_reasc_openai.ChatOpenAICompatible(**options, preset="vllm")
        result = runner.solve(ReASCRunnable(model=model, concurrency=5, answer="auto"), "q")
    [cut] = [response for response in result.responses if response.status == "cancelled"]
    least, most = (59, 80) if what.startswith("reasoning") else (625, 700)
    assert least <= cut.output_tokens <= most
    assert result.usage.estimated and result.usage.input_tokens >= 5 * 5
