"""Structured output: what objects vote for, in texts and tool calls, whole and by field, and how they are written."""

import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from answers.messages import LENGTH, REFUSED_CALLS, REFUSED_OBJECT, TRIP, UNKNOWN_TOOL, Even, Trip, called, text, voted
from langchain_reasc import ASC, Cap, Decision, Response, decide
from langchain_reasc.answers import (
    ObjectVotes,
    ToolVotes,
    Vote,
    extractor,
    held_to_schema,
    json_object,
    text_schema_of,
    vote_of,
    with_answer,
)
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.fields import ByField


class Stay(BaseModel):
    model_config = ConfigDict(extra="forbid")
    nights: int = Field(alias="nightCount")
    tags: list[str] = []


class TripDict(TypedDict):
    city: str
    days: int


def decided(messages: list[AIMessage], **options: Any) -> Decision:
    extract = json_object(**options)
    assert extract.objects is not None
    votes = [vote_of(message, extract) for message in messages]
    responses = [Response(vote.answer, kind=vote.kind, fields=vote.fields) for vote in votes]
    objects = extract.objects
    by_field = objects.by_field
    rule = ByField(ASC(), objects.tolerance, tuple(objects.voted), objects.accepts) if by_field else ASC()
    return decide(rule | Cap(len(messages)), responses)


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


def test_what_is_left_out_can_be_said() -> None:
    message = text(a=1, explanation="x", b={"c": 2, "d": 3})
    assert voted(message, leave_out=()).answer == '{"a": 1, "b": {"c": 2, "d": 3}, "explanation": "x"}'
    assert voted(message, leave_out=("A", "b.c")).answer == '{"b": {"d": 3}, "explanation": "x"}'


@pytest.mark.parametrize("schema", [Trip, TRIP, TripDict, {"name": "Trip", "schema": TRIP}], ids=str)
def test_objects_that_the_schema_refuses_abstain(schema: Any) -> None:
    assert voted(text(city=5, days=3, reasoning="as"), schema=schema).why_none == REFUSED_OBJECT
    assert voted(text(city="Rome", days="many", reasoning="as"), schema=schema).why_none == REFUSED_OBJECT
    assert voted(text(days=3), schema=schema).why_none == REFUSED_OBJECT
    assert voted(AIMessage("none"), schema=schema).why_none == "no answer was found in it"
    found = voted(text(city="Rome", days="3", reasoning="as"), schema=schema).answer
    assert found is not None and json.loads(found)["days"] == 3
    assert found == voted(text(city="Rome", days=3, reasoning="as"), schema=schema).answer


def test_refused_calls_and_half_ones_abstain() -> None:
    assert voted(called(days=3), schema=Trip) == Vote(None, why_none=REFUSED_OBJECT)
    cut_off = "cut off before an explicit answer"
    assert voted(called(city="Ro").model_copy(update=LENGTH)) == Vote(None, True, cut_off)
    assert voted(AIMessage('{"a": 1}, and', **LENGTH)) == Vote('{"a": 1}', cut_off=True)
    assert voted(AIMessage('{"a": {"b": 1}', **LENGTH)) == Vote(None, True, cut_off)


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

    messages = (called("f", a="1"), called("f"), called("g", a=1))
    votes = [vote_of(message, json_object(), ToolVotes(), schemas) for message in messages]
    assert votes[0].answer == '{"a": 1, "b": 7}'
    assert [vote.why_none for vote in votes] == [None, REFUSED_CALLS, UNKNOWN_TOOL]
    assert with_answer(called("f", a="1"), '{"a": 2, "b": 7}', ObjectVotes()) is not None


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
    trips = [text(reasoning="x", city="Rome"), text(reasoning="x", city="Rome", days=3)]
    assert decided(trips, by_field=True, schema=TRIP).answer == '{"city": "Rome", "days": 3, "price": null}'


def test_an_object_that_is_refused_when_put_together_gives_way_to_a_whole_one() -> None:
    odd = [text(a=1, b=1), text(a=1, b=5), text(a=2, b=2), text(a=4, b=2), text(a=1, b=7)]
    assert decided(odd, by_field=True, voted=["a", "b"]).answer == '{"a": 1, "b": 2}'
    decision = decided(odd, by_field=True, schema=Even, voted=["a", "b"])
    assert decision.answer == '{"a": 1, "b": 1, "c": 0}'


