"""What the documentation and the source of well-known servers say they support."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_openai.probing.capabilities import Capabilities

__all__ = ["PRESETS", "Preset", "preset_named", "preset_of_host"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One kind of server.

    Attributes:
        name: the name given to ``ChatOpenAICompatible(preset=...)``.
        title: its name as its makers write it.
        capabilities: what it supports where nobody asked it.
        source: where that is written.
        default_url: where it listens unless told otherwise.
        key_variable: environment variable its API key is usually in; None where it asks for no key.
    """

    name: str
    title: str
    capabilities: Capabilities
    source: str
    default_url: str | None = None
    key_variable: str | None = None


def _preset(
    name: str, title: str, source: str, known: Capabilities, *, url: str | None = None, key: str | None = None
) -> Preset:
    return Preset(name, title, known.model_copy(update={"server": name}), source, url, key)


_ALL = (
    _preset(
        "vllm",
        "vLLM",
        "vllm/entrypoints/openai/chat_completion/protocol.py; --max-logprobs is 20 unless set",
        Capabilities(
            n=True,
            logprobs=True,
            top_logprobs=20,
            streamed_logprobs=True,
            streamed_usage=True,
            seed=True,
            samplers={
                name: name for name in ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "bad_words")
            },
            max_tokens="max_completion_tokens",
        ),
        url="http://localhost:8000/v1",
    ),
    _preset(
        "sglang",
        "SGLang",
        "sglang/srt/entrypoints/openai/protocol.py; seeds count only with --enable-deterministic-inference",
        Capabilities(
            n=True,
            logprobs=True,
            top_logprobs=20,
            streamed_logprobs=True,
            streamed_usage=True,
            samplers={name: name for name in ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos")},
            max_tokens="max_completion_tokens",
            notices=(
                "before June 2026, streams carry no log-probabilities with a reasoning or tool parser "
                "(sgl-project/sglang#28601): there, take preset='auto'",
            ),
        ),
        url="http://localhost:30000/v1",
    ),
    _preset(
        "llama-server",
        "llama-server (llama.cpp)",
        "llama.cpp tools/server/README.md; n is at most the number of slots (--parallel)",
        Capabilities(
            n=True,
            logprobs=True,
            top_logprobs=100,
            streamed_logprobs=True,
            streamed_usage=True,
            seed=True,
            samplers={
                "top_k": "top_k",
                "min_p": "min_p",
                "typical_p": "typical_p",
                "repetition_penalty": "repeat_penalty",
                "ignore_eos": "ignore_eos",
            },
        ),
        url="http://localhost:8080/v1",  # 9931 in a release to come (ggml-org/llama.cpp#26508)
    ),
    _preset(
        "ollama",
        "Ollama",
        "docs.ollama.com/api/openai-compatibility; top_k and min_p are not read there (ollama/ollama#11325)",
        Capabilities(
            n=False,
            logprobs=True,
            top_logprobs=20,
            streamed_logprobs=True,
            streamed_usage=True,
            seed=True,
            notices=(
                "log-probabilities need Ollama 0.12.11 or newer",
                "top_k, min_p and other parameters beyond OpenAI's are set in a Modelfile, or with ChatOllama",
            ),
        ),
        url="http://localhost:11434/v1",
    ),
    _preset(
        "lm-studio",
        "LM Studio",
        "lmstudio.ai/docs/developer/openai-compat; chat completions carry no logprobs (lmstudio-ai/lms#60)",
        Capabilities(
            n=False,
            logprobs=False,
            streamed_logprobs=False,
            streamed_usage=True,
            seed=True,
            samplers={"top_k": "top_k", "repetition_penalty": "repeat_penalty"},
            notices=("chat completions carry no log-probabilities: votes are counted, or use llama-server",),
        ),
        url="http://localhost:1234/v1",
    ),
    _preset(
        "openai",
        "OpenAI",
        "platform.openai.com/docs/api-reference/chat/create",
        Capabilities(
            n=True,
            logprobs=True,
            top_logprobs=20,
            streamed_logprobs=True,
            streamed_usage=True,
            max_tokens="max_completion_tokens",
            notices=("reasoning models, and those of the Responses API alone, return no log-probabilities",),
        ),
        url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
    ),
    _preset(
        "generic",
        "another OpenAI-compatible server",
        "what OpenAI's API asks of any server",
        Capabilities(
            top_logprobs=20,
            samplers={name: name for name in ("top_k", "min_p", "repetition_penalty", "typical_p", "min_tokens")},
        ),
    ),
)
PRESETS: Final = {preset.name: preset for preset in _ALL}
"""Name -> preset."""


def preset_named(name: str) -> Preset:
    """The preset of that name.

    Raises:
        ConfigurationError: there is none; names those there are.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigurationError(f"unknown preset {name!r}; choose from auto, {', '.join(PRESETS)}") from None


def preset_of_host(url: str) -> Preset | None:
    """The preset of a service known by its address: it is documented and paid for, and need not be asked."""
    return PRESETS["openai"] if (urlsplit(url).hostname or "") == "api.openai.com" else None
