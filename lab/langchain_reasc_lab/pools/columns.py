"""A pool as columns, a row for each response: Parquet files, which pandas, DuckDB and Hugging Face's datasets read.

Columns are those of a pool's ``responses`` and ``messages`` (:mod:`.store`), before them the question's ``id``,
``input``, ``accepted`` and the response's ``number``, behind them a list of 32-bit floats for each token signal, named
``signal.NAME``. What a pool says of itself is JSON under ``langchain_reasc`` in the metadata of the file. An input that
is no text is JSON; so are ``beside`` and ``usage``.
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

from langchain_reasc.exceptions import PoolError, missing_extra
from langchain_reasc.pools.store import PoolStore, StoredMessage, StoredQuestion, StoredResponse
from langchain_reasc.untrusted import parse_json
from langchain_reasc_lab.pools.copying import new_path, whole_questions

__all__ = ["read_columns", "write_columns", "write_folder"]

_ABOUT: Final = b"langchain_reasc"
_SIGNAL: Final = "signal."
_AT_ONCE: Final = 64  # questions in memory
_IN_A_FILE: Final = 1024  # questions
_ROW: Final = {
    **{"id": "string", "input": "string", "accepted": "list<string>", "number": "int64", "answer": "string"},
    **{"correct": "bool", "score": "double", "completion_tokens": "int64", "prompt_tokens": "int64"},
    **{"finish_reason": "string", "cut_off": "bool", "answer_span": "list<int64>", "last_step": "list<int64>"},
    **{"seconds": "double", "text": "string", "beside": "string", "usage": "string", "token_lengths": "list<int64>"},
}
_OF_RESPONSE: Final = tuple(_ROW)[4:14]


def write_columns(store: PoolStore, out: Path) -> None:
    """Write a pool as one Parquet file.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ConfigurationError: there is something at ``out`` already.
        PoolError: the pool is damaged.
    """
    _pyarrow()
    with new_path(out) as temporary:
        _write(whole_questions(store), temporary, store)


def write_folder(store: PoolStore, out: Path) -> int:
    """Write a pool as a folder of Parquet files, as ``datasets.load_dataset(folder)`` reads it; errors as above.

    Returns:
        How many files there are.
    """
    _pyarrow()
    questions = whole_questions(store)
    files = 0
    with new_path(out) as temporary:
        temporary.mkdir()
        while some := _first(questions, _IN_A_FILE):
            _write(some, temporary / f"responses-{files:05d}.parquet", store)
            files += 1
    return files


def read_columns(source: Path, made: PoolStore) -> None:
    """Write what such a file or folder holds into a pool.

    Raises:
        MissingExtraError: pyarrow is not installed.
        PoolError: it cannot be read, or was not written by the functions above.
    """
    _pyarrow()
    files = sorted(source.glob("*.parquet")) if source.is_dir() else [source]
    if not files:
        raise PoolError(f"{source} holds no .parquet file, so no pool can be read from it")
    questions = max(_read_file(path, made) for path in files)
    if (held := len(made.ids())) != questions:
        raise PoolError(f"{source} holds {held} of {questions} questions; some of its files are missing")


def _read_file(path: Path, made: PoolStore) -> int:
    """Take a file in; how many questions the pool has of which it is a part."""
    pyarrow, parquet = _pyarrow()
    try:
        file = parquet.ParquetFile(path)
        told = (file.schema_arrow.metadata or {}).get(_ABOUT)
        if told is None:
            raise PoolError(f"{path} was not written by `reasc pool export`: it says nothing of a recording")
        about = parse_json(told)
        made.set_about(about["about"])
        for _, held in groupby(_rows_of(file), key=lambda row: row["id"]):
            made.add(_question(list(held), json_input=about["json_input"]))
        return int(about["questions"])
    except PoolError:
        raise
    except (OSError, KeyError, ValueError, TypeError, pyarrow.ArrowException) as error:
        raise PoolError(f"{path} cannot be read as a pool: {' '.join(str(error).split())[:200]}") from error


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise missing_extra("data", "pyarrow") from None


def _first(questions: Iterator[StoredQuestion], count: int) -> list[StoredQuestion]:
    return list(islice(questions, count))


def _write(questions: Iterable[StoredQuestion], path: Path, store: PoolStore) -> None:
    pyarrow, parquet = _pyarrow()
    json_input = any(not isinstance(one.input, str | None) for one in store.questions())
    about = {"about": store.about(), "json_input": json_input, "questions": len(store.ids())}
    names = [name for name, _ in store.signal_names()]
    schema = pyarrow.schema(_fields(pyarrow, names), metadata={_ABOUT: json.dumps(about).encode()})
    each = iter(questions)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := _first(each, _AT_ONCE):
            rows = [row for one in some for row in _rows(one, names, json_input=json_input)]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))


def _fields(pyarrow: Any, names: Sequence[str]) -> list[Any]:
    lists = {"list<string>": pyarrow.list_(pyarrow.string()), "list<int64>": pyarrow.list_(pyarrow.int64())}
    fields = [(name, lists.get(kind) or pyarrow.type_for_alias(kind)) for name, kind in _ROW.items()]
    return [*fields, *((f"{_SIGNAL}{name}", pyarrow.list_(pyarrow.float32())) for name in names)]


def _rows(question: StoredQuestion, names: Sequence[str], *, json_input: bool) -> Iterator[dict[str, Any]]:
    asked = _json(question.input) if json_input else question.input
    for number, (columns, message, signals) in enumerate(question.responses):
        yield {
            "id": question.id,
            "input": asked,
            "accepted": list(question.accepted),
            "number": number,
            **{name: columns[name] for name in _OF_RESPONSE},
            "text": message.text,
            "beside": _json(message.beside),
            "usage": _json(message.usage),
            "token_lengths": message.token_lengths,
            **{f"{_SIGNAL}{name}": signals.get(name) for name in names},
        }


def _rows_of(file: Any) -> Iterator[dict[str, Any]]:
    """The rows of a file, with token signals as arrays, under their names in ``signals``."""
    names = [name for name in file.schema_arrow.names if name.startswith(_SIGNAL)]
    for batch in file.iter_batches(_AT_ONCE):
        columns = {name.removeprefix(_SIGNAL): batch.column(name) for name in names}
        for at, row in enumerate(batch.drop_columns(names).to_pylist()):
            arrays = {name: column[at].values for name, column in columns.items()}
            held = {
                name: values.to_numpy(zero_copy_only=False) for name, values in arrays.items() if values is not None
            }
            yield {**row, "signals": held}


def _question(rows: Sequence[dict[str, Any]], *, json_input: bool) -> StoredQuestion:
    asked = rows[0]["input"]
    responses = [
        StoredResponse(
            {name: row[name] for name in _OF_RESPONSE},
            StoredMessage(row["text"], _read(row["beside"]), _read(row["usage"]), row["token_lengths"]),
            row["signals"],
        )
        for row in rows
    ]
    return StoredQuestion(rows[0]["id"], _read(asked) if json_input else asked, rows[0]["accepted"], responses)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _read(text: str | None) -> Any:
    return None if text is None else parse_json(text)
