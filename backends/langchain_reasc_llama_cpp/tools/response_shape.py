"""What the response of one call may look like: tool calls, JSON, or whatever a grammar says."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

from pydantic import BaseModel

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.grammar.grammar import NO_FORCING, Grammar
from langchain_reasc_llama_cpp.grammar.json_schema import SHORT_NUMBERS, check_schema, json_rule, within
from langchain_reasc_llama_cpp.tools.formats import GAP, ToolFormat
from langchain_reasc_llama_cpp.tools.reader import ToolCallReader
from langchain_reasc_llama_cpp.tools.response_schema import schema_of
from langchain_reasc_llama_cpp.tools.tools import Tools

__all__ = ["ResponseShape"]

_JSON_OBJECT: Final[dict[str, Any]] = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseShape:
    """What a response may be.

    Attributes:
        tools: the tools that the model may call; None where there are none.
        form: how the model writes calls.
        grammar: the grammar that the response keeps to; None where it is free.
    """

    tools: Tools | None
    form: ToolFormat
    grammar: Grammar | None

    @classmethod
    def of(cls, form: ToolFormat, tools: Tools | None, response_format: Any, grammar: str | None) -> Self:
        """The shape that a call's arguments ask for.

        Raises:
            ConfigurationError: two of them contradict each other, or no grammar can be made of one.
        """
        schema = _format_schema(response_format)
        if grammar is not None:
            if tools is not None or schema is not None:
                raise ConfigurationError("a grammar cannot be combined with tools or response_format; pass one of them")
            if not grammar.strip():
                raise ConfigurationError("the grammar is empty; pass GBNF text with a rule named root")
            return cls(tools=None, form=form, grammar=Grammar(gbnf=grammar))
        if tools is None and schema is None:
            return cls(tools=None, form=form, grammar=None)
        calls = () if tools is None else tuple((name, _dumped(tools.parameters(name))) for name in tools.callable)
        several, forced = (tools.several, tools.forced) if tools is not None else (False, False)
        text = _lark(form, calls, several, None if schema is None or forced else _dumped(schema))
        free = tools is not None and not forced and schema is None
        triggers = form.triggers(tools.callable) if tools is not None and free else ()
        return cls(tools=tools, form=form, grammar=Grammar(lark=text, triggers=triggers))

    def reader(self) -> ToolCallReader | None:
        """What tells calls from text in one response; None where there are no tools."""
        return None if self.tools is None else ToolCallReader(self.form, self.tools.callable)


@lru_cache(maxsize=64)
def _lark(form: ToolFormat, calls: tuple[tuple[str, str], ...], several: bool, response: str | None) -> tuple[str, ...]:
    """A grammar of calls (name and JSON schema each), or a JSON response, or either; and one of its numbers."""
    rules: dict[str, str] = {}
    if response is not None:
        check_schema(response, "response")
        rules["response"] = json_rule({"$ref": "#/$defs/0", "$defs": {"0": within(json.loads(response), "/$defs/0")}})
    for name, schema in calls:
        try:
            check_schema(schema, "arguments")
        except ConfigurationError as error:
            raise ConfigurationError(f"tool {name!r}: {error}") from error
    if calls:
        rules["calls"] = form.rule("call", several=several)
    start = f"{NO_FORCING}start: {' | '.join(rules)}\n"
    rules |= {"call": _call(form, calls), "GAP": GAP} if calls else {}
    return start + "\n".join(f"{name}: {rule}" for name, rule in rules.items()), SHORT_NUMBERS


def _call(form: ToolFormat, calls: tuple[tuple[str, str], ...]) -> str:
    """The object that is one call of one of the tools."""
    objects, arguments = [], {}
    for number, (name, schema) in enumerate(calls):
        arguments[str(number)] = within(json.loads(schema), f"/$defs/{number}")
        members = {"name": {"const": name}, form.arguments: {"$ref": f"#/$defs/{number}"}}
        objects.append({"type": "object", "properties": members, "required": [*members], "additionalProperties": False})
    return json_rule({"anyOf": objects, "$defs": arguments})


def _format_schema(response_format: Any) -> dict[str, Any] | None:
    """The JSON schema that OpenAI's ``response_format`` asks for; None for text."""
    if response_format is None:
        return None
    if isinstance(response_format, dict) and "type" in response_format:
        kind = response_format["type"]
        if kind == "text":
            return None
        if kind == "json_object":  # llama-cpp-python takes a schema here
            return schema_of(response_format["schema"]) if "schema" in response_format else _JSON_OBJECT
        if kind == "json_schema" and isinstance(response_format.get("json_schema"), dict):
            return schema_of(response_format)
    elif isinstance(response_format, type) and issubclass(response_format, BaseModel):
        return schema_of(response_format)
    raise ConfigurationError(
        f"response_format={response_format!r:.200} is not understood; pass {{'type': 'json_object'}} or "
        "{'type': 'json_schema', 'json_schema': {'name': '...', 'schema': {...}}}"
    )


def _dumped(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the JSON schema cannot be written as JSON: {error}") from error
