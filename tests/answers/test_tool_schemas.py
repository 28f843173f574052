"""Schemas of tools in any provider's format, and what broken ones do: nothing."""

from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.tools import InjectedToolArg, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field

from langchain_reasc.answers import ToolVotes, can_refuse, extractor, schemas, schemas_of, vote_of
from langchain_reasc.answers.schemas import ANY_TOOL, read, refuses
from langchain_reasc.answers.structured import REFUSED_CALLS, UNKNOWN_TOOL


class search(BaseModel):
    """Look something up."""

    q: str
    limit: int = Field(default=10, ge=1)


class Typed(TypedDict):
    """Look something up."""

    q: str
    limit: Annotated[int, 10, "how many"]


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
    "openai": {"type": "function", "function": {"name": "search", "parameters": PARAMETERS}},
    "openai strict": {"type": "function", "function": {"name": "search", "parameters": PARAMETERS, "strict": True}},
    "responses": {"type": "function", "name": "search", "parameters": PARAMETERS},
    "legacy function": {"name": "search", "description": "x", "parameters": PARAMETERS},
    "anthropic": {"name": "search", "input_schema": PARAMETERS, "cache_control": {"type": "ephemeral"}},
    "anthropic custom": {"type": "custom", "name": "search", "input_schema": PARAMETERS},
    "bedrock": {"toolSpec": {"name": "search", "inputSchema": {"json": PARAMETERS}}},
    "gemini": {"function_declarations": [{"name": "search", "parameters": UPPER}]},
    "gemini camel": {"functionDeclarations": [{"name": "search", "parameters": UPPER}]},
    "json schema": {"title": "search", **PARAMETERS},
    "class": search,
    "tool": searching,
    "structured tool": StructuredTool.from_function(_search, name="search"),
    "converted": convert_to_openai_tool(searching),
}


@pytest.mark.parametrize("given", FORMATS.values(), ids=FORMATS)
def test_every_format_says_the_same(given: Any) -> None:
    tools = schemas_of([given])
    assert list(tools) == ["search"]

    def answer(**args: Any) -> Any:
        message = AIMessage("", tool_calls=[{"name": "search", "args": args, "id": "1"}])
        return vote_of(message, extractor("auto"), ToolVotes(), tools)

    assert answer(q="x").answer == answer(q="x", limit="10").answer
    assert '"limit": 10' in answer(q="x").answer
    assert answer(limit=3).why_none == answer(q="x", limit="ten").why_none == REFUSED_CALLS


def test_functions_and_typed_dictionaries() -> None:
    assert schemas_of([_search])["_search"]["properties"]["limit"]["default"] == 10
    assert set(schemas_of([Typed])["Typed"]["properties"]) == {"q", "limit"}
    assert schemas_of(search).keys() == {"search"}  # one alone
    assert schemas_of([]) == {}


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
        ({"type": "web_search"}, ANY_TOOL),
        ({"type": "mcp", "server_label": "x", "server_url": "y"}, ANY_TOOL),
        ({"type": "namespace", "name": "crm", "tools": []}, ANY_TOOL),
        ({"google_search": {}}, ANY_TOOL),
        ({"type": "web_search_20250305", "name": "web_search"}, "web_search"),
        ({"type": "bash_20250124", "name": "bash"}, "bash"),
        ({"type": "custom", "name": "code", "format": {"type": "text"}}, "code"),
        ({"name": "plain"}, "plain"),
        (5, ANY_TOOL),
        (None, ANY_TOOL),
        ("search", ANY_TOOL),
        ({}, ANY_TOOL),
    ],
)
def test_tools_of_the_providers_own_take_everything(given: Any, name: str) -> None:
    assert schemas_of([given]) == {name: {}}


def test_beside_a_tool_without_a_name_no_call_is_of_an_unknown_one() -> None:
    message = AIMessage("", tool_calls=[{"name": "other", "args": {}, "id": "1"}])
    known = [FORMATS["openai"]]
    assert vote_of(message, extractor("auto"), ToolVotes(), schemas_of(known)).why_none == UNKNOWN_TOOL
    assert vote_of(message, extractor("auto"), ToolVotes(), schemas_of([*known, {"type": "web_search"}])).answer


BROKEN: list[Any] = [
    {"type": "OBJECT"},
    {"type": 5},
    {"properties": 5},
    {"properties": {"x": 5}},
    {"required": True},
    {"properties": {"x": {"$ref": "#/nowhere"}}},
    {"properties": {"x": {"$ref": "https://example.invalid/schema.json"}}},
    {"$ref": "#"},
    {"properties": {"x": {"pattern": "("}}},
    {"anyOf": 5},
    {"allOf": 5},
    {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"enum": 5},
    {"$schema": "https://example.invalid/none", "type": "object"},
    {"properties": {"x": {"default": object}}},
    {"items": {"items": 5}},
    {"properties": {"x": {"type": ["integer", 5]}}},
]


@pytest.mark.parametrize("schema", BROKEN, ids=str)
@pytest.mark.parametrize("value", [{"x": "5"}, {"x": {"x": [1]}}, {}])
def test_a_broken_schema_refuses_nothing(schema: Any, value: Any) -> None:
    assert not refuses(schema, value)
    assert isinstance(read(value, schema), dict)


def test_without_jsonschema_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_refuse()
    monkeypatch.setattr(schemas, "find_spec", lambda name: None)
    schemas._validator.cache_clear()
    try:
        assert not can_refuse()
        assert not refuses(PARAMETERS, {})
        assert read({"limit": "5"}, PARAMETERS) == {"limit": 5}
    finally:
        schemas._validator.cache_clear()


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
    read(value, schema)
    refuses(schema, value)
    schemas_of([schema, {"name": "f", "parameters": schema}, {"function_declarations": [schema]}])
