"""JSON schemas of tools and of structured output: validate values and fill in defaults.

A schema that is broken, or that refers to definitions it does not contain, refuses
nothing.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from fractions import Fraction
from functools import cache, lru_cache
from inspect import isfunction
from ipaddress import IPv6Address
from itertools import chain, product, repeat
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import regex
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import to_jsonable_python

from langchain_reasc.answers.json_values import canonical, plain
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.langchain_internals import validates_by_functions

T = TypeVar("T")
Schema = Mapping[str, Any] | type
"""A JSON schema, or a class that pydantic can validate: a model, a dataclass, a
TypedDict.
"""
Schemas = Mapping[str, Schema]
"""Tool -> schema of its arguments."""

# Finding schemas

ANY_TOOL: Final = "*"
"""Stands for tools with unknown names or arguments. Its schema accepts everything."""
STRUCTURE: Final = (
    "response_format",  # OpenAI and all who speak its API
    "format",  # Ollama
    "output_format",  # Anthropic
    "output_config",
    "response_schema",  # Gemini
    "response_json_schema",
    "response_mime_type",
    "grammar",  # llama.cpp
    "guided_json",  # vLLM
)
"""Arguments of a model call that ask for structured text."""
_AROUND: Final = ("json_schema", "function", "schema", "parameters", "input_schema")
"""Keys that contain the schema in providers' response formats and tools."""


def schemas_of(tools: Any) -> dict[str, Schema]:
    """Return tool name -> schema of its arguments: the class that validates them, or a
    JSON schema.

    Args:
        tools: the value of ``tools=`` (or ``functions=``) in a model's bound arguments,
            one tool or several: dictionaries in the form of OpenAI, Anthropic, Gemini
            or Bedrock, JSON schemas with a title, LangChain tools, classes, functions.

    Returns:
        The schemas. A tool without a schema has ``{}``, and a provider's tool whose
        calls have an unknown name has ``{}`` under :data:`ANY_TOOL`.
    """
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        tools = [tools]
    schemas: dict[str, Schema] = {}
    for tool in tools:
        if isfunction(tool) or isinstance(tool, type):
            schemas.update([_schema_of_code(tool)])
            continue
        functions = _gemini_functions(tool)
        if functions is None:
            schemas.update([_named_schema(tool)])
            continue
        for function in functions:
            name, schema = _named_schema(function)
            schemas[name] = _in_json_schema(schema)
    return schemas


def text_schema_of(arguments: Mapping[str, Any]) -> Schema | None:
    """Return the schema that a model call's arguments ask the text to follow, or None."""
    for name in STRUCTURE:
        structure = arguments.get(name)
        if isinstance(structure, type) and issubclass(structure, BaseModel):
            return structure
        schema = unwrapped(structure, ("format", "json_schema", "schema"))
        if not isinstance(schema, Mapping):
            continue
        is_typed = schema.get("type") in ("object", "array")
        if is_typed or schema.keys() & {"properties", "$ref"}:
            return dict(_in_json_schema(schema))
    return None


def unwrapped(schema: Any, around: Sequence[str] = _AROUND) -> Any:
    """Return a JSON schema without a provider's wrapper, such as
    ``{"type": "json_schema", ...}``.
    """
    while isinstance(schema, Mapping):
        values = [schema.get(name) for name in around]
        inner = [value for value in values if isinstance(value, Mapping)]
        if not inner:
            break
        schema = inner[0]
    return schema


def name_of_schema(schema: Schema | None) -> str | None:
    """Return the name of a schema, which is also the name of the tool that asks for it,
    or None.
    """
    if isinstance(schema, type):
        return schema.__name__
    if not isinstance(schema, Mapping):
        return None
    inner_names = [name_of_schema(schema.get(around)) for around in _AROUND]
    for name in (schema.get("name"), schema.get("title"), *inner_names):
        if isinstance(name, str):
            return name
    return None


@lru_cache(maxsize=256)
def _schema_of_code(tool: Any) -> tuple[str, Schema]:
    """Return the name and the schema of a function or a class: pydantic takes
    milliseconds to make one.
    """
    return _named_schema(tool)


