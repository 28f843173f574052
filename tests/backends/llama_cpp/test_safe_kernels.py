"""Kernels that would end the process: tried in a child, which may really die of it, remembered, and done without."""

import ctypes
import logging
import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.native import (
    GGUFHeader,
    embedded_model_path,
    library,
    model,
    read_header,
    safe_kernels,
    trial,
)
from langchain_reasc_llama_cpp.native.bindings import load_library

from langchain_reasc.exceptions import ModelError, UnsupportedProcessorError

QUESTION = "Tom has 12 red pens and 7 blue pens. How many pens does Tom have now?"

_STAND_IN = """
import ctypes, mmap, os, platform, runpy, signal, sys, time
from pathlib import Path

with open({log!r}, "a") as log:
    log.write(sys.argv[-1] + " ")
does = {does!r}.get(sys.argv[-1])
if does == "die" and platform.machine() == "x86_64" and sys.platform == "linux":
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\\x0f\\x0b")  # ud2: no processor has this instruction
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
if does == "die":
    os.kill(os.getpid(), signal.SIGILL)
if does == "be killed":
    os.kill(os.getpid(), signal.SIGKILL)
if does == "sleep":
    time.sleep(60)
if does == "fail":
    raise RuntimeError("no such thing")
if does == "try":
    runpy.run_path({program!r}, run_name="__main__")
else:
    print("differs" if does == "differ" else "works")
"""


