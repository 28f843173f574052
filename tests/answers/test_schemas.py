"""Schemas of tools in any provider's format, how values are read by them, and what broken ones do: nothing."""

import time
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import InjectedToolArg, StructuredTool, tool
from pydantic import BaseModel, Field
from servers.hostile_schemas import HOSTILE, arguments

from answers.messages import REFUSED_CALLS, UNKNOWN_TOOL, answer, call, text, vote, voted
from langchain_reasc.answers import ToolVotes, check_value, schemas_of


class search(BaseModel):
    """Look something up."""

    q: str
    limit: int = Field(default=10, ge=1)


def _search(q: str, limit: int = 10) -> str:
    """Look something up.

    Args:
        q: what.
        limit: how many.
    """
    return q


@tool("search")
def searching(q: str, secret: Annotated[str, InjectedToolArg], limit: int = 10) -> str:
    """Look something up."""
    return q


PARAMETERS = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
    "required": ["q"],
}
UPPER = {
    "type": "OBJECT",
    "properties": {"q": {"type": "STRING"}, "limit": {"type": "INTEGER", "default": 10}, "type": {"type": "STRING"}},
    "required": ["q"],
}
FORMATS: dict[str, Any] = {
    "openai": {"type": "function", "function": {"name": "search", "parameters": PARAMETERS, "strict": True}},
    "responses": {"type": "function", "name": "search", "parameters": PARAMETERS},
    "anthropic": {"name": "search", "input_schema": PARAMETERS, "cache_control": {"type": "ephemeral"}},
    "bedrock": {"toolSpec": {"name": "search", "inputSchema": {"json": PARAMETERS}}},
    "gemini": {"function_declarations": [{"name": "search", "parameters": UPPER}]},
    "gemini camel": {"functionDeclarations": [{"name": "search", "parameters": UPPER}]},
    "json schema": {"title": "search", **PARAMETERS},
    "class": search,
    "tool": searching,
    "function": StructuredTool.from_function(_search, name="search"),
}


@pytest.mark.parametrize("given", FORMATS.values(), ids=FORMATS)
def test_every_format_says_the_same(given: Any) -> None:
    tools = schemas_of([given])
    assert list(tools) == ["search"]

    full = answer(call(q="x", limit=10))
    assert [answer(call(q="x", **args), schemas=tools) for args in ({}, {"limit": "10"})] == [full] * 2
    assert [vote(call(**args), schemas=tools).why_none for args in ({"limit": 3}, {"q": "x", "limit": "ten"})] == [
        REFUSED_CALLS
    ] * 2


def test_googles_own_classes() -> None:
    types = pytest.importorskip("google.genai.types")
    declaration = types.FunctionDeclaration(
        name="search",
        parameters=types.Schema(type="OBJECT", properties={"q": types.Schema(type="STRING", nullable=True)}),
    )
    schema = schemas_of([types.Tool(function_declarations=[declaration])])["search"]
    assert schema == {"type": "object", "properties": {"q": {"type": ["string", "null"]}}}


def test_names_of_arguments_are_no_words_of_the_schema() -> None:
    properties = {"nullable": {"type": "BOOLEAN"}, "type": UPPER}
    declared = {"name": "f", "parameters": {"type": "OBJECT", "properties": properties}}
    schema = schemas_of([{"function_declarations": [declared]}])["f"]
    assert schema["properties"]["nullable"] == {"type": "boolean"}
    assert schema["properties"]["type"]["properties"]["q"] == {"type": "string"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"type": "web_search"}, "*"),
        ({"type": "namespace", "name": "crm", "tools": []}, "*"),
        ({"google_search": {}}, "*"),
        ({"type": "web_search_20250305", "name": "web_search"}, "web_search"),
        ({"name": "plain"}, "plain"),
        (5, "*"),
    ],
)
def test_tools_of_the_providers_own_take_everything(given: Any, name: str) -> None:
    assert schemas_of([given]) == {name: {}}


def test_beside_a_tool_without_a_name_no_call_is_of_an_unknown_one() -> None:
    known = [FORMATS["openai"]]
    assert vote(call("other"), schemas=schemas_of(known)).why_none == UNKNOWN_TOOL
    assert vote(call("other"), schemas=schemas_of([*known, {"type": "web_search"}])).answer


LENIENT = ToolVotes(check_schema=False)
BROKEN: list[Any] = [
    {"type": 5},
    {"properties": 5},
    {"properties": {"x": 5}},
    {"required": "abc"},
    {"properties": {"x": {"$ref": "#/nowhere"}}},
    {"properties": {"x": {"$ref": "https://example.invalid/schema.json"}}},
    {"$ref": "#"},
    {"properties": {"x": {"pattern": "("}}},
    {"anyOf": 5},
    {"allOf": 5},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"enum": 5},
    {"properties": {"x": {"default": object}}},
    {"items": {"items": 5}},
]


@pytest.mark.parametrize("schema", BROKEN, ids=str)
def test_a_broken_schema_refuses_nothing(schema: Any) -> None:
    for args in ({"x": "5"}, {"x": {"x": [1]}}, {}):
        assert vote(call("f", **args), schemas={"f": schema}).answer is not None


