"""Structured output of a real provider's class, by its own ways, put to the vote."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from runnable.chat_server import ChatServer, chat_server
from runnable.fakes import Reply

from langchain_reasc import ChatReASC
from langchain_reasc.answers import json_object

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of what openai's client has parsed


class Trip(BaseModel):
    """Where to, and for how much."""

    city: str
    price: float


BONN, ULM = {"city": "Bonn", "price": 2.0}, {"city": "Ulm", "price": 3.0}
SAID = [BONN, {"city": "Ulm", "price": 2.0}, ULM, ULM, ULM, ULM, ULM, ULM, ULM, ULM, ULM, ULM]


@pytest.fixture
def served() -> Iterator[ChatServer]:
    with chat_server(lambda question, index: Reply(json.dumps(SAID[min(index, len(SAID) - 1)]))) as server:
        yield server


def chat(served: ChatServer, **options: Any) -> ChatReASC:
    model = ChatOpenAI(model="gpt-4o", base_url=served.url, api_key=SecretStr("none"))
    return ChatReASC(model=model, concurrency=1, **options)


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
@pytest.mark.parametrize("answer", ["message", json_object(by_field=True, schema=Trip)], ids=["whole", "by field"])
def test_the_majority_is_parsed(runner: Any, served: ChatServer, method: str, answer: Any) -> None:
    structured = chat(served, answer=answer).with_structured_output(Trip, method=method)
    assert runner.invoke(structured, "Answer in JSON.") == Trip(city="Ulm", price=3.0)
    assert len(served.requests) > 4
    assert all(request["response_format"] for request in served.requests)


def test_what_was_put_together_is_parsed_again(runner: Any, served: ChatServer) -> None:
    spec = json_object(by_field=True, schema=Trip)
    structured = chat(served, answer=spec, max_samples=2).with_structured_output(Trip, include_raw=True)
    given = runner.invoke(structured, "Answer in JSON.")
    assert given["parsed"] == Trip(city="Bonn", price=2.0), "the first of two cities, and the price of both"
    assert json.loads(given["raw"].text) == BONN
    assert given["raw"].additional_kwargs["parsed"] == given["parsed"]


def test_the_bill_is_all_that_is_said_of_tokens(runner: Any, served: ChatServer) -> None:
    message = runner.invoke(chat(served, answer="json", max_samples=3), "q")
    assert message.usage_metadata["input_tokens"] == 7 * len(served.requests)
    assert "token_usage" not in message.response_metadata, "which would be the winner's alone"
