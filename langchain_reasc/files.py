"""Read other people's files and JSON within limits, and write our own files atomically.

Bad JSON is a ValueError, and a bad file is an OSError.
"""

import glob
import io
import json
import os
import stat
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from pydantic_core import from_json

try:
    import fcntl
except ImportError:  # Windows, which removes no file that is open
    fcntl = None  # type: ignore[assignment]

# levels of lists and objects in a JSON text; Python's own functions give up at some 300
_DEEPEST: Final = 100
_MOST: Final = 64 << 20  # bytes
_OPEN_ALREADY: Final = (
    "/dev/stdin",
    "/dev/fd/",
    "/proc/",
)  # as a shell names what it hands over: ``<(command)``


def parse_json(
    text: str | bytes,
    *,
    strict: bool = True,
    parse_constant: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Any:
    """Parse a JSON text; with ``strict``, control characters in strings are an error.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or has an integer with
            thousands of digits.
    """
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    value = _parsed(
        partial(
            json.loads,
            strict=strict,
            parse_constant=parse_constant,
            parse_float=parse_float,
        ),
        text,
    )
    if text.count("[") + text.count("{") > _DEEPEST and _depth(value) > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    return value


def is_cut_off(line: bytes) -> bool:
    """Return whether a line is the beginning of a JSON object, as a killed program
    leaves it, and not a faulty one.
    """
    if not line.startswith(b"{"):
        return False
    try:
        from_json(line)
    except ValueError as error:
        return str(error).startswith("EOF while parsing")
    return False


def parse_toml(text: str) -> Any:
    """Parse a TOML text; errors as for :func:`parse_json`."""
    return _parsed(tomllib.loads, text)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError):
        raise
    except ValueError:  # the interpreter's own, of a number
        raise ValueError("it has an integer with thousands of digits") from None


_TOO_DEEP: Final = f"it is nested more than {_DEEPEST} levels deep"


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def check_name(path: Path) -> None:
    """Check that a file can have this name, whether or not there is one.

    Raises:
        OSError: the name has a NUL, half a character (a lone surrogate), or too many
            letters.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except ValueError as error:
        raise OSError(f"no file can have this name ({error})") from None


def open_file(path: Path) -> IO[bytes]:
    """Open a file to read its bytes.

    Raises:
        OSError: the file cannot be opened, or is a device or a named pipe, which may
            never end or never begin.
    """
    check_name(path)
    mode = path.stat().st_mode
    if not (
        stat.S_ISREG(mode)
        or stat.S_ISDIR(mode)
        or str(path.absolute()).startswith(_OPEN_ALREADY)
    ):
        kind = "pipe" if stat.S_ISFIFO(mode) else "device"
        raise OSError(f"it is a {kind}, not a file; write its content to a file first")
    return path.open("rb")


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    """Read a file as text.

    Raises:
        OSError: as for :func:`open_file`, or the file has more than 64 MiB.
        UnicodeDecodeError: the file is not in this encoding.
    """
    with open_file(path) as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(
            f"it has more than {_MOST >> 20} MiB, so it is probably the wrong file"
        )
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding).read()


def write_atomically(target: Path, text: str) -> None:
    """Write a temporary file, flush it to disk, and rename it to ``target``. On
    failure, remove the temporary file.

    A replaced file keeps its permissions. A link stays a link, and the file it points
    to is replaced. Temporary files of killed processes are removed. Devices, pipes and
    open descriptors such as ``/dev/stdout`` are written directly, because replacing
    ``/dev/null`` by a file would break the machine.

    Raises:
        OSError: the file cannot be written. The old file is unchanged.
    """
    check_name(target)
    if _is_device(target):
        with target.open("w", encoding="utf-8") as device:
            device.write(text)
        return
    target = target.resolve()
    _remove_abandoned(target)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open(
            "x", encoding="utf-8"
        ) as file:  # an ordinary file's permissions; mkstemp's are private
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
    """Remove temporary files of killed processes. Those of running processes are
    locked, or were just made.
    """
    for name in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with suppress(OSError):
            if time.time() - name.stat().st_mtime > 1:
                with name.open("rb") as file:
                    _lock(file)
                name.unlink()


def _lock(file: IO[Any]) -> None:
    """Lock a file until it is closed, if the file system supports locks.

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
