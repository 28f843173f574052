"""Loading, sharing, closing, leaving: nothing printed, nothing left behind, no hang."""

import asyncio
import copy
import gc
import threading
import weakref
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_llama_cpp.native import file_sha256

from backends.llama_cpp.faces import printed, resident
from langchain_reasc.exceptions import ModelClosedError


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("llama.cpp")]


def test_nothing_is_printed(tiny_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ChatLlamaCpp(model_path=tiny_path, max_tokens=5) as model:
        model.invoke("hi")
    assert capfd.readouterr() == ("", "")
    with ChatLlamaCpp(model_path=tiny_path, max_tokens=5, verbose=True):
        pass
    assert "llama" in capfd.readouterr().err
    with ChatLlamaCpp(model_path=tiny_path, max_tokens=5):
        pass
    assert capfd.readouterr() == ("", "")


def test_the_embedded_model_is_the_default(shipped: ChatLlamaCpp) -> None:
    assert shipped.path == embedded_model_path()
    assert shipped.path.stat().st_size < 4 << 20


def test_a_model_nobody_holds_is_freed(tiny_path: Path) -> None:
    gc.collect()
    before = len(engine_threads())
    model = ChatLlamaCpp(model_path=tiny_path, max_tokens=3)
    native = weakref.ref(model.engine.model)
    model.invoke("hi")
    asyncio.run(model.ainvoke("hi"))
    list(model.stream("hi"))
    assert len(engine_threads()) == before + 1
    del model
    gc.collect()
    assert len(engine_threads()) == before
    assert native() is None


def test_copies_share_the_model(tiny_path: Path) -> None:
    model = ChatLlamaCpp(model_path=tiny_path, seed=1, max_tokens=5)
    for other in (model.model_copy(update={"cache": False}), copy.copy(model), copy.deepcopy(model)):
        assert other.engine is model.engine
        assert other.invoke("hi").content == model.invoke("hi").content
    cooler = model.model_copy(update={"temperature": 0.0})
    assert cooler.invoke("hi", seed=1).content == cooler.invoke("hi", seed=2).content
    model.close()
    with pytest.raises(ModelClosedError):
        cooler.invoke("hi")


def test_langsmith_is_told_what_ran(shipped: ChatLlamaCpp) -> None:
    found = shipped._get_ls_params(stop=["\n"], temperature=0.25, max_tokens=7, unrelated=1)
    assert found["ls_provider"] == "llama_cpp"
    assert found["ls_model_name"] == "word_problems.gguf"
    assert (found["ls_temperature"], found["ls_max_tokens"], found["ls_stop"]) == (0.25, 7, ["\n"])
    sampling = shipped.calibration_fingerprint()["sampling"]
    assert shipped._get_ls_params()["ls_temperature"] == sampling["temperature"]


def test_the_fingerprint_follows_the_file(tiny_path: Path, tmp_path: Path) -> None:
    import hashlib

    with ChatLlamaCpp(model_path=tiny_path) as model:
        found = model.calibration_fingerprint(temperature=0.3)
    assert found == {
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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_opening_and_closing_leaves_memory_flat(tiny_path: Path) -> None:
    def cycle() -> None:
        with ChatLlamaCpp(model_path=tiny_path, max_tokens=2) as model:
            model.invoke("hi")

    gc.collect()
    threads = len(engine_threads())
    for _ in range(5):
        cycle()
    before = resident()
    for _ in range(40):
        cycle()
    assert resident() - before < 20 << 20  # one model with its context takes about 10 MB
    assert len(engine_threads()) == threads


async def test_it_is_an_async_context_manager(tiny_path: Path) -> None:
    async with ChatLlamaCpp(model_path=tiny_path, max_tokens=2) as model:
        await model.ainvoke("hi")
    with pytest.raises(ModelClosedError):
        await model.ainvoke("hi")


def test_a_process_may_end_while_it_generates(endless_path: Path) -> None:
    script = """
import sys
from langchain_reasc_llama_cpp import ChatLlamaCpp
model = ChatLlamaCpp(model_path=sys.argv[1], n_ctx=4096)
samples = model.sample("hi", n=8)
stream = model.stream("hi")
print("leaving")
"""
    assert printed(script, endless_path) == "leaving\n"


def test_an_interrupt_ends_an_invoke(endless_path: Path) -> None:
    script = """
import os, signal, sys, threading, time
from langchain_reasc_llama_cpp import ChatLlamaCpp
model = ChatLlamaCpp(model_path=sys.argv[1], n_ctx=100_000, signals=())
def interrupt():
    while model.engine.context.decoded < 100:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    model.invoke("hi")
except KeyboardInterrupt:
    at = model.engine.context.decoded
    model.invoke("hi", max_tokens=1)
    print("interrupted", model.engine.context.decoded - at <= 2)
"""
    assert printed(script, endless_path) == "interrupted True\n"


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_fork_gets_an_error_instead_of_a_hang(tiny_path: Path) -> None:
    script = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc.exceptions import ModelClosedError
model = ChatLlamaCpp(model_path=sys.argv[1], max_tokens=3)
model.invoke("hi")
child = os.fork()
if child == 0:
    try:
        model.invoke("hi")
    except ModelClosedError as error:
        sys.exit(7 if "fork" in str(error) else 8)
    sys.exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(model.invoke("hi").content) >= 0)
"""
    assert printed(script, tiny_path) == "7 True\n"
