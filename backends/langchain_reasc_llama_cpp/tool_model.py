"""The part of the chat model that calls tools and gives structured output."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from langchain_reasc_llama_cpp.prompted_model import TRACED, PromptedModel
from langchain_reasc_llama_cpp.tools.response_schema import schema_of
from langchain_reasc_llama_cpp.tools.response_shape import ResponseShape
from langchain_reasc_llama_cpp.tools.structured_output import Method, json_parser, method_checked, tool_parser, with_raw
from langchain_reasc_llama_cpp.tools.tools import Tools, openai_tools

__all__ = ["ToolModel"]


class ToolModel(PromptedModel):
    """A model whose responses may be tool calls or JSON, held to it by a grammar."""

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """A model that may call tools.

        A call that has begun keeps to its tool's schema, by a grammar. Calls come out as ``tool_calls``, or as
        ``invalid_tool_calls`` where ``max_tokens`` cut them off; the finish_reason is then "tool_calls" or "length".

        Args:
            tools: functions, LangChain tools, pydantic or TypedDict classes, or OpenAI's dicts.
            tool_choice: None or "auto": the model may call; "any", "required" or True: it must; a tool's name, or
                OpenAI's dict around it: it calls that one; "none": it is not shown the tools.
            parallel_tool_calls: False allows one call per response.
            strict: True asks for every argument of every tool.
            kwargs: further options of the calls, such as ``temperature``.

        Raises:
            ConfigurationError: a tool cannot be used, its schema cannot be a grammar, or ``tool_choice`` names none.
        """
        definitions = openai_tools(tools, strict=strict)
        named = {definition["function"]["name"]: definition for definition in definitions}
        chosen = Tools.of(list(named.values()), tool_choice, parallel_tool_calls)
        ResponseShape.of(self._template.form, chosen, None, None)  # says now what it would say at the first call
        given = {"tool_choice": tool_choice, "parallel_tool_calls": parallel_tool_calls}
        chosen_options = {name: value for name, value in given.items() if value is not None}
        return self.bind(tools=definitions, **chosen_options, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        tools: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """A model that answers with an object.

        Args:
            schema: a pydantic class, whose objects come out; or a TypedDict or JSON schema, for dicts.
            method: "json_schema" holds the response to the schema by a grammar; the model is not told of the schema.
                "function_calling" shows it to the model as a tool, and forces the call. "json_mode" only makes sure of
                a JSON object.
            include_raw: give a dict of ``raw``, ``parsed`` and ``parsing_error`` instead, and raise nothing.
            strict: True asks for every property, and for no others.
            tools: tools that the model may call instead, with method "json_schema" and ``include_raw``.
            kwargs: further options of the calls, such as ``temperature``.

        Raises:
            ConfigurationError: the schema is none, or cannot be a grammar.

        What comes out is checked by pydantic where the schema is a class. A response that ``max_tokens`` cut off raises
        ``OutputParserException``.
        """
        method_checked(method, schema, strict)
        if method == "function_calling":
            name = openai_tools([schema])[0]["function"]["name"]
            options = {"tool_choice": name, "strict": strict, **_traced(method, schema, strict), **kwargs}
            model, parser = self.bind_tools([schema], **options), tool_parser(schema, name)
        else:
            wanted: dict[str, Any] = {"type": "json_object"}
            if method == "json_schema":
                wanted = {"type": "json_schema", "json_schema": {"schema": schema_of(schema, strict=strict)}}
            options = {"response_format": wanted, **_traced(method, schema, strict), **kwargs}
            if tools:
                options["tools"] = openai_tools(tools, strict=strict)
            ResponseShape.of(self._template.form, Tools.of(options.get("tools"), None, None), wanted, None)
            model, parser = self.bind(**options), json_parser(schema)
        return with_raw(model, parser) if include_raw else model | parser

    def _resolve_model_profile(self) -> ModelProfile:
        """What agents may count on."""
        size = self.context_size
        return ModelProfile(
            max_input_tokens=size,
            max_output_tokens=size,
            text_inputs=True,
            text_outputs=True,
            tool_calling=True,
            tool_choice=True,
            structured_output=True,
            temperature=True,
        )


def _traced(method: str, schema: Any, strict: bool | None) -> dict[str, Any]:
    """What LangSmith shows of a structured output."""
    if schema is None or (isinstance(schema, dict) and not isinstance(schema.get("type", ""), str)):
        return {}  # langchain-core cannot show a union of types
    return {TRACED: {"kwargs": {"method": method, "strict": strict}, "schema": schema}}
