"""The fingerprint of a model and its prompt. A calibration stores one and refuses to be
used with another.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import (
    convert_to_json_schema,
    convert_to_openai_tool,
)
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from langchain_reasc.answers import EXTRACTION_VERSION, ToolVotes
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc.langchain_internals import langsmith_params
from langchain_reasc.models.settings import without
from langchain_reasc.models.wrappers import PASSED_THROUGH

if TYPE_CHECKING:
    from langchain_core.prompts import BasePromptTemplate

FixedPrompt = int | Sequence[Any] | Runnable[dict[str, Any], PromptValue]
"""Which part of a prompt is the same for every question, see :func:`fixed_prompt`."""

_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
_SETTINGS: Final = ("tools", "tool_choice", "response_format", "grammar", "stop")
# ChatAnthropic's field is stop_sequences.
_FIELDS: Final = {"stop": ("stop", "stop_sequences")}
_LABELS: Final = {
    "prompt_sha256": "prompt_sha256 of the system messages",
    "prompt": "fixed part of the prompt",
    "response_format": "response format",
    "stop": "stop strings",
    "ask_confidence": "stated confidence (confidence)",
}


class HashedPart(BaseModel):
    """A part of a request, compared by its hash.

    Attributes:
        shown: a description for people, such as the names of the tools or the roles of
            the messages.
        sha256: SHA-256 of its canonical form; null if the request has no such part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shown: str
    sha256: str | None = None

    def __str__(self) -> str:
        if self.sha256 is None:
            return self.shown
        return f"{self.shown} ({self.sha256[:12]})"


