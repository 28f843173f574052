"""LoRA adapters: they change the model as far as their scale says, and files that are none are refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.tiny_gguf import finished, write_tiny_model
from langchain_reasc.exceptions import ModelFileError

WIDTH = 32
"""Of the tiny model's attention."""


def write_adapter(
    path: Path,
    *,
    architecture: str = "llama",
    kind: str = "adapter",
    width: int = WIDTH,
    tensor: str = "blk.{}.attn_q.weight",
    halves: str = "ab",
    alpha: Any = 4.0,
    invoked_by: list[int] | None = None,
) -> Path:
    """A LoRA of rank 2 on both layers of the tiny model, with random weights."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(kind)
    writer.add_string("adapter.type", "lora")
    {float: writer.add_float32, int: writer.add_uint32}[type(alpha)]("adapter.lora.alpha", alpha)
    if invoked_by:
        key, kind_of_array = "adapter.alora.invocation_tokens", gguf.GGUFValueType.ARRAY
        writer.add_key_value(key, invoked_by, kind_of_array, sub_type=gguf.GGUFValueType.UINT32)
    rng = np.random.default_rng(3)
    for layer in range(2):
        shapes = {"a": (2, width), "b": (width, 2)}
        for half in halves:
            weights = rng.standard_normal(shapes[half]).astype(np.float32)
            writer.add_tensor(f"{tensor.format(layer)}.lora_{half}", weights)
    return finished(writer, path)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "adapter.gguf")


def first_signals(path: Path, lora: Any) -> tuple[list[float], dict[str, Any]]:
    """The signals of the first token, which depends on the prompt alone; and what a calibration knows of the model."""
    with ChatLlamaCpp(model_path=path, temperature=0, max_tokens=2, lora=lora) as model:
        signals = model.invoke("hello there").response_metadata["token_signals"]
        return [round(values[0], 5) for values in signals.values()], model.calibration_fingerprint()["sampling"]


def test_it_counts_by_its_scale_and_a_calibration_knows_it(endless_path: Path, adapter: Path) -> None:
    other = Path(shutil.copy(adapter, adapter.parent / "other.gguf"))
    plain, full = first_signals(endless_path, {}), first_signals(endless_path, adapter)
    assert full[0] != plain[0] and "lora" not in plain[1] and full[1]["lora"].endswith("*1")
    assert first_signals(endless_path, {adapter: 0.0}) == plain
    assert first_signals(endless_path, [str(other)]) == full  # whatever the file is called
    half, known = first_signals(endless_path, {adapter: 0.5})
    assert half not in (plain[0], full[0]) and known["lora"].endswith("*0.5")
    both, _ = first_signals(endless_path, {adapter: 0.25, other: 0.75})  # they add up
    assert both == pytest.approx(full[0], abs=1e-3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path, "no model file"),
        (lambda path: path.write_bytes(write_adapter(path).read_bytes()[:-40]) and path, "truncated"),
        (write_tiny_model, r"general.type is None"),
        (lambda path: write_adapter(path, kind="model"), r"general.type is 'model'"),
        (lambda path: write_adapter(path, architecture="qwen2"), "'qwen2'.*'llama'"),
        (lambda path: write_adapter(path, width=48), "LoRA.*incorrect shape"),
        (lambda path: write_adapter(path, tensor="blk.{}.attn_z.weight"), "does not exist in base model"),
        (lambda path: write_adapter(path, halves="a"), "missing one component"),
        (lambda path: write_adapter(path, alpha=4), "adapter.lora.alpha"),
        (lambda path: write_adapter(path, invoked_by=[1, 2]), "activated LoRA"),
    ],
)
def test_what_is_no_adapter_for_this_model(
    tiny_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[Path], Path], says: str
) -> None:
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=tiny_path, lora=make(tmp_path / "x.gguf"))
    assert capfd.readouterr() == ("", "")
