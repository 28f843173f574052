"""Reading a pool: every answer normalized and graded, whatever kind of file it lies in."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from langchain_reasc.answers import EXTRACTION_VERSION, extractor, normalize
from langchain_reasc.exceptions import PoolError, ReASCError
from langchain_reasc.pools.extraction import extracted_again
from langchain_reasc.pools.flags import contradiction_note
from langchain_reasc.pools.json_lines import take_in
from langchain_reasc.pools.pool import Pool, PoolQuestion, PoolResponse
from langchain_reasc.pools.signals import PoolSignals
from langchain_reasc.pools.store import PoolStore, StoredQuestion, is_store

__all__ = ["open_pool", "read_pool", "read_stored", "spelled_labels"]

_OFTEN: Final = ("answer", "finish_reason", "completion_tokens", "prompt_tokens", "signal_tokens")


def read_pool(path: str | os.PathLike[str], *, labelled: Collection[str] = ()) -> Pool:
    """Read and validate a pool; where it names other extraction rules than ours, find its answers again.

    What decisions need is read, question by question; texts and token signals stay in the file, which must stay where
    it is. A question that nobody can grade, without a reference and without a verdict, is left out, with a note. Of a
    pool of JSON Lines (:mod:`.json_lines`) a last line that was cut off is left out, with a note.

    Args:
        path: the pool.
        labelled: ids of questions whose right answers come from elsewhere: they stay, and count as wrong until then.

    Raises:
        PoolError: missing, damaged or unreadable file, one of a version to come, a line that is not a question, the
            same id twice, or no question at all; it names the file, and the line and the field where there are such. Or
            answers that would have to be found again, and cannot be.
    """
    pool = extracted_again(read_stored(path))
    spelled = spelled_labels(pool.metadata)
    known = [one for one in pool.questions if _is_graded(one) or one.id in labelled]
    notes = [*pool.notes, *_unlabelled(pool, len(known)), *_graders(pool)]
    pool = replace(pool, questions=())
    for at, question in enumerate(known):  # in place, so that memory does not hold all of them twice
        known[at] = _graded(question, spelled)
    graded = replace(pool, questions=tuple(known))
    return replace(graded, notes=(*notes, *filter(None, [contradiction_note(graded)]), *_missing(graded)))


def _is_graded(question: PoolQuestion) -> bool:
    return bool(question.references) or any(one.correct is not None for one in question.responses)


def read_stored(path: str | os.PathLike[str]) -> Pool:
    """The pool as it stands in the file, ``correct`` not filled in; errors as for :func:`read_pool`."""
    store, notes = open_pool(path)
    shared: dict[Any, Any] = {}
    questions = tuple(_question(one, shared) for one in store.questions())
    if not questions:
        raise PoolError(f"{store.path} holds no question; record some with `reasc record`")
    return Pool(store.path, questions, store.about(), tuple(notes), (store,))


def open_pool(path: str | os.PathLike[str]) -> tuple[PoolStore, list[str]]:
    """The store that a pool is, or that a pool of JSON Lines is taken into; with what its reader should know.

    Raises:
        PoolError: as for :func:`read_pool`.
    """
    source = Path(path)
    try:
        if is_store(source):
            return PoolStore.open(source), []
    except FileNotFoundError:
        raise PoolError(f"no pool at {source}; record one with `reasc record`") from None
    except IsADirectoryError:
        raise PoolError(f"{source} is a folder; name a pool in it") from None
    except OSError as error:
        raise PoolError(f"cannot read the pool {source}: {error.strerror or error}") from error
    store = PoolStore.temporary(source)
    return store, take_in(source, store)


def _question(stored: StoredQuestion, shared: dict[Any, Any]) -> PoolQuestion:
    """A question as decisions need it; the same numbers and words are again and again in memory only once."""

    def once(name: str, value: Any) -> Any:
        if name in ("answer_span", "last_step") and value is not None:
            return tuple(shared.setdefault(one, one) for one in value)
        return shared.setdefault(value, value) if name in _OFTEN else value

    responses = tuple(
        PoolResponse(**{name: once(name, v) for name, v in one.columns.items()}) for one in stored.responses
    )
    return PoolQuestion(stored.id, tuple(stored.accepted), responses, stored.input)


def spelled_labels(metadata: Mapping[str, Any]) -> Callable[[str], str]:
    """How a label is spelled to be compared with answers: as by what found them, where the pool says what did."""
    spec = metadata.get("answer")
    if "extraction_version" not in metadata or not isinstance(spec, str):
        return normalize
    try:
        return extractor(spec).label
    except ReASCError:  # an extra that is not installed here
        return normalize


def _graded(question: PoolQuestion, spelled: Callable[[str], str]) -> PoolQuestion:
    accepted = {spelled(reference) for reference in question.references}

    def graded(one: PoolResponse) -> PoolResponse:
        right = one.answer in accepted if one.correct is None else one.correct
        return replace(one, correct=one.answer is not None and right)  # no answer is never right

    return replace(question, responses=tuple(map(graded, question.responses)))


def _unlabelled(pool: Pool, known: int) -> Iterator[str]:
    left_out = len(pool.questions) - known
    if left_out and not known:
        raise PoolError(f"{pool.path} has no question with a reference or a verdict, so nothing in it can be graded")
    if left_out:
        yield (
            f"{left_out} of {len(pool.questions)} questions of {pool.path.name} have neither a reference nor a verdict "
            "and are left out"
        )


def _graders(pool: Pool) -> Iterator[str]:
    """By what it was graded, where that is not the comparison of answers and labels."""
    grader = pool.metadata.get("grader", "exact")
    if grader == "exact":
        return
    since = sum(one.correct is None and one.answer is not None for held in pool.questions for one in held.responses)
    told = f", but {since} responses were recorded since and are compared with their labels" if since else ""
    yield f"{pool.path.name} was graded by {grader}{told}{'; `reasc grade` grades them alike' if since else ''}"


def _missing(pool: Pool) -> Iterator[str]:
    """What cannot be computed from this pool, in one message; and which of its answers nobody can vouch for."""
    lacking = []
    if not pool.has_scores and pool.signals is None:
        lacking.append("no scores or token signals, so ReASC cannot be replayed (only the methods that count votes)")
    if not pool.has_prompt_tokens:
        lacking.append("no prompt tokens, so only generated tokens are counted")
    for name, questions in PoolSignals(pool.path, pool.stores, {}).left_out.items():
        yield (
            f"only {questions} questions of {pool.path.name} have signal {name!r}, others have others: it is left out"
        )
    if lacking:
        yield f"{pool.path.name} has " + ", and ".join(lacking)
    if "answer" in pool.metadata and "extraction_version" not in pool.metadata:  # an earlier recorder of ours
        yield (
            f"{pool.path.name} does not say by which version of the extraction rules its answers were found (here is "
            f"version {EXTRACTION_VERSION}); they are taken as they stand, and `reasc record` finds them again"
        )
