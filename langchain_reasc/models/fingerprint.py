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

if TYPE_CHECKING:
    from langchain_core.prompts import BasePromptTemplate

FixedPrompt = int | Sequence[Any] | Runnable[dict[str, Any], PromptValue]
"""Which part of a prompt is the same for every question, see :func:`fixed_prompt`."""

_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "max_tokens")
_SETTINGS: Final = ("tools", "tool_choice", "response_format", "grammar", "stop")
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
    rest = {name: value for name, value in bound.items() if name not in _SETTINGS}
    own_parts: Callable[..., Mapping[str, Any]] | None = getattr(
        model, "calibration_fingerprint", None
    )
    described = {
        "prompt_sha256": None if messages is None else prompt_hash(messages),
        "prompt": fixed_prompt(prompt, messages),
        "tools": _tools_part(tools, tool_choice),
        "response_format": _response_format_part(response_format),
        "grammar": _grammar_part(grammar),
        "stop": tuple(
            sorted({stop} if isinstance(stop, str) else set(map(str, stop or ())))
        ),
        "answer": None if answer is None else answer_name(answer),
        **(_name_and_sampling(model, rest) if own_parts is None else own_parts(**rest)),
    }
    sampling = described.pop("sampling", {}).items()
    return Fingerprint(
        **described, sampling={name: _value(value) for name, value in sampling}
    )


def _value(value: Any) -> Any:
    nested = isinstance(value, list | tuple | Mapping)
    return json.dumps(value, sort_keys=True, default=str) if nested else value


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
    return _hashed(_canonical(changed), changed) if changed else None


def answer_name(spec: Any) -> str:
    """Return the name of an extractor, labels or a function, with the version of the
    rules that find answers.

    Lambdas and others without a name are ``custom``.
    """
    name: Any = spec
    if not isinstance(spec, str):
        name = getattr(spec, "name", None) or getattr(spec, "__name__", None)
    if isinstance(spec, list | tuple):
        name = ",".join(map(str, spec))
    answer = name if isinstance(name, str) and name != "<lambda>" else "custom"
    return f"{answer}, version {EXTRACTION_VERSION}"


def _setting(model: BaseChatModel, bound: Mapping[str, Any], name: str) -> Any:
    """Return the setting ``name`` from the arguments, the model, or the dictionaries
    that models pass on.
    """
    settings = [
        getattr(model, field, None)
        for field in _FIELDS.get(name, (name,))
        if field in type(model).model_fields
    ]
    passed_on = (
        bound.get(holder, getattr(model, holder, None))
        for holder in ("model_kwargs", "extra_body")
    )
    values = [
        bound.get(name),
        *settings,
        *(held.get(name) for held in passed_on if isinstance(held, Mapping)),
    ]
    return next((value for value in values if value is not None), None)


def _name_and_sampling(
    model: BaseChatModel, bound: Mapping[str, Any]
) -> dict[str, Any]:
    described = langsmith_params(model, **bound)
    sampling = {name: bound.get(name, getattr(model, name, None)) for name in _SAMPLING}
    return {
        "model": str(described.get("ls_model_name") or model.get_name()),
        "sampling": {
            name: value
            for name, value in sampling.items()
            if isinstance(value, float | int | str | bool)
        },
    }


def _tools_part(tools: Sequence[Any] | None, choice: Any) -> HashedPart:
    """Describe the tools as JSON schemas, in a fixed order, and whether the model must
    call one.
    """
    if not tools:
        return _NONE
    schemas = sorted(
        (_converted(convert_to_openai_tool, tool) for tool in tools), key=_canonical
    )
    names = [
        _name(schema.get("function"), schema) or "a tool without a name"
        for schema in schemas
    ]
    if isinstance(choice, Mapping):
        choice = _name(choice.get("function"), choice)
    if choice in (None, False, "auto"):
        required = None
    elif choice in (True, "any"):
        required = "required"
    else:
        required = str(choice)
    must = (
        f", must call {'one' if required == 'required' else required}"
        if required
        else ""
    )
    return _hashed(", ".join(names) + must, {"tools": schemas, "choice": required})


def _response_format_part(given: Any) -> HashedPart:
    """Describe the schema of structured output, given as a schema, a class or OpenAI's
    dictionary.
    """
    if not given:
        return _NONE
    if isinstance(given, type):
        schema = _converted(convert_to_json_schema, given)
    else:
        schema = given
    inner = schema.get("json_schema") if isinstance(schema, Mapping) else None
    deepest = inner.get("schema") if isinstance(inner, Mapping) else None
    return _hashed(
        _name(inner, deepest, schema, keys=("name", "title", "type")) or "a schema",
        schema,
    )


def _grammar_part(grammar: Any) -> HashedPart:
    """Describe a grammar, shown by its first line."""
    if not grammar:
        return _NONE
    first, *lines = str(grammar).strip().splitlines() or [""]
    return _hashed(first[:40] + ("…" if lines or first[40:] else ""), grammar)


