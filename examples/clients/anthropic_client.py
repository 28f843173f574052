from typing import Any

from anthropic import Anthropic, beta_tool
from pydantic import BaseModel


class Refund(BaseModel):
    order: int
    euros: float


@beta_tool
def find_order(order: int) -> str:
    """Look an order up."""
    return "3 lamps at 14 euros, 2 ordered"


@beta_tool
def refund(order: int, euros: float) -> str:
    """Pay money back."""
    return f"{euros:g} euros of order {order} were paid back"


client = Anthropic()
question: Any = [
    {
        "role": "user",
        "content": "3 lamps at 14 euros were billed, and 2 ordered. How much is too much?",
    }
]
asked: Any = {"model": "shop", "max_tokens": 1000, "messages": question}
voted: Any = {**asked, "extra_body": {"reasc": {"answer": "number"}}}
answered = client.messages.with_raw_response.create(**voted)
[block] = answered.parse().content
print(block.text, answered.headers["x-reasc-samples"], "samples")
with client.messages.stream(**voted) as stream:
    print(*stream.text_stream, sep="|")

shaped: Any = client.messages.parse(**asked, output_format=Refund)
print(repr(shaped.parsed_output))

complaint: Any = [
    {
        "role": "user",
        "content": "Orders 1042 and 1043 were billed with a lamp too many. Pay it back.",
    }
]
runner: Any = client.beta.messages.tool_runner(
    model="shop", max_tokens=1000, messages=complaint, tools=[find_order, refund]
)
for message in runner:
    print(
        [
            block.text if block.type == "text" else block.input
            for block in message.content
        ]
    )
print("saved", shaped.reasc["tokens"]["saved"], "tokens")
