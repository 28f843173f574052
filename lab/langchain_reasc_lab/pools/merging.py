"""Several recordings of the same model and prompt as one pool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools.reading import open_pool
from langchain_reasc.pools.resume import settings_of
from langchain_reasc.pools.store import PoolStore, StoredQuestion, StoredResponse
from langchain_reasc_lab.pools.copying import new_pool, whole_question

__all__ = ["Merged", "merge_pools"]

# What makes answers, scores, signals and verdicts comparable, beside what a recording is made with.
_ALIKE: Final = ("answer", "extraction_version", "measure", "signals_info", "grader")
_SAME_DRAW: Final = ("answer", "completion_tokens", "prompt_tokens", "finish_reason")


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of two pools.

    Attributes:
        questions: in the new pool.
        responses: in the new pool.
        shared: questions that both had.
        appended: of these, to how many the responses of both were put together.
        fewest: responses of the question that has fewest.
        most: and of the one that has most.
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
    (a, _), (b, _) = open_pool(first), open_pool(second)
    if differing := _differences(a.about(), b.about()):
        sides = "; ".join(f"{name}: {_shown(then)} and {_shown(now)}" for name, then, now in differing)
        raise PoolError(f"{first} and {second} are of two ways to ask, and cannot be one pool: they differ in {sides}")
    ours, theirs = ({one.id: one for one in store.questions()} for store in (a, b))
    shared = [(one, theirs[id]) for id, one in ours.items() if id in theirs]
    for one, other in shared:
        _check_same(one, other, first, second)
    again = _is_same_recording(a, b, shared)
    with new_pool(out) as made:
        made.set_about(_metadata(a.about(), b.about(), (first, second)))
        for id, one in ours.items():
            made.add(_together(a, one, b, theirs.get(id), again=again))
        names = _names(b)
        for id, other in theirs.items():
            if id not in ours:
                made.add(whole_question(b, other, names))
        counts = made.ids()
    sizes = counts.values()
    appended = 0 if again else len(shared)
    return Merged(len(counts), sum(sizes), len(shared), appended, min(sizes), max(sizes))


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    one, other = ({**settings_of(about), **{name: about.get(name) for name in _ALIKE}} for about in (then, now))
    for settings in (one, other):
        settings.pop("seed")  # which may be another one
    if "max_tokens" not in one or "max_tokens" not in other:  # earlier recordings do not say
        one.pop("max_tokens", None), other.pop("max_tokens", None)
    names = dict.fromkeys([*one, *other])
    return [(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]


def _check_same(one: StoredQuestion, other: StoredQuestion, first: Path, second: Path) -> None:
    for what, a, b in (("question", one.input, other.input), ("accepted answers", one.accepted, other.accepted)):
        if a != b:
            raise PoolError(
                f"{first} and {second} differ in the {what} of {one.id!r}: {_shown(a)} and {_shown(b)}; give the "
                "questions ids of their own, or bring the labels of both up to date with `reasc record`"
            )


def _is_same_recording(a: PoolStore, b: PoolStore, shared: Sequence[tuple[StoredQuestion, StoredQuestion]]) -> bool:
    """Whether what both hold was drawn once only.

    Raises:
        PoolError: the seed was the same, and the responses are not.
    """
    seeds = a.about().get("seed"), b.about().get("seed")
    if seeds[0] != seeds[1]:
        return False
    differing = next((one.id for one, other in shared if not _agree(a, one, b, other)), None)
    if differing is not None and seeds[0] is not None:
        raise PoolError(
            f"{a.path} and {b.path} were both recorded with seed {seeds[0]!r}, and hold other responses to question "
            f"{differing!r}: nobody can tell which were drawn independently. Record one of them with another --seed"
        )
    return differing is None


def _agree(a: PoolStore, one: StoredQuestion, b: PoolStore, other: StoredQuestion) -> bool:
    """Whether the responses are the same as far as both go."""
    columns = zip(one.responses, other.responses, strict=False)
    if any(x.columns[name] != y.columns[name] for x, y in columns for name in _SAME_DRAW):
        return False
    texts = zip(a.messages(one.id), b.messages(other.id), strict=False)
    return all(x.text == y.text for x, y in texts if None not in (x.text, y.text))


def _together(
    a: PoolStore, one: StoredQuestion, b: PoolStore, other: StoredQuestion | None, *, again: bool
) -> StoredQuestion:
    ours = whole_question(a, one, _names(a))
    if other is None or (again and len(other.responses) <= len(one.responses)):
        return ours
    theirs = whole_question(b, other, _names(b)).responses
    more = theirs[len(ours.responses) :] if again else theirs
    return replace(ours, responses=_alike([*ours.responses, *more]))


def _alike(responses: list[StoredResponse]) -> list[StoredResponse]:
    """Responses with the signals that all that have any carry."""
    carrying = [set(one.signals) for one in responses if one.signals]
    common = set.intersection(*carrying) if carrying else set()
    return [
        one._replace(signals={name: one.signals[name] for name in one.signals if name in common}) for one in responses
    ]


def _metadata(then: Mapping[str, Any], now: Mapping[str, Any], paths: tuple[Path, Path]) -> dict[str, Any]:
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


def _names(store: PoolStore) -> list[str]:
    return [name for name, _ in store.signal_names()]


def _shown(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:80]}..."