def _converted(convert: Callable[[Any], Any], value: Any) -> Any:
    """Return the converted value, or the value itself if it is in a provider's own
    format.
    """
    try:
        return convert(value)
    except (TypeError, ValueError, NotImplementedError):
        return value


def _name(*candidates: Any, keys: Sequence[str] = ("name", "type")) -> str | None:
    names = (
        candidate.get(key)
        for candidate in candidates
        if isinstance(candidate, Mapping)
        for key in keys
    )
    return next((str(name) for name in names if name), None)


class _Blank(str):
    """A placeholder for the variables of a template."""

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
        ConfigurationError: ``fixed`` is none of these, or there are fewer messages than
            are fixed.
    """
    if fixed is None or (isinstance(fixed, int) and messages is None):
        return None
    turns = [_turn(message) for message in _fixed_messages(fixed, messages or ())]
    if turns and turns[-1] == ["human", ["", ""]]:
        turns.pop()
    return _hashed(", ".join(turn[0] for turn in turns), turns) if turns else _NONE


def _fixed_messages(
    fixed: FixedPrompt, messages: Sequence[BaseMessage]
) -> Sequence[BaseMessage]:
    from langchain_core.prompts import (
        BasePromptTemplate,
    )  # slow to import; callers with a template have imported it

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
            return [
                message.model_copy(
                    update={"content": message.content.replace("{question}", _BLANK)}
                )
                if isinstance(message.content, str)
                else message
                for message in convert_to_messages(fixed)
            ]
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

    parts = getattr(template, "messages", ())
    histories = {
        part.variable_name for part in parts if isinstance(part, MessagesPlaceholder)
    }
    changing = {
        name for name, value in template.partial_variables.items() if callable(value)
    }
    names = {*template.input_variables, *template.optional_variables, *changing}
    return {**dict.fromkeys(names, _BLANK), **{name: [] for name in histories}}


def _turn(message: BaseMessage) -> list[Any]:
    """Return the role, the text around the variables, and the tool calls if there are
    any.
    """
    if isinstance(message.content, str):
        content = message.content
    else:
        content = _canonical(message.content)
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    if calls:
        called = [[{"name": call["name"], "args": call["args"]} for call in calls]]
    else:
        called = []
    return [getattr(message, "role", message.type), content.split(_BLANK), *called]


def _hashed(shown: str, value: Any) -> HashedPart:
    return HashedPart(
        shown=shown, sha256=hashlib.sha256(_canonical(value).encode()).hexdigest()
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a JSON-like form of any other value. It is the same in every process."""
    dumped: Callable[[], Any] | None = getattr(value, "model_dump", None)
    if dumped is not None and not isinstance(value, type):
        return dumped()
    if isinstance(value, set | frozenset):
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
    then = measured
    now = running
    hashed = bool(then.model_sha256 and now.model_sha256)
    names = [
        "model_sha256" if hashed else "model",  # a renamed file is the same model
        "quantization",
        "prompt"
        if then.prompt and now.prompt
        else "prompt_sha256",  # the hash of system messages alone
        *("tools", "response_format", "grammar", "answer", "stop"),
    ]
    differing = [
        _difference(name, getattr(then, name), getattr(now, name)) for name in names
    ]
    not_asked = confidence_part(None)
    differing.append(
        _difference(
            "ask_confidence",
            then.ask_confidence or not_asked,
            now.ask_confidence or not_asked,
        )
    )
    if _NONE not in (then.tools, now.tools):  # else no tool is called
        default = HashedPart(shown="the default")
        differing.append(
            _difference(
                "tool_votes", then.tool_votes or default, now.tool_votes or default
            )
        )
    # A model that knows its file's hash reports every parameter that has an effect.
    unset = "no effect" if hashed else None
    for name in dict.fromkeys([*then.sampling, *now.sampling]):
        differing.append(
            _difference(
                name, then.sampling.get(name, unset), now.sampling.get(name, unset)
            )
        )
    _refuse(differing)


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
        _refuse([_difference("token signal", signal, ", ".join(carried))])
    names = {
        "top_k": f"alternatives per token behind {signal!r} (k)",
        "vocabulary_size": "vocabulary size (V)",
    }
    _refuse(
        [
            _difference(label, measured[name], running[name])
            for name, label in names.items()
        ]
    )


def _difference(name: str, then: Any, now: Any) -> str | None:
    if (
        then is None
        or now is None
        or getattr(then, "sha256", then) == getattr(now, "sha256", now)
    ):
        return None
    return f"{_LABELS.get(name, name)}: calibrated on {_shown(then)}, running {_shown(now)}"


def _refuse(differences: Iterable[str | None]) -> None:
    if differing := [difference for difference in differences if difference]:
        raise FingerprintMismatch(
            f"the calibration does not fit what runs ({'; '.join(differing)}). "
            "Calibrate again with `reasc calibrate`, or override with "
            "allow_fingerprint_mismatch=True"
        )


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(repr, value)) or "none"
    if isinstance(value, str) and len(value) == 64:  # a SHA-256
        return repr(f"{value[:12]}…")
    return str(value) if isinstance(value, HashedPart) else repr(value)
