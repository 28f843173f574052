"""An object that was put together is written into a message, wherever the message has its own."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from answers.trips import Even, Trip, called, text, voted
from langchain_reasc.answers import ObjectVotes, Vote, with_answer
from langchain_reasc.method.stopping import Cap, Response, decide

BLOCKS: dict[str, AIMessage] = {
    "text": AIMessage('So: {"a": 1, "reasoning": "x"}. Done.'),
    "text block": AIMessage(
        [{"type": "reasoning", "reasoning": "{}"}, {"type": "text", "text": '{"a": 1, "reasoning": "x"}'}]
    ),
    "string block": AIMessage(['{"a": 1, "reasoning": "x"}']),
    "anthropic": AIMessage(
        [{"type": "text", "text": "I call."}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}],
        tool_calls=[{"name": "f", "args": {"a": 1, "reasoning": "x"}, "id": "c1"}],
    ),
    "responses": AIMessage(
        [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}],
        tool_calls=[{"name": "f", "args": {"a": 1, "reasoning": "x"}, "id": "c1"}],
    ),
    "openai": AIMessage(
        "",
        tool_calls=[{"name": "f", "args": {"a": 1, "reasoning": "x"}, "id": "c1"}],
        additional_kwargs={"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
    ),
    "gemini": AIMessage(
        "",
        tool_calls=[{"name": "f", "args": {"a": 1, "reasoning": "x"}, "id": "c1"}],
        additional_kwargs={"function_call": {"name": "f", "arguments": '{"a": 1}'}},
    ),
    "chunk": AIMessageChunk(
        "", tool_call_chunks=[{"name": "f", "args": '{"a": 1, "reasoning": "x"}', "id": "c1", "index": 0}]
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
    options = {"by_field": True, "schema": Trip, "tolerance": {"price": 5}}
    votes = ObjectVotes(**options)  # type: ignore[arg-type]
    found = [voted(message, **options) for message in messages]
    responses = [Response(vote.answer, kind=vote.kind, fields=vote.fields) for vote in found]
    decision = decide(votes.rule(Cap(3)), responses)
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
        (text(city="Rome", reasoning="x"), '{"city": 5}', Trip),
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
