"""What the schemas of tools make of arguments: they are filled in, read, and refused."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from answers.calling import MESSAGE, SCHEMAS, answer, call, vote
from langchain_reasc.answers import ToolVotes, Vote, extractor, kind_of, vote_of
from langchain_reasc.answers.schemas import read, refuses
from langchain_reasc.answers.structured import REFUSED_CALLS, UNKNOWN_TOOL
from langchain_reasc.answers.vote import INVALID_CALLS


def test_defaults_are_filled_in() -> None:
    full = answer(call(q="x", limit=10, exact=False, near=None), schemas=SCHEMAS)
    assert answer(call(q="x"), schemas=SCHEMAS) == answer(call(q="x", limit=10), schemas=SCHEMAS) == full
    assert answer(call(q="x", limit=9), schemas=SCHEMAS) != full
    assert answer(call(q="x")) != full


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"limit": "5"}, {"limit": 5}),
        ({"limit": 5.0}, {"limit": 5}),
        ({"limit": " 5 "}, {"limit": 5}),
        ({"exact": "true"}, {"exact": True}),
        ({"exact": 1}, {"exact": True}),
        ({"limit": True}, {"limit": 1}),
        ({"near": "2.5"}, {"near": 2.5}),
        ({"filter": {"year": "2024"}}, {"filter": {"year": 2024}}),
        ({"tags": ["1", 2]}, {"tags": [1, 2]}),
    ],
)
def test_what_a_tool_would_read_votes_as_it_is_read(given: dict[str, Any], means: dict[str, Any]) -> None:
    assert answer(call(q="x", **given), schemas=SCHEMAS) == answer(call(q="x", **means), schemas=SCHEMAS)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"q": None},
        {"q": 5},
        {"q": "x", "limit": "five"},
        {"q": "x", "limit": 5.5},
        {"q": "x", "limit": None},
        {"q": "x", "exact": "perhaps"},
        {"q": "x", "filter": {}},
        {"q": "x", "filter": {"year": []}},
        {"q": "x", "tags": "1"},
        {"q": "x", "near": {}},
    ],
)
def test_calls_that_the_schema_refuses_abstain(args: dict[str, Any]) -> None:
    given = {"name": "search", "args": args, "id": "1"}
    assert vote(given, schemas=SCHEMAS) == Vote(None, why_none=REFUSED_CALLS)
    assert vote(call(q="x"), given, schemas=SCHEMAS).why_none == REFUSED_CALLS
    assert vote(given, schemas=SCHEMAS, tools=ToolVotes(check_schema=False)).answer is not None
    assert vote(given).answer is not None


def test_calls_of_a_tool_that_is_not_there_abstain() -> None:
    assert vote(call("serch", q="x"), schemas=SCHEMAS) == Vote(None, why_none=UNKNOWN_TOOL)
    assert vote(call("serch", q="x"), schemas={**SCHEMAS, "*": {}}).answer is not None
    assert vote(call("stop", anything=[None]), schemas=SCHEMAS).answer is not None
    assert vote(call("serch", q="x"), schemas=SCHEMAS, tools=ToolVotes(check_schema=False)).answer is not None


def test_a_default_may_be_none_that_the_schema_allows() -> None:
    limit = {"type": "integer", "default": None}  # def f(limit: int = None)
    schema = {"type": "object", "properties": {"limit": limit}}
    assert vote(call("f"), schemas={"f": schema}).answer == answer(call("f", limit=None))


def test_recursive_schemas() -> None:
    tree = {
        "type": "object",
        "properties": {"n": {"type": "integer", "default": 0}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }
    assert read({"next": {"next": None, "n": "2"}}, tree) == {"n": 0, "next": {"next": None, "n": 2}}
    assert refuses(tree, {"next": {"n": 1}})


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),  # it is one as it is
        ("5", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 5),
        ("5", {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, 5),
        ("5", {"type": ["integer", "null"]}, 5),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("5", {"allOf": [{"type": "integer"}], "default": 1}, 5),
        ("5", {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 5),
        ("5", {"const": "5", "type": "integer"}, 5),
        ("a", {"anyOf": [{"enum": ["a", "b"]}, {"type": "integer"}]}, "a"),
        (None, {"type": "integer"}, None),
        ("x", {"type": "integer"}, "x"),
        ("x", True, "x"),
        ("x", {}, "x"),
        ([["1"]], {"items": {"items": {"type": "number"}}}, [[1.0]]),
        (10**400, {"type": "number"}, 10**400),
        (
            {"kind": "b", "x": "1"},
            {
                "anyOf": [
                    {"type": "object", "required": ["kind", "y"], "properties": {"x": {"type": "boolean"}}},
                    {"type": "object", "required": ["kind", "x"], "properties": {"x": {"type": "integer"}}},
                ]
            },
            {"kind": "b", "x": 1},
        ),
    ],
)
def test_how_values_are_read(value: Any, schema: Any, expected: Any) -> None:
    found = read(value, schema)
    assert found == expected and type(found) is type(expected)


def test_a_default_is_nobody_elses() -> None:
    schema = {"properties": {"tags": {"default": []}}}
    first = read({}, schema)
    first["tags"].append(1)
    assert read({}, schema) == {"tags": []}


@pytest.mark.parametrize("args", [{"x": {}}, {"x": "🦜" * 10_000}, {"x": [[[[{}]]]]}, {"": ""}, {"x": "\ud800"}])
def test_odd_arguments_vote(args: dict[str, Any]) -> None:
    given = {"name": "f", "args": args, "id": None}
    assert answer(given) == answer(dict(given))
    assert kind_of(answer(given)) == '["f"]'


def test_arguments_that_are_nested_too_deeply_abstain() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    message = AIMessage("").model_copy(update={"tool_calls": [call("f", x=deep)]})
    assert vote_of(message, extractor("auto")).why_none == INVALID_CALLS
    for tools in (ToolVotes(), ToolVotes(exclude_args=["y"])):
        assert vote_of(message, MESSAGE, tools, {"f": {"properties": {"x": {"type": "object"}}}}).answer is None
    while deep:  # freed level by level
        deep = deep["x"]
