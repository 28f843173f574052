"""Rows of a Parquet file."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.untrusted import open_file

__all__ = ["parquet_rows"]

_AT_A_TIME = 1024


def parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row, and its place, such as ``questions.parquet, row 3``; some of them are in memory at a time.

    Raises:
        ConfigurationError: no such file, or it is no Parquet, or cut off.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise missing_extra("data", "pyarrow") from None
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder; name a file in it")
    at = 0
    try:
        with open_file(path) as opened, parquet.ParquetFile(opened) as file:
            for batch in file.iter_batches(batch_size=_AT_A_TIME):
                for row in batch.to_pylist():
                    at += 1
                    yield f"{path}, row {at}", row
    except FileNotFoundError:
        raise ConfigurationError(f"no questions at {path}: there is no such file") from None
    except (OSError, arrow.ArrowException) as error:
        raise ConfigurationError(f"cannot read {path} as Parquet after row {at}: {error}") from error
