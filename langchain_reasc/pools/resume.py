"""Going on with a pool whose recording was interrupted, or whose labels or extraction rules have changed since."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools.pool import Pool
from langchain_reasc.pools.reading import read_stored
from langchain_reasc.pools.regrade import regrade
from langchain_reasc.pools.store import PoolStore, is_store
from langchain_reasc.pools.stored import as_stored

__all__ = ["check_settings", "resume", "settings_of"]

_NOT_SQLITE: Final = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz", ".txt")

# What a recording from before says nothing of is not compared.
_SINCE_VERSION_2: Final = ("prompt", "tools", "response_format", "grammar", "stop", "max_tokens")


def resume(
    target: Path, metadata: Mapping[str, Any], questions: Sequence[LabelledQuestion], *, tell: Callable[[str], None]
) -> PoolStore:
    """The pool that is there, brought up to date with the labels and extraction rules of today; or a new one.

    Args:
        target: the pool.
        metadata: what the recording that is to go on would write of itself.
        questions: all that it asks; where their labels have changed, what the pool holds is graded again.
        tell: called with what was graded again, in words.

    Raises:
        PoolError: the pool was recorded from something else, holds other questions under the same ids, or is one of
            JSON Lines; or an id is no text.
    """
    if target.exists() and not target.is_file():
        raise PoolError(f"{target} is no file, so that no pool can be written there; name another one")
    if target.exists() and target.stat().st_size and not is_store(target):
        raise PoolError(
            f"{target} is no pool that can go on, which is an SQLite file: record into another file. A pool of JSON "
            f"Lines becomes one by `reasc pool convert {target} {target.with_suffix('.sqlite')}`"
        )
    if not target.exists() and target.suffix.lower() in _NOT_SQLITE:
        raise PoolError(f"a pool is an SQLite file, which {target.name} would not seem to be: name it *.sqlite")
    for question in questions:
        if as_stored(question.id) != question.id:
            raise PoolError(f"id {question.id!r} has half a character in it, which no file can name; correct it")
    store = PoolStore.create(target)
    if store.ids():
        pool = read_stored(target)
        check_settings(pool.path, pool.metadata, metadata)
        _check_questions(pool, questions)
        regrade(pool, store, metadata, questions, tell=tell)
    return store


def check_settings(path: Path, held: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Refuse to mix two recordings.

    Args:
        path: the pool.
        held: what its recording says of itself.
        metadata: what the other one does.

    Raises:
        PoolError: they are of different models, prompts or seeds; it names both sides.
    """
    then, now = settings_of(held), settings_of(metadata)
    for name in now:
        if then.get(name) != now[name] and (name in then or name not in _SINCE_VERSION_2):
            raise PoolError(
                f"{path} was recorded with {name} {then.get(name)!r}, now it is {now[name]!r}; record into "
                "another file, or delete this one"
            )


def _check_questions(pool: Pool, questions: Sequence[LabelledQuestion]) -> None:
    asked = {question.id: question.input for question in questions}
    for held in pool.questions:
        if asked.get(held.id, held.input) != held.input:
            raise PoolError(
                f"{pool.path} holds another question with id {held.id!r} ({held.input!r:.60}); record into another file"
            )
    names = {held.id for held in pool.questions}
    renamed = {held.input: held.id for held in pool.questions if held.id not in asked}
    for question in questions:
        if question.id not in names and question.input in renamed:
            raise PoolError(
                f"{pool.path} holds the question {question.input!r:.60} as {renamed[question.input]!r}, now its id is "
                f"{question.id!r}; it would be paid for a second time. Give the questions the ids that the pool has, "
                "or record into another file"
            )


def settings_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What two recordings must have in common to be one pool: not the answers, which can be found again."""
    own = {name: metadata.get(name) for name in ("seed", "system", "template")}
    own |= {name: metadata[name] for name in ("max_tokens",) if name in metadata}  # earlier recordings do not say
    fingerprint = metadata.get("fingerprint")
    told = fingerprint if isinstance(fingerprint, dict) else {"fingerprint": fingerprint}
    return own | {name: value for name, value in told.items() if name != "answer"}
