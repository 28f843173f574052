"""Which kind of server answers at a URL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_reasc_openai.probing.addresses import root_of
from langchain_reasc_openai.probing.asking import Server
from langchain_reasc_openai.probing.presets import PRESETS, Preset, preset_of_host

__all__ = ["Identity", "identify"]

_OWNERS: Final = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama-server", "library": "ollama"}
"""``owned_by`` in the list of models -> preset."""

_VERSIONS: Final = {
    "vllm": ("/version", "version"),
    "sglang": ("/get_server_info", "version"),
    "llama-server": ("/props", "build_info"),
    "ollama": ("/api/version", "version"),
}
"""Preset -> (path beside /v1, field) that tells the version."""


_OF_WEIGHTS: Final = ("n_params", "size", "n_vocab", "n_embd")
"""What llama-server tells of a model's weights, under ``meta``."""


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
    listed = server.get(f"{server.url}/models")
    data = listed.body.get("data") if listed.ok else None
    entries = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    models = {str(one["id"]): one.get("meta") for one in entries if "id" in one}
    name = _named(server, entries, listed.headers.get("server", ""))
    weights = {model: said for model, meta in models.items() if (said := _weights(meta))}
    return Identity(PRESETS[name], _version(server, name), tuple(models), weights)


def _named(server: Server, entries: list[dict[str, Any]], software: str) -> str:
    if known := preset_of_host(server.url):
        return known.name
    if "llama.cpp" in software:
        return "llama-server"
    owners = {str(entry.get("owned_by")) for entry in entries}
    for owner, name in _OWNERS.items():
        if owner in owners:
            return name
    if _version(server, "ollama"):
        return "ollama"
    native = server.get(f"{root_of(server.url)}/api/v0/models")
    rows = native.body.get("data") if native.ok else None
    if isinstance(rows, list) and any(isinstance(row, dict) and "compatibility_type" in row for row in rows):
        return "lm-studio"
    return "generic"


def _weights(meta: Any) -> str:
    told = meta if isinstance(meta, dict) else {}
    return ", ".join(f"{name} {told[name]}" for name in _OF_WEIGHTS if isinstance(told.get(name), int | float))


def _version(server: Server, name: str) -> str | None:
    if name not in _VERSIONS:
        return None
    path, field = _VERSIONS[name]
    answer = server.get(root_of(server.url) + path)
    value = answer.body.get(field) if answer.ok else None
    return value if isinstance(value, str) and value else None
