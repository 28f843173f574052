"""Model files: damaged or unusable ones are refused in clear words, and files are told apart."""

import hashlib
import logging
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import huggingface_hub
import pytest
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_llama_cpp.native import file_sha256, library, read_header
from langchain_reasc_llama_cpp.native.bindings import load_library

from backends.llama_cpp.faces import Face, output_tokens
from backends.llama_cpp.test_lora import write_adapter
from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.calibration import load_calibration
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch, MissingExtraError, ModelFileError
from langchain_reasc.models import prepare_model
from langchain_reasc.models.fingerprint import check_fingerprint
from langchain_reasc.runnable.voter import running_fingerprint


@pytest.mark.parametrize(
    ("name", "says"),
    [("gone.gguf", r"gone\.gguf"), (".", r"directory.*tiny\.gguf")],
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
        (lambda whole: whole[:-1], "tensor 'output.weight'"),
        (lambda whole: whole[:700], "truncated: its header"),
        (lambda whole: embedded_model_path().read_bytes()[:1_000_000], "truncated: tensor"),
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


def test_noise_in_the_header_never_escapes_as_another_error(tmp_path: Path, tiny_path: Path) -> None:
    content = tiny_path.read_bytes()
    path = tmp_path / "noise.gguf"
    for at in range(4, 1500, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xA5]) + content[at + 1 :])
        try:
            read_header(path)
        except ModelFileError as error:
            assert str(path) in str(error)


