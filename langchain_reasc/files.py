"""Writing files so that a reader sees the old content or the new, never a part."""

import glob
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows, which removes no file that is open
    fcntl = None  # type: ignore[assignment]

__all__ = ["write_atomically"]


def write_atomically(target: Path, text: str) -> None:
    """Write, flush to disk, then rename over ``target``; on any failure remove the temporary file.

    A replaced file keeps its permissions, and a link stays a link: what it points to is replaced. Temporary files that
    a killed process left behind are removed. Devices, pipes and open descriptors such as ``/dev/stdout`` are written to
    directly: replacing ``/dev/null`` by a file would harm the whole machine.

    Raises:
        OSError: the file cannot be written; what was there before is untouched.
    """
    if _is_device(target):
        with target.open("w", encoding="utf-8") as device:
            device.write(text)
        return
    target = target.resolve()
    _remove_abandoned(target)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:  # an ordinary file's permissions; mkstemp's are private
            _lock(file)
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_device(target: Path) -> bool:
    opened = str(target.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return opened or (target.exists() and not target.is_file() and not target.is_dir())


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary files of killed processes; those of running ones are locked or were just made."""
    for name in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with suppress(OSError):
            if time.time() - name.stat().st_mtime > 1:
                with name.open("rb") as file:
                    _lock(file)
                name.unlink()


def _lock(file: IO[Any]) -> None:
    """Lock a file until it is closed, where the file system can.

    Raises:
        BlockingIOError: another process has locked it.
    """
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks
