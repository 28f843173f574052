"""The schemas that a model's calls of tools, and its text, are held to, in any provider's format."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

__all__ = ["ANY_TOOL", "STRUCTURE", "schemas_of", "text_schema_of"]

ANY_TOOL: Final = "*"
"""Stands for the tools whose names or arguments are not known; its schema takes everything."""

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
"""The arguments of a call that hold the text of a response to a structure."""


def text_schema_of(arguments: Mapping[str, Any]) -> Mapping[str, Any] | type | None:
    """The schema of the object that the text of a response is to be; None where the arguments of a call name none."""
    for name in STRUCTURE:
        given = arguments.get(name)
        if isinstance(given, type) and issubclass(given, BaseModel):
            return given
        while isinstance(given, Mapping) and (inner := _inside(given)) is not None:
            given = inner
        if isinstance(given, Mapping) and (given.keys() & {"properties", "$ref"} or given.get("type") == "object"):
            return dict(_in_json_schema(given))
    return None


def _inside(wrapped: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a provider has wrapped a schema in, such as ``{"type": "json_schema", "json_schema": {...}}``."""
    inner = (wrapped.get(name) for name in ("format", "json_schema", "schema"))
    return next((one for one in inner if isinstance(one, Mapping)), None)


def schemas_of(tools: Any) -> dict[str, dict[str, Any]]:
    """Tool name -> JSON schema of its arguments.

    Args:
        tools: what ``tools=`` (or ``functions=``) is in a model's bound arguments: dictionaries as OpenAI, Anthropic,
            Gemini and Bedrock have them, JSON schemas with a title, LangChain tools, classes, functions; one of them or
            several.

    Returns:
        ``{}`` as the schema of a tool that is named without one; and under :data:`ANY_TOOL`, where a tool of the
        provider's own does not even say what its calls are named.
    """
    found: dict[str, dict[str, Any]] = {}
    for tool in tools if isinstance(tools, Sequence) and not isinstance(tools, str) else [tools]:
        declared = _declared_together(tool)
        for one in [tool] if declared is None else map(_as_dictionary, declared):
            name, schema = _read(one)
            found[name] = schema if declared is None else _in_json_schema(schema)
    return found


def _read(tool: Any) -> tuple[str, dict[str, Any]]:
    try:
        converted = convert_to_openai_tool(tool)
    except Exception:  # whatever a provider has of its own
        converted = dict(tool) if isinstance(tool, Mapping) else {}
    function = converted.get("function", converted)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or converted.get("type") in ("namespace", "mcp"):  # a name for many
        return ANY_TOOL, {}
    schema = function.get("parameters")
    return name, dict(schema) if isinstance(schema, Mapping) else {}


def _declared_together(tool: Any) -> Iterable[Any] | None:
    """The functions of a tool of Gemini's, which holds several; None of any other tool."""
    for name in ("function_declarations", "functionDeclarations"):
        declared = tool.get(name) if isinstance(tool, Mapping) else getattr(tool, name, None)
        if isinstance(declared, Sequence):
            return declared
    return None


def _as_dictionary(declaration: Any) -> Any:
    """A declaration of Google's own classes as the dictionary it stands for."""
    return declaration.model_dump(mode="json", exclude_none=True) if hasattr(declaration, "model_dump") else declaration


def _in_json_schema(schema: Any) -> Any:
    """Gemini's ``{"type": "STRING", "nullable": true}`` in the words of JSON schema."""
    if isinstance(schema, list):
        return [_in_json_schema(inner) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain = {
        key: {name: _in_json_schema(one) for name, one in inner.items()}
        if key in ("properties", "$defs") and isinstance(inner, Mapping)  # whose keys are names, not words
        else inner
        if key in ("default", "example", "enum", "const")
        else _in_json_schema(inner)
        for key, inner in schema.items()
        if key != "nullable" or not isinstance(inner, bool)
    }
    if isinstance(kind := plain.get("type"), str):
        plain["type"] = [kind.lower(), "null"] if schema.get("nullable") is True else kind.lower()
    return plain
