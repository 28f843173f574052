"""Structured output: an answer that is a JSON object, voted on as a whole or field by field."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from langchain_core.messages import ToolCall
from pydantic import TypeAdapter, ValidationError

from langchain_reasc.answers.json_objects import last_object, parsed_object
from langchain_reasc.answers.json_values import REASONING, Names, canonical, check_tolerance, near
from langchain_reasc.answers.schemas import read, refuses
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.fields import ByField, field_name
from langchain_reasc.method.stopping import StoppingRule

__all__ = ["REASONING", "REFUSED_OBJECT", "ObjectVotes", "Schema", "whole_object"]

REFUSED_OBJECT = "an object that its schema refuses"

Schema = Mapping[str, Any] | type
"""A JSON schema, or a class that pydantic can validate: a model, a dataclass, a TypedDict."""

_AROUND = ("json_schema", "function", "schema", "parameters", "input_schema")
"""What providers' response formats and tools hold a schema under."""

_FENCED = re.compile(r"\s*```\w*\s*\n(.*)\n\s*```\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ObjectVotes:
    """How objects are compared. A field inside another object is named ``"a.b"``; a list is one value.

    Attributes:
        by_field: whether each field is decided on its own, and the answer put together from them.
        leave_out: fields that do not count, at any depth, whatever their case; they do where an object has no others.
        tolerance: field -> how far, at most, its number is from another that it agrees with.
        voted: by field, those whose numbers are names, such as an id: they are voted on, where other numbers take their
            weighted median.
        schema: what objects are validated by. It fills in defaults, and those it refuses cast no vote.

    Raises:
        ConfigurationError: a tolerance that is no distance, a string where several are expected, an unknown schema.
    """

    by_field: bool = False
    leave_out: Names = REASONING
    tolerance: Mapping[str, float] = field(default_factory=dict)
    voted: Names = ()
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for name in ("leave_out", "voted"):
            if isinstance(given := getattr(self, name), str):
                raise ConfigurationError(f"{name} is a list of names, got {given!r}")
        check_tolerance(self.tolerance)
        if isinstance(self.schema, type):
            _adapter(self.schema)
        elif self.schema is not None and not isinstance(self.schema, Mapping):
            raise ConfigurationError(f"a schema is a dictionary or a class, got {self.schema!r}")

    def __str__(self) -> str:
        """The name shown in messages, by which calibrations tell one spec from another."""
        said = ["by_field"] if self.by_field else []
        said += [f"schema={self.name or 'unnamed'}"] if self.schema is not None else []
        said += [f"leave_out={sorted(self.leave_out)}"] if set(self.leave_out) != set(REASONING) else []
        said += [f"tolerance={dict(sorted(self.tolerance.items()))}"] if self.tolerance else []
        said += [f"voted={sorted(self.voted)}"] if self.voted else []
        return f"json({', '.join(said)})" if said else "json"

    @property
    def exact(self) -> bool:
        """Whether objects agree only where they are spelled alike, so that nothing needs to be compared."""
        return self.by_field or not self.tolerance

    def same(self, one: str, other: str) -> bool:
        """Whether two answers are the same but for numbers within their tolerance. It is not transitive."""
        if one == other or self.exact:
            return one == other
        a, b = parsed_object(one), parsed_object(other)
        return a is not None and b is not None and near(a, b, self.tolerance)

    def rule(self, rule: StoppingRule) -> StoppingRule:
        """The rule as it decides on such objects: by field, or as it is."""
        return ByField(rule, self.tolerance, tuple(self.voted), self.accepts) if self.by_field else rule

    def answer(self, value: Mapping[str, Any]) -> str | None:
        """What an object votes for: itself as canonical JSON, without what is left out; None where it is refused."""
        full = self.validated(value)
        try:
            return None if full is None else self.spelled(full)
        except RecursionError:
            return None

    def fields(self, answer: str) -> dict[str, str]:
        """The fields of an answer, name -> value as canonical JSON; none of what is no object."""
        value = parsed_object(answer) or {}
        return {field_name(path): canonical(leaf) for path, leaf in _leaves(value)}

    def label(self, right: str) -> str:
        """The right answer in the spelling of :meth:`answer`; what is no object as it is."""
        value = parsed_object(right)
        return (None if value is None else self.answer(value)) or right

    def in_text(self, text: str, *, cut_off: bool = False) -> str | None:
        """The answer that the last object in a text is; None without one, and where it is refused."""
        value = last_object(text, cut_off=cut_off)
        return None if value is None else self.answer(value)

    def in_calls(self, calls: list[ToolCall]) -> dict[str, Any] | None:
        """The object that these calls give (structured output by function calling); None where they are ordinary ones.

        It is the argument of a single call, of the tool that is named as the schema is, where that has a name.
        """
        if len(calls) != 1 or (self.name is not None and calls[0]["name"] != self.name):
            return None
        return calls[0]["args"]

    @property
    def name(self) -> str | None:
        """What the schema is named, and the tool by which it is asked for; None where it has no name."""
        if isinstance(self.schema, type):
            return self.schema.__name__
        return None if self.schema is None else _name(self.schema)

    def accepts(self, answer: str) -> bool:
        """Whether the schema allows an answer, whatever it says of the fields that are left out."""
        value = parsed_object(answer)
        if value is None or self.schema is None:
            return value is not None
        if isinstance(self.schema, Mapping):
            schema = _relieved(_plain(self.schema), self._left_out)
            return not refuses(schema, read(value, schema, defaults=False))
        try:
            _adapter(self.schema).validate_python(value)
        except ValidationError as error:
            return all(_is_missing(found, self._left_out) for found in error.errors(include_url=False))
        except Exception:
            return False
        return True

    def validated(self, value: Mapping[str, Any]) -> dict[str, Any] | None:
        """An object as its schema has it, with defaults, and all that is left out of the vote; None where refused."""
        if self.schema is None:
            return dict(value)
        if isinstance(self.schema, Mapping):
            schema = _plain(self.schema)
            refused = refuses(schema, read(value, schema, defaults=False))
            return None if refused else dict(read(dict(value), schema))
        adapter = _adapter(self.schema)
        try:
            full = adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True, round_trip=True)
        except Exception:  # a validator of the user's may raise anything
            return None
        return full if isinstance(full, dict) else None

    def spelled(self, value: Mapping[str, Any]) -> str:
        """A validated object as it is compared: canonical JSON, strings of a format in one spelling.

        Raises:
            RecursionError: it is nested too deeply.
        """
        schema = _plain(self.schema) if isinstance(self.schema, Mapping) else _json_schema(self.schema)
        return canonical(self.compared(read(value, schema, defaults=False, formats=True)))

    def compared(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """A value without what is left out of the vote."""
        if isinstance(value, dict):
            kept = {key: one for key, one in value.items() if not self.is_left_out((*path, key))}
            kept = value if not kept and not path else kept  # it is all there is
            return {key: self.compared(one, (*path, key)) for key, one in kept.items()}
        return [self.compared(one, path) for one in value] if isinstance(value, list) else value

    def is_left_out(self, path: tuple[str, ...]) -> bool:
        """Whether the field that these keys lead to does not count."""
        return not {path[-1].casefold(), ".".join(path).casefold()}.isdisjoint(self._left_out)

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in self.leave_out)