def test_required_reasoning_is_not_asked_of_an_answer() -> None:
    for schema in (Trip, TRIP):
        votes = ObjectVotes(by_field=True, schema=schema)
        assert votes.accepts('{"city": "Rome", "days": 3, "price": null}')
        assert not votes.accepts('{"days": 3}') and not votes.accepts('{"city": 5}') and not votes.accepts("text")


def test_a_default_is_nobody_elses() -> None:
    votes = ObjectVotes(schema={"properties": {"tags": {"default": []}}})
    first, again = votes.validated({}), votes.validated({})
    assert first is not None and again is not None
    assert first.full == again.full == {"tags": []}
    assert first.full["tags"] is not again.full["tags"]


def test_an_alias_is_the_name_of_the_field() -> None:
    messages = [text(nightCount=2, tags=["a"]), text(nightCount="2", tags=[])]
    decision = decided(messages, by_field=True, schema=Stay)
    assert decision.answer == '{"nightCount": 2, "tags": ["a"]}'
    assert with_answer(messages[1], decision.answer, ObjectVotes(schema=Stay)) is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leave_out": "reasoning"}, "leave_out.*'reasoning'"),
        ({"tolerance": {"x": math.inf}}, "'x'.*inf"),
        ({"schema": 5}, "got 5"),
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


F: Any = [{"name": "f", "args": {"a": 1, "reasoning": "x"}, "id": "c1"}]
BLOCKS: dict[str, AIMessage] = {
    "text": AIMessage('So: {"a": 1, "reasoning": "x"}. Done.'),
    "text block": AIMessage(
        [{"type": "reasoning", "reasoning": "{}"}, {"type": "text", "text": '{"a": 1, "reasoning": "x"}'}]
    ),
    "anthropic": AIMessage(
        [{"type": "text", "text": "I call."}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}],
        tool_calls=F,
    ),
    "responses": AIMessage(
        [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}],
        tool_calls=F,
    ),
    "openai": AIMessage(
        "",
        tool_calls=F,
        additional_kwargs={"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
    ),
    "gemini": AIMessage(
        "",
        tool_calls=F,
        additional_kwargs={"function_call": {"name": "f", "arguments": '{"a": 1}'}},
    ),
    "parsed": AIMessage('{"a": 1, "reasoning": "x"}', additional_kwargs={"parsed": {"a": 1, "reasoning": "x"}}),
}


@pytest.mark.parametrize("make", [text, called])
def test_an_object_put_together_is_written_into_a_response(make: Callable[..., AIMessage]) -> None:
    messages = [
        make(reasoning="1", city="Rome", days=2, price=10.0),
        make(reasoning="2", city="Rome", days=3, price=30),
        make(reasoning="3", city="Bern", days=3, price=20),
    ]
    options: dict[str, Any] = {"by_field": True, "schema": Trip, "tolerance": {"price": 5}}
    votes, decision = ObjectVotes(**options), decided(messages, **options)
    assert decision.answer == '{"city": "Rome", "days": 3, "price": 20}'
    assert decision.whole == '{"city": "Rome", "days": 3, "price": 30}'
    written = with_answer(messages[1], decision.answer, votes)
    assert written is not None
    full = {"reasoning": "2", "city": "Rome", "days": 3, "price": 20}
    assert (written.tool_calls[0]["args"] if make is called else json.loads(str(written.content))) == full
    assert voted(written, **options).answer == decision.answer
    assert voted(messages[1], **options).answer == decision.whole  # a copy was made


@pytest.mark.parametrize("message", BLOCKS.values(), ids=BLOCKS)
def test_an_answer_is_written_wherever_the_message_has_its_own(message: AIMessage) -> None:
    before = message.model_dump_json()
    written = with_answer(message, '{"a": 77}', ObjectVotes())
    assert written is not None and message.model_dump_json() == before
    said = written.model_dump_json()
    assert "77" in said and '"a":1' not in said.replace("\\", "").replace(" ", "")
    assert voted(written) == Vote('{"a": 77}', kind=voted(message).kind, calls=bool(message.tool_calls))
    assert "x" in said  # what does not count is kept


def test_what_a_client_has_parsed_is_written_too() -> None:
    trip = Trip(reasoning="x", city="Rome")
    message = AIMessage(trip.model_dump_json(), additional_kwargs={"parsed": trip, "refusal": None})
    written = with_answer(message, '{"city": "Bern", "days": 3, "price": null}', ObjectVotes(schema=Trip))
    assert written is not None
    assert written.additional_kwargs == {"parsed": Trip(reasoning="x", city="Bern"), "refusal": None}
    assert message.additional_kwargs["parsed"].city == "Rome"
    even = AIMessage('{"a": 1, "b": 1}', additional_kwargs={"parsed": Even(a=1, b=1)})
    assert with_answer(even, '{"a": 1, "b": 2}', ObjectVotes()) is None


