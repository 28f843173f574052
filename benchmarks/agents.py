"""What ReASC costs in an agent: samples, tokens as they are counted, runs in a trace,
and time.

python -m benchmarks.agents             all tables
python -m benchmarks.agents --quick     one round: that everything runs

The same agent four times: as it is, with a node that is a ReASCRunnable, with ChatReASC
as its model, and with ReASCMiddleware. Its model calls a tool, and then says in a text
what came of it. All responses agree.

Last, runs of an agent whose model gives up in a text in one response of five, where it
should call the tool: how many runs end so, and how many samples they take, by what is
put to the vote. The model is seeded.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_core.tracers import Run
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import Field

from benchmarks.table import Row, Spread, interleaved, render, seconds
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable

ASKED: Final = {"messages": [("human", "How much is 6 times 7?")]}
USAGE: Final = UsageMetadata(input_tokens=100, output_tokens=20, total_tokens=120)
RESPONSE: Final = 0.1  # seconds, where latency is measured; shorter if nothing is
GIVES_UP: Final = 0.2  # share of responses


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


class Provider(BaseChatModel):
    """A model whose responses cost 120 tokens each and take as long as they are told
    to, with its provider's books.
    """

    seconds: float = 0.0
    books: list[int] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "provider"

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        return self.bind(tools=["multiply"])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        time.sleep(self.seconds)
        self.books.append(USAGE["total_tokens"])
        ends = isinstance(messages[-1], ToolMessage)
        calls = (
            []
            if ends
            else [
                {
                    "name": "multiply",
                    "args": {"a": 6, "b": 7},
                    "id": f"call-{len(self.books)}",
                }
            ]
        )
        message = AIMessage(
            "The answer is 42." if ends else "",
            tool_calls=calls,
            usage_metadata=USAGE,
            response_metadata={"model_name": "provider", "finish_reason": "stop"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class Hesitant(Provider):
    """A provider's model that gives up in a text, in one response of five, instead of
    calling the tool.
    """

    seed: int = 0

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        result = super()._generate(messages, stop, run_manager, **kwargs)
        called = result.generations[0].message
        if (
            isinstance(called, AIMessage)
            and called.tool_calls
            and Random(kwargs["seed"]).random() < GIVES_UP
        ):
            result.generations[0] = ChatGeneration(
                message=called.model_copy(
                    update={"content": "I cannot tell.", "tool_calls": []}
                )
            )
        return result


def agents(model: Provider) -> dict[str, Runnable[Any, Any]]:
    """The agent in each of its forms."""
    return {
        "plain": create_agent(model, [multiply]),
        "ReASCRunnable": _graph(ReASCRunnable(model=model.bind_tools([multiply]))),
        "ChatReASC": create_agent(ChatReASC(model=model), [multiply]),
        "ReASCMiddleware": create_agent(
            model, [multiply], middleware=[ReASCMiddleware()]
        ),
        "the same, multiply is read-only": create_agent(
            model, [multiply], middleware=[ReASCMiddleware(read_only=["multiply"])]
        ),
    }


def counted(model: Provider, agent: Runnable[Any, Any]) -> list[int]:
    """Samples, tokens by the provider's books and by LangChain's handler, and runs: of
    models, and of samples.
    """
    model.books.clear()
    usage, collected = UsageMetadataCallbackHandler(), RunCollectorCallbackHandler()
    agent.invoke(ASKED, {"callbacks": [usage, collected]})
    told = sum(bill["total_tokens"] for bill in usage.usage_metadata.values())
    kinds = Counter(
        _kind(run) for root in collected.traced_runs for run in _below(root)
    )
    return [len(model.books), sum(model.books), told, kinds["model"], kinds["sample"]]


def call_or_finish(request: Any, first: AIMessage) -> bool:
    """Put a first response to the vote that calls a tool, or that comes before any tool
    has answered.
    """
    return bool(first.tool_calls) or not any(
        message.type == "tool" for message in request.messages
    )


VOTES: Final[dict[str, dict[str, Any]]] = {
    "no text, as by default": {},
    "texts before a tool has answered": {"when": call_or_finish},
    "every text": {"when": lambda request, first: True},
}


def gave_up(runs: int) -> Iterator[tuple[str, float, float]]:
    """Yield what is put to the vote, the share of the runs that end without a call of
    the tool, and samples a run.
    """
    for name, options in VOTES.items():
        ended, samples = 0, 0
        for run in range(runs):
            model = Hesitant(seed=1000 * run)
            agent: Any = create_agent(
                model, [multiply], middleware=[ReASCMiddleware(**options)]
            )
            state = agent.invoke(ASKED)
            ended += not any(message.type == "tool" for message in state["messages"])
            samples += len(model.books)
        yield name, ended / runs, samples / runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables; returns 1 if a handler counts other tokens than the provider."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agents", description="What ReASC costs in an agent."
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round: shows that everything runs"
    )
    quick = parser.parse_args(arguments).quick
    model = Provider()
    figures = {name: counted(model, agent) for name, agent in agents(model).items()}
    print(
        "| an agent's run | samples | tokens billed | tokens counted | model runs | "
        "sample steps |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, row in figures.items():
        print(f"| {name} | {' | '.join(f'{figure:,}' for figure in row)} |")
    print(f"\n{render(_times(1, RESPONSE / 20) if quick else _times(15, RESPONSE))}")
    print(
        "\n| put to the vote | runs that end without the tool | samples a run |\n| --- "
        "| ---: | ---: |"
    )
    for name, ended, samples in gave_up(4 if quick else 200):
        print(f"| {name} | {ended:.1%} | {samples:.1f} |")
    return int(any(row[1] != row[2] for row in figures.values()))


def _times(rounds: int, response: float) -> Iterator[Row]:
    for name, model, unit, scale in (
        ("a response takes no time, ms", Provider(), "ms", 1e3),
        (
            f"a response takes {response:g} s, in responses",
            Provider(seconds=response),
            "",
            1 / response,
        ),
    ):
        turns = {
            form: partial(_time, agent, scale) for form, agent in agents(model).items()
        }
        for form, figures in interleaved(
            turns, rounds=rounds if unit else min(rounds, 5)
        ).items():
            yield Row(f"{form}; {name}", Spread.of(figures))


def _time(agent: Runnable[Any, Any], scale: float) -> float:
    return seconds(lambda: agent.invoke(ASKED)) * scale


def _graph(reasc: ReASCRunnable) -> Runnable[Any, Any]:
    """An agent made by hand: a ReASCRunnable as a node, and its tools."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [reasc.invoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("model", answer)
    built.add_node("tools", ToolNode([multiply]))
    built.add_edge(START, "model")
    built.add_conditional_edges("model", tools_condition)
    built.add_edge("tools", "model")
    return built.compile()


def _below(run: Run) -> Iterator[Run]:
    yield run
    for child in run.child_runs:
        yield from _below(child)


def _kind(run: Run) -> str:
    if run.run_type in ("llm", "chat_model"):
        return "model"
    return (
        "sample"
        if any(tag.startswith("reasc:sample:") for tag in run.tags or [])
        else "other"
    )


if __name__ == "__main__":
    sys.exit(main())
