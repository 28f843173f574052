"""Calibrations on disk: written atomically, validated when read."""

import glob
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from pydantic import ValidationError

from langchain_reasc.calibration.schema import READABLE_VERSIONS, Calibration
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.untrusted import parse_json, read_text

try:
    import fcntl
except ImportError:  # Windows, which removes no file that is open
    fcntl = None  # type: ignore[assignment]

__all__ = ["load_calibration", "save_calibration", "write_atomically"]


def save_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> Path:
    """Write a calibration as indented JSON. A reader sees the old file or the new one, never a part.

    Raises:
        CalibrationFileError: the file cannot be written; what was there before is untouched.
    """
    target = Path(path)
    try:
        write_atomically(target, calibration.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise CalibrationFileError(f"cannot write the calibration to {target}: {error.strerror or error}") from error
    return target


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Read and validate a calibration.

    Raises:
        CalibrationFileError: missing, empty or truncated file, unknown schema version, missing or invalid field.
    """
    source = Path(path)
    try:
        text = read_text(source)
    except FileNotFoundError:
        raise CalibrationFileError(
            f"no calibration at {source}; make one with `reasc calibrate`, or pass calibration=None to count votes"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationFileError(f"cannot read the calibration at {source}: {error}") from error
    if not text.strip():
        raise CalibrationFileError(f"the calibration at {source} is empty; calibrate again")
    try:
        data = parse_json(text)
    except json.JSONDecodeError as error:
        raise CalibrationFileError(
            f"the calibration at {source} is not valid JSON (truncated?): {error.msg} at line {error.lineno}; "
            "calibrate again"
        ) from None
    except ValueError as error:
        raise CalibrationFileError(f"the calibration at {source} cannot be read: {error}; calibrate again") from None
    _check_version(data, source)
    try:
        return Calibration.model_validate_json(text)
    except ValidationError as error:
        first = findings(error, whole="the record")[0]
        raise CalibrationFileError(f"the calibration at {source} is invalid: {first}") from None


def write_atomically(target: Path, text: str) -> None:
    """Write, flush to disk, then rename over ``target``; on any failure the temporary file is removed.

    A file that is replaced hands on its permissions, and what a killed process left of an earlier write is removed. A
    link stays one: what it points to is replaced. A device or a pipe, and a file that was opened already and is named
    by its descriptor, as ``/dev/stdout`` may be, is written to as it is: a file in its place would be read by nobody,
    and one in the place of ``/dev/null`` would harm the whole machine.
    """
    if _is_no_file(target):
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


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary files of processes that were killed; those of others are locked, or just made."""
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


def _is_no_file(target: Path) -> bool:
    opened = str(target.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return opened or (target.exists() and not target.is_file() and not target.is_dir())


def _check_version(data: object, source: Path) -> None:
    if not isinstance(data, dict):
        raise CalibrationFileError(f"the calibration at {source} is a JSON {type(data).__name__}, not an object")
    version = data.get("schema_version")
    if version not in READABLE_VERSIONS or isinstance(version, bool):
        readable = " and ".join(map(str, READABLE_VERSIONS))
        raise CalibrationFileError(
            f"the calibration at {source} has schema_version {version!r}; this library reads {readable}. "
            "Calibrate again, or use the library version that wrote it"
        )
