"""JSON schemas as grammars: what a model writes under one keeps to its schema."""

import json
from collections.abc import Iterator
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from pydantic import BaseModel, Field

from backends.llama_cpp.conftest import REAL
from backends.llama_cpp.faces import printed
from langchain_reasc.answers import check_value
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
    "bounds of a union": {"type": ["string", "null"], "maxLength": 3},
    "counts": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 1000},
    "nothing else": {"type": "object", "additionalProperties": False},
    "open": {
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "null"},
        "required": ["a"],
        "maxProperties": 9,
    },
    "long": {"type": "string", "minLength": 3, "maxLength": 3000},
    "a number": {"type": "number"},
    "a pattern": {"type": "string", "pattern": r"^\D[a-c]{2}\"$"},
    "many": {"type": "string", "pattern": "^a{501}$"},
    "a multiple": {"type": "integer", "multipleOf": 7, "minimum": 30, "maximum": 99},
    "a tuple": {"prefixItems": [{"type": "boolean"}, {"const": None}], "items": False, "minItems": 2},
    "never there": {"properties": {"a": False, "b": {"const": 1}}, "required": ["b"]},
    "one kind or the other": {
        "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {
            "a": {"properties": {"kind": {"const": "a"}, "x/y ~z": {"type": "boolean"}}, "required": ["kind"]},
            "b": {"properties": {"kind": {"const": "b"}}, "required": ["kind"], "additionalProperties": False},
        },
    },
    "one of a kind": {
        "allOf": [{"$ref": "#/$defs/a"}],
        "properties": {"y": {"enum": [True]}},
        "required": ["x", "y", "w"],
        "$defs": {
            "a": {"properties": {"x": {"enum": [1]}}, "allOf": [{"properties": {"w": {"enum": [2]}}}, {"minItems": 1}]}
        },
    },
    "both": {
        "$id": "https://example.com/both",
        "allOf": [{"$ref": "#/$defs/a%20b"}, {"properties": {"y": {"$ref": "#/properties/z"}}, "required": ["y"]}],
        "properties": {"z": {"enum": [1, 2]}},
        "required": ["z", "x"],
        "$defs": {"a b": {"type": "object", "properties": {"x": {"const": "é"}}}},
    },
}