def test_a_schema_without_end_refuses_nothing_however_deep_the_stack_is() -> None:
    """At one depth of ten, jsonschema's registry panics where Python's stack ends."""
    endless = {"oneOf": [{"$ref": "#"}, {"$ref": "#/$defs/O"}]}
    schema = {"allOf": [{"oneOf": [True, {"$ref": "#/$defs/O"}]}], "$defs": {"O": endless}}

    def vote_at(depth: int) -> Any:
        return vote_at(depth - 1) if depth else vote(call("f"), schemas={"f": schema})

    assert None not in [vote_at(depth).answer for depth in range(20)]


@pytest.mark.parametrize("case", HOSTILE)
def test_schemas_that_would_take_for_ever_refuse_nothing_and_hold_nobody(case: str) -> None:
    schema, value = HOSTILE[case]
    began = time.thread_time()
    for made in (arguments(value), {}):
        assert vote(call("f", **made), schemas={"f": schema}).answer is not None
    voted(text(**arguments(value)), schema=schema)
    assert time.thread_time() - began < 1.5


@pytest.mark.parametrize("case", HOSTILE)
def test_a_check_that_would_take_for_ever_ends_and_says_so(case: str) -> None:
    schema, value = HOSTILE[case]
    began = time.thread_time()
    fault, unchecked = check_value(schema, {"x": value} if "x" in schema.get("properties", {}) else arguments(value))
    assert (fault or unchecked) or case in ("many objects that are to differ", "many values, each of many")
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"uniqueItems": True}, [1, "1", True, [1]], [1, 2, 1.0]),
        ({"multipleOf": 0.01}, 4.35, 4.355),
        ({"multipleOf": 7}, 7 * 10**30, 7 * 10**30 + 1),
        ({"type": "integer"}, 1, "1"),
        ({"not": {"const": 1}}, 2, 1),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"maximum": 3}}}, 3, 4),
    ],
)
def test_a_check_takes_a_value_as_it_is_written(schema: dict[str, Any], right: Any, wrong: Any) -> None:
    around = {"properties": {"x": schema if "$ref" not in schema else {"$ref": schema["$ref"]}}}
    around |= {"$defs": schema["$defs"]} if "$defs" in schema else {}
    assert check_value(around, {"x": right}) == (None, None)
    fault, unchecked = check_value(around, {"x": wrong})
    assert fault is not None and fault.startswith("$.x: ") and unchecked is None


def test_a_check_by_a_broken_schema_says_that_nothing_was_checked() -> None:
    fault, unchecked = check_value({"properties": {"x": {"$ref": "#/$defs/nowhere"}}}, {"x": 1})
    assert fault is None and unchecked is not None


def test_a_multiple_of_a_fraction_casts_a_vote() -> None:
    schema = {"type": "object", "properties": {"x": {"multipleOf": 0.01}}}
    assert vote(call("f", x=4.35), schemas={"f": schema}).answer is not None
    assert vote(call("f", x=4.355), schemas={"f": schema}).why_none == REFUSED_CALLS


def test_patterns_and_properties_are_checked_all_the_same() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"pattern": "^[A-Z]{2}[0-9]+$"}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": False,
    }
    for args, taken in (
        ({"id": "AB12", "x-a": 1}, True),
        ({"id": "ab12"}, False),
        ({"x-a": "one"}, False),
        ({"y-a": 1}, False),
    ):
        assert (vote(call("f", **args), schemas={"f": schema}).answer is not None) is taken
    strict = {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}
    assert [vote(call("f", **{name: 1}), schemas={"f": strict}).answer is None for name in "ab"] == [False, True]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),  # it is one as it is
        ("5", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 5),
        ("5", {"type": ["integer", "null"]}, 5),
        ("5", {"type": ["string", "integer"]}, "5"),
        ("5", {"allOf": [{"type": "integer"}], "default": 1}, 5),
        ("5", {"$ref": "#/$defs/n"}, 5),
        ("5", {"const": "5", "type": "integer"}, 5),
        ("a", {"anyOf": [{"enum": ["a", "b"]}, {"type": "integer"}]}, "a"),
        ("x", {"type": "integer"}, "x"),
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
    held = {"f": {"properties": {"x": schema}, "$defs": {"n": {"type": "integer"}}}}
    assert answer(call("f", x=value), schemas=held, tools=LENIENT) == answer(call("f", x=expected))


def test_recursive_schemas() -> None:
    tree = {
        "type": "object",
        "properties": {"n": {"type": "integer", "default": 0}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    }
    full = answer(call("f", n=0, next={"next": None, "n": 2}))
    assert answer(call("f", next={"next": None, "n": "2"}), schemas={"f": tree}) == full
    assert vote(call("f", next={"n": 1}), schemas={"f": tree}).why_none == REFUSED_CALLS


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
words = st.sampled_from(["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "required", "default", "x"])
some_schemas = st.recursive(
    json_values | st.sampled_from(["integer", "object", "#", "number"]),
    lambda inner: st.dictionaries(words, inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=10,
)


@given(st.dictionaries(words, some_schemas, max_size=4), json_values)
def test_no_schema_is_an_error(schema: Any, value: Any) -> None:
    vote(call("f", x=value), schemas={"f": schema})
    schemas_of([schema, {"name": "f", "parameters": schema}, {"function_declarations": [schema]}])
