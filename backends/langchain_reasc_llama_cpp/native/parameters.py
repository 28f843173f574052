"""Writes how a model is loaded and a context is made into llama.cpp's own structs."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from pydantic import ConfigDict, model_validator

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.native.fields import ContextFields, ModelFields
from langchain_reasc_llama_cpp.native.gguf_file import MetadataValue, out_of_range

__all__ = ["ContextParameters", "ModelParameters"]

_KV_TYPES: Final = {
    **{"f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20},
}
"""Name of a KV cache type -> its ``ggml_type``."""
_SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_ROPE_TYPES: Final = {"none": 0, "linear": 1, "yarn": 2, "longrope": 3}
_YARN: Final = tuple(f"yarn_{name}" for name in ("ext_factor", "attn_factor", "beta_fast", "beta_slow", "orig_ctx"))
_SHAPING: Final = ("rope_freq_base", "rope_freq_scale", *_YARN)
_OVERRIDE_BYTES: Final = 127  # of a key or a text; llama.cpp keeps them in arrays of 128
_OF_WEIGHTS: Final = (".expert_count", ".expert_group_count", ".nextn_predict_layers")
"""Numbers that no override can change; llama.cpp asserts some of what follows from them, which ends the process."""
_LOAD_MODES: Final = {(True, False): -1, (True, True): 3, (False, False): 0, (False, True): 2}
"""(use_mmap, use_mlock) -> ``llama_load_mode``; -1 maps wherever the device can take it."""


class ModelParameters(ModelFields):
    """What :class:`~langchain_reasc_llama_cpp.native.model.NativeModel` is loaded with."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    def fitted(self, metadata: Mapping[str, MetadataValue]) -> Self:
        """These parameters with overrides of the types that a GGUF's own values have; llama.cpp ignores any others.

        Raises:
            ConfigurationError: an override has another type, or a value that would end the process.
        """
        fitting: dict[str, MetadataValue] = {}
        for key, value in (self.kv_overrides or {}).items():
            kind = type(metadata.get(key, value))
            fitting[key] = float(value) if kind is float and type(value) is int else value
            if type(fitting[key]) is not kind:
                raise ConfigurationError(
                    f"kv_overrides: {key} must be of type {kind.__name__}, as in the GGUF ({metadata[key]!r}), "
                    f"got {value!r}"
                )
        if why := out_of_range({**metadata, **fitting}):
            raise ConfigurationError(f"kv_overrides: {why}")
        for key, value in fitting.items():
            if key.endswith(_OF_WEIGHTS) and value != metadata.get(key, 0):
                raise ConfigurationError(f"kv_overrides: {key} is given by the model's weights; leave it out")
        return self.model_copy(update={"kv_overrides": fitting})

    def apply(self, llama: Any, parameters: Any) -> list[Any]:
        """Write these fields into a ``llama_model_params``.

        Returns:
            What must stay alive until the model is loaded.

        Raises:
            ConfigurationError: ``tensor_split`` names more GPUs than llama.cpp can use, or an override is too long.
        """
        parameters.n_gpu_layers = self.n_gpu_layers
        parameters.main_gpu = self.main_gpu
        parameters.split_mode = _SPLIT_MODES[self.split_mode]
        parameters.load_mode = _LOAD_MODES[self.use_mmap, self.use_mlock]
        parameters.use_extra_bufts = self.use_extra_bufts
        parameters.check_tensors = self.check_tensors
        kept: list[Any] = []
        if self.tensor_split:
            kept.append(_shares(self.tensor_split, llama.llama_max_devices()))
            parameters.tensor_split = ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_float))
        if self.kv_overrides:
            kept.append(_overrides(llama, self.kv_overrides))
            parameters.kv_overrides = kept[-1]
        return kept


class ContextParameters(ContextFields):
    """What a context is made with."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.n_ubatch is not None and self.n_ubatch > self.n_batch:
            raise ConfigurationError(f"n_ubatch={self.n_ubatch} must not be larger than n_batch={self.n_batch}")
        if self.type_v not in ("f32", "f16", "bf16") and self.flash_attn is False:
            raise ConfigurationError(
                f"type_v={self.type_v!r} is quantised, which needs flash attention; leave flash_attn out, or take "
                "type_v='f16'"
            )
        return self

    def apply(self, parameters: Any) -> None:
        """Write these fields into a ``llama_context_params``, whose ``n_threads`` stays where ``n_threads`` is None."""
        parameters.n_batch = self.n_batch
        parameters.n_ubatch = self.n_ubatch or self.n_batch
        if self.n_threads is not None:
            parameters.n_threads = parameters.n_threads_batch = self.n_threads
        if self.n_threads_batch is not None:
            parameters.n_threads_batch = self.n_threads_batch
        parameters.flash_attn_type = -1 if self.flash_attn is None else int(self.flash_attn)
        parameters.type_k, parameters.type_v = _KV_TYPES[self.type_k], _KV_TYPES[self.type_v]
        if self.rope_scaling_type is not None:
            parameters.rope_scaling_type = _ROPE_TYPES[self.rope_scaling_type]
        for name in _SHAPING:
            if (value := getattr(self, name)) is not None:
                setattr(parameters, name, value)
        parameters.offload_kqv, parameters.op_offload = self.offload_kqv, self.op_offload
        parameters.swa_full = self.swa_full

    def shaping(self) -> dict[str, float | int | str]:
        """The fields that change what the model computes, where they are not as the GGUF says."""
        names = ("type_k", "type_v", "rope_scaling_type", *_SHAPING)
        defaults = ContextFields.model_fields
        given = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in given if value != defaults[name].default}


def _shares(shares: Sequence[float], devices: int) -> Any:
    if len(shares) > devices:
        raise ConfigurationError(f"tensor_split has {len(shares)} shares, but llama.cpp can use {devices} devices")
    if not any(shares):
        raise ConfigurationError("tensor_split gives no GPU any share; at least one must be above 0")
    return (ctypes.c_float * devices)(*shares)


def _overrides(llama: Any, given: dict[str, bool | int | float | str]) -> Any:
    """An array of ``llama_model_kv_override`` that an empty key ends."""
    array = (llama.llama_model_kv_override * (len(given) + 1))()
    for item, (key, value) in zip(array, given.items(), strict=False):
        item.key = _short(key, key)
        if isinstance(value, bool):
            item.tag, item.value.val_bool = llama.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
        elif isinstance(value, int):
            item.tag, item.value.val_i64 = llama.LLAMA_KV_OVERRIDE_TYPE_INT, value
        elif isinstance(value, float):
            item.tag, item.value.val_f64 = llama.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
        else:
            item.tag, item.value.val_str = llama.LLAMA_KV_OVERRIDE_TYPE_STR, _short(key, value)
    return array


def _short(key: str, text: str) -> bytes:
    raw = text.encode("utf-8", "replace")
    if len(raw) > _OVERRIDE_BYTES or b"\0" in raw or not key:
        raise ConfigurationError(
            f"kv_overrides: key and value must be texts of at most {_OVERRIDE_BYTES} bytes, got {key!r}: {text!r}"
        )
    return raw
