"""How calls of tools are compared: what is left out, filled in, read, refused, normalized, and near enough."""

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from answers.messages import MESSAGE, REFUSED_CALLS, SCHEMAS, UNKNOWN_TOOL, answer, call, vote
from langchain_reasc.answers import ANY_TEXT, REASONING, ToolVotes, Vote, extractor, kind_of, vote_of, written
from langchain_reasc.exceptions import ConfigurationError

FIVE = call(q="x", filter={"year": 1, "seen": [2]}, note="because")
LESS = call(q="x", filter={"year": 1})
CASEFOLD: dict[str, Any] = {"normalize": {"q": "casefold"}}
UPPER: dict[str, Any] = {"normalize": {"book.id": str.upper}}
# a default may be none that the schema allows: def f(limit: int = None)
NONE_BY_DEFAULT = {"f": {"type": "object", "properties": {"limit": {"type": "integer", "default": None}}}}


@pytest.mark.parametrize(
    ("one", "other", "options", "schemas", "same"),
    [
        # defaults are filled in
        (call(q="x", limit=10, exact=False, near=None), call(q="x"), {}, SCHEMAS, True),
        (call(q="x", limit=9), call(q="x"), {}, SCHEMAS, False),
        (call(q="x", limit=10), call(q="x"), {}, None, False),
        (call("f"), call("f", limit=None), {"check_schema": False}, NONE_BY_DEFAULT, True),
        # what a tool would read votes as it is read
        (call(q="x", limit=" 5 "), call(q="x", limit=5.0), {}, SCHEMAS, True),
        (call(q="x", exact="true"), call(q="x", exact=1), {}, SCHEMAS, True),
        (call(q="x", filter={"year": "2024"}), call(q="x", filter={"year": 2024}), {}, SCHEMAS, True),
        (call(q="x", tags=["1", 2]), call(q="x", tags=[1, 2]), {}, SCHEMAS, True),
        # arguments that are left out, of all tools or of one
        (FIVE, LESS, {"exclude_args": ["note", "filter.seen"]}, None, True),
        (FIVE, LESS, {"exclude_args": {"search": ["note", "filter.seen"]}}, None, True),
        (FIVE, LESS, {}, None, False),
        (call(q="x", seen=1), call(q="x"), {"exclude_args": ["filter.seen"]}, None, False),
        (call("book", q="a"), call("book", q="b"), {"exclude_args": {"search": ["q"]}}, None, False),
        (call("book", q="a"), call("book", q="b"), {"exclude_args": ["search.q"]}, None, False),
        # strings that are normalized
        (call(q=" Straße  A"), call(q="strasse a"), CASEFOLD, None, True),
        (call(q=["A", {"x": "B"}]), call(q=["a", {"x": "B"}]), CASEFOLD, None, True),
        (call(q=5), call(q=5), CASEFOLD, None, True),
        (call(q=" a  B "), call(q="a B"), {"normalize": {"q": "whitespace"}}, None, True),
        (call("book", id="x"), call("book", id="X"), UPPER, None, True),
        (call(id="x"), call(id="X"), UPPER, None, False),
    ],
)
def test_which_calls_agree(one: Any, other: Any, options: Any, schemas: Any, same: bool) -> None:
    answers = [answer(given, tools=ToolVotes(**options), schemas=schemas) for given in (one, other)]
    assert (answers[0] == answers[1]) is same


def test_the_kind_of_calls_is_which_tools_they_call() -> None:
    calls = [call(q="b"), call(q="a")]
    assert kind_of(answer(*calls)) == vote(*calls).kind == '["search", "search"]'
    assert vote(*calls, tools=ToolVotes(hierarchical=False)).kind is None
    assert [kind_of(other) for other in ("text", '{"a": 1}', "[1]", "", None, '[{"a": 1, "args": 2}]')] == [None] * 6


def test_a_recorded_answer_of_calls_is_canonical_and_keeps_its_letters() -> None:
    recorded = '[{"name": "f", "args": {"n": [1, {"b": 2.0, "a": null}], "path": "/Home/A"}}]'
    assert written(recorded) == '[{"args": {"n": [1, {"a": null, "b": 2}], "path": "/Home/A"}, "name": "f"}]'


@pytest.mark.parametrize(
    "args",
    [
        {"q": None},
        {"q": "x", "limit": 5.5},
        {"q": "x", "filter": {}},
        {"q": "x", "tags": "1"},
    ],
)
def test_calls_that_the_schema_refuses_abstain(args: dict[str, Any]) -> None:
    given = {"name": "search", "args": args, "id": "1"}
    assert vote(given, schemas=SCHEMAS) == Vote(None, why_none=REFUSED_CALLS)
    assert vote(call(q="x"), given, schemas=SCHEMAS).why_none == REFUSED_CALLS
    assert vote(given, schemas=SCHEMAS, tools=ToolVotes(check_schema=False)).answer is not None
    assert vote(given).answer is not None


def test_calls_of_a_tool_that_is_not_there_abstain() -> None:
    unknown = call("serch", q="x")
    assert vote(unknown, schemas=SCHEMAS) == Vote(None, why_none=UNKNOWN_TOOL)
    assert vote(unknown, schemas={**SCHEMAS, "*": {}}).answer is not None
    assert vote(call("stop", anything=[None]), schemas=SCHEMAS).answer is not None
    assert vote(unknown, schemas=SCHEMAS, tools=ToolVotes(check_schema=False)).answer is not None


