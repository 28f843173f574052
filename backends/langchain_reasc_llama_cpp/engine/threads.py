"""Choose the number of CPU threads for decoding: the cores that this process may use
and others leave free.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_WINDOW: Final = 0.1  # seconds between two choices; the kernel counts in hundredths
# bytes of weights; with fewer, threads wait for each other longer than they work
_TINY: Final = 1 << 24


def default_threads(weight_bytes: int) -> int:
    """Return the number of cores, or half if there are more than 4: hyper-threads slow
    llama.cpp down.
    """
    if weight_bytes < _TINY:
        return 1
    cores = len(_own_cores()) or os.cpu_count() or 1
    return max(1, int(min(cores if cores <= 4 else cores // 2, *_quotas(), 512)))


class Usage(NamedTuple):
    """Counters, in seconds since some moment.

    Attributes:
        elapsed: wall-clock time.
        process: CPU time of all threads of this process.
        thread: CPU time of the thread that calls llama.cpp.
        idle: idle time of the cores that this process may use, added up.
        decoding: time inside ``llama_decode``.
    """

    elapsed: float
    process: float
    thread: float
    idle: float
    decoding: float


def threads_for(used: Usage, now: int) -> int:
    """Return how many threads can have a core each.

    Args:
        used: the counters' increase while ``now`` threads decoded.
        now: the present number of threads.
    """
    own = used.process
    # llama.cpp's threads work equally long; the rest is this process's others
    if used.decoding > used.elapsed / 2:
        own = min(own, now * used.thread)
    return max(1, round((own + used.idle) / used.elapsed))


class Threads:
    """Chooses the number of threads before each decode.

    llama.cpp's threads wait for each other some hundred times per decode. A wait lasts
    as long as another process holds a core that one of them needs. On two cores beside
    two busy processes, two threads therefore decode 2 to 100 times more slowly than
    one. macOS and Windows do not count idle time; there the number does not change.

    Attributes:
        most: the most threads.
        now: the number of threads of the next decode.
    """

    def __init__(self, most: int, since: Usage | None) -> None:
        """Start with ``most`` threads.

        Args:
            most: the most threads.
            since: the counters before the model was loaded. With None, the number does
                not change.
        """
        self.most = self.now = most
        self._since = since

    def choose(self, decoding: float) -> int:
        """Return the number of threads for the next decode.

        Args:
            decoding: seconds inside ``llama_decode`` so far.
        """
        since = self._since
        if (
            since
            and since.idle
            and self.most > 1
            and time.perf_counter() - since.elapsed >= _WINDOW
        ):
            self._since = usage(decoding)
            used = Usage(
                *(new - old for new, old in zip(self._since, since, strict=True))
            )
            self.now = min(self.most, threads_for(used, self.now))
        return self.now


def usage(decoding: float = 0.0) -> Usage:
    """Read all counters, except for ``decoding``, which the caller counts."""
    return Usage(
        time.perf_counter(),
        time.process_time(),
        time.thread_time(),
        _idle_seconds(),
        decoding,
    )


def _idle_seconds() -> float:
    """Return the idle seconds of this process's cores since the machine started, or 0
    if the system has no count.
    """
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = {
                line[0]: line[4:6]
                for line in map(str.split, file)
                if line[0].startswith("cpu")
            }
    except OSError:
        return 0.0
    ticks = sum(
        int(ticks) for core in _own_cores() for ticks in fields.get(f"cpu{core}", ())
    )
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _quotas() -> Iterator[float]:
    """Yield the limit of cores in each control group of this process. Containers on
    Linux set such limits.
    """
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for _, controllers, name in (group.split(":", 2) for group in groups):
        root = Path("/sys/fs/cgroup", controllers)  # version 2 has no controllers here
        for folder in (root / name[1:], *(root / name[1:]).parents):
            for files in ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
                try:
                    quota, period = " ".join(
                        folder.joinpath(file).read_text() for file in files
                    ).split()
                except (OSError, ValueError):
                    continue
                if quota not in ("max", "-1"):
                    yield int(quota) / int(period)
