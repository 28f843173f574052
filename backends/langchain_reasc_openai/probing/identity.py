"""Which kind of server answers at a URL."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says of itself."""

    preset: Preset
    version: str | None = None
    models: tuple[str, ...] = ()


def identify(server: Server) -> Identity:
    """Ask a server what it is, without generating anything.

    Raises:
        ServerError: it cannot be reached, or refuses the key.
    """
    listed = server.get(f"{server.url}/models")
    data = listed.body.get("data") if listed.ok else None
    entries = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    models = tuple(str(one["id"]) for one in entries if "id" in one)
    name = _named(server, entries, listed.headers.get("server", ""))
    return Identity(PRESETS[name], _version(server, name), models)


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


def _version(server: Server, name: str) -> str | None:
    if name not in _VERSIONS:
        return None
    path, field = _VERSIONS[name]
    answer = server.get(root_of(server.url) + path)
    value = answer.body.get(field) if answer.ok else None
    return value if isinstance(value, str) and value else None
