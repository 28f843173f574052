"""What the documentation and the source of well-known servers say they support."""

from dataclasses import dataclass
from typing import Any, Final
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


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_FULL: Final = Capabilities(n=True, logprobs=True, top_logprobs=20, streamed_logprobs=True, streamed_usage=True)
_PENALTIES: Final = ("top_k", "min_p", "repetition_penalty")


def _preset(
    name: str, title: str, source: str, url: str | None = None, *, key: str | None = None, **known: Any
) -> Preset:
    """A preset that has what ``_FULL`` has, but for what is said."""
    return Preset(name, title, _FULL.model_copy(update={"server": name, **known}), source, url, key)


_ALL = (
    _preset(
        "vllm",
        "vLLM",
        "vllm/entrypoints/openai/chat_completion/protocol.py; --max-logprobs is 20 unless set",
        "http://localhost:8000/v1",
        seed=True,
        stops_when_cut_off=True,
        samplers=_same(*_PENALTIES, "min_tokens", "ignore_eos", "bad_words"),
        max_tokens="max_completion_tokens",
        notices=(
            "vLLM stops generating when a stream is closed (vllm-project/vllm#32442); of 0.22 it is reported that it "
            "goes on (#54947): `reasc probe` measures it",
        ),
    ),
    _preset(
        "sglang",
        "SGLang",
        "sglang/srt/entrypoints/openai/protocol.py; seeds count only with --enable-deterministic-inference",
        "http://localhost:30000/v1",
        samplers=_same(*_PENALTIES, "min_tokens", "ignore_eos"),
        max_tokens="max_completion_tokens",
        notices=(
            "before June 2026, streams carry no log-probabilities with a reasoning or tool parser "
            "(sgl-project/sglang#28601): there, take preset='auto'",
            "of versions of August 2026 it is reported that they go on generating when a stream is closed "
            "(sgl-project/sglang#36333): `reasc probe` measures it",
        ),
    ),
    _preset(
        "llama-server",
        "llama-server (llama.cpp)",
        "llama.cpp tools/server/README.md; n is at most the number of slots (--parallel)",
        "http://localhost:8080/v1",  # 9931 in a release to come (ggml-org/llama.cpp#26508)
        top_logprobs=100,
        seed=True,
        stops_when_cut_off=True,
        samplers={
            **_same("top_k", "min_p", "typical_p"),
            "repetition_penalty": "repeat_penalty",
            "ignore_eos": "ignore_eos",
        },
    ),
    _preset(
        "ollama",
        "Ollama",
        "docs.ollama.com/api/openai-compatibility; top_k and min_p are not read there (ollama/ollama#11325); "
        "a closed connection ends the generation (ollama/ollama#1695)",
        "http://localhost:11434/v1",
        n=False,
        seed=True,
        stops_when_cut_off=True,
        notices=(
            "log-probabilities need Ollama 0.12.11 or newer",
            "top_k, min_p and other parameters beyond OpenAI's are set in a Modelfile, or with ChatOllama",
        ),
    ),
    _preset(
        "lm-studio",
        "LM Studio",
        "lmstudio.ai/docs/developer/openai-compat; chat completions carry no logprobs (lmstudio-ai/lms#60); by its "
        "log a client that disconnects ends the generation",
        "http://localhost:1234/v1",
        n=False,
        logprobs=False,
        top_logprobs=None,
        streamed_logprobs=False,
        seed=True,
        stops_when_cut_off=True,
        samplers={"top_k": "top_k", "repetition_penalty": "repeat_penalty"},
        notices=("chat completions carry no log-probabilities: votes are counted, or use llama-server",),
    ),
    _preset(
        "openai",
        "OpenAI",
        "platform.openai.com/docs/api-reference/chat/create",
        "https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        max_tokens="max_completion_tokens",
        notices=("reasoning models, and those of the Responses API alone, return no log-probabilities",),
    ),
    _preset(
        "generic",
        "another OpenAI-compatible server",
        "what OpenAI's API asks of any server",
        **dict.fromkeys(("n", "logprobs", "streamed_logprobs", "streamed_usage")),
        samplers=_same(*_PENALTIES, "typical_p", "min_tokens"),
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
