"""The real chat model classes, and the loopback provider that each is called against."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from servers.exchange import Answer

from . import openai_wires as openai
from . import other_wires as other

PAGE = (Path(__file__).parents[3] / "docs" / "chat_models.md").read_text(encoding="utf-8")
ROWS = {row[0].strip("`"): row[1:] for row in re.findall(r"^\| (`\w+`) " + r"\| (.*?) *" * 4 + r"\|$", PAGE, re.M)}
"""The table of docs/chat_models.md: class -> whether it gives logprobs, k, n, whether it is streamed."""
KEY = "sk-this-is-a-secret"


@dataclass(frozen=True)
class Provider:
    """One class, how it is pointed at a server, and what comes of it.

    ``alternatives`` is how many come with each token, None without logprobs.
    ``seed`` is what its field is called (None: ``model_kwargs``) and ``seed_of`` where the provider finds it (None: it
    knows none).
    """

    path: str
    wire: Answer
    alternatives: int | None
    base: str = "/v1"
    url: str = "base_url"
    fields: Mapping[str, Any] = field(default_factory=dict)
    seed: str | None = "seed"
    seed_of: Callable[[dict[str, Any]], Any] | None = lambda request: request["seed"]

    def model(self, server: str, **fields: Any) -> Any:
        package, _, name = self.path.rpartition(".")
        kind = getattr(pytest.importorskip(package), name)
        return kind(**{self.url: server + self.base, "api_key": KEY, **self.fields, **fields})

    def seeded(self, seed: int) -> dict[str, Any]:
        if self.seed_of is None:
            return {}
        return {self.seed: seed} if self.seed else {"model_kwargs": {"seed": seed}}


ONCE = {"model": "m", "max_retries": 0}
AZURE = {"azure_deployment": "m", "api_version": "2024-10-21", "max_retries": 0}

WITH_LOGPROBS = {
    "ChatOpenAI": Provider("langchain_openai.ChatOpenAI", openai.OpenAI(), 20, fields=ONCE),
    "AzureChatOpenAI": Provider(
        "langchain_openai.AzureChatOpenAI", openai.OpenAI(), 20, base="", url="azure_endpoint", fields=AZURE
    ),
    "ChatDeepSeek": Provider("langchain_deepseek.ChatDeepSeek", openai.DeepSeek(), 20, fields=ONCE),
    "ChatXAI": Provider("langchain_xai.ChatXAI", openai.XAI(), 8, fields=ONCE),
    "ChatCerebras": Provider("langchain_cerebras.ChatCerebras", openai.OpenAI(), 20, fields=ONCE),
    "ChatTogether": Provider("langchain_together.ChatTogether", openai.Together(), 20, fields=ONCE),
    "ChatFireworks": Provider(
        "langchain_fireworks.ChatFireworks", openai.Fireworks(), 5, base="/inference/v1", fields=ONCE, seed=None
    ),
    "ChatOpenRouter": Provider(
        "langchain_openrouter.ChatOpenRouter", openai.OpenRouter(), 20, base="/api/v1", fields=ONCE
    ),
    "ChatOllama": Provider(
        "langchain_ollama.ChatOllama",
        other.Ollama(),
        20,
        base="",
        fields={"model": "m"},
        seed_of=lambda request: request["options"]["seed"],
    ),
}

WITHOUT_LOGPROBS = {
    "ChatGroq": Provider("langchain_groq.ChatGroq", openai.Groq(), None, base="", fields=ONCE, seed=None),
    "ChatMistralAI": Provider(
        "langchain_mistralai.ChatMistralAI",
        openai.Mistral(),
        None,
        fields=ONCE,
        seed="random_seed",
        seed_of=lambda request: request["random_seed"],
    ),
    "ChatGoogleGenerativeAI": Provider(
        "langchain_google_genai.ChatGoogleGenerativeAI",
        other.Gemini(),
        None,
        base="",
        fields={"model": "gemini-2.5-flash", "max_retries": 1},
        seed_of=lambda request: request["generationConfig"]["seed"],
    ),
    "ChatNVIDIA": Provider("langchain_nvidia_ai_endpoints.ChatNVIDIA", openai.OpenAI(), None, fields={"model": "m"}),
    "ChatAnthropic": Provider(
        "langchain_anthropic.ChatAnthropic",
        other.Anthropic(),
        None,
        base="",
        fields={**ONCE, "max_tokens": 64},
        seed_of=None,
    ),
}

PROVIDERS = {**WITH_LOGPROBS, **WITHOUT_LOGPROBS}


def each(providers: Mapping[str, Provider]) -> Any:
    return pytest.mark.parametrize("provider", providers.values(), ids=providers)
