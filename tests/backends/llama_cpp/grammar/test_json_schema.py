"""JSON schemas as grammars: what a random model writes under one keeps to its schema."""

import json
from collections.abc import Iterator
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.grammar.json_schema import SchemaRules
from pydantic import BaseModel, Field

from langchain_reasc.exceptions import ConfigurationError

Short = Annotated[str, Field(max_length=4)]


class Sign(Enum):
    QUOTED = 'a "b"'
    SLASHED = "back\\slash\n"
    FAR = "grün 😀"


class Node(BaseModel):
    value: int = Field(ge=1, le=5)
    kids: list["Node"] = Field(max_length=1)


class Everything(BaseModel):
    Node: Short  # as the class, and as a built-in rule
    string: Short
    sign: Sign
    other: Sign = Sign.FAR
    pair: tuple[bool, Short]
    day: date
    key: UUID
    code: str = Field(pattern=r"^\d{3}-(?:a|b)[^,\s]{1,3}\.\w{2}$")
    fixed: Literal["x", 1]
    maybe: float | None
    names: list[Short] = Field(min_length=1, max_length=3)
    none: list[Any] = Field(max_length=0)


SCHEMAS: dict[str, Any] = {
    "everything": Everything.model_json_schema(),
    "recursive": {"properties": {"n": Node.model_json_schema()["$defs"]["Node"]}, **Node.model_json_schema()},
    "union": {"type": ["integer", "null"], "enum": [1, None]},
    "bounds of a union": {"type": ["string", "null"], "maxLength": 3},
    "one allOf": {"allOf": [{"enum": ["a", "b"]}], "default": "a"},
    "counts": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 1000},
    "nothing else": {"type": "object", "additionalProperties": False},
    "open": {
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "null"},
        "required": ["a"],
        "maxProperties": 9,
    },
    "long": {"type": "string", "minLength": 3, "maxLength": 1500},
    "a number": {"type": "number"},
}


@pytest.fixture(scope="module")
def model(endless_path: Path) -> Iterator[ChatLlamaCpp]:
    """A random model that does not know how to end."""
    with ChatLlamaCpp(model_path=endless_path, n_ctx=8192, max_tokens=4000, temperature=1.5, signals=()) as made:
        yield made


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_keeps_to_the_schema(model: ChatLlamaCpp, name: str) -> None:
    schema = SCHEMAS[name]
    for seed in range(4):
        message = model.invoke("go", response_format={"type": "json_object", "schema": schema}, seed=seed)
        if message.response_metadata["finish_reason"] == "stop":
            jsonschema.validate(json.loads(message.text), schema)
        else:
            assert name in ("open", "counts", "long"), "a bounded schema has an end"


def test_numbers_are_finite(model: ChatLlamaCpp) -> None:
    for seed in range(20):
        message = model.invoke("go", response_format={"type": "json_object", "schema": {"type": "number"}}, seed=seed)
        assert abs(json.loads(message.text)) < 1e120


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string", "pattern": "abc"}, r"response.*\"abc\".*start with"),
        ({"properties": {"a": {"items": {"type": "strin"}}}}, r"\(response-a-item\).*strin"),
        ({"type": "string", "pattern": r"^(?=a)$"}, "Unsupported pattern"),
        ({"type": "string", "pattern": r"^\D$"}, r"\\D in a pattern"),
        ({"type": "string", "pattern": '^"$'}, "double quote"),
        ({"type": "string", "pattern": "^a{501}$"}, "500 times"),
        ({"$ref": "https://example.com/schema"}, "points out of the schema"),
        ({"items": {"$ref": "#/$defs/x"}}, r"\(response-item\).*#/\$defs/x"),
        ({"type": "integer", "minimum": 3, "maximum": 1}, "no integer"),
        ({"type": "string", "minLength": 3, "maxLength": 1}, "below minLength"),
        ({"type": "string", "minLength": 2001}, "2,000 at most"),
        ({"properties": {"a": False}}, "a dict, not bool"),
    ],
)
def test_what_cannot_be_a_grammar_is_named(schema: dict[str, Any], says: str, model: ChatLlamaCpp) -> None:
    with pytest.raises(ConfigurationError, match=says):
        SchemaRules().add(schema, "response")
    with pytest.raises(ConfigurationError, match=says):
        model.invoke("go", response_format={"type": "json_object", "schema": schema})


def test_a_schema_is_not_changed() -> None:
    schema = Everything.model_json_schema()
    before = json.dumps(schema)
    rules = SchemaRules()
    assert rules.add(schema, "one") != rules.add(schema, "two")
    assert json.dumps(schema) == before