class Child:
    """What the trial's child does instead, how often it was run, and what becomes of a quantised model."""

    def __init__(self, folder: Path, quantised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log, self._program, self._real = folder / "runs.txt", folder / "stand_in.py", safe_kernels._PROGRAM
        self.cache, self._quantised = folder / "cache" / "langchain-reasc", quantised
        self.does()
        monkeypatch.setattr(safe_kernels, "_PROGRAM", self._program)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def does(self, **what: str) -> None:
        """Kernels ("all", "plain") -> what happens with them; they work where nothing is said."""
        text = _STAND_IN.format(log=str(self._log), does=what, program=str(self._real))
        self._program.write_text(text, encoding="utf-8")

    @property
    def runs(self) -> str:
        return self._log.read_text().strip() if self._log.exists() else ""

    def repacks(self, **options: Any) -> bool:
        """Whether the model is loaded with its weights repacked."""
        return answer(self._quantised, **options)[1]


@pytest.fixture
def child(tmp_path: Path, quantised: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """A build with AMX kernels, as far as it says, and a child to try them in."""
    monkeypatch.setattr(safe_kernels, "_reports_amx", lambda llama: True)
    monkeypatch.setattr(model, "check_loading", lambda *_: None)  # whose children say nothing of kernels
    another_process()
    yield Child(tmp_path, quantised, monkeypatch)
    another_process()


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model in Q4_0, made by llama.cpp itself."""
    llama, path = library(), tmp_path_factory.mktemp("quantised") / "q4_0.gguf"
    options = llama.llama_model_quantize_default_params()
    options.ftype, options.nthread = trial.Q4_0, 1
    assert llama.llama_model_quantize(bytes(embedded_model_path()), bytes(path), ctypes.byref(options)) == 0
    return path


def another_process() -> None:
    """Forget what a process knows, but not what lies in the cache folder."""
    safe_kernels._outcome.cache_clear()


def answer(path: Path, **options: Any) -> tuple[str, bool]:
    with ChatLlamaCpp(model_path=path, temperature=0, max_tokens=80, **options) as model:
        return str(model.invoke(QUESTION).content), model.engine.model.repacked


@pytest.mark.full
def test_this_build_and_processor_get_on() -> None:
    kernels = "plain" if safe_kernels._reports_amx(library()) else "all"
    assert safe_kernels._run(library(), kernels) == ""


def test_a_child_that_dies_of_sigill_leaves_a_model_that_works(
    child: Child, quantised: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repacked, _ = answer(quantised)
    another_process()
    child.does(all="die", plain="try")
    plain, was_repacked = answer(quantised)
    assert was_repacked is False
    assert plain == repacked and "19" in plain
    (notice,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert notice.name.startswith("langchain_reasc")
    said = notice.getMessage()
    assert "use_extra_bufts=False" in said
    assert "died of SIGILL" in said and "CXXFLAGS=-U__AMX_INT8__" in said


@pytest.mark.parametrize(("all_kernels", "options"), [("die", {}), ("work", {"use_extra_bufts": False})])
def test_without_extra_buffers_llama_cpp_repacks_nothing(
    child: Child, capfd: pytest.CaptureFixture[str], all_kernels: str, options: dict[str, bool]
) -> None:
    child.does(all=all_kernels)
    child.repacks(verbose=True, **options)
    buffers = [line for line in capfd.readouterr().err.splitlines() if "model buffer size" in line]
    assert buffers and not {"CPU_REPACK", "AMX"} & {line.split()[1] for line in buffers}


def test_the_outcome_is_remembered_for_this_processor_and_build(
    child: Child, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert child.repacks() is True
    assert (child.runs, caplog.records) == ("all", [])
    child.does(all="differ")  # another program, which is tried for itself
    for _ in range(2):
        another_process()
        assert child.repacks() is child.repacks() is False
    runs = "all all plain"
    assert child.runs == runs
    for memory in child.cache.iterdir():
        memory.write_text('{"kernels": "al')
    changes: list[tuple[Any, str, Any]] = [
        (safe_kernels, "_SECONDS", 30.0),  # nothing but what was remembered
        (safe_kernels, "this_processor", lambda: safe_kernels.Processor("another", frozenset({"fpu"}))),
        (library(), "__version__", "0.0.1"),
    ]
    for place, name, value in changes:
        another_process()
        monkeypatch.setattr(place, name, value)
        assert child.repacks() is False
        runs += " all plain"
        assert child.runs == runs
    assert len(list(child.cache.iterdir())) == 4


def test_threads_that_load_at_once_wait_for_one_trial(child: Child, quantised: Path) -> None:
    header = read_header(quantised)
    with ThreadPoolExecutor(4) as threads:
        tried = [threads.submit(safe_kernels.may_repack, library(), header) for _ in range(4)]
    assert ([each.result() for each in tried], child.runs) == ([True] * 4, "all")


@pytest.mark.parametrize(
    ("does", "executable", "says"),
    [
        ("be killed", sys.executable, "SIGKILL"),
        ("fail", sys.executable, "RuntimeError: no such thing"),
        ("sleep", sys.executable, "2.0 seconds"),
        ("work", "", "no Python"),
        ("work", "/nowhere/python", "cannot be run"),
    ],
)
def test_a_trial_that_says_nothing_is_safe_and_not_remembered(
    does: str, executable: str, says: str, child: Child, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    child.does(all=does)
    monkeypatch.setattr(safe_kernels, "_SECONDS", 2.0 if does == "sleep" else 60.0)
    monkeypatch.setattr(sys, "executable", executable)
    assert child.repacks() is child.repacks() is False
    assert child.runs == ("all" if executable == sys.executable and does != "work" else "")  # once in this process
    assert says in caplog.text
    assert not child.cache.exists()


def test_where_nothing_can_be_remembered(child: Child, caplog: pytest.LogCaptureFixture) -> None:
    child.cache.parent.touch()  # a file in place of the folder
    caplog.set_level(logging.INFO, "langchain_reasc")
    assert child.repacks() is child.repacks() is True
    assert child.runs == "all"
    assert "cannot be remembered" in caplog.text


def test_a_build_that_dies_with_plain_kernels_too_is_refused(child: Child) -> None:
    child.does(all="die", plain="die")
    with pytest.raises(UnsupportedProcessorError, match=r"SIGILL.*again") as caught:
        child.repacks()
    assert isinstance(caught.value, ModelError)


def test_who_needs_no_trial(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    child.does(all="die")
    assert answer(embedded_model_path())[1] is True  # 16 bits: those kernels use no tiles
    assert child.repacks(use_extra_bufts=False) is False  # asked for already
    monkeypatch.undo()  # and this build's own word: no AMX
    if not safe_kernels._reports_amx(library()):
        assert child.repacks() is True
    assert child.runs == ""


def test_what_would_use_amx(child: Child, quantised: Path) -> None:
    assert [read_header(path).tensor_types for path in (embedded_model_path(), quantised)] == [{0, 1}, {0, 2, 8}]
    first_of_several = GGUFHeader(quantised, {"split.count": 3}, {}, frozenset())
    child.does(all="die")
    assert not safe_kernels.may_repack(library(), first_of_several), "it was tried"


def test_logits_that_are_not_finite_differ() -> None:
    right = np.ones(8, dtype=np.float32)
    assert trial.close(right * 1.001, right)
    assert not trial.close(right * 1.2, right)
    assert not trial.close(right * np.nan, right)


@pytest.fixture
def fresh_library() -> Iterator[None]:
    """Whoever needs llama.cpp next imports it as if for the first time."""
    load_library.cache_clear()
    yield
    load_library.cache_clear()


@pytest.mark.usefixtures("fresh_library")
@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="about x86 and /proc/cpuinfo")
def test_instructions_that_the_processor_lacks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / "cpuinfo"
    known.write_text("processor\t: 0\nmodel name\t: Old Chip\nflags\t\t: fpu pni\n\nprocessor\t: 1\n")
    monkeypatch.setattr(safe_kernels, "_CPUINFO", known)
    with pytest.raises(UnsupportedProcessorError, match=r"SSSE3.*Old Chip") as caught:
        ChatLlamaCpp()
    assert " SSE3" not in str(caught.value)
    assert "--force-reinstall --no-cache-dir" in str(caught.value)
    known.write_text("processor\t: 0\nBogoMIPS\t: 108.00\n")  # as where ARM emulates x86: nothing is known
    ChatLlamaCpp().close()


@pytest.mark.usefixtures("fresh_library")
def test_this_processor_lacks_nothing_that_was_built_for_it() -> None:
    assert safe_kernels.lacking(library()) == []


@pytest.mark.parametrize(
    ("does", "executable", "works"),
    [
        ({}, sys.executable, True),
        ({"all": "die"}, sys.executable, True),
        ({"all": "die", "plain": "die"}, sys.executable, False),
        ({}, "", False),  # it cannot be tried
    ],
)
@pytest.mark.usefixtures("fresh_library")
def test_a_build_with_amx_on_a_processor_without(
    does: dict[str, str], executable: str, works: bool, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp asks for AMX before it uses it, but what was built beside it may be missing too."""
    monkeypatch.setattr(safe_kernels, "lacking", lambda llama: ["AMX_INT8"])
    monkeypatch.setattr(sys, "executable", executable)
    child.does(**does)
    if works:
        ChatLlamaCpp().close()
    else:
        with pytest.raises(UnsupportedProcessorError, match="AMX_INT8"):
            ChatLlamaCpp()
