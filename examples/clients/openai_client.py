from typing import Any

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel


class FindOrder(BaseModel):
    order: int


class Refund(BaseModel):
    order: int
    euros: float


client = OpenAI()
chat = client.chat.completions
question: Any = [
    {
        "role": "user",
        "content": "3 lamps at 14 euros were billed, and 2 ordered. How much is too much?",
    }
]
voted: Any = {
    "model": "shop",
    "messages": question,
    "extra_body": {"reasc": {"answer": "number"}},
}
answered = chat.with_raw_response.create(**voted)
print(
    answered.parse().choices[0].message.content,
    answered.headers["x-reasc-samples"],
    "samples",
)
with chat.stream(**voted) as stream:
    print(
        *(
            event.delta
            for event in stream
            if event.type == "content.delta" and event.delta
        ),
        sep="|",
    )

shaped = chat.parse(model="shop", messages=question, response_format=Refund)
print(shaped.choices[0].message.parsed)

complaint: Any = [
    {
        "role": "user",
        "content": "Orders 1042 and 1043 were billed with a lamp too many. Pay it back.",
    }
]
tools = [
    pydantic_function_tool(FindOrder, name="find_order"),
    pydantic_function_tool(Refund, name="refund"),
]
called = chat.parse(model="shop", messages=complaint, tools=tools)
print(
    [
        call.function.parsed_arguments
        for call in called.choices[0].message.tool_calls or ()
    ]
)
with chat.stream(model="shop", messages=complaint, tools=tools) as stream:
    print(
        [
            event.arguments
            for event in stream
            if event.type == "tool_calls.function.arguments.done"
        ]
    )

account: Any = called.model_extra and called.model_extra["reasc"]
print("saved", account["tokens"]["saved"], "tokens")
outcome: Any = {"id": account["id"], "correct": True}
print(
    client.post(
        str(client.base_url.join("/reasc/outcome")), body=outcome, cast_to=object
    )
)
