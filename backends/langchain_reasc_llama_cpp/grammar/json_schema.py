"""Prepare JSON schemas for llguidance."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final, TypeGuard
from urllib.parse import unquote

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.grammar.grammar import (
    NO_FORCING,
    guidance,
    on_deep_stack,
)

WHITE_SPACE: Final = r"[ ]|\n{1,2}[ \t]{0,20}"
_OPTIONS: Final = {
    "whitespace_pattern": WHITE_SPACE,
    "lenient": True,
    "json_allow_general_unicode_escapes": True,
}
# llguidance recurses from one part to the next: some 10 KB of `on_deep_stack`'s 128 MB
_MOST_PARTS: Final = 5000
# levels of JSON; llguidance reads 128, and needs some of them around the schema
_DEEPEST: Final = 110
_MOST_REMAINDERS: Final = (
    100_000  # a multiple is recognised by an automaton with a state for each remainder
)
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE: Final = ("items", "additionalProperties")
_TYPED: Final = {"$ref", "enum", "const"}
_IMPLIED: Final = {
    "items": "array",
    "prefixItems": "array",
    "properties": "object",
}  # or any other type would do too
_NAMES: Final = ("$id", "$schema")  # what "#" would point into

_STRING: Final = r'"([^"\\]|\\.)*"'
_NUMBER: Final = r"[0-9]{1,17}(\.[0-9]{1,17})?([eE][+\-]?[0-9]{1,2})?"
_OTHERS: Final = rf'([^0-9"]|{_STRING})*'
_DIGITS: Final = 17  # on either side of a number's point
_SMALLEST: Final = 1e-14  # above an exclusive bound of 0
# digits of a number that every double holds, and that llguidance reads as they are
_EXACT: Final = 15
# of the automaton that recognises a multiple; llguidance makes some 100,000 in all
_MOST_STATES: Final = 20_000
_LARGEST: Final = 1e300
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_UNHELD_KEYS: Final = re.compile(r"Unimplemented keys: (\[.*\])")


def short_numbers(schemas: Any) -> str:
    """Return a grammar of texts whose numbers (outside of strings) fit into a double:
    JSON's may have any length.

    Args:
        schemas: the JSON schemas of the grammar, in lists or dicts. Numbers have at
            most 17 digits on either side of their point, or as many as numbers in the
            schemas need.
    """
    digits = list(_digits_in(schemas))
    # a number as long as a bound may be within it
    whole = max((before for before, _ in digits), default=0) + 1
    fraction = max((after for _, after in digits), default=0)
    if fraction >= _EXACT:
        fraction += _DIGITS  # llguidance may read it as the next double
    number = _NUMBER
    if max(whole, fraction) > _DIGITS:
        number = rf"({_NUMBER}|[0-9]{{1,{max(whole, _DIGITS)}}}(\.[0-9]{{1,{max(fraction, _DIGITS)}}})?)"
    return (
        f'{NO_FORCING}start: /(?s:({_OTHERS}{number}[^0-9eE."])*{_OTHERS}({number})?)/'
    )


def _digits_in(schemas: Any) -> Iterator[tuple[int, int]]:
    """Yield how many digits are before and after the point of each number that schemas
    compare with.
    """
    ahead = [schemas]
    while ahead:
        value = ahead.pop()
        if isinstance(value, list):
            ahead += value
        elif isinstance(value, dict):
            ahead += value.values()
            compared = [
                *(value.get(key) for key in (*_BOUNDS, "multipleOf")),
                *_fixed_values(value),
            ]
            for number in filter(_is_number, compared):
                before, _, after = f"{abs(Decimal(repr(float(number)))):f}".partition(
                    "."
                )
                yield len(before), len(after)


def _fixed_values(schema: dict[str, Any]) -> list[Any]:
    """Return the values that ``const`` and ``enum`` list."""
    listed = schema.get("enum")
    return [schema.get("const"), *(listed if isinstance(listed, list) else ())]


def json_rule(schema: dict[str, Any]) -> str:
    """Return the rule for a schema in a grammar."""
    return f"%json {json.dumps(schema | {'x-guidance': _OPTIONS})}"


def within(schema: Any, at: str) -> Any:
    """Return a copy of a schema for a place in another schema.

    Objects with listed properties may have no others, unless the schema allows them,
    because a small model would add more and more.

    Args:
        schema: JSON Schema, whose ``$ref`` may point into itself only.
        at: JSON pointer to the place, such as "/$defs/response".

    Raises:
        ConfigurationError: the schema has too many parts.
        RecursionError: the schema is nested too deeply, or an ``allOf`` contains
            itself.
    """
    return _Mover(schema, at).moved(schema)


class _Mover:
    """Copies a schema to its new place, part by part."""

    def __init__(self, root: Any, at: str) -> None:
        self._root, self._at, self._parts = root, at, 0

    def moved(self, schema: Any, *, closed: bool = True) -> Any:
        if not isinstance(schema, dict):
            return schema
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise ConfigurationError(
                f"the JSON schema has more than {_MOST_PARTS:,} parts, including the "
                "targets of each allOf; simplify it"
            )
        made = {key: value for key, value in schema.items() if key not in _NAMES}
        if isinstance(ref := made.get("$ref"), str) and ref.startswith("#"):
            made["$ref"] = f"#{self._at}{ref[1:]}"
        for key, name, part in _parts(schema):
            if name is None:
                made[key] = self.moved(part)
            else:
                made[key] = made[key].copy() if made[key] is schema[key] else made[key]
                made[key][name] = self.moved(part)
        if (members := _members(schema)) and len(members) + (
            "properties" in schema
        ) > 1:
            made |= self._united(schema)
        return _completed(made, schema, closed=closed)

    def _united(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Allow each member of ``allOf`` the properties that the others list, but no
        unlisted ones.
        """
        members = [
            self.moved(self._pointed_at(member), closed=False)
            for member in _members(schema)
        ]
        own = {name: self.moved(part) for name, part in _listed(schema).items()}
        names = dict.fromkeys(
            (name for member in members for name in _listed(member)), True
        )
        return {"allOf": members} | (
            {"properties": names | own} if names or own else {}
        )

    def _pointed_at(self, schema: Any) -> Any:
        """Return the target of a schema that is only a reference, if it can be found."""
        seen: set[str] = set()
        while (
            isinstance(schema, dict)
            and set(schema) == {"$ref"}
            and schema["$ref"] not in seen
        ):
            seen.add(schema["$ref"])
            found = self._root
            try:
                for part in unquote(schema["$ref"]).removeprefix("#").split("/")[1:]:
                    key = part.replace("~1", "/").replace("~0", "~")
                    found = found[int(key)] if isinstance(found, list) else found[key]
            except (LookupError, TypeError, ValueError):
                return schema
            schema = found
        return schema


