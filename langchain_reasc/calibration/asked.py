"""What a model is asked besides a question, in forms that can be kept beside a calibration and compared."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool

from langchain_reasc.calibration.schema import HashedPart
from langchain_reasc.exceptions import ConfigurationError

if TYPE_CHECKING:
    from langchain_core.prompts import BasePromptTemplate

__all__ = [
    "FixedPrompt",
    "answer_name",
    "confidence_part",
    "fixed_prompt",
    "grammar_part",
    "response_format_part",
    "stop_part",
    "tools_part",
]

FixedPrompt = int | Sequence[Any] | Runnable[dict[str, Any], PromptValue]
"""Which part of a prompt is the same for every question, see :func:`fixed_prompt`."""

_NONE: Final = HashedPart(shown="none", sha256=None)
_QUESTION: Final = "{question}"


class _Blank(str):
    """Stands in a template for what changes from question to question."""

    def __format__(self, spec: str) -> str:
        return str(self)


_BLANK: Final = _Blank("\x00what changes\x00")


def tools_part(tools: Sequence[Any] | None, tool_choice: Any = None) -> HashedPart:
    """The tools as JSON schemas, in whatever order they were given, and whether the model must call one."""
    if not tools:
        return _NONE
    schemas = sorted((_tool(tool) for tool in tools), key=_canonical)
    choice, names = _choice(tool_choice), [_tool_name(schema) for schema in schemas]
    must = f", must call {'one' if choice == 'required' else choice}" if choice else ""
    return HashedPart(shown=", ".join(names) + must, sha256=_hash({"tools": schemas, "choice": choice}))


def response_format_part(given: Any) -> HashedPart:
    """What structured output is held to: a schema, a class that stands for one, or OpenAI's dictionary."""
    if not given:
        return _NONE
    schema = _schema(given)
    inner = schema.get("json_schema") if isinstance(schema, Mapping) else None
    named = (inner, inner.get("schema") if isinstance(inner, Mapping) else None, schema)
    names = (one.get(key) for one in named if isinstance(one, Mapping) for key in ("name", "title", "type"))
    return HashedPart(shown=str(next(filter(None, names), "a schema")), sha256=_hash(schema))


def grammar_part(grammar: Any) -> HashedPart:
    """A grammar, shown by its first line."""
    if not grammar:
        return _NONE
    lines = str(grammar).strip().splitlines() or [""]
    return HashedPart(shown=lines[0][:40] + ("…" if lines[1:] or lines[0][40:] else ""), sha256=_hash(grammar))


def stop_part(stop: Sequence[str] | str | None) -> tuple[str, ...]:
    """Stop strings; their order means nothing."""
    return tuple(sorted({stop} if isinstance(stop, str) else set(map(str, stop or ()))))


def confidence_part(instruction: str | None) -> HashedPart:
    """Whether a model is asked to state its confidence, by the words in which it is."""
    if instruction is None:
        return HashedPart(shown="not asked for", sha256=None)
    return HashedPart(shown="asked for", sha256=_hash(instruction))


def answer_name(spec: Any) -> str:
    """An ``answer`` spec by name: that of an extractor, or of a function.

    Functions without a name of their own, lambdas and the like, are all ``custom`` and cannot be told apart.
    """
    name = spec if isinstance(spec, str) else getattr(spec, "name", None) or getattr(spec, "__name__", None)
    return name if isinstance(name, str) and name != "<lambda>" else "custom"