def test_arguments_that_are_nested_too_deeply_abstain() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    message = AIMessage("").model_copy(update={"tool_calls": [call("f", x=deep)]})
    assert vote_of(message, extractor("auto")).why_none == "invalid tool calls"
    for tools in (ToolVotes(), ToolVotes(exclude_args=["y"])):
        assert vote_of(message, MESSAGE, tools, {"f": {"properties": {"x": {"type": "object"}}}}).answer is None
    while deep:  # freed level by level
        deep = deep["x"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (call("f", x=1), call("f", x=2), True),
        (call("f", x=1), call("f", x=3), False),
        (call("f", y=0.3), call("f", y=0.4), True),  # its own tolerance
        (call("g", y=0.3), call("g", y=0.4), False),
        (call("f", x=True), call("f", x=1), False),
        (call("f", x=math.nan), call("f", x=math.nan), True),
        (call("f", x=10**400), call("f", x=10**400 + 1), True),
        (call("f", x=[1, 2]), call("f", x=[2, 3]), True),
        (call("f", x=[1, 2]), call("f", x=[1]), False),
        (call("f", a=[{"x": 1}]), call("f", a=[{"x": 2}]), False),  # it is a.x
        (call("f", x=1), call("g", x=1), False),
        (call("f", x=1), call("f", x=1, y=1), False),
    ],
)
def test_what_is_the_same_within_a_tolerance(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    tools = ToolVotes(tolerance={"x": 1, "f.y": 0.1})
    assert tools.same(answer(one), answer(other)) == tools.same(answer(other), answer(one)) == same
    assert ToolVotes().same(answer(one), answer(other)) is (answer(one) == answer(other))


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
    ("options", "complaint"),
    [
        ({"exclude_args": {"search": "note"}}, "'note'"),
        ({"tolerance": {"x": -1}}, "'x'.*-1"),
        ({"normalize": {"x": "upper"}}, "casefold, whitespace, got 'upper'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ToolVotes(**options)


CLOSED = {**SCHEMAS, "stop": {"type": "object", "properties": {}}}
OPEN = {"type": "object", "properties": {"where": {"type": "object"}, "any": {}}}
NESTED = {
    "type": "object",
    "properties": {"filter": {"$ref": "#/$defs/F"}, "all": {"type": "array", "items": {"$ref": "#/$defs/F"}}},
    "$defs": {"F": {"type": "object", "properties": {"date": {"type": "string"}, "next": {"$ref": "#/$defs/F"}}}},
}


@pytest.mark.parametrize(
    ("options", "schemas", "complaint"),
    [
        ({"exclude_args": ["note"]}, {}, "exclude_args names 'note', an argument that no tool here has (search, stop)"),
        ({"exclude_args": ["lmit"]}, {}, "'lmit', .* ; did you mean 'limit'?"),
        ({"exclude_args": {"serch": ["limit"]}}, {}, "'serch.limit', .* did you mean 'search.limit'?"),
        ({"exclude_args": [*REASONING, "limit", "search.limit"]}, {}, None),
        ({"tolerance": {"year": 1}}, {}, "tolerance names 'year'"),
        ({"normalize": {"qq": "casefold"}}, {}, "normalize names 'qq'"),
        ({"exclude_args": ["filter.date", "all.date", "filter.next", "x.all", "x.filter.no"]}, {"x": NESTED}, None),
        # what a schema does not name may be there
        ({"exclude_args": ["where.note", "x.where.note", "any.note"]}, {"x": OPEN}, None),
        ({"exclude_args": ["x.were.note"]}, {"x": OPEN}, "did you mean 'x.where'?"),
        ({"exclude_args": ["note"]}, {"x": OPEN}, "'note', an argument that no tool here has (search, stop, x)"),
        ({"exclude_args": ["note"]}, {"*": {}}, None),
        ({"exclude_args": ["note"]}, {"x": {"type": "object", "properties": {}, "additionalProperties": True}}, None),
    ],
)
def test_names_that_no_tool_has(options: Any, schemas: Any, complaint: str | None) -> None:
    complaints = ToolVotes(**options).unknown_names({**CLOSED, **schemas})
    assert len(complaints) == (complaint is not None)
    assert all(part in "".join(complaints) for part in (complaint or "").split(" .* "))


def test_options_can_be_read_pickled_and_be_a_field_of_a_model() -> None:
    class Options(BaseModel):
        tools: ToolVotes = ToolVotes()

    tools = ToolVotes(exclude_args=("note",), tolerance={"x": 1}, normalize={"q": "casefold", "r": str.upper})
    assert pickle.loads(pickle.dumps(tools)) == Options(tools=tools).tools == tools
    given = {"exclude_args": ["note"], "tolerance": {"x": 1}, "normalize": {"q": "casefold"}}
    assert Options.model_validate({"tools": given}).tools == ToolVotes(**given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tolerance of 'x'"):
        Options.model_validate({"tools": {"tolerance": {"x": -1}}})


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
