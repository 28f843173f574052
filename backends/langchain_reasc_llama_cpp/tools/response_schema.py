"""JSON schemas from the ways LangChain users write them down."""

import reprlib
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_function
from pydantic import BaseModel

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["schema_of"]


def schema_of(schema: Any, *, strict: bool | None = None) -> dict[str, Any]:
    """The JSON schema of a structured response.

    Args:
        schema: a pydantic or TypedDict class, a JSON schema, or OpenAI's function, tool or response format around one.
        strict: True asks for every property, and for no others.

    Raises:
        ConfigurationError: it is none of these.
    """
    if isinstance(schema, dict):
        for key, within in (("json_schema", "schema"), ("function", "parameters")):
            if isinstance(schema.get(key), dict):
                return schema_of(schema[key].get(within, {}), strict=strict)
        for within in ("schema", "parameters"):
            if "name" in schema and isinstance(schema.get(within), dict):
                return schema_of(schema[within], strict=strict)
        if strict:
            return _converted({"title": "response", "description": "", **schema}, strict=True)
        return dict(schema)
    if not isinstance(schema, type):
        raise ConfigurationError(
            f"a schema is a pydantic class, a TypedDict or a JSON schema, got {schema!r:.200}; pass one of these"
        )
    if issubclass(schema, BaseModel) and not strict:
        try:
            return schema.model_json_schema()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"pydantic makes no JSON schema of {schema.__name__}: {error}") from error
    return _converted(schema, strict=strict)


def _converted(schema: Any, *, strict: bool | None) -> dict[str, Any]:
    try:
        parameters = convert_to_openai_function(schema, strict=strict).get("parameters", {})
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"no JSON schema can be made of {reprlib.repr(schema)}: {error}") from error
    return dict(parameters)
