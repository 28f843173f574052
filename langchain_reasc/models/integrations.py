"""How each LangChain integration is asked for logprobs, seeds and a single response.

No package is imported for it: classes are known by name, in :data:`KNOWN`.
:func:`register_integration` adds your own class, or corrects what is known of one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel

from langchain_reasc.exceptions import ConfigurationError

MovedSeed = Callable[[BaseChatModel, Mapping[str, Any], int], dict[str, Any]]
"""(model, arguments of the call, seed) -> the arguments that give the call this seed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """How the chat models of one class are sampled and asked for the probabilities of
    their tokens.

    Names are those of the class's fields; a name that is no field is an argument of
    each call. The defaults are those of OpenAI's chat API.

    Attributes:
        logprobs: asks for log-probabilities; None if none can be had.
        no_logprobs: why none can be had.
        top_logprobs: asks for alternatives; None if ``logprobs`` itself takes their
            number.
        max_top_logprobs: the most alternatives per token that the provider gives.
        streams: whether a streamed response has all that a whole one has; if not,
            responses are taken whole.
        streams_logprobs: whether they survive streaming; if not, responses are taken
            whole, and run to their end.
        n: asks for several responses in one request; None if nothing does.
        seed: sets the random seed, so that it can be moved on from sample to sample: a
            name, or a function if that does not do; None if nothing sets it.
        options: an argument of a call whose dict stands in place of the fields, as
            Ollama's ``options``.
        arguments: what every call is given besides, name -> value.
        own_copy: whether each sample gets a copy of the model to itself, since a call
            may leave on the model what another, made at the same time, reads there.
            False if that is known not to happen, or if calls are to find what others
            left, such as the count of calls by which a fake model chooses its next
            response.
        names_end: whether each stream ends with a reason, such as ``finish_reason``.
            One without was broken off, though HTTP took it for whole, and its sample
            fails.
    """

    logprobs: str | None = "logprobs"
    no_logprobs: str | None = None
    top_logprobs: str | None = "top_logprobs"
    max_top_logprobs: int = 20
    streams: bool = True
    streams_logprobs: bool = True
    n: str | None = "n"
    seed: str | MovedSeed | None = "seed"
    options: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    own_copy: bool = True
    names_end: bool = False


Describe = Callable[[Any], Integration]
"""From a model of the class to how it is to be sampled; the model's own settings may
matter.
"""
DescribeT = TypeVar("DescribeT", bound=Describe)

# No call of theirs leaves a request on the model or its clients:
# tests/models/integrations/test_own_copies.py looks, but for ChatVertexAI, of which its
# code was read. All name the end of their streams.
_Shared = partial(Integration, own_copy=False, names_end=True)
_WithoutLogprobs = partial(_Shared, logprobs=None)


