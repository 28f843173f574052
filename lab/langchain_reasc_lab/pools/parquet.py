"""Export a pool as Parquet, a row for each response, for pandas, DuckDB and Hugging Face's datasets.

Columns are those of a pool's ``responses`` and ``messages`` (:mod:`langchain_reasc_lab.pools.store`), before them the
question's ``id``, ``input``, ``accepted`` and the response's ``number``, behind them a list of 32-bit floats for each
token signal, named ``signal.NAME``. The pool's metadata is JSON under ``langchain_reasc`` in the metadata of the file.
An input that is not text is JSON; so are ``beside`` and ``usage``.
"""

import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

from langchain_reasc.exceptions import PoolError, missing_extra
from langchain_reasc.files import parse_json
from langchain_reasc_lab.pools.merging import WholeQuestion, new_path, whole_questions
from langchain_reasc_lab.pools.store import Message, PoolQuestion, PoolResponse, PoolStore

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


def write_parquet(store: PoolStore, out: Path) -> None:
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
    questions, files = whole_questions(store), 0
    with new_path(out) as temporary:
        temporary.mkdir()
        while some := list(islice(questions, _IN_A_FILE)):
            _write(some, temporary / f"responses-{files:05d}.parquet", store)
            files += 1
    return files


def read_parquet(source: Path, made: PoolStore) -> None:
    """Read what such a file or folder holds into a pool.

    Raises:
        MissingExtraError: pyarrow is not installed.
        PoolError: it cannot be read, or was not written by the functions above.
    """
    pyarrow, parquet = _pyarrow()
    files = sorted(source.glob("*.parquet")) if source.is_dir() else [source]
    if not files:
        raise PoolError(f"{source} holds no .parquet file, so no pool can be read from it")
    questions = 0
    for path in files:
        try:
            file = parquet.ParquetFile(path)
            metadata = (file.schema_arrow.metadata or {}).get(_ABOUT)
            if metadata is None:
                raise PoolError(f"{path} was not written by `reasc pool export`: it has no metadata of a recording")
            about = parse_json(metadata)
            made.set_about(about["about"])
            for _, rows in groupby(_rows_of(file), key=lambda row: row["id"]):
                made.add_question(*_question(list(rows), json_input=about["json_input"]))
            questions = max(questions, int(about["questions"]))
        except (OSError, KeyError, ValueError, TypeError, pyarrow.ArrowException) as error:
            if isinstance(error, PoolError):
                raise
            raise PoolError(f"{path} cannot be read as a pool: {' '.join(str(error).split())[:200]}") from error
    if (held := len(made.ids())) != questions:
        raise PoolError(f"{source} holds {held} of {questions} questions; some of its files are missing")


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise missing_extra("data", "pyarrow") from None


def _write(questions: Iterable[WholeQuestion], path: Path, store: PoolStore) -> None:
    pyarrow, parquet = _pyarrow()
    json_input = any(not isinstance(one.input, str | None) for one in store.questions())
    about = {"about": store.about(), "json_input": json_input, "questions": len(store.ids())}
    lists = {"list<string>": pyarrow.list_(pyarrow.string()), "list<int64>": pyarrow.list_(pyarrow.int64())}
    columns = [(name, lists.get(kind) or pyarrow.type_for_alias(kind)) for name, kind in _ROW.items()]
    columns += [(f"{_SIGNAL}{name}", pyarrow.list_(pyarrow.float32())) for name in store.signal_names()]
    schema = pyarrow.schema(columns, metadata={_ABOUT: json.dumps(about).encode()})
    each = iter(questions)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(each, _AT_ONCE)):
            rows = [row for whole in some for row in _rows(whole, json_input=json_input)]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))


def _rows(whole: WholeQuestion, *, json_input: bool) -> Iterator[dict[str, Any]]:
    question, messages, signals = whole
    for number, (response, message, own) in enumerate(zip(question.responses, messages, signals, strict=True)):
        yield {
            "id": question.id,
            "input": _json(question.input) if json_input else question.input,
            "accepted": list(question.references),
            "number": number,
            **{name: getattr(response, name) for name in _OF_RESPONSE},
            "text": message.text,
            "beside": _json(message.beside),
            "usage": _json(message.usage),
            "token_lengths": message.token_lengths,
            **{f"{_SIGNAL}{name}": values for name, values in own.items()},
        }


def _rows_of(file: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, with token signals as arrays, under their names in ``signals``."""
    names = [name for name in file.schema_arrow.names if name.startswith(_SIGNAL)]
    for batch in file.iter_batches(_AT_ONCE):
        columns = {name.removeprefix(_SIGNAL): batch.column(name) for name in names}
        for at, row in enumerate(batch.drop_columns(names).to_pylist()):
            arrays = {name: column[at].values for name, column in columns.items()}
            held = {name: one.to_numpy(zero_copy_only=False) for name, one in arrays.items() if one is not None}
            yield {**row, "signals": held}


def _question(rows: Sequence[dict[str, Any]], *, json_input: bool) -> WholeQuestion:
    first = rows[0]
    responses = tuple(PoolResponse(**{name: row[name] for name in _OF_RESPONSE}) for row in rows)
    messages = [
        Message(row["text"], _parsed(row["beside"]), _parsed(row["usage"]), row["token_lengths"]) for row in rows
    ]
    asked = _parsed(first["input"]) if json_input else first["input"]
    question = PoolQuestion(first["id"], tuple(first["accepted"]), responses, asked)
    return question, messages, [row["signals"] for row in rows]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _parsed(text: str | None) -> Any:
    return None if text is None else parse_json(text)