@pytest.mark.full
@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"architecture": "nonesuch"}, r"llama\.cpp cannot load .*nonesuch"),
        ({"tokenizer": "no_vocab"}, "no tokenizer"),
        ({"chat_template": None}, "pass chat_template"),
        ({"chat_template": "{% for %}"}, "not valid Jinja"),
        ({"words": ["twice", "twice"]}, "'twice' twice"),
        ({"words": ["x\0a", "x\0b"]}, "'x' twice"),  # llama.cpp's texts end at a NUL
        ({"metadata": {"general.alignment": 3}}, "alignment is 3"),
        ({"metadata": {"llama.expert_count": "many"}}, "llama.expert_count.* str"),
        # What llama.cpp asserts while it loads, tokenizes, makes a context and decodes: a child process dies of it.
        ({"metadata": {"llama.expert_count": 8}}, "n_expert_used_max > 0"),
        ({"architecture": "smallthinker"}, "n_expert must be > 0"),
        ({"tokenizer": "llama"}, "unordered_map::at"),
        ({"architecture": "llada"}, "n_outputs_max <= cparams.n_outputs_max"),
        ({"architecture": "paddleocr"}, r"sections\[0\] > 0"),
    ],
)
def test_a_model_that_cannot_be_used(tmp_path: Path, written: dict[str, Any], says: str) -> None:
    path = write_tiny_model(tmp_path / "odd.gguf", **written)
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=path)


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the memory that a process takes")
@pytest.mark.parametrize(
    ("tokenizer", "overrides", "error"),
    [
        ("rwkv", None, ModelFileError),  # takes gigabytes to tokenize a text, and ends the process
        ("no_vocab", {"llama.vocab_size": 1 << 27}, ConfigurationError),  # llama.cpp catches the failure
    ],
)
def test_a_model_that_takes_far_more_memory_than_its_size(
    tmp_path: Path, tokenizer: str, overrides: dict[str, Any] | None, error: type[Exception]
) -> None:
    import resource

    def most() -> list[int]:
        return [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]  # KiB

    path, before = write_tiny_model(tmp_path / "odd.gguf", tokenizer=tokenizer), most()
    with pytest.raises(error, match=r"memory than 1 GiB"):
        ChatLlamaCpp(model_path=path, kv_overrides=overrides)
    assert all(after <= max(earlier, 2 << 20) for earlier, after in zip(before, most(), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["model", "adapter"])
def test_a_file_that_was_deleted_since(tmp_path: Path, face: Face, kind: str) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    adapter = write_adapter(tmp_path / "lora.gguf")
    with ChatLlamaCpp(model_path=path, lora=adapter, max_tokens=2) as model:
        gone, pickled = path if kind == "model" else adapter, pickle.dumps(model)
        gone.unlink()
        with pytest.raises(ModelFileError, match=gone.name):
            pickle.loads(pickled)
        if kind == "model":
            with pytest.raises(ModelFileError, match=gone.name):
                model.calibration_fingerprint()
        else:
            assert model.calibration_fingerprint()["sampling"]["lora"]  # hashed when it was loaded
        assert face.invoke(model, "hi").usage_metadata  # what is loaded works on


def test_what_can_be_used_all_the_same(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "bare.gguf", chat_template=None, words=["", ""])
    with ChatLlamaCpp(model_path=path, chat_template="{{ messages[0]['content'] }}:", max_tokens=3) as model:
        assert model.invoke("hi").usage_metadata["input_tokens"] == 3  # type: ignore[index]


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 0),
        ("llama.block_count", 513),
        ("llama.attention.layer_norm_rms_epsilon", -1e-5),
    ],
)
def test_a_value_that_would_end_the_process(tmp_path: Path, tiny_path: Path, key: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"kv_overrides.*{key}.*GGML_ASSERT"):
        ChatLlamaCpp(model_path=tiny_path, kv_overrides={key: value})
    whole = tiny_path.read_bytes()
    at = whole.index(key.encode()) + len(key) + 4  # after the type
    path = tmp_path / "odd.gguf"
    path.write_bytes(with_bytes(at, struct.pack("<I" if isinstance(value, int) else "<f", value))(whole))
    with pytest.raises(ModelFileError, match=r"GGML_ASSERT"):
        ChatLlamaCpp(model_path=path)


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", 2),
        ("llama.expert_count", -1),
        ("llama.expert_group_count", 1),
        ("llama.nextn_predict_layers", 1000),
        ("llama.rope.scaling.type", "x"),
        ("tokenizer.ggml.model", "llama"),
    ],
)
def test_an_override_that_would_end_the_process(tiny_path: Path, key: str, value: int | str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kv_overrides: .*{key}.* end the process"):
        ChatLlamaCpp(model_path=tiny_path, kv_overrides={key: value})


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The child processes that load a file first, from now on; nothing is remembered from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run, runs = subprocess.run, list[Any]()

    def counted(*command: Any, **options: Any) -> Any:
        runs.append(command)
        return run(*command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    return runs


@pytest.mark.full
def test_a_file_whose_like_was_loaded_is_not_tried_again(
    trials: list[Any], tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, override = tmp_path / "copy.gguf", {"general.sampling.temp": 0.5}
    path.write_bytes(tiny_path.read_bytes())
    expected = [(tiny_path, None, 1), (tiny_path, None, 1), (path, None, 1), (path, override, 2), (path, override, 2)]
    for file, overrides, tried in [*expected, (embedded_model_path(), None, 2)]:
        ChatLlamaCpp(model_path=file, kv_overrides=overrides).close()
        assert len(trials) == tried
    monkeypatch.setattr(library(), "__version__", "0.0.1")  # another build may think otherwise
    ChatLlamaCpp(model_path=path).close()
    assert len(trials) == 3


@pytest.mark.full
def test_without_a_python_to_try_it_a_file_is_loaded_all_the_same(
    trials: list[Any], tiny_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with caplog.at_level(logging.INFO, "langchain_reasc"):
        ChatLlamaCpp(model_path=tiny_path).close()
    assert not trials
    assert "without a trial" in caplog.text


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{{ 2 ** 10 ** 'x' }}", "{{ raise_exception('no') }}"])
def test_a_template_that_raises_anything(tiny_path: Path, template: str, face: Face) -> None:
    with (
        ChatLlamaCpp(model_path=tiny_path, chat_template=template) as model,
        pytest.raises(ConfigurationError, match=r"chat template .*user"),
    ):
        face.invoke(model, "hi")


def test_what_is_not_installed_is_named(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("llama_cpp", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, module, None)
    load_library.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r'pip install "langchain-reasc\[llama-cpp\]"'):
            ChatLlamaCpp(model_path=tiny_path)
        with pytest.raises(MissingExtraError, match=r'pip install "langchain-reasc\[huggingface\]"'):
            ChatLlamaCpp.from_hugging_face("someone/model", "model.gguf")
    finally:
        monkeypatch.undo()
        library()


def test_the_fingerprint_follows_the_file(tiny_path: Path, tmp_path: Path) -> None:
    with ChatLlamaCpp(model_path=tiny_path) as model:
        assert model.calibration_fingerprint(temperature=0.3) == {
            "model": "tiny.gguf",
            "model_sha256": hashlib.sha256(tiny_path.read_bytes()).hexdigest(),
            "quantization": "all F32",
            "sampling": {"temperature": 0.3, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
        }
    file = tmp_path / "some"
    file.write_bytes(b"a")
    first = file_sha256(file)
    file.write_bytes(b"ab")
    assert file_sha256(file) != first


SCHEMA = {"title": "Total", "type": "object", "properties": {"value": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("bind", "says"),
    [
        (lambda model: model.bind(stop=["END"]), "stop strings: .*'END'"),
        (lambda model: model.bind_tools([SCHEMA]), "tools: .*Total "),
        (lambda model: model.bind(grammar='root ::= "42"'), "grammar: .*root"),
        (lambda model: model.with_structured_output(SCHEMA).steps[0], "response format: "),
    ],
)
def test_what_is_bound_is_part_of_a_new_calibration_but_not_of_the_shipped_one(
    shipped: ChatLlamaCpp, bind: Callable[[Any], Any], says: str
) -> None:
    shipped_one = load_calibration(embedded_model_path().with_name("calibration.json")).fingerprint
    plain, bound = (running_fingerprint(prepare_model(model), answer="auto") for model in (shipped, bind(shipped)))
    check_fingerprint(shipped_one, plain)
    check_fingerprint(shipped_one, bound)
    check_fingerprint(plain, plain)
    with pytest.raises(FingerprintMismatch, match=says):
        check_fingerprint(plain, bound)
    with pytest.raises(FingerprintMismatch, match=r"temperature: .*1\.0.*0\.5"):
        check_fingerprint(shipped_one, running_fingerprint(prepare_model(shipped.bind(temperature=0.5))))
    assert shipped.calibration_fingerprint(stop=["END"]) == shipped.calibration_fingerprint()


def answering(monkeypatch: pytest.MonkeyPatch, **what: Any) -> Any:
    """Let the hub's client return or raise something; it still refuses arguments that it does not have."""
    client = create_autospec(huggingface_hub.hf_hub_download, **what)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", client)
    return client


def test_a_model_comes_from_a_hugging_face_repository(monkeypatch: pytest.MonkeyPatch, tiny_path: Path) -> None:
    client = answering(monkeypatch, return_value=str(tiny_path))
    with ChatLlamaCpp.from_hugging_face("someone/tiny", "tiny.gguf", revision="v1", max_tokens=3, seed=1) as model:
        assert output_tokens(model.invoke("hi")) == 3
    client.assert_called_once_with("someone/tiny", "tiny.gguf", revision="v1")
    with pytest.raises(ConfigurationError, match="'n_parallel'"):
        ChatLlamaCpp.from_hugging_face("someone/tiny", "tiny.gguf", n_paralel=1)
    client.assert_called_once()  # not before the options were looked at


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LocalEntryNotFoundError("no connection"), "cache.*: no connection"),
        (OSError("disk full"), "'tiny.gguf' .*: disk full"),
        (GatedRepoError.__new__(GatedRepoError), "access"),
        (EntryNotFoundError.__new__(EntryNotFoundError), "'tiny.gguf' .*'someone/tiny' at 'v1'"),
        (RepositoryNotFoundError.__new__(RepositoryNotFoundError), "'tiny.gguf' .*'someone/tiny'"),
        (HFValidationError("a space"), "'someone/tiny' .*: a space"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_hub_s_client_raises_is_explained(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    answering(monkeypatch, side_effect=error)
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp.from_hugging_face("someone/tiny", "tiny.gguf", revision="v1")
