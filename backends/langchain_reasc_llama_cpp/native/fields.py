"""How llama.cpp loads a model and makes a context, as fields of the chat model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

__all__ = ["ContextFields", "ModelFields"]

KVType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]


def _scaled(value: Any) -> Any:
    """One path, several, or path -> scale, as the last of these."""
    paths = [value] if isinstance(value, str | Path) else value
    pairs = paths.items() if isinstance(paths, dict) else [(path, 1.0) for path in paths or ()]
    return {str(Path(path).expanduser()): scale for path, scale in pairs}


if TYPE_CHECKING:  # what may be given; held is a dictionary
    Adapters = Mapping[str, float] | Mapping[Path, float] | Sequence[str | Path] | str | Path
else:
    Adapters = Annotated[dict[str, Number], BeforeValidator(_scaled)]


class ModelFields(BaseModel):
    """How the weights are loaded."""

    n_gpu_layers: Annotated[int, Field(ge=-1, lt=2**31)] = 0
    """Layers put on a GPU, where llama-cpp-python was built for one; -1, or more than there are, for all."""
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
    """Repack weights for this processor's own kernels, with AMX where it has it, unless those end the process here.
    False: llama.cpp's plain kernels, which are slower."""
    check_tensors: bool = False
    """Look for invalid values in the weights while loading."""
    kv_overrides: dict[str, bool | Integer | Number | str] | None = None
    """Metadata key of the GGUF -> the value to take instead of its own."""
    lora: Adapters = {}
    """LoRA adapters (GGUF): a path, a list of paths, or path -> scale (1 as trained, 0 without effect)."""

    @property
    def adapters(self) -> dict[str, float]:
        """Path -> scale of the LoRA adapters, however ``lora`` was written."""
        return cast(dict[str, float], self.lora)


class ContextFields(BaseModel):
    """How the context, and with it the KV cache, is made."""

    n_batch: Annotated[int, Field(ge=1, lt=2**31)] = 512
    """Prompt tokens decoded at a time."""
    n_ubatch: Annotated[int | None, Field(ge=1, lt=2**31)] = None
    """Tokens computed at a time, at most ``n_batch``. None: as many."""
    n_threads: Annotated[int | None, Field(ge=1, le=512)] = None
    """CPU threads. None: all cores up to four, else half of them; one for weights below 16 MB."""
    n_threads_batch: Annotated[int | None, Field(ge=1, le=512)] = None
    """CPU threads for prompts. None: ``n_threads``."""
    flash_attn: bool | None = None
    """Flash attention. None: on a GPU that has it, and where ``type_v`` needs it; else off, since on a CPU its sums
    make signals depend on what else is in the cache."""
    type_k: KVType = "f16"
    """How keys are kept in the KV cache."""
    type_v: KVType = "f16"
    """How values are kept in the KV cache; a quantised type needs flash attention."""
    rope_scaling_type: Literal["none", "linear", "yarn", "longrope"] | None = None
    """How positions beyond the training context are scaled. None, here and below: as the GGUF says."""
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
    """Keep all tokens of sliding-window layers. False saves memory, but the model cannot go back in a sequence."""
