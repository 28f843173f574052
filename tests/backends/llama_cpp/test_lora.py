"""LoRA adapters: they change the model as far as their scale says, and files that are none are refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import Face
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


def certainty(face: Face, path: Path, lora: Any) -> list[float]:
    """Of the first token: it depends on the prompt alone."""
    with ChatLlamaCpp(model_path=path, temperature=0, max_tokens=12, lora=lora) as model:
        signals = face.invoke(model, "hello there").response_metadata["token_signals"]
    return [round(values[0], 5) for values in signals.values()]


def test_it_counts_by_its_scale(endless_path: Path, adapter: Path, face: Face) -> None:
    plain = certainty(face, endless_path, {})
    full = certainty(face, endless_path, adapter)
    assert full != plain
    assert certainty(face, endless_path, {adapter: 0.0}) == plain
    assert certainty(face, endless_path, [str(adapter)]) == full
    assert certainty(face, endless_path, {adapter: 0.5}) not in (plain, full)


def test_it_changes_answers(endless_path: Path, adapter: Path, face: Face) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 30, "n": 3}
    with ChatLlamaCpp(model_path=endless_path) as plain, ChatLlamaCpp(model_path=endless_path, lora=adapter) as adapted:
        texts = [[str(m.content) for _, m in face.sample(model, "hello", **options)] for model in (plain, adapted)]
    assert texts[0] != texts[1]


def test_two_of_them_add_up(endless_path: Path, adapter: Path, face: Face) -> None:
    other = Path(shutil.copy(adapter, adapter.parent / "other.gguf"))
    both = certainty(face, endless_path, {adapter: 0.25, other: 0.75})
    assert both == pytest.approx(certainty(face, endless_path, adapter), abs=1e-3)


def test_a_calibration_knows_it(tiny_path: Path, adapter: Path) -> None:
    def fingerprint(lora: Any) -> Any:
        with ChatLlamaCpp(model_path=tiny_path, lora=lora) as model:
            return model.calibration_fingerprint()["sampling"]

    assert fingerprint({adapter: 0.0}) == fingerprint({})
    assert "lora" not in fingerprint({})
    renamed = Path(shutil.copy(adapter, adapter.parent / "renamed.gguf"))
    assert fingerprint(adapter) == fingerprint(renamed)
    assert fingerprint(adapter)["lora"].endswith("*1")
    assert fingerprint({adapter: 0.5})["lora"].endswith("*0.5")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path, "LoRA adapter: there is no model file"),
        (lambda path: path.write_bytes(b"not a GGUF") and path, "LoRA adapter: .* is not a GGUF"),
        (lambda path: path.write_bytes(write_adapter(path).read_bytes()[:-40]) and path, "truncated"),
        (write_tiny_model, r"is not a LoRA adapter \(general.type is None"),
        (lambda path: write_adapter(path, kind="model"), r"is not a LoRA adapter \(general.type is 'model'"),
        (lambda path: write_adapter(path, architecture="qwen2"), "made for a 'qwen2' model, but this is 'llama'"),
        (lambda path: write_adapter(path, width=48), "cannot load the LoRA adapter .*incorrect shape"),
        (lambda path: write_adapter(path, tensor="blk.{}.attn_z.weight"), "does not exist in base model"),
        (lambda path: write_adapter(path, halves="a"), "missing one component"),
        (lambda path: write_adapter(path, alpha=4), "its adapter.lora.alpha is not a 32-bit float"),
        (lambda path: write_adapter(path, invoked_by=[1, 2]), "activated LoRA"),
    ],
)
def test_what_is_no_adapter_for_this_model(
    tiny_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[Path], Path], says: str
) -> None:
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=tiny_path, lora=make(tmp_path / "x.gguf"))
    assert capfd.readouterr() == ("", "")
