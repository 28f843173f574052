"""Structured output is put to the vote: by an agent's strategies, and by the ways of a real provider's class."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from langchain.agents.structured_output import (
    ProviderStrategy,
    StructuredOutputValidationError,
    ToolStrategy,
)
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr
from runnable.chat_server import ChatServer, chat_server
from runnable.fakes import Reply, Scripted

from agents.acting import ASKED, BY_ASC, acting, agent_of, billed, calls, get_weather, samples_of, spent_on
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import json_object

pytestmark = pytest.mark.filterwarnings("error:Pydantic serializer warnings")


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


@pytest.mark.parametrize(
    ("method", "answer"), [("json_schema", "message"), ("json_mode", json_object(by_field=True, schema=Trip))]
)
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


class Forecast(BaseModel):
    """A forecast."""

    city: str
    degrees: int


def called(city: str, degrees: Any = 20) -> calls:
    return calls(("Forecast", {"city": city, "degrees": degrees}))


def written(city: str, degrees: Any = 20) -> Reply:
    return Reply(json.dumps({"city": city, "degrees": degrees}))


@pytest.mark.parametrize(("strategy", "read_only"), [(Forecast, ()), (ToolStrategy(Forecast), ("get_weather",))])
def test_as_a_call_of_a_tool(agents: Any, strategy: Any, read_only: Any) -> None:
    model = acting({ASKED: [called("Rome"), *[called("Paris")] * 6]})
    state = agents.ask(agent_of(model, ReASCMiddleware(read_only=read_only, **BY_ASC), response_format=strategy))
    assert state["structured_response"] == Forecast(city="Paris", degrees=20)
    assert samples_of(state) == [7]
    assert {kwargs["tool_choice"] for kwargs in model.log.kwargs} == {"any"}


@pytest.mark.parametrize(
    ("strategy", "tools", "read_only"),
    [(Forecast, [get_weather], ("get_weather",)), (ProviderStrategy(Forecast), [], ())],
)
def test_as_text_in_the_providers_own_way(agents: Any, strategy: Any, tools: Any, read_only: Any) -> None:
    model: Scripted = acting({ASKED: [written("Rome"), *[written("Paris")] * 6]})
    model.profile = {"structured_output": True}
    middleware = ReASCMiddleware(read_only=read_only, **BY_ASC)
    state = agents.ask(agent_of(model, middleware, tools=tools, response_format=strategy))
    assert state["structured_response"] == Forecast(city="Paris", degrees=20)
    assert samples_of(state) == [7]
    assert all(kwargs["response_format"]["type"] == "json_schema" for kwargs in model.log.kwargs)


def test_a_schema_that_no_sample_satisfies_goes_back_to_the_model(agents: Any) -> None:
    model = acting({ASKED: [called("Paris", "hot")], "": [called("Paris", 30)]})
    agent = agent_of(model, ReASCMiddleware(max_samples=4, **BY_ASC), response_format=ToolStrategy(Forecast))
    state = agents.ask(agent)
    assert state["structured_response"] == Forecast(city="Paris", degrees=30)
    assert samples_of(state) == [3, 4]
    assert spent_on(state) == billed(model)


@pytest.mark.parametrize("strategy", [ToolStrategy(Forecast, handle_errors=False), ProviderStrategy(Forecast)], ids=str)
def test_or_is_the_agents_own_error_which_has_the_winner_and_its_bill(agents: Any, strategy: Any) -> None:
    replies = [written("Paris", "hot")] if isinstance(strategy, ProviderStrategy) else [called("Paris", "hot")]
    model = acting({ASKED: replies})
    agent = agent_of(model, ReASCMiddleware(max_samples=4, **BY_ASC), response_format=strategy)
    with pytest.raises(StructuredOutputValidationError, match="degrees") as error:
        agents.ask(agent)
    winner = error.value.ai_message
    assert isinstance(winner, AIMessage)
    assert winner.response_metadata["reasc"]["launched"] == (4 if isinstance(strategy, ProviderStrategy) else 3)
    assert winner.usage_metadata is not None
    assert winner.usage_metadata["total_tokens"] == billed(model)


class Weighed(BaseModel):
    """A weight."""

    grams: int = Field(ge=0)
    unit: Literal["g"] = "g"


HELD: dict[str, dict[str, Any]] = {
    "OpenAI": {"response_format": {"type": "json_schema", "json_schema": {"schema": Weighed.model_json_schema()}}},
    "Ollama": {"format": Weighed.model_json_schema()},
    "Anthropic": {"output_config": {"format": {"type": "json_schema", "schema": Weighed.model_json_schema()}}},
    "Gemini": {"response_schema": {"type": "OBJECT", "properties": {"grams": {"type": "INTEGER", "minimum": 0}}}},
    "a class": {"response_format": Weighed},
}


@pytest.mark.parametrize("refused", ['{"grams": "heavy"}', '{"unit": "g"}', '{"grams": 2, "unit": "lb"}', "about 2 g"])
def test_a_text_that_the_schema_refuses_casts_no_vote(agents: Any, refused: str) -> None:
    """Two of the same that it refuses come before every one that it allows."""
    model = acting({ASKED: [Reply(refused), Reply(refused), Reply('{"grams": 2}')] * 2 + [Reply('{"grams": 2}')] * 4})
    agent = agent_of(model, ReASCMiddleware(**BY_ASC), tools=[get_weather], response_format=ProviderStrategy(Weighed))
    state = agents.ask(agent)
    assert state["structured_response"] == Weighed(grams=2)
    notices = state["messages"][-1].response_metadata["reasc"]["notices"]
    assert any("cast no vote" in notice for notice in notices)


@pytest.mark.parametrize("bound", HELD.values(), ids=HELD)
def test_in_every_providers_words(bound: dict[str, Any]) -> None:
    model = acting({"q": [Reply('{"grams": -1}'), Reply('{"grams": -1}'), Reply('{"grams": 2}')]})
    for face, answer in ((ReASCRunnable, "message"), (ChatReASC, "json")):
        message = face(model=model, answer=answer, **BY_ASC).bind(**bound).invoke("q")
        assert json.loads(str(message.text)) == {"grams": 2}
