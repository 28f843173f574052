"""How calls of tools are compared: what is left out, normalized, and near enough."""

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from answers.calling import MESSAGE, SCHEMAS, answer, call, vote
from langchain_reasc.answers import ANY_TEXT, REASONING, ToolVotes, Vote, extractor, kind_of, vote_of
from langchain_reasc.answers.vote import CUT_OFF, INVALID_CALLS, NO_ANSWER, REFUSAL
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.stopping import ASC, Cap, Response, decide


def test_calls_are_spelled_as_ever_without_options() -> None:
    calls = [call(q="A", n=[1.0, {"b": 2, "a": None}]), call("stop")]
    spelled = '[{"args": {"n": [1, {"a": null, "b": 2}], "q": "A"}, "name": "search"}, {"args": {}, "name": "stop"}]'
    assert vote(*calls) == Vote(spelled, kind='["search", "stop"]', calls=True)


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ([call(q="b"), call(q="a")], '["search", "search"]'),
        ([call("stop"), call(q="a")], '["search", "stop"]'),
        ([call("süche", q="a")], '["süche"]'),
        ([call("f", x=math.nan)], '["f"]'),
    ],
)
def test_the_kind_is_which_tools_are_called(calls: list[dict[str, Any]], kind: str) -> None:
    assert vote(*calls).kind == vote(*reversed(calls)).kind == kind
    assert kind_of(answer(*calls)) == kind  # so that a recorded answer is decided on as it was
    assert vote(*calls, tools=ToolVotes(hierarchical=False)).kind is None


@pytest.mark.parametrize("other", ["text", '{"a": 1}', "[1]", "", None, '[{"a": 1, "args": 2}]'])
def test_other_answers_have_no_kind(other: str | None) -> None:
    assert kind_of(other) is None


@pytest.mark.parametrize(
    "exclude", [["note", "filter.seen"], {"search": ["note", "filter.seen"]}, {"search.note", "search.filter.seen"}]
)
def test_arguments_are_left_out_of_the_vote(exclude: Any) -> None:
    tools = ToolVotes(exclude_args=exclude)
    one = call(q="x", note="because", filter={"year": 1, "seen": [2]})
    other = call(q="x", note="as", filter={"year": 1})
    assert answer(one, tools=tools) == answer(other, tools=tools) == answer(call(q="x", filter={"year": 1}))
    assert answer(one) != answer(other)
    assert "seen" in answer(call(q="x", seen=1), tools=tools)


def test_what_is_left_out_of_one_tool_counts_in_another() -> None:
    for exclude in ({"search": ["q"]}, ["search.q"]):
        tools = ToolVotes(exclude_args=exclude)
        assert answer(call(q="a"), tools=tools) == answer(call(q="b"), tools=tools)
        assert answer(call("book", q="a"), tools=tools) != answer(call("book", q="b"), tools=tools)


def test_strings_are_normalized_where_it_is_said() -> None:
    tools = ToolVotes(normalize={"q": "casefold", "city": "whitespace", "book.id": str.upper})
    assert answer(call(q=" Straße  A"), tools=tools) == answer(call(q="strasse a"), tools=tools)
    assert answer(call(q=["A", {"x": "B"}]), tools=tools) == answer(call(q=["a", {"x": "B"}]), tools=tools)
    assert answer(call(city=" a  b "), tools=tools) == answer(call(city="a b"), tools=tools)
    assert answer(call(city="A"), tools=tools) != answer(call(city="a"), tools=tools)
    assert answer(call("book", id="x"), tools=tools) == answer(call("book", id="X"), tools=tools)
    assert answer(call(id="x"), tools=tools) != answer(call(id="X"), tools=tools)
    assert answer(call(q=5), tools=tools) == answer(call(q=5))


