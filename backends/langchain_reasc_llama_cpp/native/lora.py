"""LoRA adapters: loaded with a model, attached to a context."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from langchain_reasc.exceptions import ModelError, ModelFileError
from langchain_reasc_llama_cpp.native.bindings import log
from langchain_reasc_llama_cpp.native.gguf_file import GGUFHeader, MetadataValue, read_header

__all__ = ["attach", "load"]

_TEXT: Final = 8  # GGUF value types
_FLOAT32: Final = 6


def load(
    llama: Any, model_handle: Any, metadata: Mapping[str, MetadataValue], adapters: Mapping[str, float]
) -> list[tuple[Any, float]]:
    """Load adapters (path -> scale) for a model, which frees them with itself.

    Returns:
        ``llama_adapter_lora *`` and scale of each.

    Raises:
        ModelFileError: a file is missing, damaged, not a LoRA adapter, or one for another model.
    """
    loaded = []
    for path, scale in adapters.items():
        _check(Path(path), str(metadata.get("general.architecture")))
        log.forget()
        adapter = llama.llama_adapter_lora_init(model_handle, str(path).encode())
        if not adapter:
            raise ModelFileError(f"llama.cpp cannot load the LoRA adapter {path}: {log.last_error()}")
        if llama.llama_adapter_get_alora_n_invocation_tokens(adapter):
            raise ModelFileError(
                f"{path} is an activated LoRA, which counts only from certain tokens on; that is not supported"
            )
        loaded.append((adapter, scale))
    return loaded


def attach(llama: Any, context_handle: Any, adapters: Sequence[tuple[Any, float]]) -> None:
    """Let a context compute with adapters of its model, as :func:`load` gave them.

    Raises:
        ModelError: llama.cpp cannot.
    """
    used = [(adapter, scale) for adapter, scale in adapters if scale]
    if not used:
        return
    handles = (llama.llama_adapter_lora_p_ctypes * len(used))(*(adapter for adapter, _ in used))
    scales = (ctypes.c_float * len(used))(*(scale for _, scale in used))
    log.forget()
    if llama.llama_set_adapters_lora(context_handle, handles, len(used), scales) != 0:
        raise ModelError(f"llama.cpp cannot use the LoRA adapters: {log.last_error()}")


def _check(path: Path, architecture: str) -> None:
    try:
        header = read_header(path)
    except ModelFileError as error:
        raise ModelFileError(f"LoRA adapter: {error}") from None
    kind, adapter = _text(header, "general.type"), _text(header, "adapter.type")
    if kind != "adapter" or adapter != "lora":
        raise ModelFileError(
            f"{path} is not a LoRA adapter (general.type is {kind!r}, adapter.type {adapter!r}); "
            "convert it with llama.cpp's convert_lora_to_gguf.py"
        )
    made_for = _text(header, "general.architecture")
    if made_for != architecture:
        raise ModelFileError(f"the LoRA adapter {path} was made for a {made_for!r} model, but this is {architecture!r}")
    if header.types.get("adapter.lora.alpha", _FLOAT32) != _FLOAT32:
        raise ModelFileError(f"{path} is damaged: its adapter.lora.alpha is not a 32-bit float")


def _text(header: GGUFHeader, key: str) -> MetadataValue | None:
    """A text, and nothing else: llama.cpp would abort the process over another type."""
    return header.metadata[key] if header.types.get(key) == _TEXT else None