def fixed_prompt(fixed: FixedPrompt | None, messages: Sequence[BaseMessage] | None = None) -> HashedPart | None:
    """The part of a prompt that is the same for every question.

    Args:
        fixed: a prompt template: all of it but the values of its variables, by whatever names, and without what
            stands in a ``MessagesPlaceholder``, such as a conversation's history. Or messages, as a list of messages or
            of ``(role, text)``, in which ``{question}`` stands for the question. Or how many of the messages at the
            beginning are fixed. A last message that is nothing but the question is left out, so that all three agree.
        messages: the messages of a call, of which a number takes the first; without them it says nothing yet.

    Returns:
        Its hash; None where ``fixed`` is None, or cannot be told yet.

    Raises:
        ConfigurationError: it is none of these, or more messages are said to be fixed than there are.
    """
    if fixed is None or (isinstance(fixed, int) and messages is None):
        return None
    turns = [_turn(message) for message in _fixed_messages(fixed, messages or ())]
    if turns and turns[-1] == ["human", ["", ""]]:
        turns.pop()
    return HashedPart(shown=", ".join(turn[0] for turn in turns), sha256=_hash(turns)) if turns else _NONE


def _fixed_messages(fixed: FixedPrompt, messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    from langchain_core.prompts import BasePromptTemplate  # slow to import, and whoever gives one has done so

    if isinstance(fixed, int) and not isinstance(fixed, bool):
        if not 0 <= fixed <= len(messages):
            raise ConfigurationError(f"{fixed} messages of the prompt are said to be fixed, but it has {len(messages)}")
        return messages[:fixed]
    try:
        if isinstance(fixed, BasePromptTemplate):
            return fixed.format_prompt(**_blanks(fixed)).to_messages()
        if isinstance(fixed, Sequence) and not isinstance(fixed, str | bytes):
            return [_blanked(message) for message in convert_to_messages(fixed)]
    except (KeyError, TypeError, ValueError, NotImplementedError) as error:
        raise ConfigurationError(f"the fixed part of the prompt cannot be read: {error}") from error
    raise ConfigurationError(
        "the fixed part of the prompt must be a number of messages, a list of them or a prompt template, got "
        f"{type(fixed).__name__}"
    )


def _blanks(template: "BasePromptTemplate[Any]") -> dict[str, Any]:
    from langchain_core.prompts import MessagesPlaceholder

    parts = getattr(template, "messages", ())
    histories = {part.variable_name for part in parts if isinstance(part, MessagesPlaceholder)}
    changing = {name for name, value in template.partial_variables.items() if callable(value)}
    names = {*template.input_variables, *template.optional_variables, *changing}
    return {name: [] if name in histories else _BLANK for name in names | histories}


def _blanked(message: BaseMessage) -> BaseMessage:
    content = message.content
    if isinstance(content, str) and _QUESTION in content:
        return message.model_copy(update={"content": content.replace(_QUESTION, _BLANK)})
    return message


def _turn(message: BaseMessage) -> list[Any]:
    """Role, the text between what changes, and the tool calls where there are any."""
    content = message.content if isinstance(message.content, str) else _canonical(message.content)
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    said = [[{"name": call["name"], "args": call["args"]} for call in calls]] if calls else []
    return [getattr(message, "role", message.type), content.split(_BLANK), *said]


def _tool(tool: Any) -> Any:
    try:
        return convert_to_openai_tool(tool)
    except (TypeError, ValueError, NotImplementedError):  # a provider's own form
        return tool


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    for one in (function, tool):
        if isinstance(one, Mapping) and (name := one.get("name") or one.get("type")):
            return str(name)
    return "a tool without a name"


def _choice(choice: Any) -> str | None:
    """What must be called: None where nothing must, ``required`` for any tool, or the name of one."""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        choice = name or choice.get("name") or choice.get("type")
    if choice in (None, False, "auto"):
        return None
    return "required" if choice in (True, "any") else str(choice)


def _schema(given: Any) -> Any:
    if not isinstance(given, type):
        return given
    try:
        return convert_to_json_schema(given)
    except (TypeError, ValueError, NotImplementedError):
        return given


def _hash(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Something like JSON of what is none, the same in every process."""
    dumped: Callable[[], Any] | None = getattr(value, "model_dump", None)
    if dumped is not None and not isinstance(value, type):
        return dumped()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return getattr(value, "__qualname__", type(value).__qualname__)
