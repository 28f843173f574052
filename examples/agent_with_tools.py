"""An agent that votes on its tool calls: ``create_agent(ChatReASC(model=llm), tools)``. Nothing else changes.

    python examples/agent_with_tools.py                          # a scripted model: offline, no key
    python examples/agent_with_tools.py --model gpt-4o-mini      # needs OPENAI_API_KEY
    python examples/agent_with_tools.py --model qwen --base-url http://localhost:8000/v1     # vLLM, llama-server, ...

It needs langchain: pip install ".[agents]".

An agent acts on a single response, and a payment cannot be taken back. ``ChatReASC`` samples each step that calls
tools, until the evidence for one call is sufficient. Responses that call the same tools with the same arguments vote
together. If no call wins, nothing is paid (``on_undecided="raise"``). Texts are different in each response, so the
agent's final text is taken from one sample.
"""

import sys
from collections.abc import Sequence

from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.exceptions import ModelError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from scripted_model import arguments, calls, model_for, told

from langchain_reasc import ChatReASC
from langchain_reasc.exceptions import missing_extra

try:
    from langchain.agents import create_agent
except ModuleNotFoundError:
    sys.exit(f"error: {missing_extra('agents', 'langchain')}")

QUESTION = "Order 1042: I was billed for 3 lamps at 14 euros each, and ordered 2. Please give me back what is too much."


@tool
def refund(order: int, euros: float) -> str:
    """Pay an amount back to the customer of an order."""
    return f"{euros:g} euros of order {order} were paid back."


def script(messages: Sequence[BaseMessage]) -> list[AIMessage]:
    """A model that is mistaken one time in eight, including the first time."""
    if isinstance(messages[-1], ToolMessage):
        return [AIMessage(f"Done. {messages[-1].text}")]
    too_much, right = (
        calls("refund", order=1042, euros=42),
        calls("refund", order=1042, euros=14),
    )
    return [too_much, *[right] * 7]


def main() -> None:
    given = arguments(__doc__).parse_args()
    model = ChatReASC(model=model_for(given, script), on_undecided="raise")
    agent = create_agent(
        model,
        tools=[refund],
        system_prompt="You settle complaints. Use the tool to pay back.",
    )
    usage = UsageMetadataCallbackHandler()
    ended = agent.invoke({"messages": [HumanMessage(QUESTION)]}, {"callbacks": [usage]})

    for message in ended["messages"]:
        print(told(message))
    for name, bill in usage.usage_metadata.items():
        print(
            f"\n{name}: {bill['input_tokens']} tokens in, {bill['output_tokens']} out; "
            "every sample is in it, once"
        )


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:  # ours, and those of LangChain's chat models
        sys.exit(f"error: {error}")
