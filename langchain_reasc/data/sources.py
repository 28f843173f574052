"""Read questions as rows from files of any kind, the Hugging Face Hub, or a registered generator.

==========================  ===========================================================================================
a name ends in              is read as
==========================  ===========================================================================================
``.json``                   a list of objects, or an object with such a list under ``data``, ``examples`` or
                            ``questions``, or JSON Lines after all; it is read as a whole
``.csv``, ``.tsv``          a table with commas, semicolons or tabs between cells; a cell with a JSON list of strings is
                            that list. A header may be missing where the columns are questions and answers, or questions
                            alone
``.parquet``                a table, by pyarrow (the extra ``data``)
anything else               JSON Lines: an object a line
==========================  ===========================================================================================

All but ``.parquet`` may be compressed (``.csv.gz``), and all but ``.json`` are read as far as is needed.

``hf:OWNER/NAME[:CONFIG][/SPLIT]`` is a data set of the hub. What is downloaded stays in the cache of ``datasets``, and
is found there without a network too (``HF_HUB_OFFLINE=1``). A data set that asks for consent needs ``HF_TOKEN`` in the
environment. Code that a data set brings along is never run.
"""

import csv
import gzip
import importlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, cast

from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.files import is_cut_off, open_file, parse_json

Row = Mapping[str, Any]
QUESTION_FIELDS: Final = ("question", "input", "problem", "prompt", "query")
ANSWER_FIELDS: Final = ("answer", "reference", "target", "label", "solution", "answers")
_HUB: Final = re.compile(
    r"hf:(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<config>[^/:\s]+))?(?:/(?P<split>\S+))?",
    re.ASCII,
)
_WITH_FIELDS: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_TEXTS: Final = (".txt", ".text", "")
_LISTS: Final = ("data", "examples", "questions")
_DELIMITERS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
_PARQUET_ROWS: Final = 1024  # in memory
_MOST: Final = 256 << 20  # bytes of text
_RATIO: Final = 100  # of a text to what it takes compressed; JSON takes a tenth
_BOM: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def rows_of(
    source: str | os.PathLike[str], *, has_header: bool = False
) -> Iterator[tuple[str, Row]]:
    """Yield each row of a source with its place, such as ``questions.csv, line 3``.

    Args:
        source: a file, ``hf:OWNER/NAME[:CONFIG]/SPLIT``, or ``NAME:...`` of a generator
            that a package registers as ``langchain_reasc.data``, such as the
            laboratory's ``last-letters:N``.
        has_header: whether a table is known to have a header.

    Raises:
        ConfigurationError: it cannot be read; the message names the place.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    name = os.fspath(source)
    if name.startswith("hf:"):
        return _hub_rows(name)
    generate = _generator(name)
    if generate is not None:
        return generate(name)
    path = Path(name)
    kind = _kind(path)
    if kind == ".parquet":
        return _parquet_rows(path)
    if kind == ".csv":
        return _table_rows(path, ",;\t", has_header)
    if kind == ".tsv":
        return _table_rows(path, "\t,;", has_header)
    if kind == ".json":
        return _document_rows(path)
    return _json_lines(path)


def is_text(source: str | os.PathLike[str]) -> bool:
    """Return whether a source is a text of questions alone, one a line."""
    name = os.fspath(source)
    if name.startswith("hf:") or _kind(Path(name)) in _WITH_FIELDS:
        return False
    return _generator(name) is None


def is_called_text(source: str | os.PathLike[str]) -> bool:
    """Return whether a source's name says that it is a text: it ends in .txt."""
    return is_text(source) and _kind(Path(source)) in _TEXTS[:2]


