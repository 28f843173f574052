"""Render a conversation with the Jinja template of the GGUF file or the user."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc.exceptions import ConfigurationError, ModelFileError, missing_extra
from langchain_reasc_llama_cpp.prompts.conversation import (
    TemplateMessage,
    as_plain_turns,
    before_user_messages,
    uses_tools,
)
from langchain_reasc_llama_cpp.prompts.marks import PLACEHOLDER_SIGNS
from langchain_reasc_llama_cpp.tools.tool_calls import format_of

if TYPE_CHECKING:
    import jinja2
    import jinja2.nodes
    import jinja2.parser

_NOT_ASCII: Final = re.compile(f"[^\0-\x7f{''.join(PLACEHOLDER_SIGNS)}]")
_COMMON_ROLES: Final = ("system", "user", "assistant")
_PROBE: Final = "837176901"
"""A text that a template shows only where it shows the content of a message."""
_LONG: Final = 16
"""Characters of a text that a prompt without the text's message does not have by
chance.
"""


class ChatTemplate:
    """A compiled chat template. Runs sandboxed: a template comes with a downloaded
    file.

    Attributes:
        form: the notation of tool calls, according to the template. If the template has
            no tools, or an unknown notation, definitions, calls and results are written
            into system and user messages.
    """

    def __init__(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        name: str = "the chat template",
    ) -> None:
        """Compile the template, and find out whether it reads the content of messages
        as text or as a list of parts.

        Args:
            source: the template, in Jinja, as in ``tokenizer.chat_template``.
            bos: text of the begin-of-sequence token.
            eos: text of the end-of-sequence token.
            name: what errors call the template.

        Raises:
            ModelFileError: the template does not compile.
            MissingExtraError: jinja2 is not installed.
        """
        try:
            environment = _environment()
        except ImportError as error:
            raise missing_extra("llama-cpp", "jinja2") from error
        environment.globals |= {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source)
        except Exception as error:
            raise ModelFileError(f"{name} is not valid Jinja: {error}") from error
        self._name = name
        self.form = format_of(source)
        self._reads_parts = False
        self._reads_parts = self._shows(
            [{"type": "text", "text": _PROBE}]
        ) and not self._shows(_PROBE)

    def render(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]] = ()
    ) -> str:
        """Return the prompt, up to the beginning of the assistant's message.

        Args:
            messages: messages with ``role`` and ``content``, and tool calls and results
                in Hugging Face's form.
            tools: the tools that the model may call, in OpenAI's form.

        Raises:
            ConfigurationError: the template refuses these messages, or leaves one out.

        A system message that the template leaves out is put before the next user
        message.
        """
        if not tools and not uses_tools(messages):
            return self._checked(messages)
        if self.form.native:
            retry = any("tool_calls" in message for message in messages)
            ways = [
                (messages, tools),
                (_with_written_arguments(messages), tools),
            ]  # some templates add them to text
        else:
            retry = bool(tools) and not any(
                message["role"] == "system" for message in messages
            )
            ways = [
                (as_plain_turns(messages, tools, self.form, system=system), ())
                for system in (True, False)
            ]
        try:
            return self._checked(*ways[0])
        except ConfigurationError:
            if not retry:
                raise
        return self._checked(*ways[1])

    def _checked(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]] = ()
    ) -> str:
        text = self._accepted(messages, tools)
        missing = self._missing(messages, tools, text)
        lost = [index for index in missing if messages[index]["role"] != "system"]
        if missing and not lost:
            merged = before_user_messages(messages, missing)
            text = self._accepted(merged, tools)
            lost = missing if self._missing(merged, tools, text) else []
        if lost:
            raise ConfigurationError(
                f"{self._name} leaves out message {lost[0] + 1}, with the role "
                f"{messages[lost[0]]['role']!r}; use one of the roles it knows, such "
                f"as {', '.join(_COMMON_ROLES)}, or pass chat_template='...' (Jinja)"
            )
        return text

    def _accepted(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]]
    ) -> str:
        try:
            return self._rendered(messages, tools)
        except Exception as error:  # a template is a program: {{ 1 / 0 }}
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigurationError(
                f"{self._name} refuses messages with the roles {roles}: {error}"
            ) from error

    def _missing(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[dict[str, Any]],
        text: str,
    ) -> list[int]:
        """Return the indices of messages that are not in the prompt. Those with calls
        may be reduced to the calls.

        This costs a search for each text. If a text is short, or the template changed
        it, the template is rendered once more, with a number that stands nowhere else
        in its place.
        """
        doubtful = []
        counts = Counter(message["content"].strip() for message in messages)
        for index, message in enumerate(messages):
            content = message["content"].strip()
            is_certain = (
                len(content) >= _LONG and text.count(content) >= counts[content]
            )
            if content and not is_certain and "tool_calls" not in message:
                doubtful.append(index)
        if not doubtful:
            return []
        probes = {index: f"{_PROBE}-{index}-" for index in doubtful}
        replaced = [
            message | {"content": probes.get(index, message["content"])}
            for index, message in enumerate(messages)
        ]
        try:
            text = self._rendered(replaced, tools)
        except Exception:
            return []  # the template reads more than text in these messages
        return [index for index, probe in probes.items() if probe not in text]

    def _shows(self, content: str | list[dict[str, str]]) -> bool:
        """Return whether content of this form is in the prompt."""
        try:
            text = self._rendered([{"role": "user", "content": content}], ())
        except Exception:
            return False
        is_repr = isinstance(content, list) and str(content[0]) in text
        return _PROBE in text and not is_repr

    def _rendered(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]]
    ) -> str:
        if self._reads_parts:
            messages = [
                message | {"content": [{"type": "text", "text": message["content"]}]}
                for message in messages
            ]
        given = {"messages": list(messages), "add_generation_prompt": True}
        try:
            return self._template.render(given, tools=tools or None)
        except TypeError:
            if tools:
                raise
            # some templates go through tools without asking for any
            return self._template.render(given, tools=[])


def _environment() -> "jinja2.Environment":
    """Return Hugging Face's sandbox, for which chat templates are written."""
    import jinja2.ext
    import jinja2.sandbox

    class GenerationBlock(jinja2.ext.Extension):
        """``{% generation %}`` marks the assistant's text for training. Here it has no
        effect.
        """

        tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

        def parse(self, parser: "jinja2.parser.Parser") -> "list[jinja2.nodes.Node]":
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, GenerationBlock],
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any
) -> str:
    # Unlike Jinja's own filter this does not escape for HTML: the reader is a model.
    text = json.dumps(value, ensure_ascii=False, indent=indent, **options)
    return (
        _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text)
        if ensure_ascii
        else text
    )


def _refuse(message: str) -> None:
    raise ValueError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _with_written_arguments(
    messages: Sequence[TemplateMessage],
) -> list[TemplateMessage]:
    """Return the messages with the arguments of calls as JSON text."""
    written = []
    for message in messages:
        calls = [
            call | {"function": dict(call["function"])}
            for call in message.get("tool_calls", ())
        ]
        for call in calls:
            call["function"]["arguments"] = json.dumps(
                call["function"]["arguments"], ensure_ascii=False
            )
        written.append(message | ({"tool_calls": calls} if calls else {}))
    return written