def whole_object(text: str) -> dict[str, Any] | None:
    """The object that a text is, in a code block or not; None where there is anything else in it."""
    fenced = _FENCED.fullmatch(text)
    return parsed_object((fenced[1] if fenced else text).strip())


def _leaves(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _name(schema: Mapping[str, Any]) -> str | None:
    for name in ("name", "title"):
        if isinstance(schema.get(name), str):
            return str(schema[name])
    inner = (schema.get(name) for name in _AROUND)
    return next((found for one in inner if isinstance(one, Mapping) and (found := _name(one))), None)


def _plain(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema without what is wrapped around it."""
    for name in _AROUND:
        if isinstance(inner := schema.get(name), Mapping):
            return _plain(inner)
    return schema


def _relieved(schema: Any, names: Collection[str]) -> Any:
    """The schema without its demand for fields of these names."""
    if isinstance(schema, list):
        return [_relieved(inner, names) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    relieved = {key: _relieved(inner, names) for key, inner in schema.items()}
    if isinstance(required := schema.get("required"), list):
        relieved["required"] = [name for name in required if str(name).casefold() not in names]
    return relieved


def _is_missing(found: Any, names: Collection[str]) -> bool:
    return found["type"] == "missing" and str(found["loc"][-1]).casefold() in names


@lru_cache(maxsize=64)
def _json_schema(schema: type | None) -> Mapping[str, Any]:
    """The JSON schema of a class; empty where it has none."""
    try:
        return {} if schema is None else _adapter(schema).json_schema()
    except Exception:  # it has a type of the user's own that JSON schema knows nothing of
        return {}


@lru_cache(maxsize=64)
def _adapter(schema: type) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(schema)
    except Exception as error:
        raise ConfigurationError(f"pydantic cannot validate by {schema!r}: {error}") from error