def _named_schema(tool: Any) -> tuple[str, Schema]:
    try:
        converted = convert_to_openai_tool(tool)
    except Exception:  # whatever a provider has of its own
        converted = dict(tool) if isinstance(tool, Mapping) else {}
    function = converted.get("function", converted)
    name = function.get("name") if isinstance(function, Mapping) else None
    # The name of a namespace or of an MCP server stands for many tools.
    if not isinstance(name, str) or converted.get("type") in ("namespace", "mcp"):
        return ANY_TOOL, {}
    schema = _class_of_arguments(tool) or function.get("parameters")
    if isinstance(schema, type):
        return name, schema
    return name, dict(schema) if isinstance(schema, Mapping) else {}


def _class_of_arguments(tool: Any) -> type[BaseModel] | None:
    """Return the class that validates a tool's arguments, without fields that LangChain
    injects, or None.
    """
    if isfunction(tool):
        with suppress(Exception):  # such as a function without a description
            tool = StructuredTool.from_function(tool)
    schema: Any = tool
    call_schema: Any = tool
    if isinstance(tool, BaseTool):
        schema = tool.args_schema
        call_schema = tool.tool_call_schema
    for kind in (schema, call_schema):
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return None
    injected = frozenset(schema.model_fields.keys() - call_schema.model_fields.keys())
    return _without_fields(schema, injected) if injected else schema


@lru_cache(maxsize=64)
def _without_fields(schema: type[BaseModel], names: frozenset[str]) -> type[BaseModel]:
    """Return the class without some of its required fields."""
    left_out = dict.fromkeys(names, (Any, Field(default=None, exclude=True)))
    return create_model(schema.__name__, __base__=schema, **left_out)  # type: ignore[call-overload, no-any-return]


def _gemini_functions(tool: Any) -> list[Any] | None:
    """Return the functions in a tool in Gemini's form, or None for any other tool."""
    for name in ("function_declarations", "functionDeclarations"):
        if isinstance(tool, Mapping):
            functions = tool.get(name)
        else:
            functions = getattr(tool, name, None)
        if isinstance(functions, Sequence):
            return [_dumped(function) for function in functions]
    return None


def _dumped(function: Any) -> Any:
    if hasattr(function, "model_dump"):  # an object of Gemini's package
        return function.model_dump(mode="json", exclude_none=True)
    return function


