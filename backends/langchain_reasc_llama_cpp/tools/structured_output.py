"""Parsers of structured output that report a response that was cut off by its length."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import JsonOutputKeyToolsParser, PydanticToolsParser
from langchain_core.output_parsers.pydantic import PydanticOutputParser
from langchain_core.output_parsers.transform import BaseCumulativeTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import (
    Runnable,
    RunnableLambda,
    RunnableMap,
    RunnablePassthrough,
)
from langchain_core.utils.json import parse_partial_json
from langchain_core.utils.pydantic import is_basemodel_subclass

from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_json
from langchain_reasc.threads import in_thread
from langchain_reasc_llama_cpp.tools.response_shape import unheld_keywords

Method = Literal["json_schema", "function_calling", "json_mode"]
"""How to get a structured response: a grammar, a forced tool call, or a grammar of any
JSON object.
"""


def check_method(method: str, schema: Any, strict: bool | None) -> None:
    """Check the method.

    Raises:
        ConfigurationError: the method is unknown, lacks a schema, or cannot be strict.
    """
    if method not in ("json_schema", "function_calling", "json_mode"):
        raise ConfigurationError(
            f"unknown method {method!r}; choose from json_schema, function_calling, "
            "json_mode"
        )
    if schema is None and method != "json_mode":
        raise ConfigurationError(
            f"method={method!r} needs a schema; pass one, or use method='json_mode'"
        )
    if strict is not None and method == "json_mode":
        raise ConfigurationError(
            "strict has no meaning with method='json_mode'; leave it out"
        )


class DictSchema(NamedTuple):
    """A JSON schema whose keywords a grammar cannot all hold: responses are checked by
    it.

    Attributes:
        schema: the JSON schema.
        unheld: the keywords that no grammar can hold.
    """

    schema: dict[str, Any]
    unheld: tuple[str, ...]

    def check(self, value: Any) -> None:
        """Check a value; log once why values cannot be checked.

        Raises:
            OutputParserException: the schema refuses the value.
        """
        from langchain_reasc.answers import (
            check_value,
        )  # deferred: few schemas need it, and importing it takes long

        fault, unchecked = check_value(self.schema, value)
        if fault:
            written = json.dumps(value)
            raise OutputParserException(
                f"the schema refuses the response: {fault}\n\n{written}",
                llm_output=written,
            )
        if unchecked:
            warn_once(
                f"responses are not checked for {', '.join(self.unheld)} of their "
                f"schema: {unchecked}"
            )


def unheld_by_grammar(
    schema: Any, json_schema: dict[str, Any] | None
) -> DictSchema | None:
    """Return what responses must be checked by, or None if a pydantic class or the
    grammar holds all of the schema.

    Args:
        schema: what the user gave.
        json_schema: its JSON schema; None for a tool without arguments.
    """
    if _is_pydantic(schema) or not json_schema:
        return None
    unheld = unheld_keywords(json_schema)
    return DictSchema(json_schema, unheld) if unheld else None


def warn_of_unheld(tools: Sequence[Any], definitions: Sequence[dict[str, Any]]) -> None:
    """Log once which tools' calls may break their schemas. If a tool has a class, the
    tool validates by it.

    Args:
        tools: what the user gave.
        definitions: the same in OpenAI's form.
    """
    for tool, definition in zip(tools, definitions, strict=True):
        function = definition["function"]
        unheld = unheld_keywords(function.get("parameters") or {})
        if unheld and not _has_class(tool):
            warn_once(
                f"tool {function['name']!r}: no grammar can hold {', '.join(unheld)} "
                "of its schema, so a call may break the schema; votes refuse such a "
                "call, but a single response is not checked"
            )


def _has_class(tool: Any) -> bool:
    from langchain_reasc.answers import schemas_of  # deferred, as above

    return any(isinstance(schema, type) for schema in schemas_of([tool]).values())


def json_parser(schema: Any, checked: DictSchema | None = None) -> Runnable[Any, Any]:
    """Make the parser from a message of JSON to an object of a pydantic class, or to a
    dict, which is checked.
    """
    if _is_pydantic(schema):
        parse = partial(_parsed, PydanticOutputParser(pydantic_object=schema))
        return RunnableLambda(parse).with_types(output_type=schema)
    return _JsonParser(checked=checked)


def tool_parser(
    schema: Any, name: str, checked: DictSchema | None = None
) -> Runnable[Any, Any]:
    """Make the parser from a tool call to an object of its pydantic class, or to a
    dict, which is checked.
    """
    if _is_pydantic(schema):
        return _PydanticCallParser(tools=[schema], first_tool_only=True)
    return _CallParser(key_name=name, first_tool_only=True, checked=checked)


def with_raw(
    model: Runnable[LanguageModelInput, Any], parser: Runnable[Any, Any]
) -> Runnable[LanguageModelInput, Any]:
    """Make a dict of the ``raw`` message, the ``parsed`` object, and the
    ``parsing_error``.
    """
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    nothing = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=model) | parsed.with_fallbacks(
        [nothing], exception_key="parsing_error"
    )


def _is_pydantic(schema: Any) -> bool:
    return isinstance(schema, type) and is_basemodel_subclass(schema)


def _parsed(parser: PydanticOutputParser[Any], message: AIMessage) -> Any:
    if message.tool_calls and not message.text.strip():
        return None  # the model called one of the tools it was given too
    _check_text(message)
    return parser.invoke(message)


def _check_text(message: BaseMessage) -> None:
    try:
        parse_json(message.text)
    except ValueError as error:
        raise _unreadable(
            message, f"the response is not valid JSON ({error})", message.text
        ) from error


def _check_calls(message: BaseMessage) -> None:
    if not isinstance(message, AIMessage) or message.tool_calls:
        return
    if message.invalid_tool_calls or _cut_off(message):
        text = (
            str(message.invalid_tool_calls[0]["args"])
            if message.invalid_tool_calls
            else message.text
        )
        raise _unreadable(message, "the tool call is not valid JSON", text)


def _cut_off(message: BaseMessage) -> bool:
    return bool(message.response_metadata.get("finish_reason") == "length")


def _unreadable(message: BaseMessage, what: str, text: str) -> OutputParserException:
    if _cut_off(message):
        what += ": it was cut off at max_tokens or at the end of the context; raise max_tokens, or bound the schema"
    return OutputParserException(f"{what}\n\n{text}", llm_output=text)


class _Seen:
    """The sum of a stream's chunks."""

    whole: Any = None

    def add_chunk(self, chunk: str | BaseMessage) -> str | BaseMessage:
        self.whole = chunk if self.whole is None else self.whole + chunk
        return chunk


