"""What a calibration was measured on: the model's bytes, its quantization, how it was sampled."""

import hashlib
from functools import lru_cache
from pathlib import Path

__all__ = ["file_sha256"]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, computed once per path, size and modification time."""
    status = path.stat()
    return _sha256(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, _size: int, _modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
