"""Model files: damaged or unusable ones are refused in clear words, hubs are asked once, and files are told apart."""

import hashlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_llama_cpp.native import file_sha256, library, read_header
from langchain_reasc_llama_cpp.native.bindings import load_library

from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.calibration import check_fingerprint, load_calibration
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch, MissingExtraError, ModelFileError
from langchain_reasc.models import PreparedModel


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
        (lambda whole: whole[:-1], "truncated: tensor 'output.weight' ends at byte"),
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


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"architecture": "nonesuch"}, r"llama\.cpp cannot load .*nonesuch"),
        ({"tokenizer": "no_vocab"}, "no tokenizer"),
        ({"chat_template": None}, "no chat template; pass chat_template"),
        ({"chat_template": "{% for %}"}, "not valid Jinja"),
        ({"words": ["twice", "twice"]}, "the token 'twice' twice"),
        ({"words": ["x\0a", "x\0b"]}, "the token 'x' twice"),  # llama.cpp's texts end at a NUL
        ({"metadata": {"general.alignment": 3}}, "alignment is 3, not a power of two"),
    ],
)
def test_a_model_that_cannot_be_used(tmp_path: Path, written: dict[str, Any], says: str) -> None:
    path = write_tiny_model(tmp_path / "odd.gguf", **written)
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp(model_path=path)


def test_what_can_be_used_all_the_same(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "bare.gguf", chat_template=None, words=["", ""])
    with ChatLlamaCpp(model_path=path, chat_template="{{ messages[0]['content'] }}:", max_tokens=3) as model:
        assert model.invoke("hi").usage_metadata["input_tokens"] == 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 0),
        ("llama.block_count", 513),
        ("llama.attention.layer_norm_rms_epsilon", -1e-5),
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


def test_what_is_not_installed_is_named(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("llama_cpp", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, module, None)
    load_library.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r'pip install "\.\[llama-cpp\]"'):
            ChatLlamaCpp(model_path=tiny_path)
        with pytest.raises(MissingExtraError, match=r'pip install "\.\[huggingface\]"'):
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
        (lambda model: model.bind(stop=["END"]), "stop strings: calibrated on none, running 'END'"),
        (lambda model: model.bind_tools([SCHEMA]), "tools: calibrated on none, running Total "),
        (lambda model: model.bind(grammar='root ::= "42"'), "grammar: calibrated on none, running root"),
        (lambda model: model.with_structured_output(SCHEMA).steps[0], "response format: calibrated on none, running"),
    ],
)
def test_what_is_bound_is_part_of_a_new_calibration_but_not_of_the_shipped_one(
    shipped: ChatLlamaCpp, bind: Callable[[Any], Any], says: str
) -> None:
    calibration = load_calibration(embedded_model_path().with_name("calibration.json"))
    plain, bound = (PreparedModel.of(model).fingerprint(answer="auto") for model in (shipped, bind(shipped)))
    check_fingerprint(calibration, plain)
    check_fingerprint(calibration, bound)
    made = calibration.model_copy(update={"fingerprint": plain})
    check_fingerprint(made, plain)
    with pytest.raises(FingerprintMismatch, match=says):
        check_fingerprint(made, bound)
    with pytest.raises(FingerprintMismatch, match=r"temperature: calibrated on 1\.0, running 0\.5"):
        check_fingerprint(calibration, PreparedModel.of(shipped.bind(temperature=0.5)).fingerprint())
    assert shipped.calibration_fingerprint(stop=["END"]) == shipped.calibration_fingerprint()


# Models from a Hugging Face hub: a small one on the loopback interface, which speaks the part the client needs.


class Hub(ThreadingHTTPServer):
    """Serves one file of one repository, and remembers what it was asked."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.content, self.asked = content, list[str]()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append(self.command)
        repository, _, rest = self.path.partition("/resolve/")
        error = "" if rest.endswith("/tiny.gguf") else "EntryNotFound"
        if repository != "/someone/tiny-model":
            error = "RepoNotFound"
        body = b"" if error else self.server.content
        self.send_response(404 if error else 200)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", "c0ffee" + "0" * 34)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


@pytest.fixture
def hub(tiny_path: Path) -> Iterator[Hub]:
    server = Hub(tiny_path.read_bytes())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(endpoint: str, cache: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own: the client reads HF_ENDPOINT when it is imported."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")},
        "TQDM_POSITION": "-1",  # show progress though stderr is no terminal
        **{"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    }
    prelude = "from langchain_reasc_llama_cpp import ChatLlamaCpp\nload = ChatLlamaCpp.from_hugging_face\n"
    command = [sys.executable, "-c", prelude + script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow  # several processes that load a model
def test_a_model_is_downloaded_once_and_then_needs_no_hub(hub: Hub, tmp_path: Path) -> None:
    script = """
model = load("someone/tiny-model", "tiny.gguf", revision="main", max_tokens=3, seed=1)
message = model.invoke("hi")
print(message.response_metadata["model_name"], message.usage_metadata["output_tokens"])
again = load("someone/tiny-model", "tiny.gguf", max_tokens=3, seed=1)
print(again.invoke("hi").content == message.content)
"""
    done = run(hub.endpoint, tmp_path, script)
    assert done.stdout == "tiny.gguf 3\nTrue\n"
    assert "tiny.gguf" in done.stderr  # the client's progress bar
    assert hub.asked.count("GET") == 1
    asked = len(hub.asked)
    hub.shutdown()
    hub.server_close()
    assert run(hub.endpoint, tmp_path, script).stdout == "tiny.gguf 3\nTrue\n"
    assert len(hub.asked) == asked


def test_what_a_hub_has_not_is_said(hub: Hub, tmp_path: Path) -> None:
    script = """
from langchain_reasc.exceptions import ReASCError
for named, options in (
    (("someone/tiny-model", "other.gguf"), {}),
    (("nobody/nothing", "tiny.gguf"), {}),
    (("not a name", "tiny.gguf"), {}),
    (("someone/tiny-model", "tiny.gguf"), {"n_paralel": 1}),
):
    try:
        load(*named, **options)
    except ReASCError as error:
        print(str(error).replace("\\n", " "))
"""
    no_file, no_repository, no_name, no_option = run(hub.endpoint, tmp_path, script).stdout.splitlines()
    assert "there is no 'other.gguf'" in no_file
    assert "there is no 'tiny.gguf' of the Hugging Face repository 'nobody/nothing'" in no_repository
    assert "not a repository name" in no_name
    assert "did you mean 'n_parallel'" in no_option


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LocalEntryNotFoundError("no connection"), "is not in the cache, and the hub cannot be reached: no connection"),
        (OSError("disk full"), "cannot download 'tiny.gguf' of .*: disk full"),
        (GatedRepoError.__new__(GatedRepoError), "needs access to be granted to you"),
    ],
)
def test_what_the_client_raises_is_explained(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    def fails(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fails)
    with pytest.raises(ModelFileError, match=says):
        ChatLlamaCpp.from_hugging_face("someone/tiny-model", "tiny.gguf")