class _Checked(BaseCumulativeTransformOutputParser[Any]):
    """A parser that completes a partial object while streaming, but not after the
    response has ended.
    """

    checked: DictSchema | None = None

    def check(self, message: BaseMessage) -> None:
        """Refuse a message whose object is incomplete, or breaks its schema."""
        _check_text(message)
        if self.checked is not None:
            self.checked.check(parse_json(message.text))

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        if not partial and isinstance(result[0], ChatGeneration):
            self.check(result[0].message)
        return super().parse_result(result, partial=partial)

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        seen = _Seen()
        yield from super()._transform(seen.add_chunk(chunk) for chunk in input)
        if seen.whole is not None:
            self.check(seen.whole)

    async def _atransform(
        self, input: AsyncIterator[str | BaseMessage]
    ) -> AsyncIterator[Any]:
        seen = _Seen()
        async for parsed in super()._atransform(
            seen.add_chunk(chunk) async for chunk in input
        ):
            yield parsed
        if seen.whole is not None:
            # a schema may take a tenth of a second
            await in_thread(self.check, seen.whole)


class _JsonParser(_Checked):
    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        text = result[0].text
        if not partial:
            self.check(
                result[0].message
                if isinstance(result[0], ChatGeneration)
                else AIMessage(text)
            )
            return parse_json(text)
        try:
            return parse_partial_json(text)
        except ValueError:
            return None

    def parse(self, text: str) -> Any:
        return self.parse_result([Generation(text=text)])


class _CallParser(_Checked, JsonOutputKeyToolsParser):
    def check(self, message: BaseMessage) -> None:
        _check_calls(message)
        if self.checked is None or not isinstance(message, AIMessage):
            return
        for call in message.tool_calls:
            if call["name"] == self.key_name:
                self.checked.check(call["args"])


class _PydanticCallParser(_Checked, PydanticToolsParser):
    def check(self, message: BaseMessage) -> None:
        _check_calls(message)