class Fingerprint(BaseModel):
    """The model, sampling and prompt that a calibration holds for. Unknown fields are
    null and are not compared.

    Attributes:
        model: model name, or the file name of a local model.
        model_sha256: SHA-256 of a local model file.
        quantization: quantisation of the weights, such as Q4_K_M.
        sampling: sampling parameters: temperature, top_p, top_k, ...
        prompt_sha256: SHA-256 of the system messages before each question.
        prompt: fixed part of the prompt: system message, few-shot turns, words around a
            question.
        tools: the tools the model may call, and whether it must call one.
        response_format: the schema of structured output.
        grammar: the grammar that responses follow.
        stop: strings that end a response, sorted; empty if there are none.
        ask_confidence: how the model is asked to state its confidence; null if it is
            not asked.
        answer: name of the answer format, such as boxed, or of a function.
        tool_votes: how calls of tools are compared; null for the default, also in files
            of earlier versions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    model_sha256: str | None = None
    quantization: str | None = None
    sampling: dict[str, FiniteFloat | int | str | bool | None] = Field(
        default_factory=dict
    )
    prompt_sha256: str | None = None
    prompt: HashedPart | None = None
    tools: HashedPart | None = None
    response_format: HashedPart | None = None
    grammar: HashedPart | None = None
    stop: tuple[str, ...] | None = None
    ask_confidence: HashedPart | None = None
    answer: str | None = None
    tool_votes: HashedPart | None = None

    @property
    def kind(self) -> str:
        """The kind of request: a hash of the model and of everything it is asked
        besides the question.
        """
        parts = (self.prompt, self.tools, self.response_format, self.grammar)
        settings = (
            self.model,
            self.prompt_sha256,
            *(part and part.sha256 for part in parts),
            self.answer,
        )
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def unbound(self) -> Self:
        """Return a copy in which tools, response format, grammar and stop strings are
        unknown.
        """
        return self.model_copy(
            update=dict.fromkeys(("tools", "response_format", "grammar", "stop"))
        )


_NONE: Final = HashedPart(shown="none")


def fingerprint_of(
    model: BaseChatModel,
    *,
    kwargs: Mapping[str, Any] | None = None,
    messages: Sequence[BaseMessage] | None = None,
    prompt: FixedPrompt | None = None,
    answer: Any = None,
) -> Fingerprint:
    """Return the fingerprint of a chat model, its bound arguments and its prompt.

    A model that knows more about itself than its name has a method
    ``calibration_fingerprint(**kwargs)``. Our llama.cpp model returns the hash of its
    file and the quantisation.

    Args:
        model: the chat model.
        kwargs: arguments of its calls. Tools, response format, grammar and stop strings
            may also be in ``model_kwargs`` or ``extra_body``, or on the model.
        messages: the messages of a call. Only the system messages are part of the
            fingerprint.
        prompt: which part of a prompt is fixed, see :func:`fixed_prompt`.
        answer: where the answer is in a response. It is compared by name.

    Raises:
        ConfigurationError: ``prompt`` cannot be read.
    """
    bound = dict(kwargs or {})
    tools, tool_choice, response_format, grammar, stop = (
        _setting(model, bound, name) for name in _SETTINGS
    )
    # One string is as good as a list of one.
    if isinstance(stop, str):
        stop = [stop]
    described: dict[str, Any] = {
        "prompt_sha256": None if messages is None else prompt_hash(messages),
        "prompt": fixed_prompt(prompt, messages),
        "tools": _tools_part(tools, tool_choice),
        "response_format": _response_format_part(response_format),
        "grammar": _grammar_part(grammar),
        "stop": tuple(sorted(set(map(str, stop or ())))),
        "answer": None if answer is None else answer_name(answer),
    }
    arguments = without(bound, _SETTINGS)
    own_parts: Callable[..., Mapping[str, Any]] | None = getattr(
        model, "calibration_fingerprint", None
    )
    if own_parts is None:
        described |= _name_and_sampling(model, arguments)
    else:
        # The model knows best what it is.
        described |= own_parts(**arguments)
    sampling = {}
    for name, value in described.pop("sampling", {}).items():
        # A file has flat values only.
        if isinstance(value, list | tuple | Mapping):
            value = json.dumps(value, sort_keys=True, default=str)
        sampling[name] = value
    return Fingerprint(**described, sampling=sampling)


def prompt_hash(messages: Sequence[BaseMessage]) -> str:
    """Return the SHA-256 of the system messages, which do not change from question to
    question.
    """
    fixed = "\n".join(
        str(message.content) for message in messages if message.type == "system"
    )
    return hashlib.sha256(fixed.encode()).hexdigest()


def confidence_part(instruction: str | None) -> HashedPart:
    """Describe the instruction that asks a model to state its confidence; None if it is
    not asked.
    """
    if instruction is None:
        return HashedPart(shown="not asked for")
    return _hashed("asked for", instruction)


def votes_part(votes: ToolVotes) -> HashedPart | None:
    """Describe how calls of tools are compared; None for the default. Functions are
    compared by name.
    """
    default = ToolVotes().as_plain()
    plain = votes.as_plain()
    changed = {name: value for name, value in plain.items() if value != default[name]}
    if not changed:
        return None
    return _hashed(_canonical(changed), changed)


def answer_name(spec: Any) -> str:
    """Return the name of an extractor, labels or a function, with the version of the
    rules that find answers.

    Lambdas and others without a name are ``custom``.
    """
    if isinstance(spec, list | tuple):
        spec = ",".join(map(str, spec))
    name: Any = spec
    if not isinstance(spec, str):
        name = getattr(spec, "name", None) or getattr(spec, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        name = "custom"
    return f"{name}, version {EXTRACTION_VERSION}"


def _setting(model: BaseChatModel, bound: Mapping[str, Any], name: str) -> Any:
    """Return the setting ``name`` from the arguments, the model, or the dictionaries
    that models pass on.
    """
    if bound.get(name) is not None:
        return bound[name]
    for field in _FIELDS.get(name, (name,)):
        if field in type(model).model_fields:
            value = getattr(model, field)
            if value is not None:
                return value
    for holder in PASSED_THROUGH:
        # A call's dictionary replaces that of the model.
        settings = bound.get(holder, getattr(model, holder, None))
        if isinstance(settings, Mapping) and settings.get(name) is not None:
            return settings[name]
    return None


def _name_and_sampling(
    model: BaseChatModel, bound: Mapping[str, Any]
) -> dict[str, Any]:
    described = langsmith_params(model, **bound)
    sampling = {}
    for name in _SAMPLING:
        value = bound.get(name, getattr(model, name, None))
        if isinstance(value, float | int | str | bool):
            sampling[name] = value
    return {
        # Some classes do not tell LangSmith the name of their model.
        "model": str(described.get("ls_model_name") or model.get_name()),
        "sampling": sampling,
    }


def _tools_part(tools: Sequence[Any] | None, choice: Any) -> HashedPart:
    """Describe the tools as JSON schemas, in a fixed order, and whether the model must
    call one.
    """
    if not tools:
        return _NONE
    schemas = [_converted(convert_to_openai_tool, tool) for tool in tools]
    # The order in which tools are bound does not matter.
    schemas.sort(key=_canonical)
    description = ", ".join(
        _name(schema.get("function"), schema) or "a tool without a name"
        for schema in schemas
    )
    if isinstance(choice, Mapping):
        choice = _name(choice.get("function"), choice)
    if choice in (None, False, "auto"):
        choice = None
    elif choice in (True, "any", "required"):
        choice = "required"
        description += ", must call one"
    else:
        choice = str(choice)
        description += f", must call {choice}"
    return _hashed(description, {"tools": schemas, "choice": choice})


def _response_format_part(schema: Any) -> HashedPart:
    """Describe the schema of structured output: a schema, a class or OpenAI's
    dictionary.
    """
    if not schema:
        return _NONE
    if isinstance(schema, type):
        schema = _converted(convert_to_json_schema, schema)
    # OpenAI's dictionary has the schema below ``json_schema`` and ``schema``.
    inner = schema.get("json_schema") if isinstance(schema, Mapping) else None
    deepest = inner.get("schema") if isinstance(inner, Mapping) else None
    name = _name(inner, deepest, schema, keys=("name", "title", "type"))
    return _hashed(name or "a schema", schema)


def _grammar_part(grammar: Any) -> HashedPart:
    """Describe a grammar, shown by its first line."""
    if not grammar:
        return _NONE
    lines = str(grammar).strip().splitlines() or [""]
    description = lines[0][:40]
    if description != lines[0] or len(lines) > 1:
        description += "…"
    return _hashed(description, grammar)


def _converted(convert: Callable[[Any], Any], value: Any) -> Any:
    """Return the converted value, or the value itself if it is in a provider's own
    format.
    """
    try:
        return convert(value)
    except (TypeError, ValueError, NotImplementedError):
        return value


def _name(*candidates: Any, keys: Sequence[str] = ("name", "type")) -> str | None:
    for candidate in candidates:
        if isinstance(candidate, Mapping):
            for key in keys:
                if candidate.get(key):
                    return str(candidate[key])
    return None


class _Blank(str):
    """A placeholder for the variables of a template."""

    # A template may format a variable, as in {price:.2f}.
    def __format__(self, spec: str) -> str:
        return str(self)


_BLANK: Final = _Blank("\x00what changes\x00")


def fixed_prompt(
    fixed: FixedPrompt | None, messages: Sequence[BaseMessage] | None = None
) -> HashedPart | None:
    """Return the part of a prompt that is the same for every question.

    Args:
        fixed: a prompt template, without the values of its variables and the messages
            of a ``MessagesPlaceholder``, such as a conversation's history. Or messages,
            as a list of messages or of ``(role, text)``, in which ``{question}`` stands
            for the question. Or the number of fixed messages at the beginning. A last
            message that contains only the question is left out, so that all three give
            the same hash.
        messages: the messages of a call; needed if ``fixed`` is a number.

    Returns:
        The hash; None if ``fixed`` is None, or a number without messages.

    Raises:
        ConfigurationError: ``fixed`` is not one of these, or there are fewer messages
            than are fixed.
    """
    if fixed is None or (isinstance(fixed, int) and messages is None):
        return None
    turns = [_turn(message) for message in _fixed_messages(fixed, messages or ())]
    # A template ends with the question, which a list of messages may leave out.
    if turns and turns[-1] == ["human", ["", ""]]:
        turns.pop()
    if not turns:
        return _NONE
    return _hashed(", ".join(turn[0] for turn in turns), turns)


def _fixed_messages(
    fixed: FixedPrompt, messages: Sequence[BaseMessage]
) -> Sequence[BaseMessage]:
    # The import is slow. Callers with a template have imported the module.
    from langchain_core.prompts import BasePromptTemplate

    if isinstance(fixed, int) and not isinstance(fixed, bool):
        if not 0 <= fixed <= len(messages):
            raise ConfigurationError(
                f"fixed_prompt is {fixed} messages, but the prompt has {len(messages)}"
            )
        return messages[:fixed]
    try:
        if isinstance(fixed, BasePromptTemplate):
            return fixed.format_prompt(**_blanks(fixed)).to_messages()
        if isinstance(fixed, Sequence) and not isinstance(fixed, str | bytes):
            messages = []
            for message in convert_to_messages(fixed):
                content = message.content
                if isinstance(content, str):
                    content = content.replace("{question}", _BLANK)
                messages.append(message.model_copy(update={"content": content}))
            return messages
    except (KeyError, TypeError, ValueError, NotImplementedError) as error:
        raise ConfigurationError(
            f"the fixed part of the prompt cannot be read: {error}"
        ) from error
    raise ConfigurationError(
        "the fixed part of the prompt must be a number of messages, a list of them or "
        f"a prompt template, got {type(fixed).__name__}"
    )


def _blanks(template: "BasePromptTemplate[Any]") -> dict[str, Any]:
    from langchain_core.prompts import MessagesPlaceholder

    names = [*template.input_variables, *template.optional_variables]
    blanks: dict[str, Any] = dict.fromkeys(names, _BLANK)
    for name, value in template.partial_variables.items():
        # A function gives each question another value.
        if callable(value):
            blanks[name] = _BLANK
    for part in getattr(template, "messages", ()):
        # Its messages, such as a conversation, are not fixed.
        if isinstance(part, MessagesPlaceholder):
            blanks[part.variable_name] = []
    return blanks


def _turn(message: BaseMessage) -> list[Any]:
    """Return the role, the text around the variables, and the tool calls if there are
    any.
    """
    content = message.content
    if not isinstance(content, str):
        content = _canonical(content)
    turn = [getattr(message, "role", message.type), content.split(_BLANK)]
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = message.tool_calls
        turn.append([{"name": call["name"], "args": call["args"]} for call in calls])
    return turn


def _hashed(description: str, value: Any) -> HashedPart:
    sha256 = hashlib.sha256(_canonical(value).encode()).hexdigest()
    return HashedPart(shown=description, sha256=sha256)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a JSON-like form of any other value. It is the same in every process."""
    dumped: Callable[[], Any] | None = getattr(value, "model_dump", None)
    # A class has the method, too, but needs an instance for it.
    if dumped is not None and not isinstance(value, type):
        return dumped()
    if isinstance(value, set | frozenset):
        # A set has another order in each process.
        return sorted(value, key=str)
    return getattr(value, "__qualname__", type(value).__qualname__)


