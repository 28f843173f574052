"""The required form of a response: tool calls, JSON, or a grammar."""

import json
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

from langchain_core.utils.function_calling import (
    convert_to_openai_function,
    convert_to_openai_tool,
)
from pydantic import BaseModel

from langchain_reasc.complaints import suggestion
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.grammar.grammar import NO_FORCING, Grammar
from langchain_reasc_llama_cpp.grammar.json_schema import (
    check_schema,
    json_rule,
    short_numbers,
    within,
)
from langchain_reasc_llama_cpp.tools.tool_calls import GAP, ToolCallReader, ToolFormat

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ANY: Final = ("any", "required", True)
_AUTO: Final = (None, "auto", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """The tools of one call, and whether the model must use them.

    Attributes:
        definitions: all tools that the model sees, in OpenAI's form.
        callable: the names of the tools that it may call.
        forced: whether the response must be a call.
        several: whether the response may have several calls.
    """

    definitions: tuple[dict[str, Any], ...]
    callable: tuple[str, ...]
    forced: bool
    several: bool

    @classmethod
    def from_call(
        cls, tools: Sequence[Any] | None, choice: Any, parallel: bool | None
    ) -> Self | None:
        """Return the tools by a call's arguments, or None if the model sees no tools.

        Args:
            tools: anything that LangChain accepts as a tool.
            choice: OpenAI's ``tool_choice``, or "any", True, or a tool's name.
            parallel: False allows one call per response.

        Raises:
            ConfigurationError: an object is not a tool, two tools have the same name,
                or the choice names no tool.
        """
        definitions = openai_tools(tools or ())
        names = tuple(definition["function"]["name"] for definition in definitions)
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigurationError(
                f"two tools are called {min(twice)!r}; give them different names"
            )
        chosen = _chosen(choice, names)
        if chosen == "none" or not names:
            return None
        one = chosen not in (*_AUTO, *_ANY)
        return cls(
            definitions=tuple(definitions),
            callable=(chosen,) if one else names,
            forced=chosen not in _AUTO,
            several=not one and parallel is not False,
        )

    def parameters(self, name: str) -> dict[str, Any]:
        """Return the JSON schema of a tool's arguments."""
        found = next(
            each["function"]
            for each in self.definitions
            if each["function"]["name"] == name
        )
        return dict(found.get("parameters") or {"type": "object", "properties": {}})


def openai_tools(
    tools: Sequence[Any], *, strict: bool | None = None
) -> list[dict[str, Any]]:
    """Convert tools to OpenAI's form.

    Args:
        tools: functions, LangChain tools, pydantic or TypedDict classes, or dicts.
        strict: True requires every argument, and forbids others.

    Raises:
        ConfigurationError: an object is not a tool.
    """
    made: list[dict[str, Any]] = []
    for number, tool in enumerate(tools, 1):
        try:
            definition = convert_to_openai_tool(tool, strict=strict)
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            AssertionError,
            RecursionError,
        ) as error:
            raise _not_a_tool(number, tool, error) from error
        function = definition.get("function")
        # LangChain passes on tools that OpenAI's servers run
        if not isinstance(function, dict):
            raise _not_a_tool(number, tool)
        name, parameters = function.get("name"), function.get("parameters") or {}
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"tool {number} is called {name!r}; a name has 1 to 128 letters, "
                "digits, underscores, dots or dashes"
            )
        if not isinstance(parameters, dict):
            raise ConfigurationError(
                f"the parameters of tool {name!r} are not a JSON schema: "
                f"{parameters!r:.200}"
            )
        made.append(definition)
    return made


def _not_a_tool(
    number: int, tool: Any, error: Exception | None = None
) -> ConfigurationError:
    """Return the error for an object that is not a function, such as a tool that only
    OpenAI's servers can run.
    """
    why = f": {error!r}"
    if isinstance(tool, dict):
        form = "{'type': 'function', 'function': {'name': '...', 'parameters': {...}}}"
        why = f" by this model, which only calls functions: {form}"
    return ConfigurationError(
        f"tool {number} ({reprlib.repr(tool)}) cannot be used as a tool{why}"
    )


