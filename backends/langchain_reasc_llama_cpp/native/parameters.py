"""Options for loading, and the llama.cpp structs made from them."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.native.gguf_file import MetadataValue
from langchain_reasc_llama_cpp.native.trial import overridden

KVType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]


def _scaled(value: Any) -> Any:
    """Return path -> scale for one path, several paths, or such a mapping."""
    paths = [value] if isinstance(value, str | Path) else value
    pairs = (
        paths.items()
        if isinstance(paths, dict)
        else [(path, 1.0) for path in paths or ()]
    )
    return {str(Path(path).expanduser()): scale for path, scale in pairs}


if TYPE_CHECKING:  # the types that callers may pass; the field holds a dictionary
    Adapters = (
        Mapping[str, float] | Mapping[Path, float] | Sequence[str | Path] | str | Path
    )
else:
    Adapters = Annotated[dict[str, Number], BeforeValidator(_scaled)]


# beyond any model; llama.cpp would fill the machine's memory before it gives up
_MAX_CELLS: Final = 1 << 24


class LoadFields(BaseModel):
    """Options for loading a model and for its context, which has the KV cache."""

    n_ctx: Annotated[int | None, Field(ge=8, le=_MAX_CELLS)] = None
    """Tokens of prompt and response together. None: what the model was trained for, at
    most 4,096.
    """
    n_cells: Annotated[int | None, Field(ge=8, le=_MAX_CELLS)] = None
    """Tokens the KV cache holds over all parallel samples, which share their prompt's;
    never fewer than ``n_ctx``. None: ``n_ctx * n_parallel``, at most 8,192 (or
    ``n_ctx``). When it is full, the youngest samples wait.
    """
    n_parallel: Annotated[int, Field(ge=1, le=96)] = 8
    """Samples decoded together at most, of all callers; more than that join as others
    end.
    """
    cached_prompts: Annotated[int, Field(ge=0, le=64)] = 16
    """Prompts kept in the KV cache after their request, the least recently used go
    first; a later prompt that begins like one of them prefills only the rest.
    """
    n_gpu_layers: Annotated[int, Field(ge=-1, lt=2**31)] = 0
    """Layers put on a GPU, where llama-cpp-python was built for one; -1, or more than
    there are, for all.
    """
    main_gpu: Annotated[int, Field(ge=0, lt=256)] = 0
    """The GPU that takes everything when ``split_mode`` is "none"."""
    split_mode: Literal["none", "layer", "row", "tensor"] = "layer"
    """How a model is spread over several GPUs."""
    tensor_split: Annotated[Sequence[NotNegative], AfterValidator(tuple)] | None = None
    """Each GPU's share of the model, in any unit. None: by free memory."""
    use_mmap: bool = True
    """Map the file into memory, where the device can take it, instead of reading it."""
    use_mlock: bool = False
    """Keep the weights from being swapped out."""
    use_extra_bufts: bool = True
    """Repack weights for this processor's own kernels, with AMX where it has it, unless
    those end the process here. False: llama.cpp's plain kernels, which are slower.
    """
    check_tensors: bool = False
    """Look for invalid values in the weights while loading."""
    kv_overrides: dict[str, bool | Integer | Number | str] | None = None
    """Metadata key of the GGUF -> the value to take instead of its own."""
    lora: Adapters = {}
    """LoRA adapters (GGUF): a path, a list of paths, or path -> scale (1 as trained, 0
    without effect).
    """
    n_batch: Annotated[int, Field(ge=1, lt=2**31)] = 512
    """Prompt tokens decoded at a time."""
    n_ubatch: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    """Tokens computed at a time, at most ``n_batch``. None: as many."""
    n_threads: Annotated[int | None, Field(ge=1, le=512)] = None
    """CPU threads. None: all cores up to four, else half of them, and fewer while other
    processes need the cores (Linux); one for weights below 16 MB.
    """
    n_threads_batch: Annotated[int | None, Field(ge=1, le=512)] = None
    """CPU threads for prompts. None: ``n_threads``."""
    flash_attn: bool | None = None
    """Flash attention. None: on a GPU that has it, and where ``type_v`` needs it; else
    off, since on a CPU its sums make signals depend on what else is in the cache.
    """
    type_k: KVType = "f16"
    """How keys are kept in the KV cache."""
    type_v: KVType = "f16"
    """How values are kept in the KV cache; a quantised type needs flash attention."""
    rope_scaling_type: Literal["none", "linear", "yarn", "longrope"] | None = None
    """How positions beyond the training context are scaled. None, here and below: as
    the GGUF says.
    """
    rope_freq_base: Positive | None = None
    """Base of the rotary embedding's frequencies."""
    rope_freq_scale: Positive | None = None
    """Factor on positions: 0.5 makes twice the context fit."""
    yarn_ext_factor: NotNegative | None = None
    """YaRN: how much is extrapolated rather than interpolated."""
    yarn_attn_factor: NotNegative | None = None
    """YaRN: factor on attention."""
    yarn_beta_fast: NotNegative | None = None
    """YaRN: rotations above which a dimension is not scaled."""
    yarn_beta_slow: NotNegative | None = None
    """YaRN: rotations below which a dimension is scaled in full."""
    yarn_orig_ctx: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    """YaRN: tokens of context in training."""
    offload_kqv: bool = True
    """Keep the KV cache on the GPU, where layers are."""
    op_offload: bool = True
    """Let the GPU compute with weights that lie in main memory."""
    swa_full: bool = True
    """Keep all tokens of sliding-window layers. False saves memory, but the model
    cannot go back in a sequence.
    """
    verbose: bool = False
    """Let llama.cpp print its log (one switch for all models of the process)."""

    @property
    def adapters(self) -> dict[str, float]:
        """Return path -> scale of the LoRA adapters."""
        return cast(dict[str, float], self.lora)