def _completed(
    made: dict[str, Any], schema: dict[str, Any], *, closed: bool
) -> dict[str, Any]:
    """Add the type that a keyword implies, and that listed properties are all."""
    if "type" not in made and not made.keys() & _TYPED:
        made.update(("type", kind) for key, kind in _IMPLIED.items() if key in schema)
    _bound_digits(made)
    if closed and isinstance(made.get("properties"), dict) and "$ref" not in made:
        made.setdefault("additionalProperties", False)
    return made


def _bound_digits(made: dict[str, Any]) -> None:
    """Change bounds so that every beginning of a number with few digits can end with
    few digits.

    0.000 begins numbers above 0, but is not above 0, however many zeros follow. So the
    next number above an exclusive bound becomes the bound, and -0.000 must go on to the
    smallest number. Multiples are bounded, because llguidance looks ahead only within
    bounds.
    """
    bounds = [made[key] for key in _BOUNDS if key in made]
    if not all(map(_is_number, bounds)) or not isinstance(made.get("allOf", []), list):
        # llguidance says what is wrong, or knows what exclusiveMinimum: true means
        return
    if _is_number(made.get("multipleOf")):
        far = max(
            [
                _farthest(made["multipleOf"]),
                *(min(10 * abs(bound), _LARGEST) for bound in bounds),
            ]
        )
        made.setdefault("minimum", -far)
        made.setdefault("maximum", far)
    if made.get("type") == "integer":
        return
    smallest = min([_SMALLEST, *(abs(bound) / 1000 for bound in bounds if bound)])
    above, below = made.get("exclusiveMinimum"), made.get("exclusiveMaximum")
    if above is not None and above >= 0:
        del made["exclusiveMinimum"]
        made["minimum"] = max(made.get("minimum", 0), _next_number(above) or smallest)
    if below is not None and below <= 0:
        del made["exclusiveMaximum"]
        made["maximum"] = min(
            made.get("maximum", 0), -(_next_number(-below) or smallest)
        )
    if bounds and made.get("minimum", -1) < 0 <= made.get("maximum", 0):
        made["allOf"] = [
            *_members(made),
            {"anyOf": [{"maximum": -smallest}, {"minimum": 0}]},
        ]


def _next_number(number: float) -> float:
    """Return the next larger number whose digits llguidance reads exactly, or 0 for 0."""
    return (
        float(Decimal(repr(number)).next_plus(Context(prec=_EXACT))) if number else 0.0
    )


