"""Which kind of server answers at a URL, and whether several servers serve one model, by what they say of it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError, ServerError
from langchain_reasc_openai.presets import PRESETS, Preset, preset_of_host
from langchain_reasc_openai.server import Server

__all__ = ["Identity", "identify", "require_same_model"]

_OWNERS: Final = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama-server", "library": "ollama"}
"""``owned_by`` in the list of models -> preset."""
_VERSIONS: Final = {
    "vllm": ("/version", "version"),
    "sglang": ("/get_server_info", "version"),
    "llama-server": ("/props", "build_info"),
    "ollama": ("/api/version", "version"),
}
"""Preset -> (path beside /v1, field) that tells the version."""
_WEIGHTS: Final = ("n_params", "size", "n_vocab", "n_embd")
"""What llama-server tells of a model's weights, under ``meta``."""
_LIST_ALL_NAMES: Final = ("vllm", "sglang")  # Ollama has more names for one model


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself.

    Attributes:
        preset: what kind of server it is.
        version: its version, in its own words.
        models: the names of the models that it lists.
        weights: what it says of the weights of each, where it does.
    """

    preset: Preset
    version: str | None = None
    models: tuple[str, ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)


def identify(server: Server) -> Identity:
    """Ask a server what it is, without generating anything.

    Raises:
        ServerError: it cannot be reached, or refuses the key.
    """
    listed = server.get("/models")
    models = {str(row["id"]): row for row in listed.rows("data") if "id" in row}
    name = _kind(server, [str(row.get("owned_by")) for row in listed.rows("data")], listed.headers.get("server", ""))
    weights = {model: text for model, row in models.items() if (text := _weights(row.get("meta")))}
    return Identity(PRESETS[name], _version(server, name), tuple(models), weights)


def require_same_model(servers: Sequence[Server], model: str) -> None:
    """Refuse servers of which one says that it serves another model; one that does not answer says nothing.

    llama-server answers to any name with the model it has, so that its votes would be mixed with the others' unnoticed;
    it tells the size of its weights. vLLM and SGLang list the models they serve. All are asked together, and generate
    nothing.

    Raises:
        ConfigurationError: they do not serve one model.
    """
    with ThreadPoolExecutor(len(servers)) as threads:
        asked = [(server.url, threads.submit(identify, server)) for server in servers]
    urls_of: defaultdict[str, list[str]] = defaultdict(list)
    for url, answer in asked:
        with suppress(ServerError):
            identity = answer.result()
            if identity.preset.name in _LIST_ALL_NAMES and identity.models and model not in identity.models:
                raise ConfigurationError(f"{url} serves {', '.join(identity.models[:20])} and not {model!r}")
            only = next(iter(identity.weights.values())) if len(identity.weights) == 1 else None
            if weights := identity.weights.get(model, only):
                urls_of[weights].append(url)
    if len(urls_of) > 1:
        which = "; ".join(f"{' and '.join(urls)}: {weights}" for weights, urls in urls_of.items())
        raise ConfigurationError(
            f"the servers have different models behind them ({which}); give base URLs of one model, "
            "or a chat model of its own for each"
        )


def _kind(server: Server, owners: Sequence[str], software: str) -> str:
    if known := preset_of_host(server.url):
        return known.name
    if "llama.cpp" in software:
        return "llama-server"
    for owner, name in _OWNERS.items():
        if owner in owners:
            return name
    if _version(server, "ollama"):
        return "ollama"
    native = server.get_native("/api/v0/models")
    return "lm-studio" if any("compatibility_type" in row for row in native.rows("data")) else "generic"


def _weights(meta: Any) -> str:
    values = meta if isinstance(meta, dict) else {}
    return ", ".join(f"{name} {values[name]}" for name in _WEIGHTS if isinstance(values.get(name), int | float))


def _version(server: Server, name: str) -> str | None:
    if name not in _VERSIONS:
        return None
    path, field = _VERSIONS[name]
    answer = server.get_native(path)
    value = answer.body.get(field) if answer.ok else None
    return value if isinstance(value, str) and value else None
