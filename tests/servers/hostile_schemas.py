"""Schemas that an unbounded validator would check for ever, each with a bad value."""

from typing import Any

BACKTRACKS = "^(a|a)*$"
LONG = "a" * 40 + "b"


def _doubling(word: str, levels: int = 40) -> dict[str, Any]:
    """A schema of 3 kB whose references lead to 2^levels copies of another."""
    defined = {f"l{n}": {word: [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    return {
        "type": "object",
        "$defs": {**defined, f"l{levels}": {"type": "integer"}},
        "properties": {"x": {"$ref": "#/$defs/l0"}},
    }


HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "pattern": ({"type": "object", "properties": {"x": {"type": "string", "pattern": BACKTRACKS}}}, LONG),
    "patternProperties": ({"patternProperties": {BACKTRACKS: {}}}, {LONG: 1}),
    "propertyNames": ({"type": "object", "properties": {"x": {"propertyNames": {"pattern": BACKTRACKS}}}}, {LONG: 1}),
    "additionalProperties": (
        {"type": "object", "patternProperties": {BACKTRACKS: {}}, "additionalProperties": False},
        {LONG: 1},
    ),
    "unevaluatedProperties": (
        {"type": "object", "patternProperties": {BACKTRACKS: {}}, "unevaluatedProperties": False},
        {LONG: 1},
    ),
    "another dialect inside": (
        {
            "type": "object",
            "properties": {"x": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": BACKTRACKS}},
        },
        LONG,
    ),
    "anyOf that doubles": (_doubling("anyOf"), "no integer"),
    "oneOf that doubles": (_doubling("oneOf"), 1),
    "allOf that doubles": (_doubling("allOf"), 1),
    "dependent schemas that double": (
        {
            "$defs": {
                **{
                    f"l{n}": {"$ref": f"#/$defs/l{n + 1}", "dependentSchemas": {"x": {"$ref": f"#/$defs/l{n + 1}"}}}
                    for n in range(40)
                },
                "l40": {},
            },
            "allOf": [{"$ref": "#/$defs/l0"}],
            "unevaluatedProperties": False,
        },
        1,
    ),
    "many objects that are to differ": (
        {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}},
        [{"n": n} for n in range(3000)],
    ),
    "many values, each of many": (
        {"type": "object", "properties": {"x": {"items": {"enum": [[n, {}] for n in range(3000)]}}}},
        [[n, {}] for n in range(3000)],
    ),
    "a long pattern": (
        {"type": "object", "properties": {"x": {"pattern": "|".join(f"w{n}" for n in range(40_000))}}},
        "a",
    ),
}
"""Name -> the schema of an object, and the value of its "x" (the whole object where it is none of its properties)."""


def arguments(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) and LONG in value else {"x": value}