def text_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield each line of a text that is not blank, as the question of a row.

    Raises:
        ConfigurationError: its name is that of another kind of file, such as README.md,
            or it cannot be read; the message names the line.
    """
    kind = _kind(path)
    if kind not in _TEXTS:
        raise ConfigurationError(
            f"{path}: each line of a text is asked as a question, and a {kind} file is "
            "seldom such a list; if this one is, give its name the ending .txt"
        )
    return (
        (f"{path}, line {number}", {"question": line.strip()})
        for number, line in _lines(path)
        if line.strip()
    )


def _generator(source: str) -> Callable[[str], Iterator[tuple[str, Row]]] | None:
    """Return the function registered for ``NAME:...``, which takes the source and
    yields rows as :func:`rows_of`.
    """
    name, colon, _ = source.partition(":")
    if colon:
        # The laboratory registers ``last-letters``, for one.
        for entry in entry_points(group="langchain_reasc.data", name=name):
            generate: Callable[[str], Iterator[tuple[str, Row]]] = entry.load()
            return generate
    return None


def _kind(path: Path) -> str:
    """Return the ending of a file's name, such as ``.csv``; of ``.csv.gz`` also."""
    if path.suffix.lower() == ".gz":
        path = path.with_suffix("")
    return path.suffix.lower()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line with its number from 1, its end included; one line is in memory
    at a time.
    """
    is_packed = path.suffix.lower() == ".gz"
    most = _MOST
    number = 0
    try:
        # A small compressed file may hold a thousand times its size on disk.
        if is_packed:
            most = min(_MOST, max(_MOST // 4, _RATIO * path.stat().st_size))
        left = most
        with (
            open_file(path) as opened,
            cast("IO[bytes]", gzip.open(opened)) if is_packed else opened as file,
        ):
            while chunk := file.readline(left + 1):
                left -= len(chunk)
                if left < 0:
                    raise OSError(
                        f"it holds more than {most >> 20} MiB of text; name a smaller "
                        "file"
                    )
                # A carriage return ends a line, too.
                for line in chunk.splitlines(keepends=True):
                    number += 1
                    if number == 1:
                        line = line.removeprefix(_BOM)
                    yield number, _decoded(line, f"{path}, line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(
            path, error, f"cannot read questions from {path} after line {number}"
        ) from error


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line[error.start : error.start + 1]
        encoding = "another encoding, such as Latin-1"
        if line.startswith(_UTF_16):
            encoding = "UTF-16"
        raise ConfigurationError(
            f"{where} is not UTF-8 (byte {byte!r} at {error.start}): the file seems to "
            f"be in {encoding}; save it as UTF-8"
        ) from None


def _unreadable(path: Path, error: Exception, problem: str) -> ConfigurationError:
    if isinstance(error, FileNotFoundError):
        return ConfigurationError(f"no questions at {path}: there is no such file")
    if isinstance(error, IsADirectoryError):
        return ConfigurationError(f"{path} is a folder; name a file in it")
    return ConfigurationError(f"{problem}: {error}")


def _checked(row: Any, where: str) -> tuple[str, Row]:
    if not isinstance(row, dict):
        raise ConfigurationError(
            f"{where}: a question is a JSON object, got {json.dumps(row):.60}"
        )
    return where, row


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in _lines(path):
        if line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            row = parse_json(line)
        except ValueError as error:
            hint = ""
            if is_cut_off(line.encode()):
                hint = "; this last line has no end: the file was cut off"
            raise ConfigurationError(
                f"{where} is not valid JSON ({getattr(error, 'msg', error)}){hint}; "
                "questions come as JSON Lines, or as .json, .csv, .tsv or .parquet"
            ) from None
        yield _checked(row, where)


def _document_rows(path: Path) -> Iterator[tuple[str, Row]]:
    text = "".join(line for _, line in _lines(path))
    if not text.strip():
        return
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        # JSON Lines under another name.
        if error.msg == "Extra data":
            yield from _json_lines(path)
            return
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"{where} is not valid JSON: {error.msg}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    if isinstance(value, dict):
        # An object without such a list is a question of its own.
        lists = [value[name] for name in _LISTS if isinstance(value.get(name), list)]
        value = lists[0] if lists else [value]
    if not isinstance(value, list):
        raise ConfigurationError(
            f"{path} holds {json.dumps(value):.60}, which is not a list of questions"
        )
    for index, row in enumerate(value, start=1):
        yield _checked(row, f"{path}, item {index}")


def _table_rows(
    path: Path, delimiters: str, has_header: bool
) -> Iterator[tuple[str, Row]]:
    # The limit of a cell (131,072 characters) is one for the process, so it is only
    # ever raised: no thread that reads a table meanwhile loses anything. The text as a
    # whole is limited above.
    csv.field_size_limit(max(csv.field_size_limit(), _MOST))
    lines = (line for _, line in _lines(path))
    begin = next(lines, "")
    # Spreadsheets write semicolons where the comma is the decimal mark. The first
    # delimiter wins a tie.
    delimiter = max(delimiters, key=re.sub('"[^"]*"', "", begin).count)
    reader = csv.reader(chain([begin], lines), delimiter=delimiter, strict=True)
    records = _records(reader, path)
    first = next(records, ("", []))
    header = list(map(str.strip, first[1]))
    if not has_header and not _is_header(header):
        header = ["question", "answer"][: len(header)]
        records = chain([first], records)
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise ConfigurationError(
            f"{path}, line 1: the header names {', '.join(repeated)} twice"
        )
    for where, cells in records:
        if len(cells) < len(header) or any(cells[len(header) :]):
            raise ConfigurationError(
                f"{where} has {len(cells)} columns, and the header {len(header)} "
                f"({', '.join(header)}); the file may have been cut off, or a text "
                f"with {_DELIMITERS[delimiter]} in it lacks its quotes"
            )
        yield where, dict(zip(header, map(_cell, cells), strict=False))


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether the first record of a table names its columns.

    Two columns, or one, are questions and answers if no cell has a usual name, and not
    every cell is a single word.
    """
    usual_names = {*QUESTION_FIELDS, *ANSWER_FIELDS, "id"}
    if len(cells) > 2 or all(map(str.isidentifier, cells)):
        return True
    return not usual_names.isdisjoint(map(str.lower, cells))


