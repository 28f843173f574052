"""Calibrations on disk: written atomically, validated when read."""

import json
import os
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from langchain_reasc.calibration.schema import READABLE_VERSIONS, Calibration
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.untrusted import parse_json, read_text

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

    A link stays one: what it points to is replaced. A device or a pipe, and a file that was opened already and is named
    by its descriptor, as ``/dev/stdout`` may be, is written to as it is: a file in its place would be read by nobody,
    and one in the place of ``/dev/null`` would harm the whole machine.
    """
    if _is_no_file(target):
        with target.open("w", encoding="utf-8") as device:
            device.write(text)
        return
    target = target.resolve()
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:  # an ordinary file's permissions; mkstemp's are private
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
