"""The processes of Ray's below this one, as Linux tells them."""

import os
from pathlib import Path

__all__ = ["descendants", "workers"]


def descendants(of: int) -> dict[int, str]:
    """Process id -> command line, of all below a process."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    found = {of}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: _command(pid) for pid in found - {of}}


def workers(of: int | None = None) -> list[int]:
    """Those that ask, below a process; None: below this one."""
    told = descendants(os.getpid() if of is None else of)
    return sorted(pid for pid, command in told.items() if command.startswith("ray::_Worker"))


def _pids() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()]


def _parent(pid: int) -> int | None:
    """None where it has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