def check_fingerprint(measured: Fingerprint, running: Fingerprint) -> None:
    """Refuse a calibration that was measured on another model, prompt or sampling than
    what runs.

    Fields that are unknown on either side are not compared.

    Raises:
        FingerprintMismatch: naming each differing field with both its values, and the
            override.
    """
    hashed = bool(measured.model_sha256 and running.model_sha256)
    has_prompt = bool(measured.prompt and running.prompt)
    names = [
        # A renamed file is the same model.
        "model_sha256" if hashed else "model",
        "quantization",
        # The whole fixed part has the system messages in it.
        "prompt" if has_prompt else "prompt_sha256",
        *("tools", "response_format", "grammar", "answer", "stop"),
    ]
    compared = [
        (name, getattr(measured, name), getattr(running, name)) for name in names
    ]
    not_asked = confidence_part(None)
    compared.append(
        (
            "ask_confidence",
            measured.ask_confidence or not_asked,
            running.ask_confidence or not_asked,
        )
    )
    # Without tools, no calls are compared.
    if _NONE not in (measured.tools, running.tools):
        default = HashedPart(shown="the default")
        compared.append(
            (
                "tool_votes",
                measured.tool_votes or default,
                running.tool_votes or default,
            )
        )
    # A model that knows its file's hash reports every parameter that has an effect.
    unset = "no effect" if hashed else None
    for name in dict.fromkeys([*measured.sampling, *running.sampling]):
        then = measured.sampling.get(name, unset)
        compared.append((name, then, running.sampling.get(name, unset)))
    _refuse_different(compared)


