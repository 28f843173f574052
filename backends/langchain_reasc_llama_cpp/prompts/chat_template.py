"""A conversation as the text a model was trained on, by the GGUF's own Jinja template or the user's."""

import json
from collections.abc import Sequence
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError, ModelFileError, missing_extra
from langchain_reasc_llama_cpp.prompts.conversation import TemplateMessage, as_plain_turns, uses_tools
from langchain_reasc_llama_cpp.tools.formats import format_of

__all__ = ["ChatTemplate"]

_COMMON_ROLES: Final = ("system", "user", "assistant")


class ChatTemplate:
    """A compiled chat template. Runs sandboxed: a template comes with a downloaded file.

    Attributes:
        form: how the model writes tool calls, by what the template says. Where the template knows no tools, or another
            way of calling them, definitions, calls and results are put into system and user messages.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Compile.

        Args:
            source: the template, in Jinja, as in ``tokenizer.chat_template``.
            bos: text of the begin-of-sequence token.
            eos: text of the end-of-sequence token.

        Raises:
            ModelFileError: the template does not compile.
            MissingExtraError: jinja2 is not installed.
        """
        try:
            import jinja2

            from langchain_reasc_llama_cpp.prompts.jinja_environment import chat_environment
        except ImportError as error:
            raise missing_extra("llama-cpp", "jinja2") from error
        environment = chat_environment()
        environment.globals |= {"bos_token": bos, "eos_token": eos}
        self._error = jinja2.TemplateError
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelFileError(f"the chat template is not valid Jinja: {error}") from error
        self.form = format_of(source)

    def render(self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]] = ()) -> str:
        """The prompt, up to where the assistant begins to speak.

        Args:
            messages: each with ``role`` and ``content``, and tool calls and results as Hugging Face passes them.
            tools: the tools that the model may call, in OpenAI's shape.

        Raises:
            ConfigurationError: the template refuses these messages, or leaves one with an unusual role out.
        """
        if not tools and not uses_tools(messages):
            return self._checked(messages, None)
        if self.form.native:
            try:
                return self._checked(messages, tools)
            except ConfigurationError:
                if not any("tool_calls" in message for message in messages):
                    raise
            return self._checked(_with_written_arguments(messages), tools)  # some templates add them to text
        try:
            return self._checked(as_plain_turns(messages, tools, self.form, system=True), None)
        except ConfigurationError:
            if not tools or any(message["role"] == "system" for message in messages):
                raise
        return self._checked(as_plain_turns(messages, tools, self.form, system=False), None)

    def _checked(self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]] | None) -> str:
        try:
            text = self._rendered(messages, tools)
        except (self._error, TypeError, ValueError, LookupError, AttributeError, OverflowError, MemoryError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigurationError(f"the chat template refuses messages with the roles {roles}: {error}") from error
        for number, message in enumerate(messages, 1):
            if message["role"] not in _COMMON_ROLES and message["content"].strip() not in text:
                raise ConfigurationError(
                    f"the chat template leaves out message {number}, with the role {message['role']!r}; "
                    f"use one of the roles it knows, such as {', '.join(_COMMON_ROLES)}"
                )
        return text

    def _rendered(self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]] | None) -> str:
        given = {"messages": list(messages), "add_generation_prompt": True}
        try:
            return self._template.render(given, tools=tools or None)
        except TypeError:
            if tools:
                raise
            return self._template.render(given, tools=[])  # some templates go through tools without asking for any


def _with_written_arguments(messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """The messages, with the arguments of calls as JSON text."""
    return [
        message | {"tool_calls": [_with_text(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _with_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return call | {"function": function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)}}