@pytest.mark.parametrize(
    ("message", "answer", "schema"),
    [
        (AIMessage("none"), '{"a": 1}', None),
        (text(a=1, b=1), '{"a": 1, "b": 2, "c": 0}', Even),
        (text(city="Rome", reasoning="x"), '{"city": "Rome"}', Trip),  # the defaults would be filled in again
        (text(a=1), "text", None),
        (called("search", q="x"), '{"city": "Rome"}', Trip),
    ],
)
def test_what_cannot_be_written(message: AIMessage, answer: str, schema: Any) -> None:
    assert with_answer(message, answer, ObjectVotes(schema=schema)) is None


def test_lists_keep_what_does_not_count_where_they_stay() -> None:
    message = text(items=[{"n": 1, "reasoning": "x"}], total=1, note={"thoughts": "y", "z": 1})
    written = with_answer(message, '{"items": [{"n": 1}], "note": {"z": 2}, "total": 2}', ObjectVotes())
    assert written is not None
    assert json.loads(str(written.content)) == {
        "items": [{"n": 1, "reasoning": "x"}],
        "total": 2,
        "note": {"thoughts": "y", "z": 2},
    }
    dropped = with_answer(message, '{"items": [], "new": 1}', ObjectVotes())
    assert dropped is not None and json.loads(str(dropped.content)) == {"items": [], "new": 1}


def test_an_object_is_written_into_every_copy_of_a_streamed_call() -> None:
    """ChatAnthropic's stream keeps the arguments as text, too."""
    block = {"type": "tool_use", "id": "1", "name": "Trip", "input": {"a": 1}, "partial_json": '{"a": 1}', "index": 0}
    message = AIMessage([block], tool_calls=[{"name": "Trip", "args": {"a": 1}, "id": "1"}])
    written = with_answer(message, '{"a": 2}', ObjectVotes(by_field=True))
    assert written is not None and written.tool_calls[0]["args"] == {"a": 2}
    assert written.content == [{**block, "input": {"a": 2}, "partial_json": '{"a": 2}'}]


TWO = '[{"a": 1}, {"a": 2}]'
FENCED = "```json\n{}\n```"
IN_TEXTS: dict[str, tuple[str, str | None]] = {
    "the whole text": (TWO, TWO),
    "other spelling": ('[ {"a":1.0},\n {"a":2} ]', TWO),
    "another order": ('[{"a": 2}, {"a": 1}]', '[{"a": 2}, {"a": 1}]'),
    "a code block": (FENCED.format(TWO), TWO),
    "prose before": (f"Here are both: {TWO}", TWO),
    "prose around": (f"Here are both:\n{FENCED.format(TWO)}\nDone [1].", TWO),
    "one object": ('[{"a": 1}]', '[{"a": 1}]'),
    "lists in a list": ('[[{"a": 1}], []]', '[[{"a": 1}], []]'),
    "an object and others": ('[1, {"a": 1}, "b"]', '[1, {"a": 1}, "b"]'),
    "without objects": ("[1, 2.0]", "[1, 2]"),
    "without objects, in a code block": (FENCED.format('["a", "b"]'), '["a", "b"]'),
    "empty": (" [] ", "[]"),
    "reasoning in it": ('[{"a": 1, "reasoning": "x"}]', '[{"a": 1}]'),
    "an object before": (f'{{"b": 1}} or rather {TWO}', TWO),
    "an object behind": (f'{TWO}, that is {{"b": 1}}', '{"b": 1}'),
    "a list in an object": (f'{{"all": {TWO}}}', f'{{"all": {TWO}}}'),
    "a citation behind": ('{"a": 1} [1]', '{"a": 1}'),
    "a citation before": ('As [1] says: {"a": 1}', '{"a": 1}'),
    "citations behind a list": (f"{TWO} [1, 2]", TWO),
    "citations alone": ("It is so [1, 2].", None),
    "no JSON around an object": ('[so {"a": 1}]', '{"a": 1}'),
}


