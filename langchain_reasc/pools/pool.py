"""A pool in memory: recorded responses, from which every method is replayed without the model.

What decisions need is in memory, some 320 bytes a response; texts and token signals stay in the file (see
:mod:`.store`) and are read when they are needed. Every answer is found by this version's rules, and graded.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from langchain_core.messages import AIMessage

from langchain_reasc.answers import EXTRACTION_VERSION, TOO_SLOW, extractor, normalize, vote_of
from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError
from langchain_reasc.pools.store import Message, PoolQuestion, PoolResponse, PoolStore

__all__ = [
    "Pool",
    "PoolSignals",
    "find_answers_again",
    "label_normalizer",
    "message_of",
    "read_pool",
    "read_ungraded",
]

Floats = npt.NDArray[np.float32]
_VALUES_AT_ONCE: Final = 1 << 19  # 2 MB of one signal, of which three copies are held for a moment
_QUESTIONS_AT_ONCE: Final = 500
_TOO_SLOW: Final = 3  # responses to one question


@dataclass(frozen=True)
class Pool:
    """Recorded responses to a set of questions.

    Attributes:
        path: the file it was read from.
        questions: the questions in recorded order; answers are normalized, and ``correct`` is filled in.
        metadata: the metadata of the recording; empty where there is none.
        notes: what the reader of a result should know of this pool, such as what cannot be computed from it.
        stores: the files that hold texts and token signals.
        calibrating: how many of the first questions are of another file, and calibrate; they are never tested.
        calibration_path: that file.
    """

    path: Path
    questions: tuple[PoolQuestion, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stores: tuple[PoolStore, ...] = field(default=(), compare=False, repr=False)
    calibrating: int = 0
    calibration_path: Path | None = None

    @cached_property
    def signals(self) -> "PoolSignals | None":
        """Token signals that all questions with signals have, or None where there is none."""
        lengths = {one.id: [response.signal_tokens for response in one.responses] for one in self.questions}
        held = PoolSignals(self.path, self.stores, lengths)
        return held if any(map(any, lengths.values())) and held.names else None

    @property
    def model(self) -> str | None:
        """The name of the model that was recorded; None where the metadata does not say."""
        fingerprint = self.metadata.get("fingerprint")
        name = fingerprint.get("model") if isinstance(fingerprint, dict) else None
        return name if isinstance(name, str) else None

    @property
    def responses(self) -> Iterator[PoolResponse]:
        """All responses, question by question."""
        return (response for question in self.questions for response in question.responses)

    @property
    def has_scores(self) -> bool:
        """Whether any response carries a recorded score."""
        return any(response.score is not None for response in self.responses)

    @property
    def has_prompt_tokens(self) -> bool:
        """Whether every response says how long its prompt was."""
        return all(response.prompt_tokens is not None for response in self.responses)

    def messages(self, question: str) -> list[Message]:
        """Read the messages of the responses to a question, in recorded order.

        Raises:
            PoolError: there is no such question in its file.
        """
        for store in self.stores:
            if held := store.messages(question):
                return held
        raise PoolError(f"{self.path} keeps no responses to a question {question!r}")

    def texts(self, question: str) -> list[str | None]:
        """Read the text of each response to a question; None where it was not kept."""
        return [message.text for message in self.messages(question)]

    def __add__(self, other: "Pool") -> "Pool":
        """Return this pool's questions, then the other's.

        Raises:
            PoolError: both hold a question with the same id.
        """
        if shared := {q.id for q in self.questions} & {q.id for q in other.questions}:
            raise PoolError(f"{self.path} and {other.path} both hold question {min(shared)!r}")
        return Pool(
            other.path,
            self.questions + other.questions,
            other.metadata,
            tuple(dict.fromkeys(self.notes + other.notes)),
            self.stores + other.stores,
        )


@dataclass(frozen=True)
class PoolSignals:
    """The token signals of some questions, read from their files when they are needed.

    Attributes:
        path: the pool, for messages.
        stores: the files that may hold them.
        responses: question id -> how many tokens of each of its responses have signals.
    """

    path: Path
    stores: Sequence[PoolStore] = field(repr=False)
    responses: Mapping[str, Sequence[int]] = field(repr=False)

    @cached_property
    def _counted(self) -> tuple[Counter[str], int]:
        """How many questions have each signal, and how many have any."""
        counts: Counter[str] = Counter()
        for store in self.stores:
            counts.update(store.signal_names())
        return counts, sum(store.questions_with_signals() for store in self.stores)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The signals that every question has, of those that have any."""
        counts, every = self._counted
        return tuple(name for name, questions in counts.items() if questions == every)

    @property
    def left_out(self) -> dict[str, int]:
        """The signals that only some of the questions with signals have -> how many do."""
        counts, every = self._counted
        return {name: questions for name, questions in counts.items() if questions != every}

    def of(self, question: str) -> list[dict[str, Floats]]:
        """Read the signals of each response to a question, in recorded order: signal name -> shape (T,)."""
        ends = np.cumsum(self.responses[question])[:-1]
        parts = {name: np.split(self._read(name, [question])[0], ends) for name in self.names}
        return [{name: arrays[at] for name, arrays in parts.items()} for at in range(len(self.responses[question]))]

    def each(self, name: str, questions: Sequence[str]) -> Iterator[tuple[Floats, npt.NDArray[np.int64]]]:
        """Read one signal of all responses to some questions, a part at a time, so that memory stays small.

        Yields:
            The values of some questions' responses, concatenated, and the tokens of each response.

        Raises:
            PoolError: a question has another number of values than its responses have tokens.
        """
        left = list(questions)
        while left:
            values = np.cumsum([sum(self.responses[question]) for question in left[:_QUESTIONS_AT_ONCE]])
            count = min(int(np.searchsorted(values, _VALUES_AT_ONCE)) + 1, values.size)
            some, left = left[:count], left[count:]
            lengths = [np.asarray(self.responses[question], dtype=np.int64) for question in some]
            yield np.concatenate(self._read(name, some)), np.concatenate(lengths)

    def lengths(self, question: str) -> list[int]:
        """Return how many tokens of each response to a question have signals."""
        return list(self.responses[question])

    def _read(self, name: str, questions: Sequence[str]) -> list[Floats]:
        held: dict[str, Floats] = {}
        for store in self.stores:
            held |= store.signals(name, questions)
        found = [held.get(question, np.zeros(0, dtype=np.float32)) for question in questions]
        for question, values in zip(questions, found, strict=True):
            if values.size != (expected := sum(self.responses[question])):
                raise PoolError(
                    f"{self.path}: signal {name!r} of question {question!r} has {values.size} values for {expected} "
                    "tokens"
                )
        return found


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
    pool = _by_current_rules(read_ungraded(path))
    normalized = label_normalizer(pool.metadata)
    known = [
        one
        for one in pool.questions
        if one.id in labelled or one.references or any(given.correct is not None for given in one.responses)
    ]
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