def _in_json_schema(schema: Any) -> Any:
    """Convert a schema in Gemini's form, ``{"type": "STRING", "nullable": true}``, to
    JSON schema.
    """
    if isinstance(schema, list):
        return [_in_json_schema(inner) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    converted: dict[str, Any] = {}
    for word, inner in schema.items():
        if word in ("default", "example", "enum", "const"):
            converted[word] = inner
        # Their keys are names, not words of a schema.
        elif word in ("properties", "$defs") and isinstance(inner, Mapping):
            converted[word] = {
                name: _in_json_schema(named) for name, named in inner.items()
            }
        elif word != "nullable" or not isinstance(inner, bool):
            converted[word] = _in_json_schema(inner)
    kind = converted.get("type")
    if isinstance(kind, str):
        converted["type"] = kind.lower()
        if schema.get("nullable") is True:
            converted["type"] = [kind.lower(), "null"]
    return converted


# Checking values


def received(value: Any, schema: Schema | None, *, check: bool = True) -> Any:
    """Return the arguments that a tool would get, as JSON values with equal values
    spelled alike.

    None if the tool's schema refuses them, unless ``check`` is off.
    """
    if not schema:
        return value
    if not isinstance(schema, type):
        checker = _checker(schema)
        if check and checker.refuses(value):
            return None
        return checker.read_value(value, defaults=True, formats=True)
    try:
        # A validator may change what it is given.
        validated = adapter_of(schema).validate_python(deepcopy(value))
    except Exception:  # a validator of the user's may raise anything
        return None if check else value
    try:
        return comparable(adapter_of(schema), validated)
    except Exception:  # a class that pydantic cannot write
        return value


def comparable(adapter: TypeAdapter[Any], validated: Any) -> Any:
    """Return a validated object as JSON values with equal values spelled alike."""
    return to_jsonable_python(
        plain(adapter.dump_python(validated, by_alias=True, round_trip=True))
    )


@lru_cache(maxsize=64)
def runs_functions(schema: type) -> bool:
    """Return whether a class has validators of the user, which may take long."""
    return validates_by_functions(schema)


@lru_cache(maxsize=64)
def adapter_of(schema: type) -> TypeAdapter[Any]:
    """Return pydantic's adapter for a class.

    Raises:
        ConfigurationError: pydantic cannot validate by this class.
    """
    try:
        return TypeAdapter(schema)
    except Exception as error:
        raise ConfigurationError(
            f"pydantic cannot validate by {schema!r}: {error}"
        ) from error


def arguments_in(schema: Schema) -> list[str] | None:
    """Return the names of a tool's arguments, or None if it may take others or its
    schema does not list them.
    """
    try:
        if isinstance(schema, type):
            schema = adapter_of(schema).json_schema()
    except Exception:
        # It has a type of the user's own that JSON schema knows nothing of.
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and not schema.get("additionalProperties"):
        return list(properties)
    return None


_SECONDS: Final = 0.1
"""Seconds of processor time for one value. Strangers write schemas and patterns, and
some would take forever.
"""
_LONGEST_PATTERN: Final = 2000
_LONGEST_FAULT: Final = 300
_TYPES_OF_KEYWORDS: Final[Mapping[str, tuple[type, ...]]] = {
    "required": (list,),
    "enum": (list,),
    "anyOf": (list,),
    "oneOf": (list,),
    "minimum": (int, float),
    "maximum": (int, float),
    "exclusiveMinimum": (int, float),
    "exclusiveMaximum": (int, float),
    "multipleOf": (int, float),
}
"""Keywords -> their types. A broken schema, or one of an older draft, would refuse
everything by another type.
"""


def why_unchecked(schema: Schema | None) -> str | None:
    """Return why a schema does not check values (doing so takes too long), or None."""
    schema = unwrapped(schema)
    if isinstance(schema, Mapping) and schema:
        return _checker(schema).why_not
    return None


def refuses(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether a schema refuses a value. A schema that is broken or takes too
    long refuses nothing.

    Repeated items are allowed, because the tool may make a set of them. Defaults are
    not checked: a tool may have a default that its schema does not allow.
    """
    return _checker(schema).refuses(value)


class SchemaCheck(NamedTuple):
    """The result of checking a value by a schema.

    Attributes:
        fault: where and why the schema refuses the value, or None.
        unchecked: why the value could not be checked, or None.
    """

    fault: str | None
    unchecked: str | None


def check_value(schema: Mapping[str, Any], value: Any) -> SchemaCheck:
    """Check a value as it is written, in bounded time.

    Unlike :func:`refuses`, this neither converts a string to a number nor allows
    repeated items.
    """
    return _checker(schema, exact=True).check(value)


class _TooSlowError(Exception):
    """Checking a value took too long."""


class _Deadline(threading.local):
    """The deadline for the value that this thread checks."""

    _began = _ends = math.inf

    def start(self) -> None:
        self._began = time.thread_time()
        self._ends = time.perf_counter() + _SECONDS

    def check(self) -> None:
        if time.perf_counter() > self._ends:
            # on a busy machine, there is some
            left = self._began + _SECONDS - time.thread_time()
            if left <= 0:
                raise _TooSlowError
            self._ends = time.perf_counter() + left


_deadline = _Deadline()


@dataclass(slots=True)
class _Checker:
    """Reads and checks values by a JSON schema, each in bounded time.

    Attributes:
        schema: the JSON schema, or True to leave values as they are.
        validator: jsonschema's validator, or None if values are not checked, and
            ``why_not``.
        parts: id of a part of the schema -> its validator.
    """

    schema: Any = True
    validator: Any = None
    why_not: str | None = None
    parts: dict[int, Any] = field(default_factory=dict)

    def refuses(self, value: Any) -> bool:
        def is_refused() -> bool:
            reader = _ValueReader(self, defaults=False, formats=False)
            return not self.takes(reader.read_value(value, self.schema), self.schema)

        return self.within_time(is_refused, otherwise=False)

    def check(self, value: Any) -> SchemaCheck:
        def checked() -> SchemaCheck:
            errors = () if self.validator is None else self.validator.iter_errors(value)
            for error in errors:
                rule = "/".join(map(str, error.absolute_schema_path))
                message = f"{error.message:.{_LONGEST_FAULT}}"
                return SchemaCheck(f"{error.json_path}: {message} (by {rule})", None)
            return SchemaCheck(None, self.why_not)

        result = self.within_time(checked, otherwise=None)
        return result or SchemaCheck(None, self.why_not or "jsonschema cannot use it")

    def read_value(self, value: Any, *, defaults: bool, formats: bool) -> Any:
        reader = _ValueReader(self, defaults, formats)
        return self.within_time(
            lambda: reader.read_value(value, self.schema), otherwise=value
        )

    def takes(self, value: Any, schema: Any) -> bool:
        """Return whether a part of the schema accepts a value; always True if values
        are not checked.
        """
        if self.validator is None:
            return True
        if id(schema) not in self.parts:
            self.parts[id(schema)] = self.validator.evolve(schema=schema)
        return bool(self.parts[id(schema)].is_valid(value))

    def within_time(self, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of the work, or the other value if the schema is broken or
        takes too long.
        """
        _deadline.start()
        try:
            return work()
        except (_TooSlowError, TimeoutError):
            self.schema = True
            self.validator = None
            self.why_not = f"that takes more than {_SECONDS} seconds"
        except Exception:
            # The schema refers to nowhere or without end, or has a broken pattern.
            return otherwise
        except BaseException as error:
            # jsonschema's registry panics, by an exception of its own, where it is too
            # deep in a recursion.
            if type(error).__name__ != "PanicException":
                raise
        return otherwise


def _checker(schema: Mapping[str, Any], *, exact: bool = False) -> _Checker:
    try:
        written = json.dumps(schema, sort_keys=True, default=str)
    except (RecursionError, TypeError, ValueError):
        written = "true"
    return _cached_checker(written, exact)


@lru_cache(maxsize=256)
def _cached_checker(schema: str, exact: bool) -> _Checker:
    plain = json.loads(schema)
    if '"unevaluatedProperties"' in schema and '"patternProperties"' in schema:
        return _Checker(
            plain,
            why_not="unevaluatedProperties beside patternProperties may take for ever",
        )
    # Deferred: importing jsonschema takes 100 ms.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = _bounded(validator_for(plain, default=Draft202012Validator), exact)
    plain = json.loads(schema, object_hook=_without_dialect)
    # An empty registry fetches nothing from anywhere.
    return _Checker(plain, kind(plain, registry=Registry()))


def _without_dialect(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without ``$schema``, which would make jsonschema choose another
    validator.
    """
    return {
        word: inner
        for word, inner in schema.items()
        if word != "$schema" or not isinstance(inner, str)
    }


@cache
def _bounded(kind: Any, exact: bool) -> Any:
    """Return a validator class of jsonschema that stops at the deadline, and allows
    repeated items unless exact.
    """
    from jsonschema import ValidationError as Refusal
    from jsonschema.validators import extend

    def pattern(
        validator: Any, pattern: Any, instance: Any, schema: Any
    ) -> Iterator[Refusal]:
        if isinstance(instance, str) and not _matches(pattern, instance):
            yield Refusal(f"it does not match {pattern!r}")

    def pattern_properties(
        validator: Any, patterns: Any, instance: Any, schema: Any
    ) -> Iterator[Refusal]:
        if not isinstance(instance, dict):
            return
        for key, (pattern, inner) in product(instance, patterns.items()):
            if _matches(pattern, key):
                yield from validator.descend(
                    instance[key], inner, path=key, schema_path=pattern
                )

    def additional_properties(
        validator: Any, allowed: Any, instance: Any, schema: Any
    ) -> Any:
        patterns = schema.get("patternProperties")
        if patterns and isinstance(instance, dict):
            schema = {**schema, "patternProperties": {}}
            instance = {
                key: item
                for key, item in instance.items()
                if not any(_matches(pattern_text, key) for pattern_text in patterns)
            }
        check = kind.VALIDATORS["additionalProperties"]
        return check(validator, allowed, instance, schema)

    def multiple_of(
        validator: Any, divisor: Any, instance: Any, schema: Any
    ) -> Iterator[Refusal]:
        if not validator.is_type(instance, "number"):
            return
        # jsonschema divides floats, and so finds that 4.35 is not a multiple of 0.01.
        if Fraction(str(instance)) % Fraction(str(divisor)):
            yield Refusal(f"{instance!r} is not a multiple of {divisor!r}")

    def unique_items(
        validator: Any, is_unique: Any, instance: Any, schema: Any
    ) -> Iterator[Refusal]:
        if not exact or is_unique is not True or not isinstance(instance, list):
            return
        spellings: set[str] = set()
        for item in instance:
            _deadline.check()
            spelled = canonical(item)
            if spelled in spellings:
                yield Refusal(f"{item!r} is repeated")
            spellings.add(spelled)

    def is_boolean(_: Any, value: Any) -> bool:
        _deadline.check()
        return isinstance(value, bool)

    keywords = {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
        "multipleOf": multiple_of,
        "uniqueItems": unique_items,
    }
    checks = {**kind.VALIDATORS, **keywords}
    # jsonschema asks this of each unevaluated part, for which nothing else is called.
    types = kind.TYPE_CHECKER.redefine("boolean", is_boolean)
    return extend(
        kind,
        {word: _in_time(word, check) for word, check in checks.items()},
        type_checker=types,
    )


def _in_time(word: str, check: Callable[..., Any]) -> Callable[..., Any]:
    types = _TYPES_OF_KEYWORDS.get(word)

    def check_in_time(validator: Any, operand: Any, instance: Any, schema: Any) -> Any:
        _deadline.check()
        is_empty = operand == [] and word != "required"
        if types and (type(operand) not in types or is_empty):
            raise TypeError(f"{word} cannot be {operand!r}")
        return check(validator, operand, instance, schema)

    return check_in_time


def _matches(pattern: str, text: str) -> bool:
    _deadline.check()
    if len(pattern) > _LONGEST_PATTERN:
        raise _TooSlowError
    return regex.search(pattern, text, timeout=_SECONDS) is not None


# Reading values

_TYPES: Final[dict[str, Any]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "null": NoneType,
}
_Readers = dict[str, TypeAdapter[Any]]
_READERS: Final[_Readers] = {
    "integer": TypeAdapter(int),
    "number": TypeAdapter(float),
    "boolean": TypeAdapter(bool),
}
"""pydantic reads values, as it does for LangChain's tools."""
_FORMATS: Final[_Readers] = {
    "date": TypeAdapter(date),
    "date-time": TypeAdapter(datetime),
    "time": TypeAdapter(time_of_day),
    "duration": TypeAdapter(timedelta),
    "uuid": TypeAdapter(UUID),
    "ipv6": TypeAdapter(IPv6Address),
}
"""Formats of JSON schema whose strings can be spelled in several ways."""
_FINER: Final = re.compile(r"[.,]\d{7,}")  # than microseconds, to which pydantic cuts
_LONGEST_CHAIN: Final = 100


def read_value(
    value: Any,
    schema: Mapping[str, Any],
    *,
    defaults: bool = True,
    formats: bool = False,
) -> Any:
    """Read a value as a tool with this schema does: convert strings to numbers if it
    asks for numbers, add defaults.

    With ``formats``, strings with the format of a date, a time or a UUID get one common
    spelling, so that equal instants are the same.
    """
    return _checker(schema).read_value(value, defaults=defaults, formats=formats)


@dataclass(frozen=True, slots=True)
class _ValueReader:
    """Reads values by schemas whose references start at the root."""

    checker: _Checker
    defaults: bool
    formats: bool

    def read_value(self, value: Any, schema: Any, around: tuple[int, ...] = ()) -> Any:
        """Read a value by a schema; ``around`` has the ids of the enclosing schemas of
        the same value.
        """
        _deadline.check()
        schema = _resolved(schema, self.checker.schema)
        if not isinstance(schema, dict) or id(schema) in around:
            return value
        value = self._read_by_parts(value, schema, (*around, id(schema)))
        if isinstance(value, dict):
            return self._read_object(value, schema)
        if isinstance(value, list):
            first_schemas = schema.get("prefixItems") or ()
            schemas = chain(first_schemas, repeat(schema.get("items")))
            items = list(map(self.read_value, value, schemas))
            if not (self.formats and schema.get("uniqueItems") is True):
                return items
            unique = {canonical(item): item for item in items}  # a set
            return [unique[spelled] for spelled in sorted(unique)]
        value = _converted(value, schema)
        if self.formats and isinstance(value, str):
            return _spelled(value, schema)
        return value

    def _read_by_parts(
        self, value: Any, schema: Mapping[str, Any], around: tuple[int, ...]
    ) -> Any:
        """Read a value by the schema's ``allOf``, ``anyOf`` and ``oneOf``."""
        for branch in schema.get("allOf", ()):
            value = self.read_value(value, branch, around)
        for word in ("anyOf", "oneOf"):
            branches = schema.get(word)
            if isinstance(branches, list):
                value = self._read_by_branch(value, branches, around)
        return value

    def _read_object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> Any:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            properties = {}
        other_schema = schema.get("additionalProperties")
        full = {
            key: self.read_value(item, properties.get(key, other_schema))
            for key, item in value.items()
        }
        if not self.defaults:
            return full
        for key, inner in properties.items():
            for holder in (inner, _resolved(inner, self.checker.schema)):
                if key not in full and isinstance(holder, dict) and "default" in holder:
                    full[key] = deepcopy(holder["default"])
        return full

    def _read_by_branch(
        self, value: Any, branches: list[Any], around: tuple[int, ...]
    ) -> Any:
        """Read a value by the first branch that accepts it, or else by the first that
        accepts it after reading.
        """
        branches = [_resolved(branch, self.checker.schema) for branch in branches]
        # Each branch is asked, since a schema with a broken one refuses nothing.
        fitting = [branch for branch in branches if self.checker.takes(value, branch)]
        if fitting:
            return self.read_value(value, fitting[0], around)
        for branch in branches:
            reading = self.read_value(value, branch, around)
            if self.checker.takes(reading, branch):
                return reading
        return value


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema that a chain of references leads to; ``{}`` where it leads
    nowhere.
    """
    for _ in range(_LONGEST_CHAIN):
        path = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(path, str):
            return schema
        if not path.startswith("#"):
            return {}
        schema = root
        for key in path.split("/")[1:]:
            if not isinstance(schema, dict):
                return None
            schema = schema.get(key.replace("~1", "/").replace("~0", "~"))
    return {}


def _is_of(value: Any, types: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, float) and "integer" in types and value.is_integer():
        return True
    return any(isinstance(value, _TYPES.get(name, ())) for name in types)


def _converted(value: Any, schema: Mapping[str, Any]) -> Any:
    """Convert a value to the schema's type, or return it unchanged if that fails."""
    types = schema.get("type")
    if isinstance(types, str):
        types = [types]
    if not isinstance(types, list):
        return value
    names = list(map(str, types))
    if not _is_of(value, names):
        for name in names:
            with suppress(KeyError, ValidationError):
                return _READERS[name].validate_python(value)
    return value


def _spelled(text: str, schema: Mapping[str, Any]) -> str:
    """Spell a string canonically by its schema's format, or return it unchanged if it
    cannot be parsed.
    """
    adapter = _FORMATS.get(str(schema.get("format")))
    if adapter is None or _FINER.search(text):
        return text
    try:
        value = adapter.validate_python(text)
    except ValidationError:
        return text
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return str(adapter.dump_python(value, mode="json"))
