"""A scripted chat model that calls tools, an agent's other parts, ways to run agents, and who watches runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted

from langchain_reasc import ASC

ASKED = "what is the weather?"
SUNNY = "it is sunny"
THREAD = {"configurable": {"thread_id": "1"}}
ONE_BY_ONE: dict[str, Any] = {"concurrency": 1}
BY_ASC: dict[str, Any] = {"concurrency": 1, "rule": ASC()}  # with other numbers of samples


def calls(*called: tuple[str, Any], **reply: Any) -> Reply:
    """A response that calls tools: each a name and its arguments."""
    return Reply("calling", calls=called, **reply)


def weather(city: str, **reply: Any) -> Reply:
    """A response that asks for the weather of a city."""
    return calls(("get_weather", {"city": city}), **reply)


def acting(said: Mapping[str, Sequence[Reply | str]] | None = None, kind: type[Scripted] = Scripted) -> Scripted:
    """A model that answers the last message: sample i gives the i-th reply, the last one for all beyond.

    By default it asks for the weather of Paris, or in one sample of five of Rome, and then says that it is sunny.
    """
    script = said or {ASKED: [weather("Paris"), weather("Rome"), *[weather("Paris")] * 3], "": [SUNNY]}

    def reply(last: str, index: int) -> Reply:
        replies = script.get(last) or script[""]
        one = replies[min(index, len(replies) - 1)]
        return one if isinstance(one, Reply) else Reply(one)

    return kind(script=reply)


def two_cities(kind: type[Scripted] = Scripted) -> Scripted:
    """A model whose first and losing response asks for another city than the winner."""
    return acting({ASKED: [weather("Rome"), *[weather("Paris")] * 6], "": [SUNNY]}, kind)


class Telling(Scripted):
    """A model that is asked for logprobs by whoever made it, and not by ReASC alone."""

    logprobs: bool = True
    top_logprobs: int = 2


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def book_trip(city: str) -> str:
    """Book a trip."""
    return f"booked {city}"


class Overriding(AgentMiddleware):
    """Changes what a model is asked."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(**self.changes))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(**self.changes))


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