@pytest.mark.parametrize("case", IN_TEXTS)
def test_a_list_at_the_root_is_one_value(case: str) -> None:
    message, answer = IN_TEXTS[case]
    assert voted(AIMessage(message)).answer == answer
    assert extractor("json")(message) == answer
    if answer is not None:
        assert extractor("json").label(answer) == answer


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (f"{TWO} and", TWO),
        ('[{"a": 1}, {"a": 2}', None),
        ('{"b": 1} or [{"a": 1}, {"a":', '{"b": 1}'),
        ('[[{"a": 1}], [{"a": 2}]', None),
        ('[note: {"a": 1} and', '{"a": 1}'),
    ],
)
def test_a_list_that_was_cut_off_is_not_one_of_its_objects(message: str, answer: str | None) -> None:
    assert voted(AIMessage(message, **LENGTH)).answer == answer


class Trips(RootModel[list[Even]]):
    pass


EVENS: Any = {
    "type": "array",
    "items": {"type": "object", "properties": {"a": {"type": "integer"}, "c": {"default": 0}}},
}


@pytest.mark.parametrize(
    ("schema", "message", "answer"),
    [
        (EVENS, '[{"a": "1"}]', '[{"a": 1, "c": 0}]'),
        (EVENS, '[{"a": "x"}]', None),
        (EVENS, '{"a": 1}', None),
        ({"name": "Evens", "schema": EVENS}, "[]", "[]"),
        (Trips, '[{"a": 1, "b": 1}]', '[{"a": 1, "b": 1, "c": 0}]'),
        (Trips, '[{"a": 1, "b": 2}]', None),
        (Trip, '[{"city": "Rome", "days": 3, "reasoning": "x"}]', None),
        (TRIP, '[{"city": "Rome", "days": 3, "reasoning": "x"}]', None),
    ],
)
def test_a_list_is_held_to_the_schema(schema: Any, message: str, answer: str | None) -> None:
    vote = voted(AIMessage(message), schema=schema)
    assert vote.answer == answer and vote.why_none == (None if answer else REFUSED_OBJECT)


def test_a_check_gets_the_whole_list() -> None:
    assert voted(AIMessage(TWO), check=lambda given: len(given) == 2).answer == TWO
    assert voted(AIMessage(TWO), check=lambda given: given["a"] == 1).why_none == REFUSED_OBJECT


def test_the_majority_of_lists_wins_whole_by_field_too() -> None:
    other, single = AIMessage('[{"a": 1}, {"a": 3}]'), text(a=1)
    two = AIMessage(TWO)
    assert decided([other, two, two]).answer == TWO
    for messages, answer in (
        ([other, two, two], TWO),
        ([single, two, two], TWO),
        ([single, two, single], '{"a": 1}'),
        ([text(a=2), two, single, single], '{"a": 1}'),
    ):
        assert decided(messages, by_field=True).answer == answer
    assert len(voted(two, by_field=True).fields or ()) == 1


def test_numbers_in_lists_have_tolerances() -> None:
    votes = ObjectVotes(tolerance={"a": 1})
    assert votes.same(TWO, '[{"a": 2}, {"a": 3}]') and not votes.same(TWO, '[{"a": 2}, {"a": 4}]')
    assert not votes.same(TWO, '[{"a": 1}]') and not votes.same(TWO, '{"a": 1}')


def test_a_list_is_written_where_the_message_has_its_own() -> None:
    message = AIMessage('So: [{"a": 1, "reasoning": "x"}]. Done [1].')
    written = with_answer(message, TWO, ObjectVotes())
    assert written is not None and written.content == f"So: {TWO}. Done [1]."
    assert voted(written).answer == TWO
    assert with_answer(called("f", a=1), TWO, ObjectVotes()) is None


@pytest.mark.parametrize(
    ("message", "answer"),
    [(TWO, TWO), (FENCED.format(TWO), TWO), (f"So: {TWO}", "text"), ("[1]", "text"), ("[]", "text")],
)
def test_for_agents_a_list_of_objects_is_one_value(message: str, answer: str) -> None:
    assert vote_of(AIMessage(message), extractor("message")).answer == answer


def test_a_call_may_ask_for_a_list() -> None:
    asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "evens", "schema": EVENS}}}
    schema = text_schema_of(asked)
    assert schema == EVENS
    extract = held_to_schema(extractor("message"), schema)
    assert vote_of(AIMessage('[{"a": "1"}]'), extract).answer == '[{"a": 1, "c": 0}]'
    assert vote_of(AIMessage("[]"), extract).answer == "[]"
    assert vote_of(AIMessage("[1]"), extract).answer is None
