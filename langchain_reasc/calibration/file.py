"""Write and read calibration files."""

import os
from pathlib import Path

from pydantic import ValidationError

from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.files import read_text, write_atomically

__all__ = ["load_calibration", "save_calibration"]


def save_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> Path:
    """Write a calibration as indented JSON. A reader sees the old file or the new one,
    never a part.

    Raises:
        CalibrationFileError: the file cannot be written; an existing file is unchanged.
    """
    target = Path(path)
    try:
        write_atomically(target, calibration.model_dump_json(indent=2) + "\n")
    except OSError as error:
        reason = error.strerror or error
        raise CalibrationFileError(
            f"cannot write the calibration to {_printable(target)}: {reason}"
        ) from error
    return target


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Read and validate a calibration.

    Raises:
        CalibrationFileError: missing, empty or truncated file, unknown schema version,
            missing or invalid field.
    """
    name = f"the calibration at {_printable(path)}"
    try:
        text = read_text(Path(path))
    except FileNotFoundError:
        raise CalibrationFileError(
            f"no calibration at {path}; make one with `reasc calibrate`, or pass "
            "calibration=None to count votes"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationFileError(f"cannot read {name}: {error}") from error
    if not text.strip():
        raise CalibrationFileError(f"{name} is empty; calibrate again")
    try:
        return Calibration.model_validate_json(text)
    except ValidationError as error:
        raise CalibrationFileError(
            f"{name} {_why_invalid(error)}; calibrate again"
        ) from None


def _printable(path: str | os.PathLike[str]) -> str:
    text = str(path)
    # A terminal cannot print half a character, which a path may have.
    return text if text.isprintable() else ascii(text)


def _why_invalid(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] != "json_invalid":
        return f"is invalid: {findings(error)[0]}"
    reason = first["ctx"]["error"].replace(
        "recursion limit exceeded", "nested too deeply"
    )
    return f"is not valid JSON (truncated?): {reason}"
