"""How many CPU threads decode, beside other processes and within a container's limits."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine.threads import Usage, default_threads, threads_for

from backends.llama_cpp.tiny_gguf import write_tiny_model

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
GROUPS = Path("/sys/fs/cgroup/cpu")
needs_cores = pytest.mark.skipif(CORES < 2, reason="one core has one thread")


@contextmanager
def busy(count: int) -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def large_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of more than 16 MB, which several threads decode."""
    return write_tiny_model(tmp_path_factory.mktemp("large") / "large.gguf", hidden=30_000, ends=False)


@pytest.mark.full
@needs_cores
@pytest.mark.parametrize(("given", "expected"), [({}, 1), ({"n_threads": 2}, 2), ({"n_threads": 1}, 1)])
def test_threads_give_way_to_busy_processes_unless_their_number_was_given(
    large_path: Path, given: dict[str, int], expected: int
) -> None:
    with busy(4 * CORES), ChatLlamaCpp(model_path=large_path, seed=1, n_ctx=256, **given) as model:
        threads, ends = model.engine.context.threads, time.monotonic() + 100
        while threads.now != expected and time.monotonic() < ends:
            model.invoke("why does it rain", max_tokens=4)
        assert threads.now == expected


@pytest.mark.parametrize(
    ("used", "now", "expected"),
    [
        (Usage(elapsed=1.0, process=2.0, thread=1.0, idle=0.0, decoding=0.9), 2, 2),  # alone
        (Usage(elapsed=1.0, process=1.3, thread=0.7, idle=0.0, decoding=0.9), 2, 1),  # beside a busy process
        (Usage(elapsed=1.0, process=0.1, thread=0.1, idle=0.0, decoding=0.9), 2, 1),  # beside many
        (Usage(elapsed=1.0, process=1.0, thread=1.0, idle=0.0, decoding=0.9), 1, 1),  # one thread, the other core taken
        (Usage(elapsed=1.0, process=1.0, thread=1.0, idle=0.9, decoding=0.9), 1, 2),  # which has been left again
        (Usage(elapsed=1.0, process=2.0, thread=0.5, idle=0.0, decoding=0.9), 2, 1),  # beside threads of this process
        (Usage(elapsed=9.0, process=9.0, thread=0.0, idle=9.0, decoding=0.0), 2, 2),  # after something else was done
        (Usage(elapsed=9.0, process=0.0, thread=0.0, idle=0.1, decoding=0.0), 2, 1),  # a busy machine meanwhile
        (Usage(elapsed=1.0, process=2.9, thread=0.75, idle=0.0, decoding=1.0), 4, 3),  # 4 cores, one of them taken
    ],
)
def test_there_are_as_many_threads_as_cores_are_left(used: Usage, now: int, expected: int) -> None:
    assert threads_for(used, now) == expected


@pytest.mark.full
@needs_cores
def test_a_quota_of_a_container_counts_as_its_cores() -> None:
    group = GROUPS / f"reasc-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("150000")
        (group / "cpu.cfs_period_us").write_text("100000")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        ask = f"from {default_threads.__module__} import default_threads; print(default_threads(1 << 30))"
        join = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')"
        ran = subprocess.run(
            [sys.executable, "-c", f"{join}; {ask}"], capture_output=True, text=True, check=False, timeout=600
        )
        assert ran.stdout.split() == ["1"], ran.stderr
    finally:
        group.rmdir()
    assert default_threads(1 << 30) >= 2
