"""Every wrong input has its own clear error, and the process lives."""

import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_llama_cpp.native import bindings, read_header

from backends.llama_cpp.faces import Face
from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, ModelClosedError, ModelFileError


@pytest.mark.parametrize(
    ("name", "says"),
    [("gone.gguf", r"there is no model file .*gone\.gguf"), (".", r"is a directory; .*\(tiny\.gguf\)")],
)
def test_no_file(tiny_path: Path, name: str, says: str) -> None:
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=tiny_path.parent / name)


def with_bytes(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + new + whole[at + len(new) :]


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        (lambda whole: b"", "empty"),
        (lambda whole: b"PK\x03\x04 a zip", "not a GGUF"),
        (lambda whole: b"GG", "not a GGUF"),
        (lambda whole: whole[:-1], "truncated: tensor 'output.weight' ends at byte"),
        (with_bytes(4, struct.pack("<I", 1)), "version 1"),
        (with_bytes(4, struct.pack(">I", 3)), "big-endian"),
        (with_bytes(8, struct.pack("<Q", 1 << 60)), "damaged|truncated"),
        (with_bytes(16, struct.pack("<Q", 1 << 60)), "damaged|truncated"),
        (with_bytes(24, struct.pack("<Q", 1 << 60)), "name of"),
    ],
)
def test_a_damaged_file(tmp_path: Path, tiny_path: Path, damaged: Callable[[bytes], bytes], says: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(damaged(tiny_path.read_bytes()))
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=path)


@pytest.mark.parametrize("tenths", range(10))
@pytest.mark.parametrize("which", ["shipped", "tiny"])
def test_a_file_cut_short(tmp_path: Path, tiny_path: Path, which: str, tenths: int) -> None:
    whole = (embedded_model_path() if which == "shipped" else tiny_path).read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: max(4, len(whole) * tenths // 10)])
    with pytest.raises(ModelFileError, match="truncated"):
        ChatLlamaCpp(model_path=path)


def test_noise_in_the_header_never_escapes_as_another_error(tmp_path: Path, tiny_path: Path) -> None:
    content = tiny_path.read_bytes()
    path = tmp_path / "noise.gguf"
    for at in range(4, 1500, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xA5]) + content[at + 1 :])
        try:
            read_header(path)
        except ModelFileError as error:
            assert str(path) in str(error)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"architecture": "nonesuch"}, r"llama\.cpp cannot load .*nonesuch"),
        ({"tokenizer": "no_vocab"}, "no tokenizer"),
        ({"chat_template": "{% for %}"}, "not valid Jinja"),
    ],
)
def test_a_model_that_cannot_be_used(tmp_path: Path, written: dict[str, Any], says: str) -> None:
    path = write_tiny_model(tmp_path / "odd.gguf", **written)
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=path)


def test_a_vocabulary_with_a_token_twice(tmp_path: Path) -> None:
    for words in (["twice", "twice"], ["the", "th"], ["x\0a", "x\0b"]):  # llama.cpp's texts end at a NUL
        path = write_tiny_model(tmp_path / "twice.gguf", words=words)
        with pytest.raises(ModelFileError, match=r"vocabulary has the token '(twice|th|x)' twice"):
            ChatLlamaCpp(model_path=path)
    path = write_tiny_model(tmp_path / "empty.gguf", words=["", ""])
    with ChatLlamaCpp(model_path=path, max_tokens=2) as model:
        model.invoke("hi")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 0),
        ("llama.block_count", 513),
        ("llama.block_count", 2**32 - 1),
        ("llama.attention.layer_norm_rms_epsilon", -1e-5),
        ("llama.attention.layer_norm_rms_epsilon", float("nan")),
        ("llama.attention.layer_norm_rms_epsilon", float("inf")),
    ],
)
def test_a_value_that_would_end_the_process(tmp_path: Path, tiny_path: Path, key: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"kv_overrides.*{key}.*{value}"):
        ChatLlamaCpp(model_path=tiny_path, kv_overrides={key: value})
    whole = tiny_path.read_bytes()
    at = whole.index(key.encode()) + len(key) + 4  # after the type
    path = tmp_path / "odd.gguf"
    path.write_bytes(with_bytes(at, struct.pack("<I" if isinstance(value, int) else "<f", value))(whole))
    with pytest.raises(ModelFileError, match=rf"damaged GGUF: {key} is"):
        ChatLlamaCpp(model_path=path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", 2),
        ("llama.expert_count", -1),
        ("llama.expert_group_count", 1),
        ("llama.nextn_predict_layers", 1),
        ("llama.nextn_predict_layers", 1000),
        ("llama.rope.scaling.type", "x"),
    ],
)
def test_an_override_that_would_end_the_process(tiny_path: Path, key: str, value: int | str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kv_overrides: {key} is "):
        ChatLlamaCpp(model_path=tiny_path, kv_overrides={key: value})


def test_no_chat_template(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "bare.gguf", chat_template=None)
    with pytest.raises(ModelFileError, match=r"no chat template; pass chat_template"):
        ChatLlamaCpp(model_path=path)
    with ChatLlamaCpp(model_path=path, chat_template="{{ messages[0]['content'] }}:", max_tokens=3) as model:
        assert model.invoke("hi").usage_metadata["input_tokens"] == 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),  # it cannot reach out of its sandbox
        ("{{ '' }}", "empty prompt"),
    ],
)
def test_a_template_that_makes_no_prompt(tiny_path: Path, face: Face, template: str, says: str) -> None:
    with (
        ChatLlamaCpp(model_path=tiny_path, chat_template=template) as model,
        pytest.raises(ConfigurationError, match=says),
    ):
        face.invoke(model, "")


def test_a_closed_model(tiny_path: Path, face: Face) -> None:
    model = ChatLlamaCpp(model_path=tiny_path)
    model.close()
    model.close()
    for use in (
        lambda: face.invoke(model, "hi"),
        lambda: face.stream(model, "hi"),
        lambda: face.sample(model, "hi", n=2),
        lambda: model.get_num_tokens("hi"),
    ):
        with pytest.raises(ModelClosedError, match=r"tiny\.gguf is closed"):
            use()


def test_a_pickled_model_is_loaded_again(tiny_path: Path) -> None:
    with ChatLlamaCpp(model_path=tiny_path, seed=3, max_tokens=6) as model:
        dumped = pickle.dumps(model)
        assert len(dumped) < 2000  # the configuration, not the model
        with pickle.loads(dumped) as again:
            assert again.invoke("hi").content == model.invoke("hi").content
            assert again.engine is not model.engine


def test_llama_cpp_is_not_installed(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    bindings.load_library.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r'pip install "\.\[llama-cpp\]"'):
            ChatLlamaCpp(model_path=tiny_path)
    finally:
        monkeypatch.undo()
        bindings.library()


def test_huggingface_hub_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r'pip install "\.\[huggingface\]"'):
        ChatLlamaCpp.from_hugging_face("someone/model", "model.gguf")
