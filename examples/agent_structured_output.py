"""An agent whose structured output is decided field by field: ``ChatReASC(answer=json_object(by_field=True))``.

    python examples/agent_structured_output.py                          # a scripted model: offline, no key
    python examples/agent_structured_output.py --model gpt-4o-mini      # needs OPENAI_API_KEY

It needs langchain: pip install ".[agents]".

A model that reads numbers from a text gets one wrong now and then, and the object looks as good as any other. Here
every response is an object, so all responses vote, on each field separately: the answer is the weighted median of the
numbers, and the majority of the rest. The first three scripted responses are wrong, each in another field. So after
six responses, five have the right value of each field, and only three the whole. Without ``answer=``, equal objects
vote together. It does not matter whether the model gives objects by a tool of that name (``ToolStrategy``) or by the
provider (``ProviderStrategy``). LangChain validates the winner as always.
"""

import sys
from collections.abc import Sequence
from datetime import date

from langchain_core.exceptions import ModelError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, Field
from scripted_model import arguments, calls, model_for, told

from langchain_reasc import ChatReASC
from langchain_reasc.answers import json_object
from langchain_reasc.exceptions import missing_extra

try:
    from langchain.agents import create_agent
except ModuleNotFoundError:
    sys.exit(f"error: {missing_extra('agents', 'langchain')}")

LETTER = (
    "Lamps & Sons, 3 June 2026. We delivered 4 lamps at 31.50 euros each; shipping is "
    "9 euros. You have returned one lamp, which is not charged. Payable within 14 days."
)


class Invoice(BaseModel):
    """The payment that a letter asks for."""

    supplier: str
    euros: float = Field(description="the whole amount to pay")
    due: date = Field(description="the last day on which it can be paid")


def script(messages: Sequence[BaseMessage]) -> list[AIMessage]:
    """A model that first forgets the returned lamp, then counts the days wrong, then
    misspells the name.
    """
    right = {"supplier": "Lamps & Sons", "euros": 103.5, "due": "2026-06-17"}
    lamp, day, name = {"euros": 135}, {"due": "2026-06-18"}, {"supplier": "Lamp & Sons"}
    return [
        calls("Invoice", **right | mistaken)
        for mistaken in (lamp, day, name, {}, {}, {}, {})
    ]


def main() -> None:
    given = arguments(__doc__).parse_args()
    fields = json_object(by_field=True, schema=Invoice)
    model = ChatReASC(model=model_for(given, script), answer=fields)
    agent = create_agent(
        model, response_format=Invoice, system_prompt="Read what the letter asks for."
    )
    ended = agent.invoke({"messages": [HumanMessage(LETTER)]})
    for message in ended["messages"]:
        print(told(message))
    print(f"\n{ended['structured_response']!r}")


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:  # ours, and those of LangChain's chat models
        sys.exit(f"error: {error}")