def find_answers_again(pool: Pool, spec: str) -> Pool:
    """Return a pool whose answers are found again in its stored messages; verdicts and spans were the old ones'.

    Args:
        pool: the pool.
        spec: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`.

    Raises:
        PoolError: the text of a response was not kept, or finding its answers takes too long.
        ConfigurationError: there is no such extractor.
    """
    extract, questions = extractor(spec), []
    for question in pool.questions:
        responses, slow = list[PoolResponse](), 0
        for stored, response in zip(pool.messages(question.id), question.responses, strict=True):
            message = message_of(stored, response.finish_reason)
            if message is None:
                raise PoolError(
                    f"question {question.id!r} has a response without its text, so its answer cannot be looked for "
                    "again"
                )
            vote = vote_of(message, extract)
            slow += vote.why_none == TOO_SLOW
            if slow == _TOO_SLOW:  # a whole pool might take days
                raise PoolError(f"{extract.name} takes too long over {slow} responses to question {question.id!r}")
            old: dict[str, Any] = {"correct": None, "answer_span": None, "last_step": None}
            responses.append(replace(response, answer=vote.answer, cut_off=vote.cut_off, **old))
        questions.append(replace(question, responses=tuple(responses)))
    return replace(pool, questions=tuple(questions))


def _by_current_rules(pool: Pool) -> Pool:
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
        found = find_answers_again(pool, spec)
    except (PoolError, ConfigurationError) as error:
        raise PoolError(f"{what}; {error}. Record it anew") from None
    changed = sum(a.answer != b.answer for a, b in zip(pool.responses, found.responses, strict=True))
    return replace(found, notes=(f"{what}: they were looked for again in the stored text, and {changed} changed",))


def _graded(question: PoolQuestion, normalized: Callable[[str], str]) -> PoolQuestion:
    accepted = {normalized(reference) for reference in question.references}

    def graded(one: PoolResponse) -> PoolResponse:
        right = one.answer in accepted if one.correct is None else one.correct
        return replace(one, correct=one.answer is not None and right)  # no answer is never right

    return replace(question, responses=tuple(map(graded, question.responses)))