def _chosen(choice: Any, names: Sequence[str]) -> Any:
    """Return the choice as "none", one of `_AUTO` or `_ANY`, or the name of one of the
    tools.
    """
    if isinstance(choice, dict):
        named = choice.get("function", choice)
        if not isinstance(named, dict) or not isinstance(named.get("name"), str):
            raise ConfigurationError(
                f"tool_choice={choice!r} names no tool; write {{'type': 'function', "
                "'function': {'name': '...'}}"
            )
        chosen = named["name"]
    elif choice is None or isinstance(choice, str | bool):
        chosen = choice
    else:
        raise ConfigurationError(
            f"tool_choice must be a string, a bool or a dict, got {choice!r}"
        )
    if chosen in (*_AUTO, "none"):
        return chosen
    if not names:
        raise ConfigurationError(
            f"tool_choice={choice!r} needs tools, and there are none; pass tools=[...]"
        )
    if chosen not in (*_ANY, *names):
        hint = suggestion(str(chosen), ["auto", "any", "none", *sorted(names)])
        raise ConfigurationError(f"tool_choice={choice!r} names no tool; {hint}")
    return chosen


def schema_of(schema: Any, *, strict: bool | None = None) -> dict[str, Any]:
    """Return the JSON schema of a structured response.

    Args:
        schema: a pydantic or TypedDict class, a JSON schema, or OpenAI's function, tool
            or response format around one.
        strict: True requires every property, and forbids others.

    Raises:
        ConfigurationError: the object is none of these.
    """
    if isinstance(schema, dict):
        inner = _inner_schema(schema)
        if inner is not None:
            return schema_of(inner, strict=strict)
        return (
            _converted({"title": "response", "description": "", **schema}, strict=True)
            if strict
            else dict(schema)
        )
    if not isinstance(schema, type):
        raise ConfigurationError(
            "a schema must be a pydantic class, a TypedDict or a JSON schema, got "
            f"{schema!r:.200}"
        )
    if issubclass(schema, BaseModel) and not strict:
        try:
            return schema.model_json_schema()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"pydantic cannot make a JSON schema of {schema.__name__}: {error}"
            ) from error
    return _converted(schema, strict=strict)


def _inner_schema(schema: dict[str, Any]) -> Any:
    """Return the schema in OpenAI's function, tool or response format, or None."""
    for key, inside in (("json_schema", "schema"), ("function", "parameters")):
        if isinstance(schema.get(key), dict):
            return schema[key].get(inside, {})
    inner = [
        schema[key]
        for key in ("schema", "parameters")
        if isinstance(schema.get(key), dict)
    ]
    return inner[0] if inner and "name" in schema else None


