"""Rows of a file of questions, whatever kind of file it is: a dictionary each, and where it stands.

==========================  ===========================================================================================
a name ends in              is read as
==========================  ===========================================================================================
``.json``                   a list of objects, or an object with such a list under ``data``, ``examples`` or
                            ``questions``, or JSON Lines after all; it is read as a whole
``.csv``, ``.tsv``          a table, whose cells commas, semicolons or tabs separate; a cell with a JSON list of
                            strings is that list. It has a header, but for one of questions and answers alone, or of
                            questions, which needs none
``.parquet``                a table, by pyarrow (the extra ``data``)
anything else               JSON Lines: an object a line
==========================  ===========================================================================================

All but ``.parquet`` may be compressed (``.csv.gz``), and all but ``.json`` are read as far as is needed. ``hf:...``
(:mod:`.hub`) and ``last-letters:...`` (:mod:`.last_letters`) are no files.
"""

import csv
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from langchain_reasc.data.fields import ANSWER_FIELDS, QUESTION_FIELDS
from langchain_reasc.data.hub import hub_rows, is_on_hub
from langchain_reasc.data.last_letters import generated_rows, is_generated
from langchain_reasc.data.lines import kind_of, lines_of
from langchain_reasc.data.parquet import parquet_rows
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.untrusted import parse_json

__all__ = ["Row", "is_text", "rows_of", "text_rows"]

Row = Mapping[str, Any]
_WITH_FIELDS: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_LISTS: Final = ("data", "examples", "questions")
_DELIMITER_NAMES: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab"}


def rows_of(source: str | os.PathLike[str], *, named: Collection[str] = ()) -> Iterator[tuple[str, Row]]:
    """Each row of a source, and its place in words, such as ``questions.csv, line 3``.

    Args:
        source: a file, ``hf:OWNER/NAME[:CONFIG]/SPLIT``, or ``last-letters:N``.
        named: fields that a table's header is known to have.

    Raises:
        ConfigurationError: it cannot be read; the message names the place.
        MissingExtraError: Parquet or the hub without the extra ``data``.
    """
    name = os.fspath(source)
    if is_on_hub(name):
        return hub_rows(name)
    if is_generated(name):
        return generated_rows(name)
    path = Path(name)
    kind = kind_of(path)
    if kind == ".parquet":
        return parquet_rows(path)
    if kind in (".csv", ".tsv"):
        return _table(path, ",;\t" if kind == ".csv" else "\t,;", named)
    return _document(path) if kind == ".json" else _json_lines(path)


def is_text(source: str | os.PathLike[str]) -> bool:
    """Whether questions alone can be read of a source, one a line: a file of no kind that has fields."""
    name = os.fspath(source)
    return not (is_on_hub(name) or is_generated(name) or kind_of(Path(name)) in _WITH_FIELDS)


def text_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Each line of a text, as the question of a row.

    Raises:
        ConfigurationError: it cannot be read; the message names the line.
    """
    lines = ((number, line.strip()) for number, line in lines_of(path))
    return ((f"{path}, line {number}", {"question": line}) for number, line in lines if line)


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    return (_object_of(line, path, number) for number, line in lines_of(path) if not line.isspace())


def _object_of(line: str, path: Path, number: int) -> tuple[str, Row]:
    where = f"{path}, line {number}"
    try:
        row = parse_json(line)
    except ValueError as error:
        torn = "" if line.endswith("\n") else "; this last line has no end, so the file may have been cut off"
        raise ConfigurationError(
            f"{where} is not valid JSON ({getattr(error, 'msg', error)}){torn}; questions come as JSON Lines, or as "
            ".json, .csv, .tsv or .parquet"
        ) from None
    return where, _checked(row, where)


def _checked(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise ConfigurationError(f"{where}: a question is a JSON object, got {json.dumps(row):.60}")
    return row


def _document(path: Path) -> Iterator[tuple[str, Row]]:
    """One JSON value; what is several, an object a line, is JSON Lines under another name."""
    text = "".join(line for _, line in lines_of(path))
    if not text.strip():
        return
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise ConfigurationError(
                f"{path}, line {error.lineno}, column {error.colno} is not valid JSON: {error.msg}"
            ) from None
        yield from _json_lines(path)
        return
    except ValueError as error:  # a number of thousands of digits, brackets without end
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    for at, row in enumerate(_listed(value, path), 1):
        where = f"{path}, item {at}"
        yield where, _checked(row, where)


def _listed(value: Any, path: Path) -> list[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} holds {json.dumps(value):.60}, which is no list of questions")
    return next((value[name] for name in _LISTS if isinstance(value.get(name), list)), [value])


def _table(path: Path, delimiters: str, named: Collection[str]) -> Iterator[tuple[str, Row]]:
    lines = (line for _, line in lines_of(path))
    begin = next(lines, "")
    # Spreadsheets write semicolons where the comma is the decimal mark. The first delimiter wins a tie.
    delimiter = max(delimiters, key=re.sub('"[^"]*"', "", begin).count)
    reader = csv.reader(chain([begin], lines), delimiter=delimiter, strict=True)
    records = _records(reader, path)
    first = next(records, ("", []))
    header = [name.strip() for name in first[1]]
    if not (named or _is_header(header)):
        header, records = ["question", "answer"][: len(header)], chain([first], records)
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise ConfigurationError(f"{path}, line 1: the header names {', '.join(twice)} twice")
    for where, cells in records:
        missing, more = len(header) - len(cells), any(cells[len(header) :])
        if missing > 0 or more:
            raise ConfigurationError(
                f"{where} has {len(cells)} columns, and the header {len(header)} ({', '.join(header)}); the file may "
                f"have been cut off, or a text with {_DELIMITER_NAMES[delimiter]} in it lacks its quotes"
            )
        yield where, dict(zip(header, map(_cell, cells), strict=False))


def _is_header(cells: Sequence[str]) -> bool:
    """Whether the first record of a table names its columns.

    Two columns, or one, are questions and answers where no cell has a usual name, and not every cell is a single word.
    """
    usual = any(cell.lower() in (*QUESTION_FIELDS, *ANSWER_FIELDS, "id") for cell in cells)
    return usual or len(cells) > 2 or all(cell.isidentifier() for cell in cells)


def _records(reader: Any, path: Path) -> Iterator[tuple[str, list[str]]]:
    """The records of a table but for empty lines. A record may go over several lines, and is named by its first."""
    while True:
        where = f"{path}, line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            ended = str(error) == "unexpected end of data"
            why = "a quote is opened and never closed, or the file was cut off" if ended else error
            raise ConfigurationError(f"{where} begins what cannot be read as a table: {why}") from None
        if cells:
            yield where, cells


def _cell(text: str) -> str | list[str]:
    """A cell. Only a list of strings is taken for a list: ``[1, 2]`` is as likely an interval."""
    if not text.startswith('["'):
        return text
    try:
        listed = parse_json(text)
    except ValueError:
        return text
    return listed if all(isinstance(one, str) for one in listed) else text