def nested(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(times):
        schema = {"items": schema}
    return schema


DOUBLED = {str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(18)} | {"18": {"type": "object"}}


@pytest.fixture(scope="module", params=["random", *REAL[1:]])
def model(request: pytest.FixtureRequest) -> Iterator[ChatLlamaCpp]:
    """A random model that does not know how to end, and a real one, whose tokens are words."""
    path = request.getfixturevalue("endless_path" if request.param == "random" else "smollm2")
    with ChatLlamaCpp(model_path=path, n_ctx=4096, max_tokens=1200, temperature=1.5, signals=()) as made:
        yield made


@pytest.mark.full
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_keeps_to_the_schema(model: ChatLlamaCpp, name: str) -> None:
    schema = SCHEMAS[name]
    before = json.dumps(schema)
    for seed in range(2):
        message = model.invoke("go", response_format={"type": "json_object", "schema": schema}, seed=seed)
        if message.response_metadata["finish_reason"] == "stop":
            jsonschema.validate(json.loads(message.text), schema)
        else:
            assert name in ("open", "counts", "long"), "a bounded schema has an end"
    assert json.dumps(schema) == before


def test_numbers_are_finite(model: ChatLlamaCpp) -> None:
    for seed in range(10):
        message = model.invoke("go", response_format={"type": "json_object", "schema": {"type": "number"}}, seed=seed)
        assert abs(json.loads(message.text)) < 1e120


NUMBERS: dict[str, dict[str, Any]] = {
    "between 0 and 1": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "between -1 and 0": {"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 0},
    "between two fractions": {"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 0.5000001},
    "from -1 to 1": {"type": "number", "minimum": -1, "maximum": 1},
    "above 0": {"type": "number", "exclusiveMinimum": 0},
    "up to 1": {"type": "number", "maximum": 1},
    "tiny": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-20},
    "of 17 digits": {"type": "number", "minimum": 0.09452706955539225, "maximum": 0.095},
    "or null": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "in members": {"allOf": [{"type": "number"}, {"exclusiveMinimum": 0}, {"exclusiveMaximum": 0.001}]},
    "large integers": {"type": "integer", "minimum": 5 * 10**16},
    "larger integers": {"type": "integer", "minimum": 2**60, "maximum": 2**63 - 1},
    "multiples": {"type": "integer", "multipleOf": 13},
    "large multiples": {"type": "integer", "multipleOf": 99_991},
    "fractional multiples": {"type": "number", "multipleOf": 13.7},
    "multiples between": {"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "a large constant": {"const": 2**60},
    "large values": {"enum": [10**22, 3 * 10**17]},
}


@pytest.mark.full
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_within_bounds_end(model: ChatLlamaCpp, name: str) -> None:
    """A model without a preference for an end writes zeros, or any digits, as long as it may."""
    for seed in range(16):
        response_format = {"type": "json_object", "schema": NUMBERS[name]}
        message = model.invoke("go", response_format=response_format, seed=seed)
        assert message.response_metadata["finish_reason"] == "stop"
        assert check_value(NUMBERS[name], json.loads(message.text)) == (None, None)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"a": {"items": {"type": "strin"}}}}, r"\(response\): .*strin"),
        ({"type": "string", "pattern": "("}, "unclosed"),
        ({"type": "string", "pattern": r"^(?=a)$"}, "look-around"),
        ({"$ref": "https://example.com/schema"}, r"https://example.com/schema"),
        ({"items": {"$ref": "#/$defs/x"}}, r"./\$defs/x"),
        ({"type": "integer", "minimum": 3, "maximum": 1}, r"minimum \(3\).*maximum \(1\)"),
        ({"properties": {"a": False}, "required": ["a"]}, "property 'a'"),
        ({"properties": 3}, "properties"),
        ({"$ref": "#"}, "stack level exceeded"),
        ({"$defs": {f"{i}": {"$ref": f"#/$defs/{i + 1}"} for i in range(9000)}}, "5,000 parts"),
        ({"$ref": "#/$defs/0", "$defs": DOUBLED}, "5,000 parts"),
        ({"allOf": [{"$ref": "#"}, {"type": "object"}]}, "allOf"),
        (nested(300), "110 levels"),
        (nested(5000), "recursion|110 levels"),  # as deep as Python's JSON goes
        ({"items": {"type": "integer", "minimum": 10**400}}, "1000.*too large"),
        ({"type": "integer", "maximum": -(10**5000)}, "4300 digits"),
        ({"type": "number", "minimum": float("nan")}, "nan is not finite"),
        ({"type": "integer", "multipleOf": 1_000_003}, "multipleOf.*too many digits"),
        ({"allOf": [{"type": "integer", "multipleOf": 997}, {"multipleOf": 991}]}, "multipleOf.*too many digits"),
        ({"const": 2**60 + 1}, f"{2**60 + 1}.*string"),
        ({"properties": {"a": {"enum": [1, 10**16 + 1]}}}, f"{10**16 + 1}.*string"),
        ({"type": "number", "exclusiveMinimum": 0, "minimum": "x"}, "'minimum'"),
        ({"properties": {"a": {"enum": ["\ud800"]}}}, "lone surrogate"),
        ({"properties": {"\udfff": {"type": "string"}}}, r"'\\udfff'.*lone surrogate"),
    ],
)
def test_what_cannot_be_a_grammar_is_named(schema: dict[str, Any], says: str, model: ChatLlamaCpp) -> None:
    with pytest.raises(ConfigurationError, match=says):
        model.invoke("go", response_format={"type": "json_object", "schema": schema})


@pytest.mark.parametrize("schema", [nested(300), {"properties": {"\ud800": {}}}], ids=["deep", "half a character"])
def test_what_cannot_be_a_grammar_is_refused_where_it_is_bound(schema: dict[str, Any], model: ChatLlamaCpp) -> None:
    with pytest.raises(ConfigurationError, match=r"nested|surrogate"):
        model.bind_tools([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    with pytest.raises(ConfigurationError, match=r"nested|surrogate"):
        model.with_structured_output({"title": "it"} | schema)


DEEP_REFERENCES = """
import threading
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc.exceptions import ConfigurationError

def deep(definitions, levels):
    defs = {str(definitions): {"type": "string"}}
    for number in range(definitions):
        schema = {"$ref": f"#/$defs/{number + 1}"}
        for _ in range(levels):
            schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        defs[str(number)] = schema
    return {"$ref": "#/$defs/0", "$defs": defs}

def run():
    for definitions, levels, way in [(50, 30, "tools"), (2400, 1, "response"), (9000, 1, "tools")]:
        schema = deep(definitions, levels)
        try:
            if way == "tools":
                model.bind_tools([{"type": "function", "function": {"name": "f", "parameters": schema}}])
            else:
                model.with_structured_output(schema, include_raw=True).invoke("go")
            print("works")
        except ConfigurationError as error:
            print(error)

model = ChatLlamaCpp(max_tokens=4, n_ctx=512, signals=())
threading.stack_size(1 << 20)  # Windows' main thread has as much
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.full
def test_references_however_deep_do_not_end_the_process() -> None:
    lines = printed(DEEP_REFERENCES).splitlines()
    assert lines[:2] == ["works", "works"] and "5,000 parts" in lines[2]