def _farthest(multiple: float) -> float:
    """Return how far from 0 multiples may be: exact in a double, and few enough states
    of their automaton.
    """
    places = max(0, -int(Decimal(str(float(multiple))).normalize().as_tuple().exponent))
    further = max(1, _MOST_STATES // _digits(multiple))
    return float(
        min(10 ** (_EXACT - places), abs(multiple) * 10 ** min(further, _EXACT))
    )


def _members(schema: dict[str, Any]) -> list[Any]:
    found = schema.get("allOf")
    return found if isinstance(found, list) else []


def _listed(schema: Any) -> dict[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the schemas right inside another: the key, the name or number under it
    (None: there is one), the schema.
    """
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            yield from ((key, name, part) for name, part in schema[key].items())
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from ((key, number, part) for number, part in enumerate(schema[key]))
    for key in _SINGLE:
        if isinstance(schema.get(key), dict):
            yield key, None, schema[key]


@lru_cache(maxsize=256)
def check_schema(written: str, name: str) -> tuple[str, ...]:
    """Check that a schema (as JSON) can become a grammar. Errors call it by ``name``,
    such as "response".

    Returns:
        The keywords that no grammar can hold, so that responses may break them.

    Raises:
        ConfigurationError: the schema cannot become a grammar. The message says why.
    """
    why, warnings = on_deep_stack(lambda: _fault(json.loads(written)))
    if why:
        raise ConfigurationError(
            f"no grammar can be made of the JSON schema ({name}): {why}; "
            "simplify it, or use method='json_mode' and check the output yourself"
        )
    return tuple(
        dict.fromkeys(keyword for warning in warnings for keyword in _unheld(warning))
    )


def _unheld(warning: str) -> list[str]:
    """Return the keywords in a warning of llguidance. A format is not one: JSON Schema
    need not check formats.
    """
    if keys := _UNHELD_KEYS.search(warning):
        return [str(key) for key in json.loads(keys[1])]
    return ["oneOf"] if warning.startswith("oneOf") else []


def _fault(schema: Any) -> tuple[str, list[str]]:
    """Return why a schema cannot become a grammar (an empty text if it can), and
    llguidance's warnings.
    """
    if why := _fault_of_values(schema):
        return why, []
    try:
        grammar = json.dumps({"$ref": "#/outer", "outer": within(schema, "/outer")})
    except RecursionError:
        return "it is nested too deeply, or an allOf contains itself", []
    matcher = guidance().LLMatcher
    wrong, messages = matcher.validate_grammar_with_warnings(
        matcher.grammar_from_json_schema(grammar, overrides=_OPTIONS)
    )
    return (
        (" ".join(messages[0].split()).replace("/outer/", "/"), [])
        if wrong
        else ("", messages)
    )


def _fault_of_values(schema: Any) -> str:
    """Return the part that a grammar cannot express, or would take forever for; empty
    if there is no such part.
    """
    multiples = 1
    ahead: list[tuple[Any, int]] = [(schema, 0)]
    while ahead:
        value, depth = ahead.pop()
        if depth > _DEEPEST:
            return f"it is nested more than {_DEEPEST} levels deep"
        if isinstance(value, dict):
            multiples = math.lcm(multiples, _digits(value.get("multipleOf")))
            if multiples > _MOST_REMAINDERS:
                return "its multipleOf, with others of the schema, has too many digits"
            for number in _fixed_values(value):
                if (
                    isinstance(number, int)
                    and _is_double(number)
                    and int(float(number)) != number
                ):
                    return f"llguidance would write the number {number} as {float(number):.0f}; make it a string"
            ahead += ((part, depth + 1) for part in (*value, *value.values()))
        elif isinstance(value, list):
            ahead += ((part, depth + 1) for part in value)
        elif isinstance(value, str) and not _is_unicode(value):
            return f"the text {value!r} has half a character (a lone surrogate)"
        elif isinstance(value, int | float) and not _is_double(value):
            return f"the number {str(value)[:20]} is not finite, or too large"
    return ""


def _digits(multiple: Any) -> int:
    """Return the digits of a ``multipleOf`` without its decimal point, as a number; 1
    without ``multipleOf``.
    """
    if (
        not isinstance(multiple, int | float)
        or not multiple
        or not _is_double(multiple)
    ):
        return 1
    digits = Decimal(str(float(multiple))).normalize().as_tuple().digits
    return int("".join(map(str, digits)))


def _is_number(value: Any) -> TypeGuard[float]:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and _is_double(value)
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_double(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
