r"""Knowing when not to answer: if the samples do not agree, a LangGraph run waits for a person.

    python examples/agent_interrupt.py ask              # a problem too hard for the shipped model: the run stops
    python examples/agent_interrupt.py answer 1862      # another process, a week later: the same run goes on
    python examples/agent_interrupt.py ask "Lena starts with 438 roses. Lena wants to have 594 roses. How many more \
        roses does Lena need?"                          # the model answers this one

``ask`` takes ``--model`` and ``--base-url``, as any_chat_model.py does. It needs langgraph and its SQLite checkpointer:
pip install ".[agents]" langgraph-checkpoint-sqlite.

With ``on_undecided="abstain"``, ChatReASC gives an empty message if its samples are spent or no answer can get a
majority. ``response_metadata["reasc"]`` then has ``abstained`` and the evidence. Sampling has a node of its own: when a
run continues, LangGraph runs the interrupted node again from its start, and would pay for its samples twice.
"""

import argparse
import sqlite3
import sys
from pathlib import Path
from typing import Any, TypedDict

from any_chat_model import chat_model
from langchain_core.exceptions import ModelError
from langchain_core.runnables import RunnableConfig

from langchain_reasc import ChatReASC

try:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, interrupt
except ModuleNotFoundError:
    sys.exit(
        'error: this example needs: pip install "langchain-reasc[agents]" '
        "langgraph-checkpoint-sqlite"
    )

HARD = (
    "Noah has 122 pens. Emma has 16 times as many pens as Noah. Hugo lives in house "
    "number 13. Eli has 90 pens. How many more pens does Emma have than Eli?"
)


class State(TypedDict, total=False):
    """The contents of a checkpoint."""

    question: str
    answer: str
    by: str
    account: dict[str, Any]  # response_metadata["reasc"]


def sampled(name: str | None, base_url: str | None) -> ChatReASC:
    """Return a model that abstains if its samples do not agree."""
    calibration = None
    if name is None:
        from langchain_reasc_llama_cpp import embedded_model_path

        calibration = embedded_model_path().with_name("calibration.json")
    return ChatReASC(
        model=chat_model(name, base_url),
        calibration=calibration,
        answer="auto",
        on_undecided="abstain",
    )


def graph(name: str | None = None, base_url: str | None = None) -> StateGraph[State]:
    """Build a graph of two steps: ask the model, and if it abstains, ask a person."""

    def ask_model(state: State) -> State:
        message = sampled(name, base_url).invoke(state["question"])
        account = message.response_metadata["reasc"]
        return {
            "answer": account["answer"] or "",
            "by": "the model",
            "account": account,
        }

    def ask_person(state: State) -> State:
        return {
            "answer": interrupt({"question": state["question"], **state["account"]}),
            "by": "a person",
        }

    def next_step(state: State) -> str:
        return "ask_person" if state["account"].get("abstained") else END

    built = StateGraph(State)
    built.add_node("ask_model", ask_model)
    built.add_node("ask_person", ask_person)
    built.add_edge(START, "ask_model")
    built.add_conditional_edges("ask_model", next_step, ["ask_person", END])
    return built


def show(account: dict[str, Any], most: int = 5) -> None:
    """Print the evidence, the strongest first."""
    print(
        f"  {account['samples']} samples, {account['tokens']['output']} tokens "
        f"generated, by {account['reason']}"
    )
    votes = sorted(account["evidence"].items(), key=lambda vote: -vote[1])
    for answer, weight in votes[:most]:
        print(f"  {weight:5.1f}  {'█' * round(weight * 2)} {answer}")
    if others := votes[most:]:
        print(
            f"  {sum(weight for _, weight in others):5.1f}  for {len(others)} other "
            "answers"
        )


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--thread", default="demo", help="the conversation (%(default)s)"
    )
    options.add_argument(
        "--database", default="waiting.sqlite", help="where runs are kept (%(default)s)"
    )
    commands = options.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask", help="ask the model")
    ask.add_argument("question", nargs="?", default=HARD)
    ask.add_argument(
        "--model", help="name of a model on the server; default: the shipped model"
    )
    ask.add_argument("--base-url", help="of an OpenAI-compatible server")
    commands.add_parser("answer", help="answer in its place").add_argument("text")
    given = options.parse_args()

    config: RunnableConfig = {"configurable": {"thread_id": given.thread}}
    if given.command == "answer" and not Path(given.database).exists():
        sys.exit(f"error: there is no {given.database}: ask something first")
    with SqliteSaver.from_conn_string(given.database) as checkpoints:
        app = graph(
            getattr(given, "model", None), getattr(given, "base_url", None)
        ).compile(checkpoints)
        waits = bool(app.get_state(config).interrupts)
        if given.command == "ask" and waits:
            sys.exit(
                f"error: a question of the thread {given.thread!r} waits for a person; "
                "answer it first"
            )
        if given.command == "answer" and not waits:
            sys.exit(
                f"error: no question of the thread {given.thread!r} waits for a person"
            )
        ended = app.invoke(
            {"question": given.question}
            if given.command == "ask"
            else Command(resume=given.text),
            config,
        )
        if "__interrupt__" in ended:
            [waiting] = ended["__interrupt__"]
            print(
                f"{waiting.value['question']}\nThe samples do not agree, and the run "
                "waits for a person."
            )
        else:
            print(f"{ended['question']}\n{ended['answer']}, says {ended['by']}.")
        show(ended["account"])


if __name__ == "__main__":
    try:
        main()
    except (ModelError, sqlite3.Error) as error:
        sys.exit(f"error: {error}")
