"""Calls of tools that are at hand: their own classes decide what is refused, and what is the same call."""

import asyncio
import json
import re
import threading
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain_core.tools import InjectedToolArg, InjectedToolCallId, StructuredTool, tool
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, create_model
from runnable.fakes import Reply, Scripted, saying

from answers.messages import REFUSED_CALLS, answer, call, vote
from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import ToolVotes, schemas_of

Year = Annotated[int, BeforeValidator(lambda given: int(str(given).removeprefix("year ")))]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: int = 0


class ByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    x: int = Field(alias="theNumber")


def _made(kind: Any) -> StructuredTool:
    schema = kind if isinstance(kind, type) and issubclass(kind, ByName) else create_model("F", x=(kind, ...))
    return StructuredTool.from_function(lambda **_: "", name="f", description="F.", args_schema=schema)


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        (Year, "year 2025", 2025, True),
        (Year, "year 2025", 2031, False),
        (datetime, 1767607200, "2026-01-05T10:00:00Z", True),
        (timedelta, 90, "PT1M30S", True),
        (timedelta, 90, 91, False),
        (set[int], [1, 2, 2], [2, 1], True),
        (frozenset[str], ["b", "a"], ["a", "b"], True),
        (list[int], [1, 2], [2, 1], False),
        (Decimal, "1e1", 10, True),
        (Decimal, "1e1", "10.00", True),
        (Decimal, "1e999999", "1e999998", False),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog"}, {"kind": "dog", "tricks": 0}, True),
        (Cat | Dog, {"kind": "dog"}, {"kind": "dog", "lives": 9}, True),
        (SecretStr, "a", "b", False),
        (bytes, "a", "b", False),
        (str | int, "5", 5, False),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),  # the same in every process
)
def test_calls_are_the_same_where_the_tool_gets_the_same(kind: Any, one: Any, other: Any, same: bool) -> None:
    bound = schemas_of([_made(kind)])
    written = json.dumps([one, other])
    assert (answer(call("f", x=one), schemas=bound) == answer(call("f", x=other), schemas=bound)) is same
    assert json.dumps([one, other]) == written, "what the model wrote stays"


def test_what_the_tool_refuses_casts_no_vote_whatever_its_validators_raise() -> None:
    def fails(given: Any) -> Any:
        raise KeyError(given)

    for kind in (Year, Annotated[int, BeforeValidator(fails)]):
        bound = schemas_of([_made(kind)])
        assert vote(call("f", x="soon"), schemas=bound).why_none == REFUSED_CALLS
        assert vote(call("f", x="soon"), schemas=bound, tools=ToolVotes(check_schema=False)).answer is not None


def test_arguments_by_name_and_those_that_the_model_never_gives() -> None:
    bound = schemas_of([_made(ByName)])
    assert answer(call("f", x=1), schemas=bound) == answer(call("f", theNumber="1"), schemas=bound)

    @tool
    def f(q: Year, secret: Annotated[str, InjectedToolArg], id: Annotated[str, InjectedToolCallId], n: int = 3) -> str:
        """F."""
        return ""

    bound = schemas_of([f])
    assert answer(call("f", q="year 5"), schemas=bound) == answer(call("f", q=5, n=3), schemas=bound)


@pytest.mark.parametrize("schema", [Cat | Dog, Annotated[Cat | Dog, Field(discriminator="kind")], set[int]], ids=str)
def test_json_schemas_tell_branches_and_sets_too(schema: Any) -> None:
    bound = {"f": create_model("F", x=(schema, ...)).model_json_schema()}
    pairs = ([2, 1, 2], [1, 2]) if schema == set[int] else ({"kind": "dog"}, {"kind": "dog", "tricks": 0})
    one, other = (answer(call("f", x=value), schemas=bound) for value in pairs)
    assert one == other


@tool
def pay(year: Year) -> str:
    """Pay."""
    return f"paid for {year}"


YEARS = [*["year 2025"] * 3, "2031"] * 4


def paying() -> Scripted:
    """Three in four name 2025, by words that the JSON schema refuses."""

    def script(question: str, index: int) -> Reply:
        return Reply("done") if "paid" in question else Reply("", calls=(("pay", {"year": YEARS[index % 16]}),))

    return Scripted(script=script)


@pytest.mark.parametrize("way", ["bind_tools", "agent", "middleware", "runnable"])
def test_the_tool_that_was_bound_decides(runner: Any, way: str) -> None:
    if way == "bind_tools":
        message = runner.invoke(ChatReASC(model=paying()).bind_tools([pay]), "q")
    elif way == "runnable":
        message = runner.invoke(ReASCRunnable(model=paying().bind(tools=[pay])), "q")
    else:
        around = {"middleware": [ReASCMiddleware()]} if way == "middleware" else {}
        model = paying() if around else ChatReASC(model=paying())
        agent = create_agent(model, [pay], **around)
        state = runner.invoke(agent, {"messages": [("user", "q")]})
        message = state["messages"][1]
        assert state["messages"][2].content == "paid for 2025"
    assert message.tool_calls[0]["args"] == {"year": "year 2025"}
    assert not any("refuses" in notice for notice in message.response_metadata["reasc"].get("notices", []))


def test_a_slow_validator_is_asked_once_a_sample_and_holds_no_event_loop() -> None:
    loop_ran: list[bool] = []

    async def main() -> Any:
        loop = asyncio.get_running_loop()

        def slow(given: Any) -> Any:
            ran = threading.Event()
            loop.call_soon_threadsafe(ran.set)
            loop_ran.append(ran.wait(10))  # for ever, where the loop waits for the validator
            return given

        @tool
        def f(x: Annotated[int, BeforeValidator(slow)]) -> str:
            """F."""
            return ""

        model = saying(*[Reply("", calls=(("f", {"x": 1}),))] * 2)
        return await ChatReASC(model=model, max_samples=2).bind_tools([f]).ainvoke("q")

    message = asyncio.run(main())
    assert loop_ran == [True, True]
    assert message.response_metadata["reasc"]["samples"] == 2


def test_the_schema_of_a_function_or_a_class_is_made_once() -> None:
    class Place(BaseModel):
        """A place."""

        city: str

    def weather(city: str, days: int = 1) -> str:
        """Tell the weather."""
        return city * days

    first, second = schemas_of([weather, Place]), schemas_of([Place, weather])
    assert first == second and first.keys() == {"weather", "Place"}
    assert all(first[name] is second[name] for name in first)
