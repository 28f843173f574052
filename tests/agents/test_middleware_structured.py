"""Structured output is voted on, by whichever strategy the agent asks for it."""

import json
from typing import Any

import pytest
from langchain.agents.structured_output import (
    AutoStrategy,
    ProviderStrategy,
    StructuredOutputValidationError,
    ToolStrategy,
)
from langchain_core.messages import AIMessage
from pydantic import BaseModel
from runnable.fakes import Reply, Scripted

from agents.acting import (
    ASKED,
    Agents,
    acting,
    agent_of,
    billed,
    calls,
    get_weather,
    samples_of,
    spent_on,
    weather,
)
from langchain_reasc import ASC, ReASCMiddleware

ONE_BY_ONE: dict[str, Any] = {"concurrency": 1, "rule": ASC()}  # whose numbers of samples these are


class Forecast(BaseModel):
    """A forecast."""

    city: str
    degrees: int


@pytest.fixture
def agents(runner: Any) -> Agents:
    return Agents(runner)


def called(city: str, degrees: Any = 20) -> calls:
    return calls(("Forecast", {"city": city, "degrees": degrees}))


def written(city: str, degrees: Any = 20) -> Reply:
    return Reply(json.dumps({"city": city, "degrees": degrees}))


@pytest.mark.parametrize(
    ("strategy", "read_only"),
    [(Forecast, ()), (AutoStrategy(Forecast), ("get_weather",)), (ToolStrategy(Forecast), ("get_weather",))],
    ids=["schema", "auto", "tool"],
)
def test_as_a_call_of_a_tool(agents: Agents, strategy: Any, read_only: Any) -> None:
    model = acting({ASKED: [called("Rome"), *[called("Paris")] * 6]})
    state = agents.ask(agent_of(model, ReASCMiddleware(read_only=read_only, **ONE_BY_ONE), response_format=strategy))
    assert state["structured_response"] == Forecast(city="Paris", degrees=20)
    assert samples_of(state) == [7]
    assert {kwargs["tool_choice"] for kwargs in model.log.kwargs} == {"any"}


@pytest.mark.parametrize(
    ("strategy", "tools", "read_only"),
    [(Forecast, [], ()), (Forecast, [get_weather], ("get_weather",)), (ProviderStrategy(Forecast), [get_weather], ())],
    ids=["no tools", "tools", "provider"],
)
def test_as_text_in_the_providers_own_way(agents: Agents, strategy: Any, tools: Any, read_only: Any) -> None:
    model: Scripted = acting({ASKED: [written("Rome"), *[written("Paris")] * 6]})
    model.profile = {"structured_output": True}
    middleware = ReASCMiddleware(read_only=read_only, **ONE_BY_ONE)
    state = agents.ask(agent_of(model, middleware, tools=tools, response_format=strategy))
    assert state["structured_response"] == Forecast(city="Paris", degrees=20)
    assert samples_of(state) == [7]
    assert all(kwargs["response_format"]["type"] == "json_schema" for kwargs in model.log.kwargs)


def test_the_steps_before_it_too(agents: Agents) -> None:
    model = acting({ASKED: [weather("Rome"), *[weather("Paris")] * 6], "sunny in Paris": [called("Paris")]})
    state = agents.ask(agent_of(model, ReASCMiddleware(**ONE_BY_ONE), response_format=ToolStrategy(Forecast)))
    assert state["structured_response"].city == "Paris"
    assert samples_of(state) == [7, 4]
    assert spent_on(state) == billed(model)


def test_a_schema_that_no_sample_satisfies_goes_back_to_the_model(agents: Agents) -> None:
    model = acting({ASKED: [called("Paris", "hot")], "": [called("Paris", 30)]})
    agent = agent_of(model, ReASCMiddleware(max_samples=4, **ONE_BY_ONE), response_format=ToolStrategy(Forecast))
    state = agents.ask(agent)
    assert state["structured_response"] == Forecast(city="Paris", degrees=30)
    assert samples_of(state) == [4, 4]
    assert spent_on(state) == billed(model)


@pytest.mark.parametrize("strategy", [ToolStrategy(Forecast, handle_errors=False), ProviderStrategy(Forecast)], ids=str)
def test_or_is_the_agents_own_error_which_has_the_winner_and_its_bill(agents: Agents, strategy: Any) -> None:
    replies = [written("Paris", "hot")] if isinstance(strategy, ProviderStrategy) else [called("Paris", "hot")]
    model = acting({ASKED: replies})
    agent = agent_of(model, ReASCMiddleware(max_samples=4, **ONE_BY_ONE), response_format=strategy)
    with pytest.raises(StructuredOutputValidationError, match="degrees") as error:
        agents.ask(agent)
    winner = error.value.ai_message
    assert isinstance(winner, AIMessage)
    assert winner.response_metadata["reasc"]["launched"] == 4
    assert winner.usage_metadata is not None
    assert winner.usage_metadata["total_tokens"] == billed(model)