_KV_TYPES: Final = {
    **{
        "f32": 0,
        "f16": 1,
        "bf16": 30,
        "q4_0": 2,
        "q4_1": 3,
        "q5_0": 6,
        "q5_1": 7,
        "q8_0": 8,
        "iq4_nl": 20,
    },
}
"""Name of a KV cache type -> its ``ggml_type``."""
_SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_ROPE_TYPES: Final = {"none": 0, "linear": 1, "yarn": 2, "longrope": 3}
_LOAD_MODES: Final = {
    (True, False): -1,
    (True, True): 3,
    (False, False): 0,
    (False, True): 2,
}
"""(use_mmap, use_mlock) -> ``llama_load_mode``; -1 maps wherever the device supports
it.
"""
_UNQUANTISED: Final = ("f32", "f16", "bf16")
_OF_MODEL: Final = ("n_gpu_layers", "main_gpu", "check_tensors")
_OF_CONTEXT: Final = ("n_batch", "offload_kqv", "op_offload", "swa_full")
"""Options with the same name in llama.cpp's structs."""
_YARN: Final = tuple(
    f"yarn_{name}"
    for name in ("ext_factor", "attn_factor", "beta_fast", "beta_slow", "orig_ctx")
)
_POSITIONS: Final = ("rope_freq_base", "rope_freq_scale", *_YARN)
"""Options with the same name in llama.cpp's structs, set only if they are not None."""
_OVERRIDE_BYTES: Final = (
    127  # of a key or a text; llama.cpp keeps them in arrays of 128
)


def check_context(fields: LoadFields) -> None:
    """Refuse options of the context that contradict each other.

    Raises:
        ConfigurationError: two options contradict each other.
    """
    if fields.n_ubatch is not None and fields.n_ubatch > fields.n_batch:
        raise ConfigurationError(
            f"n_ubatch={fields.n_ubatch} must not be larger than "
            f"n_batch={fields.n_batch}"
        )
    if fields.type_v not in _UNQUANTISED and fields.flash_attn is False:
        raise ConfigurationError(
            f"type_v={fields.type_v!r} is quantised, which needs flash attention; "
            "leave flash_attn out, or take type_v='f16'"
        )