def _ollama_seed(model: Any, arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """ChatOllama takes the seed of a call in ``options`` only, which replace all its
    fields.
    """
    options = arguments.get("options")
    if not options:
        options = model._chat_params([], arguments.get("stop"))["options"]
    return {"options": {**options, "seed": seed}}


def _llama_cpp(model: BaseChatModel) -> Integration:
    """Our llama.cpp model records exact signals; it needs no logprobs beside them."""
    return _Shared(logprobs=None if getattr(model, "signals", ()) else "logprobs")


def _openai(model: BaseChatModel) -> Integration:
    """OpenAI: top_logprobs "an integer between 0 and 20" (openai,
    completion_create_params.py).
    """
    if getattr(model, "use_responses_api", None):
        return _WithoutLogprobs(
            no_logprobs="langchain-openai drops the logprobs of the Responses API"
        )
    return _Shared()


KNOWN: Final[Mapping[str, Integration | Describe]] = {
    "langchain_reasc_llama_cpp.ChatLlamaCpp": _llama_cpp,
    # ChatOpenAI, AzureChatOpenAI and all built on them
    "langchain_openai.BaseChatOpenAI": _openai,
    # xai-sdk, chat.py: top_logprobs "an integer between 0 and 8".
    "langchain_xai.ChatXAI": _Shared(max_top_logprobs=8),
    # cerebras-cloud-sdk, completion_create_params.py: top_logprobs 0 to 20. The class
    # streams synchronously in a way of its own, which forgets ``stream_usage``.
    "langchain_cerebras.ChatCerebras": _Shared(
        arguments={"stream_options": {"include_usage": True}}
    ),
    # together, completion_create_params.py: ``logprobs`` is "an integer between 0 and
    # 20". In streams it is a float per chunk (chat_completion_chunk.py), which
    # langchain-core cannot merge.
    "langchain_together.ChatTogether": _Shared(
        top_logprobs=None, streams_logprobs=False
    ),
    # fireworks-ai, completion_create_params.py: top_logprobs "0 <= x <= 5".
    "langchain_fireworks.ChatFireworks": _Shared(max_top_logprobs=5),
    # openrouter, chatrequest.py: top_logprobs "(0-20)"
    "langchain_openrouter.ChatOpenRouter": _Shared(),
    # ollama, _types.py: top_logprobs "(0-20)"; one response per request.
    "langchain_ollama.ChatOllama": _Shared(
        n=None, seed=_ollama_seed, options="options"
    ),
    # groq, completion_create_params.py: "not yet supported by any of our models".
    "langchain_groq.ChatGroq": _WithoutLogprobs(
        no_logprobs="Groq's API supports logprobs for none of its models"
    ),
    "langchain_mistralai.ChatMistralAI": _WithoutLogprobs(
        no_logprobs="Mistral's API returns no logprobs", seed="random_seed"
    ),
    "langchain_google_genai.ChatGoogleGenerativeAI": _WithoutLogprobs(
        no_logprobs="langchain-google-genai drops the logprobs that Gemini returns"
    ),
    # The class reads logprobs of whole responses only, and their number from its own
    # field (_utils.py, chat_models.py). Google's clients name no limit; 5 is a cautious
    # choice.
    "langchain_google_vertexai.ChatVertexAI": _Shared(
        top_logprobs=None, max_top_logprobs=5, streams_logprobs=False, names_end=False
    ),
    # Its client keeps the request that it is about to send as ``last_inputs``, where
    # another thread replaces it. Calls of tools are sent back from
    # ``additional_kwargs``, where streams do not have them (chat_models.py, _utils.py).
    "langchain_nvidia_ai_endpoints.ChatNVIDIA": _WithoutLogprobs(
        no_logprobs="langchain-nvidia-ai-endpoints drops logprobs; ChatOpenAI with the "
        "same base_url keeps them",
        n=None,
        own_copy=True,
        streams=False,
    ),
    "langchain_anthropic.ChatAnthropic": _WithoutLogprobs(
        no_logprobs="Anthropic's API returns no logprobs", n=None, seed=None
    ),
}
"""The chat models that are known, by class path; where each figure comes from stands
beside it.

``tests/models/integrations`` calls each but ChatVertexAI through its own class, against
a server that speaks the provider's wire format; the table in ``docs/chat_models.md``
says the same as this one.
"""


_integrations: Final[dict[str, Integration | Describe]] = {**KNOWN}


def register_integration(*class_paths: str) -> Callable[[DescribeT], DescribeT]:
    """Say how the chat models of a class, and of those derived from it, are sampled and
    asked for logprobs.

    It wins over what is known of the class.

    Args:
        *class_paths: ``package.Class`` or ``package.module.Class``. The package need
            not be installed.

    Raises:
        ConfigurationError: not a dotted path.

    Example:
        >>> @register_integration("my_package.ChatMine")
        ... def chat_mine(model):
        ...     return Integration(top_logprobs="alternatives", max_top_logprobs=5)
    """
    for path in class_paths or ("",):
        parts = path.split(".") if isinstance(path, str) else []
        if len(parts) < 2 or not all(map(str.isidentifier, parts)):
            raise ConfigurationError(
                "an integration is registered by class paths, package.Class; got "
                f"{class_paths!r}"
            )

    def register(describe: DescribeT) -> DescribeT:
        _integrations.update(dict.fromkeys(class_paths, describe))
        # The class may have been looked up before.
        _known_path.cache_clear()
        return describe

    return register


def integration_of(model: BaseChatModel) -> Integration:
    """Return how a chat model is sampled: by its class, by the nearest base class that
    is known, or as OpenAI's.

    Raises:
        ConfigurationError: a registered function failed, or returned something else.
    """
    path = _known_path(type(model))
    if path is None:
        # Fields of these names show that a class understands OpenAI's options, and
        # LangChain's integrations pass on in ``model_kwargs`` what they do not know.
        # Another class might fail on unknown arguments.
        fields = type(model).model_fields.keys()
        if {"logprobs", "top_logprobs"} <= fields or "model_kwargs" in fields:
            return Integration()
        return Integration(logprobs=None, n=None)
    registered = _integrations[path]
    if isinstance(registered, Integration):
        return registered
    try:
        integration = registered(model)
    except Exception as error:
        raise ConfigurationError(
            f"what is registered for {path} failed: {error!r}"
        ) from error
    if not isinstance(integration, Integration):
        raise ConfigurationError(
            f"what is registered for {path} must return an Integration, got "
            f"{type(integration).__name__}"
        )
    return integration


def is_known(model: BaseChatModel) -> bool:
    """Return whether the class of a model, or one of its bases, has an integration."""
    return _known_path(type(model)) is not None


@lru_cache(maxsize=256)
def _known_path(kind: type) -> str | None:
    """The path under which a class or its nearest base is known."""
    for base in kind.__mro__:
        parts = base.__module__.split(".")
        # Packages re-export their classes from modules that move.
        for depth in range(len(parts), 0, -1):
            path = ".".join([*parts[:depth], base.__qualname__])
            if path in _integrations:
                return path
    return None


def schema_of_stream(
    model: BaseChatModel, arguments: Mapping[str, Any]
) -> type[BaseModel] | None:
    """Return the class by which ``ChatOpenAI`` would parse a stream, or None.

    While openai's client parses a stream, pydantic warns of each parsed object, and
    quotes it.
    """
    schema = arguments.get("response_format")
    of_openai = hasattr(model, "root_client") and hasattr(model, "_use_responses_api")
    if of_openai and isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema
    return None


def as_json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the ``response_format`` that openai's client makes of a class."""
    from openai import pydantic_function_tool

    function: Any = pydantic_function_tool(schema)["function"]
    json_schema = {
        "name": function["name"],
        "schema": function["parameters"],
        "strict": True,
    }
    return {"type": "json_schema", "json_schema": json_schema}


def streams_another_schema(model: BaseChatModel, arguments: Mapping[str, Any]) -> bool:
    """Return whether ``ChatOpenAI`` puts a default into the strict schema of a stream
    of the Responses API.

    OpenAI refuses such a schema. For a whole response openai's client makes the schema,
    without defaults.
    """
    uses_responses: Any = getattr(model, "_use_responses_api", None)
    if uses_responses is None or not isinstance(arguments.get("response_format"), type):
        return False
    return bool(uses_responses({**getattr(model, "_default_params", {}), **arguments}))
