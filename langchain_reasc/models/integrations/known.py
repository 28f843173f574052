"""The chat models that are known, by class; where each figure comes from stands beside it.

``tests/models/integrations`` calls each through its own class, against a server that speaks the provider's wire format;
the table "Chat models" in ``backends/README.md`` says the same as this one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from langchain_core.language_models import BaseChatModel, FakeListChatModel, FakeMessagesListChatModel

from langchain_reasc.models.integrations.integration import Integration

__all__ = ["KNOWN", "unknown"]


# No call of theirs leaves a request on the model or its clients: tests/models/integrations/test_own_copies.py looks,
# but for ChatVertexAI, of which its code was read. All name the end of their streams.
_Shared = partial(Integration, own_copy=False, names_end=True)
_COUNTING: Final = (FakeListChatModel, FakeMessagesListChatModel)  # find their next response by what calls left


def _seed_in_options(model: Any, arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """ChatOllama takes no ``seed`` per call, only ``options``, which then stand in place of all its fields."""
    options = arguments.get("options") or model._chat_params([], arguments.get("stop"))["options"]
    return {"options": {**options, "seed": seed}}


def _in_process(model: BaseChatModel) -> Integration:
    """Our llama.cpp model records exact signals; it needs no logprobs beside them. Its tokenizer is at hand."""
    return _Shared(logprobs=None if getattr(model, "signals", ()) else "logprobs", counts_tokens=True)


def _openai(model: BaseChatModel) -> Integration:
    """OpenAI: top_logprobs "an integer between 0 and 20" (openai, completion_create_params.py)."""
    if getattr(model, "use_responses_api", None):
        return _Shared(logprobs=None, no_logprobs="langchain-openai drops the logprobs of the Responses API")
    return _Shared()


KNOWN: Final[Mapping[str, Integration | Callable[[BaseChatModel], Integration]]] = {
    "langchain_reasc_llama_cpp.ChatLlamaCpp": _in_process,
    "langchain_openai.BaseChatOpenAI": _openai,  # ChatOpenAI, AzureChatOpenAI and all built on them
    # xai-sdk, chat.py: top_logprobs "an integer between 0 and 8".
    "langchain_xai.ChatXAI": _Shared(max_top_logprobs=8),
    # cerebras-cloud-sdk, completion_create_params.py: top_logprobs 0 to 20. The class streams synchronously in
    # a way of its own, which forgets ``stream_usage``.
    "langchain_cerebras.ChatCerebras": _Shared(arguments={"stream_options": {"include_usage": True}}),
    # together, completion_create_params.py: ``logprobs`` is "an integer between 0 and 20". In streams it is a float per
    # chunk (chat_completion_chunk.py), which langchain-core cannot merge.
    "langchain_together.ChatTogether": _Shared(top_logprobs=None, streams_logprobs=False),
    # fireworks-ai, completion_create_params.py: top_logprobs "0 <= x <= 5".
    "langchain_fireworks.ChatFireworks": _Shared(max_top_logprobs=5),
    "langchain_openrouter.ChatOpenRouter": _Shared(),  # openrouter, chatrequest.py: top_logprobs "(0-20)"
    # ollama, _types.py: top_logprobs "(0-20)"; one response per request.
    "langchain_ollama.ChatOllama": _Shared(n=None, seed=_seed_in_options, options="options"),
    # groq, completion_create_params.py: "not yet supported by any of our models".
    "langchain_groq.ChatGroq": _Shared(
        logprobs=None, no_logprobs="Groq's API supports logprobs for none of its models"
    ),
    "langchain_mistralai.ChatMistralAI": _Shared(
        logprobs=None, no_logprobs="Mistral's API returns no logprobs", seed="random_seed"
    ),
    "langchain_google_genai.ChatGoogleGenerativeAI": _Shared(
        logprobs=None, no_logprobs="langchain-google-genai drops the logprobs that Gemini returns"
    ),
    # The class reads logprobs of whole responses only, and their number from its own field (_utils.py, chat_models.py).
    # Google's clients name no limit; 5 is a cautious choice.
    "langchain_google_vertexai.ChatVertexAI": _Shared(
        top_logprobs=None, max_top_logprobs=5, streams_logprobs=False, names_end=False
    ),
    # Its client keeps the request that it is about to send as ``last_inputs``, where another thread replaces it.
    "langchain_nvidia_ai_endpoints.ChatNVIDIA": Integration(
        logprobs=None,
        no_logprobs="langchain-nvidia-ai-endpoints drops logprobs; ChatOpenAI with the same base_url keeps them",
        n=None,
        names_end=True,
    ),
    "langchain_anthropic.ChatAnthropic": _Shared(
        logprobs=None, no_logprobs="Anthropic's API returns no logprobs", n=None, seed=None
    ),
}


def unknown(model: BaseChatModel) -> Integration:
    """A class that nobody registered: asked as OpenAI's are, where it shows that it would understand.

    It does so with fields of these names, or with ``model_kwargs``, by which LangChain's integrations pass on what they
    do not know themselves. Anything else might fail on arguments it never heard of.
    """
    fields, own_copy = type(model).model_fields.keys(), not isinstance(model, _COUNTING)
    if {"logprobs", "top_logprobs"} <= fields or "model_kwargs" in fields:
        return Integration(own_copy=own_copy)
    return Integration(logprobs=None, n=None, own_copy=own_copy)
