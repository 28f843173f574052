"""A scripted chat model that calls tools, an agent's other parts, and one way to run agents, synchronously or not."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted

ASKED = "what is the weather?"
SUNNY = "it is sunny"


@dataclass
class Acts(Reply):
    """A response that calls tools: each a name and its arguments, which may be text that is no JSON."""

    text: str = "calling"
    calls: Sequence[tuple[str, Any]] = ()


class Acting(Scripted):
    """A scripted model that takes tools, and whose replies may call them."""

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], tool_choice=tool_choice, **kwargs)

    def _last(self, reply: Reply, key: tuple[str, int]) -> ChatGenerationChunk:
        chunk = super()._last(reply, key)
        if not isinstance(reply, Acts):
            return chunk
        chunk.message.tool_call_chunks = [  # type: ignore[attr-defined]
            tool_call_chunk(
                name=name,
                args=args if isinstance(args, str) else json.dumps(args),
                id=f"call-{abs(hash(key[0])) % 1000}-{key[1]}-{at}",
                index=at,
            )
            for at, (name, args) in enumerate(reply.calls)
        ]
        return chunk


def weather(city: str, **reply: Any) -> Acts:
    """A response that asks for the weather of a city."""
    return Acts(calls=[("get_weather", {"city": city})], **reply)


def acting(said: Mapping[str, Sequence[Reply | str]] | None = None, kind: type[Acting] = Acting) -> Acting:
    """A model that answers the last message: sample i gives the i-th reply, the last one for all beyond.

    By default it asks for the weather of Paris, or in one sample of five of Rome, and then says that it is sunny.
    """
    script = said or {ASKED: [weather("Paris"), weather("Rome"), *[weather("Paris")] * 3], "": [SUNNY]}

    def reply(last: str, index: int) -> Reply:
        replies = script.get(last) or script[""]
        one = replies[min(index, len(replies) - 1)]
        return one if isinstance(one, Reply) else Reply(one)

    return kind(script=reply)


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def book_trip(city: str) -> str:
    """Book a trip."""
    return f"booked {city}"


class Agents:
    """Runs agents in the way of a ``runner``."""

    def __init__(self, runner: Any) -> None:
        self.is_async = runner.is_async
        self._runner = runner

    def ask(self, agent: Any, question: Any = ASKED, config: Any = None, **more: Any) -> dict[str, Any]:
        """The agent's state after a question, or after anything else that it takes (a command, None)."""
        given = {"messages": [HumanMessage(question)]} if isinstance(question, str) else question
        return self._runner.invoke(agent, given, config, **more)

    def stream(self, agent: Any, config: Any = None, **more: Any) -> list[Any]:
        return self._runner.stream(agent, {"messages": [HumanMessage(ASKED)]}, config, **more)


def agent_of(model: Any, *middleware: Any, tools: Sequence[Any] = (get_weather,), **more: Any) -> Any:
    return create_agent(model, tools=list(tools), middleware=list(middleware), **more)


def billed(model: Scripted) -> int:
    """Tokens that the scripted model billed: the prompt of every call, and what was generated."""
    return PROMPT_TOKENS * len(model.log.calls) + sum(model.log.tokens.values())


def spent_on(state: Mapping[str, Any]) -> int:
    """Tokens that the messages of an agent's state say it cost."""
    usages = [message.usage_metadata for message in state["messages"] if isinstance(message, AIMessage)]
    return sum(usage["total_tokens"] for usage in usages if usage)


def samples_of(state: Mapping[str, Any]) -> list[int]:
    """How many samples each step of an agent launched; 0 where nothing was sampled by ReASC."""
    said = [message for message in state["messages"] if isinstance(message, AIMessage)]
    return [message.response_metadata.get("reasc", {}).get("launched", 0) for message in said]


def until(condition: Callable[[], bool], seconds: float = 5) -> Any:
    """Wait in an event loop."""

    async def wait() -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.001)

    return wait()