def test_numbers_within_the_tolerance_are_the_same_but_not_in_chains() -> None:
    tools = ToolVotes(tolerance={"x": 1, "f.y": 0.1})
    a, b, c = (answer(call("f", x=x)) for x in (1, 2, 3))
    assert tools.same(a, b) and tools.same(b, c) and not tools.same(a, c)
    assert tools.same(answer(call("f", y=0.3)), answer(call("f", y=0.4)))
    assert not tools.same(answer(call("g", y=0.3)), answer(call("g", y=0.4)))
    assert not ToolVotes().same(a, b) and ToolVotes().same(a, a)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (call("f", x=True), call("f", x=1), False),
        (call("f", x="1"), call("f", x=1), False),
        (call("f", x=None), call("f", x=0), False),
        (call("f", x=math.nan), call("f", x=math.nan), True),
        (call("f", x=math.nan), call("f", x=1), False),
        (call("f", x=math.inf), call("f", x=1e308), False),
        (call("f", x=10**400), call("f", x=10**400 + 1), True),
        (call("f", x=10**400), call("f", x=0.5), False),
        (call("f", x=[1, 2]), call("f", x=[2, 3]), True),
        (call("f", x=[1, 2]), call("f", x=[1]), False),
        (call("f", a=[{"x": 1}]), call("f", a=[{"x": 2}]), False),  # it is a.x
        (call("f", x=1, y="a"), call("f", x=2, y="b"), False),
        (call("f", x=1), call("g", x=1), False),
        (call("f", x=1), call("f", x=1, y=1), False),
        (call("f"), call("f"), True),
    ],
)
def test_what_is_the_same_within_a_tolerance(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    tools = ToolVotes(tolerance={"x": 1})
    assert tools.same(answer(one), answer(other)) == tools.same(answer(other), answer(one)) == same


def test_parallel_calls_are_paired_as_fits() -> None:
    tools = ToolVotes(tolerance={"x": 1, "a.x": 1})
    one = answer(call("f", x=9.5), call("f", x=10.5), call("g"))
    other = answer(call("g"), call("f", x=10), call("f", x=9))  # 10.5 needs the 10, though 9.5 may have it too
    assert tools.same(one, other) and tools.same(other, one)
    assert not tools.same(one, answer(call("g"), call("f", x=10), call("f", x=10.9), call("f", x=9)))
    assert not tools.same(answer(call("f", x=1), call("f", x=1)), answer(call("f", x=1), call("f", x=3)))
    assert tools.same(answer(call(a=[{"x": 1}]), call(a=[])), answer(call(a=[]), call(a=[{"x": 2}])))
    assert not tools.same(one, ANY_TEXT) and not tools.same('{"x": 1}', one)


def test_labels_are_spelled_as_votes_are() -> None:
    tools = ToolVotes(exclude_args=["note"], normalize={"q": "casefold"})
    right = '[{"name": "search", "args": {"q": "X", "note": "y"}}]'
    assert tools.label(right, SCHEMAS) == answer(call(q="x", note="z"), tools=tools, schemas=SCHEMAS)
    assert tools.label("Paris") == "Paris"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exclude_args": "note"}, "'note'"),
        ({"exclude_args": {"search": "note"}}, "'note'"),
        ({"tolerance": {"x": -1}}, "'x'.*-1"),
        ({"tolerance": {"x": math.nan}}, "nan"),
        ({"tolerance": {"x": "1"}}, "'1'"),
        ({"tolerance": {"x": True}}, "True"),
        ({"normalize": {"x": "upper"}}, "casefold, whitespace, got 'upper'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ToolVotes(**options)


CLOSED = {**SCHEMAS, "stop": {"type": "object", "properties": {}}}
OPEN = {"type": "object", "properties": {"where": {"type": "object"}}}
NESTED = {
    "type": "object",
    "properties": {"filter": {"$ref": "#/$defs/F"}, "all": {"type": "array", "items": {"$ref": "#/$defs/F"}}},
    "$defs": {"F": {"type": "object", "properties": {"date": {"type": "string"}, "next": {"$ref": "#/$defs/F"}}}},
}


@pytest.mark.parametrize(
    ("options", "schemas", "said"),
    [
        ({}, {}, None),
        ({"exclude_args": ["note"]}, {}, "exclude_args names 'note', an argument that no tool here has (search, stop)"),
        ({"exclude_args": ["Q"]}, {}, "'Q'"),
        ({"exclude_args": ["lmit"]}, {}, "'lmit', .* ; did you mean 'limit'?"),
        ({"exclude_args": ["search.limits"]}, {}, "did you mean 'search.limit'?"),
        ({"exclude_args": {"serch": ["limit"]}}, {}, "'serch.limit', .* did you mean 'search.limit'?"),
        ({"exclude_args": {"search": ["limt"]}}, {}, "'search.limt', .* did you mean 'search.limit'?"),
        ({"exclude_args": {"search": ["limit"]}}, {}, None),
        ({"exclude_args": [*REASONING, "limit"]}, {}, None),
        ({"tolerance": {"limitt": 1}}, {}, "tolerance names 'limitt'"),
        ({"normalize": {"qq": "casefold"}}, {}, "normalize names 'qq'"),
        ({"tolerance": {"filter.year": 1}}, {}, None),
        ({"tolerance": {"search.filter.year": 1}}, {}, None),
        ({"tolerance": {"year": 1}}, {}, "'year', .* did you mean 'filter.year'?"),
        ({"exclude_args": ["filter.date", "all.date", "filter.next", "x.all"]}, {"x": NESTED}, None),
        ({"exclude_args": ["filter.dates"]}, {"x": NESTED}, "did you mean 'filter.date'?"),
        # what a schema does not name may be there
        ({"exclude_args": ["where.note", "where.a.b", "x.where.note"]}, {"x": OPEN}, None),
        ({"exclude_args": ["note"]}, {"x": OPEN}, "'note', an argument that no tool here has (search, stop, x)"),
        ({"exclude_args": ["note"]}, {"x": {}}, None),
        ({"exclude_args": ["note"]}, {"*": {}}, None),
        ({"exclude_args": ["lmit"]}, {"*": {}}, "did you mean 'limit'?"),
        ({"exclude_args": ["note"]}, {"x": {"type": "object", "properties": {}, "additionalProperties": True}}, None),
        ({"exclude_args": ["note"]}, {"x": {"type": "object", "properties": {"any": {}}}}, "'note'"),
        ({"exclude_args": ["any.note"]}, {"x": {"type": "object", "properties": {"any": {}}}}, None),
    ],
)
def test_names_that_no_tool_has(options: Any, schemas: Any, said: str | None) -> None:
    told = ToolVotes(**options).misnamed({**CLOSED, **schemas})
    assert len(told) == (said is not None)
    assert all(part in "".join(told) for part in (said or "").split(" .* "))


def test_options_can_be_read_and_pickled() -> None:
    tools = ToolVotes(exclude_args=("note",), tolerance={"x": 1}, normalize={"q": "casefold", "r": str.upper})
    assert pickle.loads(pickle.dumps(tools)) == tools
    assert "exclude_args=('note',)" in repr(tools)


def test_options_may_be_a_field_of_a_model() -> None:
    class Options(BaseModel):
        tools: ToolVotes = ToolVotes()

    given = ToolVotes(exclude_args={"search": {"note"}}, normalize={"q": str.upper})
    assert Options(tools=given).tools is given
    written = {"exclude_args": ["note"], "tolerance": {"x": 1}, "normalize": {"q": "casefold"}}
    assert Options.model_validate({"tools": written}).tools == ToolVotes(**written)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance of 'x'"):
        Options.model_validate({"tools": {"tolerance": {"x": -1}}})


def response(message: AIMessage) -> Response:
    found = vote_of(message, MESSAGE)
    return Response(found.answer, kind=found.kind)


def test_split_calls_win_over_fewer_texts() -> None:
    texts = [AIMessage("I cannot tell."), AIMessage("Which city?")]
    calls = [AIMessage("", tool_calls=[call(q=q)]) for q in "abc"]
    given = [response(message) for message in (texts[0], calls[0], calls[1], texts[1], calls[2])]
    assert decide(Cap(5), given).answer == answer(call(q="a"))
    assert decide(ASC(), [response(texts[0])] * 3 + given + [response(texts[1])] * 9).answer == ANY_TEXT


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (AIMessage("The weather is fine."), Vote(ANY_TEXT)),
        (AIMessage("5"), Vote(ANY_TEXT)),
        (AIMessage("Half a", response_metadata={"finish_reason": "length"}), Vote(ANY_TEXT, cut_off=True)),
        (AIMessage(" \n"), Vote(None, why_none=NO_ANSWER)),
        (AIMessage("<think>so</think>Fine."), Vote(ANY_TEXT)),
        (AIMessage("no", additional_kwargs={"refusal": "no"}), Vote(None, why_none=REFUSAL)),
        (AIMessage('{"b": 1.0, "a": "X", "reasoning": "as"}'), Vote('{"a": "X", "b": 1}')),
        (AIMessage('```json\n{"a": "X"}\n```'), Vote('{"a": "X"}')),
        (AIMessage('It is {"a": "X"}.'), Vote(ANY_TEXT)),
        (AIMessage('{"a": "X"', response_metadata={"finish_reason": "length"}), Vote(ANY_TEXT, cut_off=True)),
        (AIMessage("[1, 2]"), Vote(ANY_TEXT)),
        (AIMessage('{"a": 1}', tool_calls=[call("f")]), Vote('[{"args": {}, "name": "f"}]', kind='["f"]', calls=True)),
        (
            AIMessage("", tool_calls=[call("f")], response_metadata={"finish_reason": "length"}),
            Vote(None, True, CUT_OFF),
        ),
        (
            AIMessage("", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": None}]),
            Vote(None, why_none=INVALID_CALLS),
        ),
    ],
)
def test_what_messages_of_agents_vote_for(message: AIMessage, expected: Vote) -> None:
    assert vote_of(message, MESSAGE) == expected
    assert not MESSAGE.texts_vote and extractor("auto").texts_vote


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
some_args = st.dictionaries(st.sampled_from(["q", "limit", "x", "filter"]), json_values, max_size=3)


@given(st.lists(some_args, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_no_arguments_are_an_error(args: list[dict[str, Any]], chance: Any) -> None:
    tools = ToolVotes(tolerance={"x": 0.5}, exclude_args=["filter.x"], normalize={"q": "casefold"})
    calls = [{"name": "search", "args": one, "id": "1"} for one in args]
    message = AIMessage("").model_copy(update={"tool_calls": calls})
    for schemas in (None, SCHEMAS):
        found = vote_of(message, MESSAGE, tools, schemas)
        assert (found.answer is None) == (found.why_none is not None)
        if found.answer is not None:
            chance.shuffle(calls)
            assert vote_of(message, MESSAGE, tools, schemas) == found
            assert tools.same(found.answer, found.answer) and kind_of(found.answer) == found.kind
            assert tools.label(found.answer, schemas) == found.answer