def _records(reader: Any, path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the records of a table that are not empty. A record may span several lines,
    and is named by its first.
    """
    while True:
        where = f"{path}, line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error)
            if reason == "unexpected end of data":
                reason = "a quote is opened and never closed, or the file was cut off"
            raise ConfigurationError(
                f"{where} begins what cannot be read as a table: {reason}"
            ) from None
        if cells:
            yield where, cells


def _cell(text: str) -> str | list[str]:
    """Parse a cell, which may be a list of strings."""
    # A list of numbers is as likely an interval: [1, 2].
    if not text.startswith('["'):
        return text
    try:
        values: list[Any] = parse_json(text)
    except ValueError:
        return text
    return values if all(isinstance(value, str) for value in values) else text


def _parquet_rows(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        # Type checkers have no stubs for it.
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise missing_extra("data", "pyarrow") from None
    number = 0
    try:
        with open_file(path) as opened, parquet.ParquetFile(opened) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (OSError, arrow.ArrowException) as error:
        raise _unreadable(
            path, error, f"cannot read {path} as Parquet after row {number}"
        ) from error


def _hub_rows(source: str) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a data set. The split may be a slice, and may be left out if
    there is only one.
    """
    match = _HUB.fullmatch(source)
    if match is None:
        raise ConfigurationError(
            "a data set of the hub is named hf:OWNER/NAME/SPLIT, or "
            f"hf:OWNER/NAME:CONFIG/SPLIT; got {source!r}"
        )
    try:
        datasets: Any = importlib.import_module("datasets")
    except ModuleNotFoundError:
        raise missing_extra("data", "datasets") from None
    try:
        loaded = datasets.load_dataset(
            match["repository"], match["config"], split=match["split"]
        )
    except Exception as error:
        # It may be an error of datasets, of the hub's or an HTTP client, or of Arrow.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigurationError(
            f"cannot read {source} from the hub: {reason:.500}"
        ) from error
    # Without a split, datasets returns all.
    if isinstance(loaded, dict):
        if len(loaded) > 1:
            raise ConfigurationError(
                f"{source} has the splits {', '.join(loaded)}; name one: "
                f"{source}/{next(iter(loaded))}"
            )
        [loaded] = loaded.values()
    for number, row in enumerate(loaded, start=1):
        yield f"{source}, row {number}", row
