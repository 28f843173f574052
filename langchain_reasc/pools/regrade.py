"""Grading what a pool holds again, without a new sample: corrected labels, other rules for finding answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_reasc.answers import extractor, normalize
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method.confidence import Spans
from langchain_reasc.pools.extraction import NO_SPANS, votes_again
from langchain_reasc.pools.pool import Pool, PoolQuestion
from langchain_reasc.pools.store import PoolStore

__all__ = ["regrade"]

_RULES = ("answer", "extraction_version")


def regrade(
    pool: Pool,
    store: PoolStore,
    metadata: Mapping[str, Any],
    questions: Sequence[LabelledQuestion],
    *,
    tell: Callable[[str], None],
) -> None:
    """Bring the file of a pool up to date with the labels and the extraction rules of today, if they have changed.

    Args:
        pool: what stands in the file.
        store: the file.
        metadata: what the recording that goes on would write of itself.
        questions: the questions with the labels of today.
        tell: called with what has changed, in words.

    Raises:
        PoolError: answers must be found again, and their text was not kept or a function finds them.
    """
    labels = {question.id: question.references for question in questions}
    relabelled = {
        held.id: labels[held.id]
        for held in pool.questions
        if held.id in labels and set(map(normalize, labels[held.id])) != set(map(normalize, held.references))
    }
    then, now = ({name: rules.get(name) for name in _RULES} for rules in (pool.metadata, metadata))
    if not relabelled and then == now:
        return
    again, changed = then != now, 0
    with store.transaction():
        for question, references in relabelled.items():
            store.set_question(question, references)
        for held, found in _votes(replace(pool, stores=(store,)), then, now) if again else ():
            store.set_responses(held.id, found)
            changed += sum(one.answer != other["answer"] for one, other in zip(held.responses, found, strict=True))
        store.set_about({name: metadata[name] for name in (*_RULES, "fingerprint")})
    if relabelled:
        tell(f"{len(relabelled)} labels have changed since {pool.path} was recorded; its responses are graded anew")
    if (relabelled or again) and pool.metadata.get("grader"):
        tell(f"verdicts of {pool.metadata['grader']!r} in {pool.path} were dropped with them: `reasc grade` it again")
    if again:
        tell(
            f"the answers in {pool.path} were found by {_named(then)}, now they are by {_named(now)}: looked for again "
            f"in the stored text, {changed} changed"
        )
        if any(response.spans != Spans() for held in pool.questions for response in held.responses):
            tell(f"which tokens of {pool.path} spell those answers is not known: record anew for a score of them")


def _votes(
    pool: Pool, then: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[PoolQuestion, list[dict[str, Any]]]]:
    """Each question, with what to write of each response's vote."""
    if not isinstance(now["answer"], str):
        raise PoolError(
            f"the answers in {pool.path} were found by {_named(then)}, now they are to be found by {_named(now)}. A "
            "function may look at more of a response than is stored: record into another file"
        )
    extract = extractor(now["answer"])

    for question in pool.questions:
        try:
            votes = votes_again(pool, question, extract)
        except PoolError as error:
            raise PoolError(f"{pool.path}: {error}; record into another file") from None
        # Spans were those of the answer found before, and so were verdicts.
        yield question, [{"answer": one.answer, "cut_off": one.cut_off, "correct": None, **NO_SPANS} for one in votes]


def _named(rules: Mapping[str, Any]) -> str:
    spec, version = rules["answer"], rules["extraction_version"]
    how = repr(spec) if isinstance(spec, str) else f"the function {dict(spec or {}).get('function')!r}"
    return f"{how} (rules of {'an earlier version' if version is None else f'version {version}'})"
