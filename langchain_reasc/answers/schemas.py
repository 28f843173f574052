"""What a JSON schema makes of a value: defaults filled in, strings read as the numbers that a tool would read in them.

To compare values, dates, times, UUIDs and decimals are given one spelling where the schema says that they are such.

A schema that is broken, or that refers to what is not in it, refuses nothing.
"""

import json
import math
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import lru_cache, partial
from importlib.util import find_spec
from ipaddress import IPv6Address
from typing import Any, Final
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

__all__ = ["can_refuse", "fields_of", "read", "refuses"]

_LONGEST_CHAIN: Final = 100
_MOST_FIELDS: Final = 10_000
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_READERS: Final[dict[str, TypeAdapter[Any]]] = {  # as LangChain's tools do, by pydantic
    "integer": TypeAdapter(int),
    "number": TypeAdapter(float),
    "boolean": TypeAdapter(bool),
}
_FORMATS: Final[dict[str, type]] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "ipv6": IPv6Address,
}
"""JSON schema's formats of strings that can be spelled in several ways."""
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)")
_PATTERN_OF_DECIMALS: Final = "^(?!^[-+.]*$)[+-]?0*"  # how pydantic's of a Decimal begin
_FINER: Final = re.compile(r"[.,]\d{7,}")  # than microseconds, to which pydantic cuts


def can_refuse() -> bool:
    """Whether values can be checked against schemas: by the package jsonschema, which the extra ``agents`` brings."""
    return find_spec("jsonschema") is not None