def altered_fields(fields: LoadFields) -> dict[str, float | int | str]:
    """Return the options that change the model's numbers, if they differ from the GGUF."""
    names = ("type_k", "type_v", "rope_scaling_type", *_POSITIONS)
    values = {name: getattr(fields, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if value != LoadFields.model_fields[name].default
    }


def fitted_overrides(
    fields: LoadFields, metadata: Mapping[str, MetadataValue]
) -> dict[str, MetadataValue]:
    """Return ``kv_overrides`` with the types of the GGUF's values, because llama.cpp
    ignores other types.

    Raises:
        ConfigurationError: an override has another type.
    """
    fitted: dict[str, MetadataValue] = {}
    for key, value in (fields.kv_overrides or {}).items():
        kind = type(metadata.get(key, value))
        fitted[key] = float(value) if kind is float and type(value) is int else value
        if type(fitted[key]) is not kind:
            raise ConfigurationError(
                f"kv_overrides: {key} must be of type {kind.__name__}, as in the GGUF "
                f"({metadata[key]!r}), got {value!r}"
            )
    return fitted


def fill_model_params(
    llama: Any,
    params: Any,
    fields: LoadFields,
    overrides: Mapping[str, MetadataValue],
    *,
    repack: bool,
) -> list[Any]:
    """Fill in a ``llama_model_params``.

    Args:
        llama: the ``llama_cpp`` module.
        params: the struct, with llama.cpp's defaults.
        fields: the options.
        overrides: the result of :func:`fitted_overrides`.
        repack: whether llama.cpp may repack the weights (``use_extra_bufts``).

    Returns:
        Objects that must stay alive until the model is loaded.

    Raises:
        ConfigurationError: ``tensor_split`` names more GPUs than llama.cpp can use, or
            an override is too long.
    """
    for name in _OF_MODEL:
        setattr(params, name, getattr(fields, name))
    params.split_mode = _SPLIT_MODES[fields.split_mode]
    params.load_mode = _LOAD_MODES[fields.use_mmap, fields.use_mlock]
    params.use_extra_bufts = repack
    alive: list[Any] = []
    if shares := fields.tensor_split:
        devices = llama.llama_max_devices()
        if len(shares) > devices:
            raise ConfigurationError(
                f"tensor_split has {len(shares)} shares, but llama.cpp can use "
                f"{devices} devices"
            )
        if not any(shares):
            raise ConfigurationError(
                "tensor_split must have at least one share above 0"
            )
        alive.append((ctypes.c_float * devices)(*shares))
        params.tensor_split = ctypes.cast(alive[-1], ctypes.POINTER(ctypes.c_float))
    if overrides:
        for key, value in overrides.items():
            _check_override(key, str(value))
        array = overridden(llama, overrides)
        alive.append(array)
        params.kv_overrides = array
    return alive


def fill_context_params(
    params: Any, fields: LoadFields, *, n_threads: int, on_gpu: bool
) -> None:
    """Fill in a ``llama_context_params``; ``n_threads`` is used if the options have
    none.
    """
    for name in _OF_CONTEXT:
        setattr(params, name, getattr(fields, name))
    params.n_ubatch = fields.n_ubatch or fields.n_batch
    params.n_threads = fields.n_threads or n_threads
    params.n_threads_batch = fields.n_threads_batch or params.n_threads
    params.flash_attn_type = _flash_attn_type(fields, on_gpu)
    params.type_k, params.type_v = _KV_TYPES[fields.type_k], _KV_TYPES[fields.type_v]
    if fields.rope_scaling_type is not None:
        params.rope_scaling_type = _ROPE_TYPES[fields.rope_scaling_type]
    for name in _POSITIONS:
        if (value := getattr(fields, name)) is not None:
            setattr(params, name, value)


def _flash_attn_type(fields: LoadFields, on_gpu: bool) -> int:
    """Return 1 for on, 0 for off, -1 to let llama.cpp choose."""
    if fields.flash_attn is None and not on_gpu and fields.type_v in _UNQUANTISED:
        # on a CPU, its half-precision sums move signals by what else is in the cache
        return 0
    return -1 if fields.flash_attn is None else int(fields.flash_attn)


def _check_override(key: str, text: str) -> None:
    raw = [part.encode("utf-8", "replace") for part in (key, text)]
    if not key or any(len(part) > _OVERRIDE_BYTES or b"\0" in part for part in raw):
        raise ConfigurationError(
            f"kv_overrides: key and value must be texts of at most {_OVERRIDE_BYTES} "
            f"bytes, got {key!r}: {text!r}"
        )