def check_signal(
    signal: str,
    measured: Mapping[str, object],
    running: Mapping[str, object],
    carried: Collection[str],
) -> None:
    """Refuse a response whose token signal differs from the one that a calibration was
    measured on.

    Args:
        signal: the calibration's signal.
        measured: its ``top_k`` and ``vocabulary_size``; unknown values are not
            compared.
        running: those of the response.
        carried: names of the signals that such responses can carry.

    Raises:
        FingerprintMismatch: another signal, k or V, with both sides and the override.
    """
    if signal not in carried:
        _refuse_different([("token signal", signal, ", ".join(carried))])
    names = {
        "top_k": f"alternatives per token behind {signal!r} (k)",
        "vocabulary_size": "vocabulary size (V)",
    }
    _refuse_different(
        (label, measured[name], running[name]) for name, label in names.items()
    )


def _refuse_different(compared: Iterable[tuple[str, Any, Any]]) -> None:
    """Refuse a calibration if two values differ that are known on both sides.

    Args:
        compared: name, value of the calibration, value of what runs.
    """
    differences = []
    for name, then, now in compared:
        # An unknown value may be the same.
        if then is None or now is None:
            continue
        # Parts are shown in words, and compared by their hash.
        if getattr(then, "sha256", then) != getattr(now, "sha256", now):
            differences.append(
                f"{_LABELS.get(name, name)}: calibrated on {_shown(then)}, running "
                f"{_shown(now)}"
            )
    if differences:
        raise FingerprintMismatch(
            f"the calibration does not fit what runs ({'; '.join(differences)}). "
            "Calibrate again with `reasc calibrate`, or override with "
            "allow_fingerprint_mismatch=True"
        )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(repr, value)) or "none"
    # A SHA-256 is recognised by its first digits.
    if isinstance(value, str) and len(value) == 64:
        return repr(f"{value[:12]}…")
    return str(value) if isinstance(value, HashedPart) else repr(value)
