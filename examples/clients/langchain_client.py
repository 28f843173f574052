from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Refund(BaseModel):
    """Money that is paid back."""

    order: int
    euros: float


def find_order(order: int) -> str:
    """Look an order up."""
    return "3 lamps at 14 euros, 2 ordered"


def refund(order: int, euros: float) -> str:
    """Pay money back."""
    return f"{euros:g} euros of order {order} were paid back"


model = ChatOpenAI(model="shop", include_response_headers=True)
voted = model.bind(extra_body={"reasc": {"answer": "number"}})
question = "3 lamps at 14 euros were billed, and 2 ordered. How much is too much?"
answered = voted.invoke(question)
print(
    answered.text, answered.response_metadata["headers"]["x-reasc-samples"], "samples"
)
print(*(chunk.text for chunk in voted.stream(question) if chunk.text), sep="|")
print(repr(model.with_structured_output(Refund).invoke(question)))

agent: Any = create_agent(model, [find_order, refund])
complaint = "Orders 1042 and 1043 were billed with a lamp too many. Pay it back."
asked = {"messages": [{"role": "user", "content": complaint}]}
for message in agent.invoke(asked)["messages"][1:]:
    print(
        f"{message.type:>4}",
        message.text or [call["args"] for call in message.tool_calls],
    )
streamed = agent.stream(asked, stream_mode="messages")
print(
    *(
        chunk.text
        for chunk, _ in streamed
        if chunk.type == "AIMessageChunk" and chunk.text
    ),
    sep="|",
)
