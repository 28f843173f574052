"""Importing, loading, sharing, closing, leaving: nothing heavy, nothing printed, nothing left behind, no hang."""

import asyncio
import copy
import gc
import os
import sys
import threading
import weakref
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import printed, resident
from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ModelClosedError

needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
NEEDED = (
    *("_lazy", "_version", "complaints", "exceptions", "files", "langchain_internals"),
    *("method", "models", "threads"),
)


@pytest.mark.full
def test_importing_the_backend_loads_what_it_uses_of_the_core_and_nothing_heavy() -> None:
    script = """
import sys, langchain_reasc_llama_cpp
print(*(name for name in sys.modules if name.startswith(("langchain_reasc.", *sys.argv[1:]))))
"""
    heavy = ["llama_cpp", "scipy", "sklearn", "pandas", "transformers", "openai", "numpy.random", "jinja2", "diskcache"]
    loaded = printed(script, *heavy).split()
    needed = tuple(f"langchain_reasc.{name}" for name in NEEDED)
    assert [name for name in loaded if not name.startswith(needed) or "models.signal_reading" in name] == []


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("llama.cpp")]


def test_nothing_is_printed(tiny_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for verbose in (False, True, False):
        with ChatLlamaCpp(model_path=tiny_path, max_tokens=5, verbose=verbose) as model:
            model.invoke("hi")
        out, err = capfd.readouterr()
        assert (out, "llama" in err) == ("", verbose)
        assert verbose or not err


@pytest.mark.full
def test_a_model_nobody_holds_is_freed(tiny_path: Path) -> None:
    gc.collect()
    before = len(engine_threads())
    model = ChatLlamaCpp(model_path=tiny_path, max_tokens=3)
    native = weakref.ref(model.engine.model)
    model.invoke("hi", grammar='root ::= "a"')
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


@pytest.mark.full
@needs_proc
def test_opening_and_closing_leaves_memory_flat(tiny_path: Path) -> None:
    gc.collect()
    threads, before = len(engine_threads()), 0
    for cycle in range(25):
        before = resident() if cycle < 5 else before
        with ChatLlamaCpp(model_path=tiny_path, max_tokens=2) as model:
            model.invoke("hi")
    assert resident() - before < 20 << 20  # one model with its context takes about 10 MB
    assert len(engine_threads()) == threads


async def test_it_is_an_async_context_manager(tiny_path: Path) -> None:
    async with ChatLlamaCpp(model_path=tiny_path, max_tokens=2) as model:
        await model.ainvoke("hi")
    with pytest.raises(ModelClosedError):
        await model.ainvoke("hi")


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_an_error_an_interrupt_ends_an_invoke_and_a_process_ends_while_it_generates(
    endless_path: Path,
) -> None:
    script = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc.exceptions import ModelClosedError
model = ChatLlamaCpp(model_path=sys.argv[1], n_ctx=100_000, signals=())
child = os.fork()
if child == 0:
    try:
        model.invoke("hi")
    except ModelClosedError as error:
        sys.exit(7 if "fork" in str(error) else 8)
    sys.exit(9)
print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
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
samples = model.sample("hi", n=8)
stream = model.stream("hi")
print("leaving")
"""
    assert printed(script, endless_path) == "fork 7\ninterrupted True\nleaving\n"


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the address space")
@pytest.mark.parametrize(
    ("hidden", "options", "says"),
    [
        (64, {"n_ctx": 2_000_000}, "ModelError llama.cpp cannot make a context of 2,000,000 tokens"),
        pytest.param(
            *(150_000, {}, "ModelFileError cannot read the model file {}: Cannot allocate memory"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["for the context", "for the weights"],
)
def test_no_memory(tiny_path: Path, tmp_path: Path, hidden: int, options: dict[str, int], says: str) -> None:
    """A process that has 100 MB left to load a model with says so, and goes on afterwards."""
    script = """
import re, resource, sys
from pathlib import Path
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc.exceptions import ReASCError
small, path, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
with ChatLlamaCpp(model_path=small) as model:  # what a small context needs is taken before the limit
    model.invoke("hi", max_tokens=2)
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))
try:
    ChatLlamaCpp(model_path=path, **options)
except ReASCError as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
with ChatLlamaCpp(model_path=small) as model:
    print(model.invoke("hi", max_tokens=2).usage_metadata["output_tokens"])
"""
    path = write_tiny_model(tmp_path / "model.gguf", hidden=hidden)
    said = printed(script, tiny_path, path, options)
    assert said.startswith(says.format(path)) and said.endswith("\n2\n")
