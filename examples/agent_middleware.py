"""An agent that votes only on calls that it cannot take back, within a budget: ``ReASCMiddleware``.

    python examples/agent_middleware.py                              # a scripted model: offline, no key
    python examples/agent_middleware.py --max-run-tokens 300         # ends a vote early, and votes on nothing after it
    python examples/agent_middleware.py --model gpt-4o-mini          # needs OPENAI_API_KEY

It needs langchain: pip install ".[agents]".

The agent keeps its model; the middleware votes on each call of the model. Whether a step needs a vote is known only
from a response, so the first sample is launched alone. If it only searches (``read_only``) or writes a text, it is the
answer. If it books a table, more samples are drawn. The budget is for a whole run. It is in the agent's state, so that
it survives interrupts and checkpoints. Once it is spent, each further step takes one sample. Samples that are already
running are paid for, so a run may cost more than its budget.
"""

import sys
from collections.abc import Sequence

from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.exceptions import ModelError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from scripted_model import arguments, calls, model_for, told

from langchain_reasc.exceptions import missing_extra

try:
    from langchain.agents import create_agent

    from langchain_reasc import ReASCMiddleware
except ModuleNotFoundError:
    sys.exit(f"error: {missing_extra('agents', 'langchain')}")

QUESTION = "A table for four at Rosa's on the first Friday of May 2026 at half past seven in the evening, please."


@tool
def search(restaurant: str) -> str:
    """Find out about a restaurant."""
    return f"{restaurant}: Tuesday to Saturday, 18:00 to 23:00; tables for up to 6."


@tool
def book(restaurant: str, date: str, time: str, guests: int) -> str:
    """Book a table. It is paid for, whether anybody comes or not."""
    return f"Booked: {restaurant}, {date}, {time}, {guests} guests."


def script(messages: Sequence[BaseMessage]) -> list[AIMessage]:
    """A model that counts the days wrong now and then."""
    done = {message.name for message in messages if message.type == "tool"}
    if "book" in done:
        return [
            AIMessage(f"It is done. {messages[-1].text}"),
            AIMessage("You have a table, enjoy the evening!"),
        ]
    if "search" not in done:
        return [calls("search", restaurant="Rosa's")]
    table = {"restaurant": "Rosa's", "time": "19:30", "guests": 4}
    right, wrong = (
        calls("book", date="2026-05-01", **table),
        calls("book", date="2026-05-08", **table),
    )
    return [wrong, right, right, right, right, right, right, right]


def main() -> None:
    options = arguments(__doc__)
    options.add_argument(
        "--max-run-tokens",
        type=int,
        default=20_000,
        help="budget of the run (%(default)s)",
    )
    given = options.parse_args()
    votes = ReASCMiddleware(read_only=["search"], max_run_tokens=given.max_run_tokens)
    agent = create_agent(
        model_for(given, script), tools=[search, book], middleware=[votes]
    )
    usage = UsageMetadataCallbackHandler()
    ended = agent.invoke({"messages": [HumanMessage(QUESTION)]}, {"callbacks": [usage]})

    for message in ended["messages"]:
        print(told(message))
    for name, bill in usage.usage_metadata.items():
        print(f"\n{name}: {bill['total_tokens']} tokens of {given.max_run_tokens}")


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:  # ours, and those of LangChain's chat models
        sys.exit(f"error: {error}")
