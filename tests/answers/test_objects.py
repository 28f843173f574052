"""Structured output: what objects vote for, in texts and tool calls, as a whole and by field."""

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from answers.trips import TRIP, Even, Trip, called, text, voted
from langchain_reasc.answers import ToolVotes, Vote, extractor, json_object, vote_of, with_answer
from langchain_reasc.answers.structured import REFUSED_CALLS, REFUSED_OBJECT, UNKNOWN_TOOL, ObjectVotes
from langchain_reasc.answers.vote import CUT_OFF, NO_ANSWER
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.stopping import ASC, Cap, Decision, Response, decide


class Stay(BaseModel):
    model_config = ConfigDict(extra="forbid")
    nights: int = Field(alias="nightCount")
    tags: list[str] = []


class TripDict(TypedDict):
    city: str
    days: int


@dataclass
class TripData:
    city: str
    days: int = 3


def decided(messages: list[AIMessage], **options: Any) -> Decision:
    extract = json_object(**options)
    assert extract.objects is not None
    votes = [vote_of(message, extract) for message in messages]
    responses = [Response(vote.answer, kind=vote.kind, fields=vote.fields) for vote in votes]
    return decide(extract.objects.rule(ASC()) | Cap(len(messages)), responses)


@pytest.mark.parametrize("make", [text, called])
@pytest.mark.parametrize("schema", [None, Trip, TRIP])
def test_objects_vote_as_a_whole_without_their_reasoning(make: Callable[..., AIMessage], schema: Any) -> None:
    one = voted(make(city="Rome", days=3.0, reasoning="as", price=None), schema=schema)
    other = voted(make(price=None, reasoning="because", days=3, city="Rome"), schema=schema)
    assert one == other
    assert one.answer == '{"city": "Rome", "days": 3, "price": null}'
    assert voted(make(city="rome", days=3, reasoning="as"), schema=schema).answer != one.answer
    assert one.calls == (make is called)
    assert one.fields is None


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ('Here: {"a": 1}', '{"a": 1}'),
        ('```json\n{"a": {"b": [1.0, "ü"]}}\n```', '{"a": {"b": [1, "ü"]}}'),
        ('{"a": 1} or rather {"a": 2}', '{"a": 2}'),
        ('<think>{"a": 1}</think>{"a": 2}', '{"a": 2}'),
        ("{}", "{}"),
        ('{"a": NaN, "b": Infinity}', '{"a": null, "b": null}'),
        ('{"explanation": "x"}', '{"explanation": "x"}'),  # it is all there is
        ('{"Reasoning": "x", "a": {"thoughts": 1, "b": 2}}', '{"a": {"b": 2}}'),
        ('{"a": [{"rationale": 1, "b": 2}]}', '{"a": [{"b": 2}]}'),
        ('{"a": true, "b": 1, "c": "1", "d": null}', '{"a": true, "b": 1, "c": "1", "d": null}'),
        ("none", None),
        ("[1]", None),
        ('{"a": ', None),
        ("", None),
        ("{" * 5000, None),
    ],
)
def test_the_last_object_of_a_text(said: str, answer: str | None) -> None:
    assert voted(AIMessage(said)) == Vote(answer, why_none=NO_ANSWER if answer is None else None)


def test_what_is_left_out_can_be_said() -> None:
    message = text(a=1, explanation="x", b={"c": 2, "d": 3})
    assert voted(message, leave_out=()).answer == '{"a": 1, "b": {"c": 2, "d": 3}, "explanation": "x"}'
    assert voted(message, leave_out=("A", "b.c")).answer == '{"b": {"d": 3}, "explanation": "x"}'


@pytest.mark.parametrize("schema", [Trip, TRIP, TripDict, TripData, {"name": "Trip", "schema": TRIP}], ids=str)
def test_objects_that_the_schema_refuses_abstain(schema: Any) -> None:
    assert voted(text(city=5, days=3, reasoning="as"), schema=schema).why_none == REFUSED_OBJECT
    assert voted(text(city="Rome", days="many", reasoning="as"), schema=schema).why_none == REFUSED_OBJECT
    assert voted(text(days=3), schema=schema).why_none == REFUSED_OBJECT
    assert voted(AIMessage("none"), schema=schema).why_none == NO_ANSWER
    found = voted(text(city="Rome", days="3", reasoning="as"), schema=schema).answer
    assert found is not None and json.loads(found)["days"] == 3
    assert found == voted(text(city="Rome", days=3, reasoning="as"), schema=schema).answer


def test_refused_calls_and_half_ones_abstain() -> None:
    assert voted(called(days=3), schema=Trip) == Vote(None, why_none=REFUSED_OBJECT)
    half = called(city="Ro").model_copy(update={"response_metadata": {"finish_reason": "length"}})
    assert voted(half) == Vote(None, True, CUT_OFF)
    cut = {"response_metadata": {"finish_reason": "length"}}
    assert voted(AIMessage('{"a": 1}, and', **cut)) == Vote('{"a": 1}', cut_off=True)
    assert voted(AIMessage('{"a": {"b": 1}', **cut)) == Vote(None, True, CUT_OFF)


def test_calls_of_other_tools_stay_calls() -> None:
    other = called("search", q="x")
    assert voted(other, schema=Trip) == Vote('[{"args": {"q": "x"}, "name": "search"}]', kind='["search"]', calls=True)
    assert voted(called(city="Rome", reasoning="as"), schema=Trip).kind is None
    assert voted(other).answer == '{"q": "x"}'
    assert voted(other).kind == '["search"]'  # so that it agrees with no other tool
    two = AIMessage("", tool_calls=[*other.tool_calls, *called(city="Rome").tool_calls])
    assert voted(two).kind == '["Trip", "search"]'
    assert voted(AIMessage('{"a": 1}', tool_calls=other.tool_calls), schema=Trip).calls


