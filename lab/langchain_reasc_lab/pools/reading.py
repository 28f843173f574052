"""Read a pool, and note what a result of it depends on: its grading, and what it lacks.

Every answer is found by this version's rules, and graded.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage

from langchain_reasc.answers import (
    EXTRACTION_VERSION,
    TOO_SLOW,
    Extractor,
    extractor,
    vote_of,
)
from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError
from langchain_reasc_lab.pools.pool import Pool, PoolSignals
from langchain_reasc_lab.pools.store import (
    Message,
    PoolQuestion,
    PoolResponse,
    PoolStore,
)

__all__ = [
    "CALIBRATION_POOL",
    "calibrated_on",
    "extractor_of",
    "find_answers_again",
    "message_of",
    "read_pool",
    "read_ungraded",
]

CALIBRATION_POOL: Final = "calibration-pool.sqlite"
"""The file beside a pool whose questions calibrate, unless another is named."""
_TOO_SLOW: Final = 3  # responses to one question
_SHOWN: Final = 3
_LONGEST: Final = 40  # characters of an answer in a note


def read_pool(
    path: str | os.PathLike[str],
    *,
    labelled: Collection[str] = (),
    ungraded: bool = False,
) -> Pool:
    """Read and validate a pool, with notes on it. Where other extraction rules found
    its answers, find them again.

    What decisions need is read, question by question; texts and token signals stay in
    the file, which must stay where it is. A question without a reference and without a
    verdict cannot be graded and is left out, with a note.

    Args:
        path: the pool.
        labelled: ids of questions whose right answers come from elsewhere: they are
            kept, and count as wrong until then.
        ungraded: whether to keep all questions, ungraded, if none can be graded, in
            place of an error.

    Raises:
        PoolError: the file is missing, damaged, unreadable or from a later version,
            holds no question that can be graded, or answers would have to be found
            again, and cannot be.
    """
    pool = _by_current_rules(read_ungraded(path))
    extract = extractor_of(pool.metadata)
    known = [
        one
        for one in pool.questions
        if one.id in labelled
        or one.references
        or any(given.correct is not None for given in one.responses)
    ]
    if not known and ungraded:
        return pool
    if not known:
        raise PoolError(
            f"{pool.path} has no question with a reference or a verdict, so nothing in "
            "it can be graded; `reasc grade` with --data adds right answers"
        )
    notes = pool.notes
    if left_out := len(pool.questions) - len(known):
        notes += (
            f"{left_out} of {len(pool.questions)} questions of {pool.path.name} have "
            "neither a reference nor a verdict and are left out",
        )
    pool = replace(pool, questions=())
    # in place, so that memory does not hold all of them twice
    for at, question in enumerate(known):
        known[at] = _graded(question, extract)
    pool = replace(pool, questions=tuple(known), notes=notes)
    return replace(
        pool,
        notes=(
            *pool.notes,
            *_grader_notes(pool),
            *_contradiction_notes(pool),
            *_missing_notes(pool),
        ),
    )


def read_ungraded(path: str | os.PathLike[str]) -> Pool:
    """Read a pool as it is stored, ``correct`` not filled in; errors as for
    :func:`read_pool`.
    """
    store = PoolStore.open(path)
    questions = tuple(store.questions())
    if not questions:
        raise PoolError(
            f"{store.path} holds no question; record some with `reasc record`"
        )
    return Pool(store.path, questions, store.about(), (), (store,))


def extractor_of(metadata: Mapping[str, Any]) -> Extractor:
    """Return the extractor that found the answers of a pool with this metadata, or the
    default one.
    """
    spec = metadata.get("answer")
    if "extraction_version" not in metadata or not isinstance(spec, str):
        return extractor()
    try:
        return extractor(spec)
    except ReASCError:  # an extra that is not installed here
        return extractor()


def message_of(stored: Message, finish_reason: str | None) -> AIMessage | None:
    """Rebuild a recorded message, as far as its vote depends on it; None if its text
    was not kept.
    """
    if stored.text is None:
        return None
    reason = {"finish_reason": finish_reason} if finish_reason else {}
    # other programs may store something else there
    beside = stored.beside if isinstance(stored.beside, dict) else {}
    return AIMessage(**{"content": stored.text, "response_metadata": reason, **beside})


def find_answers_again(pool: Pool, spec: str) -> Pool:
    """Find all answers again in the stored messages. Verdicts and spans are dropped:
    they belonged to the old answers.

    Args:
        pool: the pool.
        spec: where the answer is in a response, see
            :func:`langchain_reasc.answers.extractor`.

    Raises:
        PoolError: the text of a response was not kept, or finding its answers takes too
            long.
        ConfigurationError: there is no such extractor.
    """
    extract, questions = extractor(spec), []
    for question in pool.questions:
        responses, slow = list[PoolResponse](), 0
        for stored, response in zip(
            pool.messages(question.id), question.responses, strict=True
        ):
            message = message_of(stored, response.finish_reason)
            if message is None:
                raise PoolError(
                    f"question {question.id!r} has a response without its text, so its "
                    "answer cannot be looked for again"
                )
            vote = vote_of(message, extract, question=question.input or "")
            slow += vote.why_none == TOO_SLOW
            if slow == _TOO_SLOW:  # a whole pool might take days
                raise PoolError(
                    f"{extract.name} takes too long over {slow} responses to question "
                    f"{question.id!r}"
                )
            old: dict[str, Any] = {
                "correct": None,
                "answer_span": None,
                "last_step": None,
            }
            responses.append(
                replace(response, answer=vote.answer, cut_off=vote.cut_off, **old)
            )
        questions.append(replace(question, responses=tuple(responses)))
    return replace(pool, questions=tuple(questions))


def _by_current_rules(pool: Pool) -> Pool:
    """Find answers again where the pool names another version of the rules; with none,
    they are taken as they are.
    """
    version, spec = pool.metadata.get("extraction_version"), pool.metadata.get("answer")
    if version in (None, EXTRACTION_VERSION):
        return pool
    what = (
        f"{pool.path}: its answers were found by version {version} of the extraction "
        f"rules, here is version {EXTRACTION_VERSION}"
    )
    if not isinstance(spec, str):
        raise PoolError(
            f"{what}, and no extractor is named in its metadata that could be used "
            "again; record it anew"
        )
    try:
        found = find_answers_again(pool, spec)
    except (PoolError, ConfigurationError) as error:
        raise PoolError(f"{what}; {error}. Record it anew") from None
    changed = sum(
        a.answer != b.answer
        for a, b in zip(pool.responses, found.responses, strict=True)
    )
    return replace(
        found,
        notes=(
            (
                f"{what}: they were looked for again in the stored text, and {changed} "
                "changed"
            ),
        ),
    )


def _graded(question: PoolQuestion, extract: Extractor) -> PoolQuestion:
    ungraded = [
        response.answer for response in question.responses if response.correct is None
    ]
    accepted = set[str]()
    if ungraded:
        accepted.update(
            *(
                extract.same_as(extract.label(right), ungraded)
                for right in question.references
            )
        )

    def graded(response: PoolResponse) -> PoolResponse:
        is_right = (
            response.answer in accepted
            if response.correct is None
            else response.correct
        )
        # no answer is never right
        return replace(response, correct=response.answer is not None and is_right)

    return replace(question, responses=tuple(map(graded, question.responses)))


def calibrated_on(pool: Pool, other: Pool) -> Pool:
    """Return a pool, to be tested, behind the questions of another one, which
    calibrate.

    Raises:
        PoolError: they were recorded from different models or prompts, share no measure
            of confidence, or share a question, which would be tested on what it
            calibrated.
    """
    then, now = (one.metadata.get("fingerprint") for one in (other, pool))
    if then and now and then != now:
        names = sorted(
            name for name in {*then, *now} if then.get(name) != now.get(name)
        )
        raise PoolError(
            f"{other.path} was recorded otherwise than {pool.path} (their "
            f"{', '.join(names)} differ), so what it teaches does not hold there"
        )
    joined = replace(
        other + pool, calibrating=len(other.questions), calibration_path=other.path
    )
    if not (joined.signals or (pool.has_scores and other.has_scores)):
        raise PoolError(
            f"{other.path} and {pool.path} share no token signal and no scores"
        )
    return joined


def _contradiction_notes(pool: Pool) -> Iterator[str]:
    """Name the answers that a pool flags both right and wrong, in the order of its
    questions.
    """
    contradictions: list[str] = []
    for question in pool.questions:
        flags: dict[str, list[bool]] = {}
        for response in question.responses:
            if response.answer is not None and response.correct is not None:
                flags.setdefault(response.answer, []).append(response.correct)
        for answer, given in flags.items():
            right = sum(given)
            if 0 < right < len(given):
                shown = answer if len(answer) <= _LONGEST else answer[:_LONGEST] + "..."
                wrong = len(given) - right
                contradictions.append(
                    f"question {question.id!r}, answer {shown!r}: {right} right, "
                    f"{wrong} wrong"
                )
    if contradictions:
        more = (
            f"; and {len(contradictions) - _SHOWN} more"
            if len(contradictions) > _SHOWN
            else ""
        )
        yield (
            f"{pool.path.name} flags equal answers to one question both right and "
            f"wrong ({'; '.join(contradictions[:_SHOWN])}{more}); the first recorded "
            "one decides for all of them, and `reasc grade` flags them alike"
        )


def _grader_notes(pool: Pool) -> Iterator[str]:
    """Name the grader, where it is not the comparison of answers and labels."""
    if (grader := pool.metadata.get("grader", "exact")) == "exact":
        return
    note = f"{pool.path.name} was graded by {grader}"
    if since := sum(
        one.correct is None and one.answer is not None
        for one in read_ungraded(pool.path).responses
    ):
        note += (
            f", but {since} responses were recorded since and are compared with their "
            "labels; `reasc grade` grades them alike"
        )
    yield note


def _missing_notes(pool: Pool) -> Iterator[str]:
    missing = []
    if not pool.has_scores and pool.signals is None:
        missing.append(
            "no scores or token signals, so no row weighs votes by confidence"
        )
    if not pool.has_prompt_tokens:
        missing.append("no prompt tokens, so only generated tokens are counted")
    for name, questions in PoolSignals(pool.path, pool.stores, {}).left_out.items():
        yield (
            f"only {questions} questions of {pool.path.name} have signal {name!r}, "
            "others have others: it is left out"
        )
    if missing:
        yield f"{pool.path.name} has " + ", and ".join(missing)
    if "answer" in pool.metadata and "extraction_version" not in pool.metadata:
        yield (
            f"{pool.path.name} does not say by which version of the extraction rules "
            f"its answers were found (here is version {EXTRACTION_VERSION}); they are "
            "taken as they are, and `reasc record` finds them again"
        )
