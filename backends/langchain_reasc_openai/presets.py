"""Capabilities of OpenAI-compatible servers, and those documented for well-known ones."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from langchain_reasc.exceptions import ConfigurationError


class Capabilities(BaseModel):
    """What one server supports for one model. None means unknown: it is then tried, and
    what comes back is read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: str = "generic"
    """Name of the preset that fits: vllm, llama-server, ..."""
    version: str | None = None
    """What the server calls its version."""
    models: tuple[str, ...] = ()
    """Names of the models it lists."""
    n: bool | None = None
    """Several responses of one request."""
    logprobs: bool | None = None
    """Log-probabilities of the generated tokens."""
    top_logprobs: Annotated[int | None, Field(ge=0)] = None
    """Most alternatives per token that it returns."""
    streamed_logprobs: bool | None = None
    """Log-probabilities in streams too."""
    streamed_usage: bool | None = None
    """Token counts at the end of a stream."""
    reasoning_logprobs: bool | None = None
    """Log-probabilities in streams of the tokens of the reasoning too, if there is any.
    """
    seed: bool | None = None
    """The same seed gives the same response, another one another."""
    samplers: dict[str, str] = {}
    """Sampling parameters beyond OpenAI's: our name -> the server's."""
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The server's name for the most tokens of a response."""
    learned: Literal["preset", "probe"] = "preset"
    """Known from documentation, or by asking."""
    notices: tuple[str, ...] = ()
    """Missing features, with the consequences."""

    def alternatives(self, asked: int | None) -> int | None:
        """Return the number of alternatives to request: ``asked``, or the server's
        limit if that is lower.
        """
        if asked is None or self.top_logprobs is None:
            return asked
        return min(asked, self.top_logprobs)


@dataclass(frozen=True, slots=True)
class Preset:
    """One kind of server.

    Attributes:
        name: the name given to ``ChatOpenAICompatible(preset=...)``.
        title: its name as its makers write it.
        capabilities: what it supports according to its documentation.
        default_url: its default address.
        key_variable: the usual environment variable of its API key; None if it needs no
            key.
        url_variables: environment variables that name another address for it, first the
            one that counts most.
    """

    name: str
    title: str
    capabilities: Capabilities
    default_url: str | None = None
    key_variable: str | None = None
    url_variables: tuple[str, ...] = ()


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _preset(
    name: str,
    title: str,
    url: str | None = None,
    *,
    key: str | None = None,
    url_variables: tuple[str, ...] | None = None,
    **known: Any,
) -> Preset:
    """Return a preset with all of OpenAI's API, except for the given capabilities."""
    full = dict.fromkeys(("n", "logprobs", "streamed_logprobs", "streamed_usage"), True)
    capabilities = Capabilities(server=name, **{**full, "top_logprobs": 20, **known})
    return Preset(name, title, capabilities, url, key, url_variables or ())


_COMMON: Final = ("top_k", "min_p", "repetition_penalty")
_ALL: Final = (
    # vllm/entrypoints/openai/chat_completion/protocol.py; --max-logprobs is 20 unless
    # set
    _preset(
        "vllm",
        "vLLM",
        "http://localhost:8000/v1",
        seed=True,
        samplers=_same(*_COMMON, "min_tokens", "ignore_eos", "bad_words"),
        max_tokens="max_completion_tokens",
        notices=(
            "vLLM stops generating when a stream is closed (vllm-project/vllm#32442); "
            "of 0.22 it is reported that it goes on (#54947)",
        ),
    ),
    # sglang/srt/entrypoints/openai/protocol.py; seeds count only with
    # --enable-deterministic-inference
    _preset(
        "sglang",
        "SGLang",
        "http://localhost:30000/v1",
        samplers=_same(*_COMMON, "min_tokens", "ignore_eos"),
        max_tokens="max_completion_tokens",
        notices=(
            "before June 2026, streams carry no log-probabilities with a reasoning or "
            "tool parser (sgl-project/sglang#28601): there, take preset='auto'",
            "of versions of August 2026 it is reported that they go on generating "
            "when a stream is closed (sgl-project/sglang#36333)",
        ),
    ),
    # llama.cpp tools/server/README.md; n is at most the number of slots (--parallel).
    # The port will be 9931 in a release to come (ggml-org/llama.cpp#26508).
    _preset(
        "llama-server",
        "llama-server (llama.cpp)",
        "http://localhost:8080/v1",
        top_logprobs=100,
        seed=True,
        samplers={
            **_same("top_k", "min_p", "typical_p"),
            "repetition_penalty": "repeat_penalty",
            "ignore_eos": "ignore_eos",
        },
    ),
    # docs.ollama.com/api/openai-compatibility; top_k and min_p are not read there
    # (ollama/ollama#11325); a closed connection ends the generation
    # (ollama/ollama#1695)
    _preset(
        "ollama",
        "Ollama",
        "http://localhost:11434/v1",
        n=False,
        seed=True,
        notices=(
            "log-probabilities need Ollama 0.12.11 or newer",
            (
                "top_k, min_p and other parameters beyond OpenAI's are set in a "
                "Modelfile, or with ChatOllama"
            ),
        ),
    ),
    # lmstudio.ai/docs/developer/openai-compat; chat completions carry no logprobs
    # (lmstudio-ai/lms#60); by its log a client that disconnects ends the generation
    _preset(
        "lm-studio",
        "LM Studio",
        "http://localhost:1234/v1",
        n=False,
        logprobs=False,
        top_logprobs=None,
        streamed_logprobs=False,
        seed=True,
        samplers={"top_k": "top_k", "repetition_penalty": "repeat_penalty"},
        notices=(
            (
                "chat completions carry no log-probabilities: votes are counted, or use "
                "llama-server"
            ),
        ),
    ),
    # platform.openai.com/docs/api-reference/chat/create
    _preset(
        "openai",
        "OpenAI",
        "https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        url_variables=(
            "OPENAI_API_BASE",
            "OPENAI_BASE_URL",
        ),  # as langchain-openai reads them
        max_tokens="max_completion_tokens",
        notices=(
            (
                "reasoning models, and those of the Responses API alone, return no "
                "log-probabilities"
            ),
        ),
    ),
    _preset(
        "generic",
        "another OpenAI-compatible server",
        n=None,
        logprobs=None,
        streamed_logprobs=None,
        streamed_usage=None,
        samplers=_same(*_COMMON, "typical_p", "min_tokens"),
    ),
)
PRESETS: Final = {preset.name: preset for preset in _ALL}
"""Name -> preset."""


def preset_named(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        ConfigurationError: the name is unknown; the message lists the known ones.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigurationError(
            f"unknown preset {name!r}; choose from auto, {', '.join(PRESETS)}"
        ) from None


def preset_of_host(url: str) -> Preset | None:
    """Return the preset of a service known by its address. It is documented, and
    probing it would cost money.
    """
    return (
        PRESETS["openai"]
        if (urlsplit(url).hostname or "") == "api.openai.com"
        else None
    )