def test_an_object_is_checked_by_the_tool_that_was_bound_too() -> None:
    schemas = {"f": {"properties": {"a": {"type": "integer"}, "b": {"default": 7}}, "required": ["a"]}}

    def vote(message: AIMessage) -> Vote:
        return vote_of(message, json_object(), ToolVotes(), schemas)

    assert vote(called("f", a="1")).answer == '{"a": 1, "b": 7}'
    assert vote(called("f")).why_none == REFUSED_CALLS
    assert vote(called("g", a=1)).why_none == UNKNOWN_TOOL
    assert with_answer(called("f", a="1"), '{"a": 2, "b": 7}', ObjectVotes()) is not None


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (Trip, "Trip"),
        (TRIP, "Trip"),
        ({"type": "json_schema", "json_schema": {"name": "trip", "schema": {"title": "T"}}}, "trip"),
        ({"type": "function", "function": {"name": "f", "parameters": {}}}, "f"),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, None),
        (None, None),
    ],
)
def test_the_name_of_a_schema(schema: Any, name: str | None) -> None:
    assert ObjectVotes(schema=schema).name == name


def test_numbers_within_the_tolerance_are_the_same() -> None:
    votes = ObjectVotes(tolerance={"price": 1, "a.b": 0.5})
    assert votes.same('{"price": 1}', '{"price": 2}') and not votes.same('{"price": 1}', '{"price": 3}')
    assert votes.same('{"a": {"b": 1}}', '{"a": {"b": 1.5}}') and not votes.same('{"b": 1}', '{"b": 1.5}')
    assert not votes.same('{"price": true}', '{"price": 1}') and not votes.same("text", '{"price": 1}')


def test_a_vote_by_field() -> None:
    found = voted(text(city="Rome", stay={"n": 2.0, "tags": ["a", 1.0], "none": {}}, reasoning="x"), by_field=True)
    assert found.fields == {"city": '"Rome"', "stay.n": "2", "stay.tags": '["a", 1]', "stay.none": "{}"}
    assert voted(AIMessage("none"), by_field=True).fields is None
    assert voted(called(city="Rome"), by_field=True).fields == {"city": '"Rome"'}


def test_fields_may_be_missing_or_null() -> None:
    messages = [text(a=1, b=None), text(a=1), text(a=2, b=None)]
    assert decided(messages, by_field=True).answer == '{"a": 1, "b": null}'
    assert decided([text(a=1), text(a=1), text(b=1)], by_field=True).answer == '{"a": 1}'
    trips = [text(reasoning="x", city="Rome"), text(reasoning="x", city="Rome", days=3)]
    assert decided(trips, by_field=True, schema=TRIP).answer == '{"city": "Rome", "days": 3, "price": null}'


def test_an_object_that_is_refused_when_put_together_gives_way_to_a_whole_one() -> None:
    odd = [text(a=1, b=1), text(a=1, b=5), text(a=2, b=2), text(a=4, b=2), text(a=1, b=7)]
    assert decided(odd, by_field=True, voted=["a", "b"]).answer == '{"a": 1, "b": 2}'
    decision = decided(odd, by_field=True, schema=Even, voted=["a", "b"])
    assert decision.answer == decision.whole == '{"a": 1, "b": 1, "c": 0}'


def test_required_reasoning_is_not_asked_of_an_answer() -> None:
    for schema in (Trip, TRIP):
        votes = ObjectVotes(by_field=True, schema=schema)
        assert votes.accepts('{"city": "Rome", "days": 3, "price": null}')
        assert not votes.accepts('{"days": 3}') and not votes.accepts('{"city": 5}') and not votes.accepts("text")


def test_an_alias_is_the_name_of_the_field() -> None:
    messages = [text(nightCount=2, tags=["a"]), text(nightCount="2", tags=[])]
    decision = decided(messages, by_field=True, schema=Stay)
    assert decision.answer == '{"nightCount": 2, "tags": ["a"]}'
    assert with_answer(messages[1], decision.answer, ObjectVotes(schema=Stay)) is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leave_out": "reasoning"}, "leave_out.*'reasoning'"),
        ({"voted": "id"}, "voted.*'id'"),
        ({"tolerance": {"x": math.inf}}, "'x'.*inf"),
        ({"schema": 5}, "dictionary or a class, got 5"),
        ({"schema": type("Odd", (), {})}, "Odd"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        json_object(**options)


def test_the_extractor_by_name_and_its_labels() -> None:
    extract = extractor("json")
    assert extract('{"b": 1.0, "a": "X"}') == extract.label('{"a": "X", "b": 1}') == '{"a": "X", "b": 1}'
    assert extract.label("Paris") == "Paris"
    assert extract.name == json_object().name == "json"
    named = json_object(by_field=True, schema=Trip, leave_out={"b", "a"}, tolerance={"y": 1, "x": 2}, voted=["id"])
    assert named.name == "json(by_field, schema=Trip, leave_out=['a', 'b'], tolerance={'x': 2, 'y': 1}, voted=['id'])"
    assert (json_object() | extractor("boxed"))("\\boxed{5}") == "5"
    spec = json_object(schema=Trip, by_field=True)
    assert pickle.loads(pickle.dumps(spec)).objects == spec.objects