def refuses(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is none that the schema allows. Without jsonschema, and by a broken schema, none is refused."""
    try:
        validator = _validator(json.dumps(schema, sort_keys=True, default=str))
        return validator is not None and not validator.is_valid(value)
    except (
        Exception
    ):  # a reference to nowhere, one that never ends, a pattern that is none: it says nothing of the value
        return False


def read(value: Any, schema: Mapping[str, Any], *, defaults: bool = True, formats: bool = False) -> Any:
    """The value as a tool with this schema would have it: numbers where they came as strings, with defaults.

    Args:
        value: as it comes from JSON.
        schema: its JSON schema.
        defaults: whether what is left out is filled in where the schema has a default for it.
        formats: whether strings that the schema calls dates, times, UUIDs or decimals are spelled in one way, to be
            compared: equal instants as the same, and ``"1.10"`` as ``"1.1"``.
    """
    try:
        return _Reading(schema, defaults, formats).of(value, schema)
    except Exception:  # a schema may be broken in any way
        return value


Paths = set[tuple[str, ...]]
"""The keys that lead to fields, whether or not lists are between them."""


def fields_of(schema: Mapping[str, Any]) -> tuple[Paths, Paths]:
    """The fields that a JSON schema names, and the objects in it that may have others; ``()`` is the whole."""
    named: Paths = set()
    unnamed: Paths = set()
    _collect(schema, schema, (), (), named, unnamed)
    return named, unnamed


def _collect(
    schema: Any, root: Mapping[str, Any], path: tuple[str, ...], around: tuple[int, ...], named: Paths, unnamed: Paths
) -> None:
    schema = _followed(schema, root)
    if not isinstance(schema, Mapping) or not schema or len(named) > _MOST_FIELDS:
        unnamed.update({path} if schema is not False else ())
        return
    if id(schema) in around:
        return
    below = partial(_collect, root=root, around=(*around, id(schema)), named=named, unnamed=unnamed)
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if others or ("object" in _kinds(schema) and properties is None and others is None):
        unnamed.add(path)
    for key, inner in properties.items() if isinstance(properties, Mapping) else ():
        named.add((*path, key))
        below(inner, path=(*path, key))
    for word in ("allOf", "anyOf", "oneOf", "prefixItems"):
        for branch in schema.get(word) or ():
            below(branch, path=path)
    if "items" in schema:
        below(schema["items"], path=path)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How values are read; references start from the root."""

    root: Mapping[str, Any]
    defaults: bool
    formats: bool

    def of(self, value: Any, schema: Any, around: tuple[int, ...] = ()) -> Any:
        """The value as the schema has it; ``around`` are the schemas of the same value that led to it, by their ids."""
        schema = _followed(schema, self.root)
        if not isinstance(schema, Mapping) or id(schema) in around:
            return value
        around = (*around, id(schema))
        for branch in schema.get("allOf", ()):
            value = self.of(value, branch, around)
        for branches in (schema.get("anyOf"), schema.get("oneOf")):
            if isinstance(branches, list):
                value = self._by_branch(value, branches, around)
        if isinstance(value, dict):
            return self._object(value, schema)
        if isinstance(value, list):
            first = schema.get("prefixItems") or ()
            return [self.of(one, first[at] if at < len(first) else schema.get("items")) for at, one in enumerate(value)]
        value = _scalar(value, schema)
        return _spelled(value, schema) if self.formats and isinstance(value, str) else value

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> Any:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        properties = properties if isinstance(properties, Mapping) else {}
        full = {key: self.of(one, properties.get(key, others)) for key, one in value.items()}
        if self.defaults:
            for key, of in properties.items():
                of = of if isinstance(of, Mapping) and "default" in of else _followed(of, self.root)
                if key not in full and isinstance(of, Mapping) and "default" in of:
                    full[key] = deepcopy(of["default"])
        return full

    def _by_branch(self, value: Any, branches: list[Any], around: tuple[int, ...]) -> Any:
        """The value as the first branch has it that it fits as it is, else as the first that can read it."""
        followed = [_followed(branch, self.root) for branch in branches]
        if self.formats and any(map(_is_decimal, followed)) and any(_fits(0.5, branch) for branch in followed):
            value = _number(value)
        for branch in followed:
            if _fits(value, branch):
                return self.of(value, branch, around)
        scalars = (_scalar(value, branch) for branch in followed if isinstance(branch, Mapping))
        return next((read for read in scalars if any(_fits(read, branch) for branch in followed)), value)


def _fits(value: Any, schema: Any) -> bool:
    """Whether a value is of the schema's type, and has what it requires."""
    if not isinstance(schema, Mapping):
        return bool(schema)
    if "const" in schema or "enum" in schema:
        return value in [schema["const"]] if "const" in schema else value in schema["enum"]
    if isinstance(value, dict) and not set(schema.get("required", ())) <= value.keys():
        return False
    return not (kinds := _kinds(schema)) or any(_is(value, kind) for kind in kinds)


def _scalar(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value as the schema's type has it, where it can be read as such; else as it is."""
    kinds = _kinds(schema)
    if any(_is(value, kind) for kind in kinds):
        return value
    for kind in kinds:
        if kind in _READERS:
            try:
                return _READERS[kind].validate_python(value)
            except ValidationError:
                continue
    return value


def _spelled(text: str, schema: Mapping[str, Any]) -> str:
    """The one spelling of a string in its schema's format; as it is where it has none, or is none."""
    if _is_decimal(schema) and _DECIMAL.fullmatch(text):
        return str(Decimal(text).normalize(Context(prec=len(text))))
    kind = _FORMATS.get(str(schema.get("format")))
    if kind is None or _FINER.search(text):
        return text
    adapter = _adapter(kind)
    try:
        value = adapter.validate_python(text)
    except ValidationError:
        return text
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return str(adapter.dump_python(value, mode="json"))


def _is_decimal(schema: Any) -> bool:
    """Whether the strings that a schema allows are decimal numbers."""
    if not isinstance(schema, Mapping) or "string" not in _kinds(schema):
        return False
    return schema.get("format") == "decimal" or str(schema.get("pattern")).startswith(_PATTERN_OF_DECIMALS)


def _number(value: Any) -> Any:
    """The number that a string is, where that loses no digit; anything else as it is."""
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        return value
    number = float(value)
    return number if math.isfinite(number) and Decimal(repr(number)) == Decimal(value) else value


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type")
    return [kinds] if isinstance(kinds, str) else [str(kind) for kind in kinds] if isinstance(kinds, list) else []


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, ()))


def _followed(schema: Any, root: Mapping[str, Any]) -> Any:
    """What a reference within the schema leads to, one after the other; a schema without one as it is."""
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(schema, Mapping) or not isinstance(path := schema.get("$ref"), str):
            return schema
        if not path.startswith("#"):
            return {}
        found: Any = root
        for key in path.split("/")[1:]:
            found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        schema = found
    return {}


@lru_cache(maxsize=len(_FORMATS))
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """The validator of a schema; None without jsonschema, or where it is broken."""
    if not can_refuse():
        return None
    from jsonschema import Draft202012Validator, SchemaError  # deferred: an extra
    from jsonschema.validators import validator_for
    from referencing import Registry

    held = json.loads(schema)
    kind = validator_for(held, default=Draft202012Validator)
    try:
        kind.check_schema(held)
    except SchemaError:
        return None
    return kind(held, registry=Registry())  # which fetches nothing from anywhere
