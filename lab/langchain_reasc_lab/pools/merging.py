"""Make a pool from others: copy questions with messages and signals, or merge two recordings."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np

from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc_lab.pools.recording import settings_of
from langchain_reasc_lab.pools.store import Message, PoolQuestion, PoolStore, TokenSignals

WholeQuestion = tuple[PoolQuestion, list[Message], list[TokenSignals]]
"""A question with the message and the token signals of each response, as :meth:`PoolStore.add` takes them."""

# What makes answers, scores, signals and verdicts comparable, besides the settings of a recording.
_ALIKE: Final = ("answer", "extraction_version", "measure", "signals_info", "grader")
_SAME_DRAW: Final = ("answer", "completion_tokens", "prompt_tokens", "finish_reason")


class Merged(NamedTuple):
    """The result of merging two pools.

    Attributes:
        questions: in the new pool.
        responses: in the new pool.
        shared: questions that both had.
        appended: of these, to how many the responses of both were put together.
        fewest: responses of the question that has fewest.
        most: responses of the question that has most.
    """

    questions: int
    responses: int
    shared: int
    appended: int
    fewest: int
    most: int


def merge_pools(first: Path, second: Path, out: Path) -> Merged:
    """Write the questions of two pools into a new one, those of the first in front.

    A question that both hold comes once. Where both drew it with the same seed, their responses are the same as far as
    both go, and the longer recording counts; where the seeds are different, or the model takes none, the responses of
    the second follow those of the first. (Two files that hold the same responses throughout are the same recording.)

    Args:
        first: a pool.
        second: another one.
        out: the new file.

    Raises:
        PoolError: they differ in model, prompt, or in how answers were found, scored or graded; hold other questions
            under one id; or drew other responses with the same seed. It names what differs.
        ConfigurationError: there is a file at ``out`` already.
    """
    a, b = PoolStore.open(first), PoolStore.open(second)
    _check_alike(a, b)
    theirs = {one.id: one for one in b.questions()}
    shared = [(one, theirs[one.id]) for one in a.questions() if one.id in theirs]
    for one, other in shared:
        _check_same_question(one, other, first, second)
    same = _is_same_recording(a, b, shared)
    with new_pool(out) as made:
        made.set_about(_merged_metadata(a.about(), b.about(), (first, second)))
        for question, messages, signals in whole_questions(a):
            if (again := theirs.pop(question.id, None)) is not None:
                start = len(question.responses) if same else 0
                more, more_messages, more_signals = _read_whole(b, again)
                question = replace(question, responses=question.responses + more.responses[start:])
                messages, signals = messages + more_messages[start:], signals + more_signals[start:]
            made.add_question(question, messages, signals)
        for new in theirs.values():
            made.add_question(*_read_whole(b, new))
        sizes = made.ids().values()
    return Merged(len(sizes), sum(sizes), len(shared), 0 if same else len(shared), min(sizes), max(sizes))


def whole_questions(store: PoolStore) -> Iterator[WholeQuestion]:
    """Yield all questions of a pool in recorded order, with everything that it keeps.

    Raises:
        PoolError: a signal has another number of values than the responses have tokens.
    """
    return (_read_whole(store, question) for question in store.questions())


@contextmanager
def new_pool(out: Path) -> Iterator[PoolStore]:
    """Create a pool that appears at ``out`` once all of it is written, and not at all where that fails.

    Raises:
        ConfigurationError: there is something at ``out`` already.
    """
    with new_path(out) as temporary:
        store = PoolStore.create(temporary)
        try:
            with store.transaction():
                yield store
        finally:
            store.close()


@contextmanager
def new_path(out: Path) -> Iterator[Path]:
    """Yield a path to write to, which is renamed to ``out`` at the end; after a failure, what was written is removed.

    Raises:
        ConfigurationError: there is something at ``out`` already.
    """
    if out.exists():
        raise ConfigurationError(f"there is something at {out} already; name another file, or move it away")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, out)
    except BaseException:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)
        raise


def _read_whole(store: PoolStore, question: PoolQuestion) -> WholeQuestion:
    lengths = [one.signal_tokens for one in question.responses]
    signals: list[dict[str, Any]] = [{} for _ in lengths]
    for name in store.signal_names():
        values = store.signals(name, [question.id]).get(question.id)
        if values is None:
            continue
        if values.size != sum(lengths):
            raise PoolError(
                f"{store.path}: signal {name!r} of question {question.id!r} has {values.size} values for "
                f"{sum(lengths)} tokens"
            )
        for own, part in zip(signals, np.split(values, np.cumsum(lengths)[:-1]), strict=True):
            if part.size:
                own[name] = part
    return question, store.messages(question.id), list(signals)


def _check_alike(a: PoolStore, b: PoolStore) -> None:
    if differing := _differences(a.about(), b.about()):
        sides = "; ".join(f"{name}: {_shown(then)} and {_shown(now)}" for name, then, now in differing)
        raise PoolError(
            f"{a.path} and {b.path} were recorded differently, and cannot be one pool: they differ in {sides}"
        )


def _check_same_question(one: PoolQuestion, other: PoolQuestion, first: Path, second: Path) -> None:
    for what, x, y in (
        ("question", one.input, other.input),
        ("accepted answers", one.references, other.references),
    ):
        if x != y:
            raise PoolError(
                f"{first} and {second} differ in the {what} of {one.id!r}: {_shown(x)} and {_shown(y)}; give the "
                "questions ids of their own, or bring the labels of both up to date with `reasc record`"
            )


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    one, other = ({**settings_of(about), **{name: about.get(name) for name in _ALIKE}} for about in (then, now))
    names = dict.fromkeys([*one, *other])
    return [
        (name, one.get(name), other.get(name))
        for name in names
        if name != "seed" and one.get(name) != other.get(name)  # the seed may be another one
    ]


def _is_same_recording(a: PoolStore, b: PoolStore, shared: Sequence[tuple[PoolQuestion, PoolQuestion]]) -> bool:
    """Return whether what both hold was drawn only once.

    Raises:
        PoolError: the seed was the same, and the responses are not.
    """
    seed, other_seed = a.about().get("seed"), b.about().get("seed")
    if seed != other_seed:
        return False
    differing = next((one.id for one, other in shared if not _are_same_responses(a, one, b, other)), None)
    if differing is not None and seed is not None:
        raise PoolError(
            f"{a.path} and {b.path} were both recorded with seed {seed!r}, and hold other responses to question "
            f"{differing!r}: which were drawn independently cannot be known. Record one of them with another --seed"
        )
    return differing is None


def _are_same_responses(a: PoolStore, one: PoolQuestion, b: PoolStore, other: PoolQuestion) -> bool:
    """Return whether the responses are the same as far as both go."""
    responses = zip(one.responses, other.responses, strict=False)
    if any(getattr(x, name) != getattr(y, name) for x, y in responses for name in _SAME_DRAW):
        return False
    texts = zip(a.messages(one.id), b.messages(other.id), strict=False)
    return all(x.text == y.text for x, y in texts if None not in (x.text, y.text))


def _merged_metadata(then: Mapping[str, Any], now: Mapping[str, Any], paths: tuple[Path, Path]) -> dict[str, Any]:
    seeds = [about.get("seed") for about in (then, now)]
    failed = [about["failed"] for about in (then, now) if about.get("failed")]
    added = {name: sum(one.get(name, 0) for one in failed) for name in ("samples", "tokens")}
    return {
        **now,
        **then,
        "seed": seeds[0] if seeds[0] == seeds[1] else seeds,
        "merged_from": [path.name for path in paths],
        **({"failed": added} if failed else {}),
    }


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
