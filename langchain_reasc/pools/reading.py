"""Reading a pool: every answer found by this version's rules, and graded."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage

from langchain_reasc.answers import EXTRACTION_VERSION, TOO_SLOW, Extractor, Vote, extractor, normalize, vote_of
from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError
from langchain_reasc.pools.pool import Pool
from langchain_reasc.pools.store import Message, PoolQuestion, PoolResponse, PoolStore

__all__ = ["label_normalizer", "message_of", "read_pool", "read_ungraded", "votes_again"]

_TOO_SLOW: Final = 3  # responses to one question


def read_pool(path: str | os.PathLike[str], *, labelled: Collection[str] = ()) -> Pool:
    """Read and validate a pool. Where other extraction rules found its answers, they are found again.

    What decisions need is read, question by question; texts and token signals stay in the file, which must stay where
    it is. A question without a reference and without a verdict cannot be graded and is left out, with a note.

    Args:
        path: the pool.
        labelled: ids of questions whose right answers come from elsewhere: they are kept, and count as wrong until
            then.

    Raises:
        PoolError: the file is missing, damaged, unreadable or from a later version, holds no question that can be
            graded, or answers would have to be found again, and cannot be.
    """
    pool = _with_current_answers(read_ungraded(path))
    normalized = label_normalizer(pool.metadata)
    known = [one for one in pool.questions if one.id in labelled or _can_be_graded(one)]
    if not known:
        raise PoolError(f"{pool.path} has no question with a reference or a verdict, so nothing in it can be graded")
    notes = pool.notes
    if left_out := len(pool.questions) - len(known):
        notes += (
            f"{left_out} of {len(pool.questions)} questions of {pool.path.name} have neither a reference nor a verdict "
            "and are left out",
        )
    pool = replace(pool, questions=())
    for at, question in enumerate(known):  # in place, so that memory does not hold all of them twice
        known[at] = _graded(question, normalized)
    return replace(pool, questions=tuple(known), notes=notes)


def read_ungraded(path: str | os.PathLike[str]) -> Pool:
    """Read a pool as it is stored, ``correct`` not filled in; errors as for :func:`read_pool`."""
    store = PoolStore.open(path)
    questions = tuple(store.questions())
    if not questions:
        raise PoolError(f"{store.path} holds no question; record some with `reasc record`")
    return Pool(store.path, questions, store.about(), (), (store,))


def label_normalizer(metadata: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function that spells labels like the answers of a pool with this metadata, to compare them."""
    spec = metadata.get("answer")
    if "extraction_version" not in metadata or not isinstance(spec, str):
        return normalize
    try:
        return extractor(spec).label
    except ReASCError:  # an extra that is not installed here
        return normalize


def message_of(stored: Message, finish_reason: str | None) -> AIMessage | None:
    """Return the message that was recorded, as far as its vote depends on it; None where no text was kept."""
    if stored.text is None:
        return None
    reason = {"finish_reason": finish_reason} if finish_reason else {}
    beside = stored.beside if isinstance(stored.beside, dict) else {}  # other programs may store something else there
    return AIMessage(**{"content": stored.text, "response_metadata": reason, **beside})


def votes_again(pool: Pool, question: PoolQuestion, extract: Extractor) -> list[Vote]:
    """Return the votes of a question's responses, read again from their stored messages.

    Raises:
        PoolError: the text of a response was not kept, or finding its answers takes too long.
    """
    votes, slow = list[Vote](), 0
    for stored, response in zip(pool.messages(question.id), question.responses, strict=True):
        message = message_of(stored, response.finish_reason)
        if message is None:
            raise PoolError(
                f"question {question.id!r} has a response without its text, so its answer cannot be looked for again"
            )
        votes.append(vote_of(message, extract))
        slow += votes[-1].why_none == TOO_SLOW
        if slow == _TOO_SLOW:  # a whole pool might take days
            raise PoolError(f"{extract.name} takes too long over {slow} responses to question {question.id!r}")
    return votes


def _with_current_answers(pool: Pool) -> Pool:
    """Find answers again where the pool names another version of the rules; with none, they are taken as they are."""
    version, spec = pool.metadata.get("extraction_version"), pool.metadata.get("answer")
    if version in (None, EXTRACTION_VERSION):
        return pool
    what = (
        f"{pool.path}: its answers were found by version {version} of the extraction rules, here is version "
        f"{EXTRACTION_VERSION}"
    )
    if not isinstance(spec, str):
        raise PoolError(f"{what}, and no extractor is named in its metadata that could be used again; record it anew")
    try:
        extract = extractor(spec)
        questions = tuple(_with_votes(one, votes_again(pool, one, extract)) for one in pool.questions)
    except (PoolError, ConfigurationError) as error:
        raise PoolError(f"{what}; {error}. Record it anew") from None
    found = replace(pool, questions=questions)
    changed = sum(a.answer != b.answer for a, b in zip(pool.responses, found.responses, strict=True))
    return replace(found, notes=(f"{what}: they were looked for again in the stored text, and {changed} changed",))


def _with_votes(question: PoolQuestion, votes: Sequence[Vote]) -> PoolQuestion:
    responses = (
        replace(response, answer=vote.answer, cut_off=vote.cut_off, correct=None, answer_span=None, last_step=None)
        for response, vote in zip(question.responses, votes, strict=True)
    )
    return replace(question, responses=tuple(responses))


def _can_be_graded(question: PoolQuestion) -> bool:
    return bool(question.references) or any(one.correct is not None for one in question.responses)


def _graded(question: PoolQuestion, normalized: Callable[[str], str]) -> PoolQuestion:
    accepted = {normalized(reference) for reference in question.references}

    def graded(one: PoolResponse) -> PoolResponse:
        right = one.answer in accepted if one.correct is None else one.correct
        return replace(one, correct=one.answer is not None and right)  # no answer is never right

    return replace(question, responses=tuple(map(graded, question.responses)))