def _converted(schema: Any, *, strict: bool | None) -> dict[str, Any]:
    try:
        parameters = convert_to_openai_function(schema, strict=strict).get(
            "parameters", {}
        )
    except (
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ConfigurationError(
            f"cannot make a JSON schema of {reprlib.repr(schema)}: {error}"
        ) from error
    return dict(parameters)


_JSON_OBJECT: Final[dict[str, Any]] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseShape:
    """The allowed form of a response.

    Attributes:
        tools: the tools that the model may call, or None.
        form: how the model writes calls.
        grammar: the grammar of the response, or None for free text.
    """

    tools: ToolChoice | None
    form: ToolFormat
    grammar: Grammar | None

    @classmethod
    def from_call(
        cls,
        form: ToolFormat,
        tools: ToolChoice | None,
        response_format: Any,
        grammar: str | None,
    ) -> Self:
        """Return the form of the response by a call's arguments.

        Raises:
            ConfigurationError: two arguments contradict each other, or one cannot
                become a grammar.
        """
        schema = _format_schema(response_format)
        if grammar is not None:
            if tools is not None or schema is not None:
                raise ConfigurationError(
                    "a grammar cannot be combined with tools or response_format; pass "
                    "one of them"
                )
            if not grammar.strip():
                raise ConfigurationError(
                    "the grammar is empty; pass GBNF text with a rule named root"
                )
            return cls(tools=None, form=form, grammar=Grammar(gbnf=grammar))
        response = None if schema is None else _dumped(schema)
        return cls(tools=tools, form=form, grammar=_grammar(form, tools, response))

    def reader(self) -> ToolCallReader | None:
        """Make the reader of calls for one response, or return None without tools."""
        return (
            None
            if self.tools is None
            else ToolCallReader(self.form, self.tools.callable)
        )


def _grammar(
    form: ToolFormat, tools: ToolChoice | None, response: str | None
) -> Grammar | None:
    """Return the grammar of calls, of a JSON response, or of both, or None for free
    text without tools.
    """
    if tools is None:
        return (
            None if response is None else Grammar(lark=_lark(form, (), False, response))
        )
    calls = tuple((name, _dumped(tools.parameters(name))) for name in tools.callable)
    lark = _lark(form, calls, tools.several, None if tools.forced else response)
    triggers = (
        () if tools.forced or response is not None else form.triggers(tools.callable)
    )
    return Grammar(lark=lark, triggers=triggers)


@lru_cache(maxsize=64)
def _lark(
    form: ToolFormat,
    calls: tuple[tuple[str, str], ...],
    several: bool,
    response: str | None,
) -> tuple[str, ...]:
    """Return a grammar of calls (each a name and a JSON schema), a JSON response, or
    both, and one of its numbers.
    """
    schemas: dict[str, dict[str, Any]] = {}
    rules: dict[str, str] = {}
    if response is not None:
        check_schema(response, "response")
        schemas["response"] = {
            "$ref": "#/$defs/0",
            "$defs": {"0": within(json.loads(response), "/$defs/0")},
        }
    for name, schema in calls:
        try:
            check_schema(schema, "arguments")
        except ConfigurationError as error:
            raise ConfigurationError(f"tool {name!r}: {error}") from error
    if calls:
        schemas["call"] = _call(form, calls)
        rules = {"calls": form.rule("call", several=several), "GAP": GAP}
    rules |= {name: json_rule(schema) for name, schema in schemas.items()}
    start = f"{NO_FORCING}start: {' | '.join(name for name in ('response', 'calls') if name in rules)}\n"
    return start + "\n".join(
        f"{name}: {rule}" for name, rule in rules.items()
    ), short_numbers(schemas)


def _call(form: ToolFormat, calls: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return the schema of an object that is a call of one of the tools."""
    objects, arguments = [], {}
    for number, (name, schema) in enumerate(calls):
        arguments[str(number)] = within(json.loads(schema), f"/$defs/{number}")
        members = {
            "name": {"const": name},
            form.arguments: {"$ref": f"#/$defs/{number}"},
        }
        objects.append(
            {
                "type": "object",
                "properties": members,
                "required": [*members],
                "additionalProperties": False,
            }
        )
    return {"anyOf": objects, "$defs": arguments}


def _format_schema(response_format: Any) -> dict[str, Any] | None:
    """Return the JSON schema in OpenAI's ``response_format``, or None for text."""
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        return schema_of(response_format)
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":  # llama-cpp-python takes a schema here
        return (
            schema_of(response_format["schema"])
            if "schema" in response_format
            else _JSON_OBJECT
        )
    if kind == "json_schema" and isinstance(response_format.get("json_schema"), dict):
        return schema_of(response_format)
    raise ConfigurationError(
        f"response_format={response_format!r:.200} is not understood; pass {{'type': "
        "'json_object'} or {'type': 'json_schema', 'json_schema': {'name': '...', "
        "'schema': {...}}}"
    )


def unheld_keywords(schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the keywords of a schema that no grammar can hold, so that a response may
    break them.

    Raises:
        ConfigurationError: the schema cannot become a grammar.
    """
    return check_schema(_dumped(schema), "response")


def _dumped(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the JSON schema cannot be written as JSON: {error}"
        ) from error
