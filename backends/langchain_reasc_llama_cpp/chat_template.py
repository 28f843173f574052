"""LangChain messages to the text a model was trained on, by the GGUF's own Jinja template."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages

from langchain_reasc.exceptions import ConfigurationError, ModelFileError, missing_extra

__all__ = ["ChatTemplate", "plain_messages"]


class ChatTemplate:
    """A compiled chat template. Runs sandboxed: a template comes with a downloaded file."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        """Compile.

        Args:
            source: Jinja, as in ``tokenizer.chat_template``.
            bos: text of the begin-of-sequence token.
            eos: text of the end-of-sequence token.

        Raises:
            ModelFileError: the template does not compile.
            MissingExtraError: jinja2 is not installed.
        """
        try:
            import jinja2
            import jinja2.ext
            import jinja2.sandbox
        except ImportError as error:
            raise missing_extra("llama-cpp", "jinja2") from error
        # The settings Hugging Face renders chat templates with.
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now, "bos_token": bos, "eos_token": eos}
        self._error = jinja2.TemplateError
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelFileError(f"the chat template is not valid Jinja: {error}") from error

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        """The prompt, up to where the assistant begins to speak.

        Args:
            messages: each with ``role`` and ``content``.

        Raises:
            ConfigurationError: the template refuses these messages.
        """
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=True, tools=None)
        except (self._error, TypeError, ValueError, OverflowError, MemoryError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigurationError(f"the chat template refuses messages with the roles {roles}: {error}") from error


def plain_messages(messages: Sequence[BaseMessage]) -> list[dict[str, str]]:
    """Role and text of each message.

    Raises:
        ConfigurationError: there are no messages, or one holds something other than text.
    """
    if not messages:
        raise ConfigurationError("there are no messages to answer; pass at least one")
    for number, message in enumerate(messages, 1):
        for block in message.content if isinstance(message.content, list) else ():
            kind = "text" if isinstance(block, str) else block.get("type")
            if kind not in ("text", "reasoning"):
                raise ConfigurationError(f"message {number} holds a block of type {kind!r}; this model reads text only")
    converted = convert_to_openai_messages(list(messages), text_format="string")
    return [{"role": str(m["role"]), "content": _as_text(m.get("content"))} for m in converted]


def _as_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return content or ""


def _to_json(value: Any, indent: int | None = None) -> str:
    # Unlike Jinja's own filter this does not escape for HTML: the reader is a model.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
