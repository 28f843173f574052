"""Models from a Hugging Face hub: a small one on the loopback interface, which speaks the part the client needs."""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError
from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc.exceptions import ModelFileError

COMMIT = "c0ffee" + "0" * 34


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
        error = None
        if repository != "/someone/tiny-model":
            error = "RepoNotFound"
        elif not rest.endswith("/tiny.gguf"):
            error = "EntryNotFound"
        body = b"" if error else self.server.content
        self.send_response(404 if error else 200)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("X-Repo-Commit", COMMIT)
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


def load(endpoint: str, cache: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own: the client reads HF_ENDPOINT when it is imported."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")},
        "TQDM_POSITION": "-1",  # show progress though stderr is no terminal
        **{"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"},
    }
    prelude = "from langchain_reasc_llama_cpp import ChatLlamaCpp\nload = ChatLlamaCpp.from_hugging_face\n"
    command = [sys.executable, "-c", prelude + script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow  # several processes that load a model
def test_a_model_is_downloaded_once_and_then_needs_no_hub(hub: Hub, tmp_path: Path) -> None:
    script = """
model = load("someone/tiny-model", "tiny.gguf", revision="main", max_tokens=3, seed=1)
message = model.invoke("hi")
print(message.response_metadata["model_name"], message.usage_metadata["output_tokens"])
again = load("someone/tiny-model", "tiny.gguf", max_tokens=3, seed=1)
print(again.invoke("hi").content == message.content)
"""
    done = load(hub.endpoint, tmp_path, script)
    assert (done.returncode, done.stdout) == (0, "tiny.gguf 3\nTrue\n"), done.stderr
    assert "tiny.gguf" in done.stderr  # the client's progress bar
    assert hub.asked.count("GET") == 1
    asked = len(hub.asked)
    hub.shutdown()
    hub.server_close()
    done = load(hub.endpoint, tmp_path, script)
    assert (done.returncode, done.stdout) == (0, "tiny.gguf 3\nTrue\n"), done.stderr
    assert len(hub.asked) == asked


def test_what_is_not_there_is_said(hub: Hub, tmp_path: Path) -> None:
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
    done = load(hub.endpoint, tmp_path, script)
    assert done.returncode == 0, done.stderr
    no_file, no_repository, no_name, no_option = done.stdout.splitlines()
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
