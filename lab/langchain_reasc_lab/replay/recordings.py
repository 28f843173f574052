"""Replay every recording of a folder: what each rule would have spent on each model,
and lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from langchain_reasc.exceptions import ConfigurationError, PoolError, ReASCError
from langchain_reasc_lab.pools import MeasureSpec, Pool, read_pool
from langchain_reasc_lab.pools.copying import new_pool
from langchain_reasc_lab.pools.json_lines import read_json_lines
from langchain_reasc_lab.replay.bootstrap import Estimate
from langchain_reasc_lab.replay.chance import worse_by_chance
from langchain_reasc_lab.replay.methods import ONCE, MethodSettings
from langchain_reasc_lab.replay.metrics import Row, summarize
from langchain_reasc_lab.replay.question_sets import QuestionNames, question_sets
from langchain_reasc_lab.replay.replay import Replay, budget_of, replay

__all__ = [
    "LeftOut",
    "RecordingResult",
    "RuleResult",
    "open_recording",
    "recordings_in",
    "replay_recordings",
]

_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".sqlite")
_CALIBRATION_SIZE: Final = 128


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule on one recording; the other attributes are those of
    :class:`~.metrics.Row`.

    Attributes:
        worse_by_chance: how often chance alone would put the interval of
            ``accuracy_vs_sc`` below 0, see :func:`~.chance.worse_by_chance`.
    """

    method: str
    accuracy: Estimate
    samples: Estimate
    tokens_vs_once: Estimate
    tokens_vs_asc: Estimate
    tokens_vs_sc: Estimate
    accuracy_vs_sc: Estimate
    accuracy_vs_once: Estimate
    worse_by_chance: float


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """Every rule on one recording.

    Attributes:
        file: the name of its file.
        model: the recorded model, or the file's name where the recording does not say.
        questions: how many questions were tested.
        question_set: the number of its set of questions, from 1; recordings that share
            a question have the same.
        responses: the fewest and the most responses to a question.
        budget: the most responses that a rule may use.
        counts_tokens: whether the recording says how long responses are. If not, each
            counts as one token.
        once: the result of asking once.
        always: the result of always using the budget.
        rules: the results of the other rules.
        notes: notes on the recording.
    """

    file: str
    model: str
    questions: int
    question_set: int
    responses: tuple[int, int]
    budget: int
    counts_tokens: bool
    once: RuleResult
    always: RuleResult
    rules: tuple[RuleResult, ...]
    notes: tuple[str, ...]

    @property
    def votes(self) -> str:
        """Whether votes help at all, in words."""
        gain = self.always.accuracy_vs_once
        if gain.low > 0:
            return "Votes help"
        if gain.high < 0:
            return "Votes do harm"
        return "Votes do not clearly help"

    def rule(self, method: str) -> RuleResult | None:
        """Return the result of a rule by its name; None if it was not compared."""
        for rule in self.rules:
            if rule.method == method:
                return rule
        return None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that could not be compared, and why."""

    file: str
    reason: str


def recordings_in(folder: Path) -> list[Path]:
    """Return the recordings of a folder by name: JSON Lines, also gzipped, and pools of
    ``reasc record``.

    Raises:
        ConfigurationError: it is not a folder, or holds none.
    """
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is not a folder of recordings; `reasc replay POOL` compares one"
        )
    found = sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(_SUFFIXES) and path.name[0] != "."
    )
    if not found:
        raise ConfigurationError(
            f"{folder} holds no recording, which is a file ending in "
            f"{', '.join(_SUFFIXES)}"
        )
    return found


def replay_recordings(
    paths: Sequence[Path],
    *,
    shuffles: int = 10,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[list[RecordingResult], list[LeftOut]]:
    """Replay recordings, on all cores.

    Args:
        paths: the files.
        shuffles: as of :func:`~langchain_reasc_lab.replay.replay.replay`.
        seed: the seed of the shuffles of each.
        on_progress: called with (recordings done, recordings).

    Returns:
        The results, ordered by model and file, and the files that could not be
        compared.
    """
    from joblib import Parallel, delayed

    largest_first = sorted(paths, key=lambda path: -path.stat().st_size)
    replay_each = delayed(partial(_replayed, shuffles=shuffles, seed=seed))
    jobs = -1 if len(paths) > 1 else 1
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    replayed = list[tuple[RecordingResult, QuestionNames]]()
    left_out = list[LeftOut]()
    for outcome in parallel(map(replay_each, largest_first)):
        if isinstance(outcome, LeftOut):
            left_out.append(outcome)
        else:
            replayed.append(outcome)
        if on_progress:
            on_progress(len(replayed) + len(left_out), len(paths))
    replayed.sort(key=lambda pair: (pair[0].model.casefold(), pair[0].file))
    left_out.sort(key=lambda file: file.file)
    return _with_question_sets(replayed), left_out


def _with_question_sets(
    replayed: Sequence[tuple[RecordingResult, QuestionNames]],
) -> list[RecordingResult]:
    """Return the results with the numbers of their sets of questions."""
    if not replayed:
        return []
    numbers = question_sets([names for _, names in replayed])
    return [
        replace(result, question_set=number)
        for (result, _), number in zip(replayed, numbers, strict=True)
    ]


def _replayed(
    path: Path, *, shuffles: int, seed: int
) -> tuple[RecordingResult, QuestionNames] | LeftOut:
    """Replay one recording; what is wrong with it is returned, so that the others go
    on.
    """
    try:
        with open_recording(path) as pool:
            result = _result(path, pool, shuffles=shuffles, seed=seed)
            return result, QuestionNames.of_pool(pool)
    except (ReASCError, OSError) as error:
        reason = str(error).replace(f"{path}, ", "").replace(f"{path}", path.name)
        return LeftOut(path.name, reason)


@contextmanager
def open_recording(path: Path) -> Iterator[Pool]:
    """Read a recording; JSON Lines are imported into a file that is removed at the end."""
    if path.suffix == ".sqlite":
        yield read_pool(path)
        return
    with TemporaryDirectory() as folder:
        imported = Path(folder) / f"{_stem(path)}.sqlite"
        with new_pool(imported) as made:
            read_json_lines(path, made)
        yield read_pool(imported)


def _result(path: Path, pool: Pool, *, shuffles: int, seed: int) -> RecordingResult:
    budget = budget_of([pool], None)
    if budget < 2:
        raise PoolError(
            "it has one response to each question, so there is nothing to vote on"
        )
    run = replay(
        pool,
        _measures(pool),
        shuffles=shuffles,
        seed=seed,
        calibration_size=min(_CALIBRATION_SIZE, len(pool.questions) // 2),
        settings=MethodSettings(max_samples=budget, seed=seed),
        rules="simple",
    )
    results = {row.method: _rule_result(run, row) for row in summarize(run)}
    sizes = [len(question.responses) for question in pool.questions]
    return RecordingResult(
        file=path.name,
        model=pool.model or _stem(path),
        questions=run.tested,
        question_set=1,
        responses=(min(sizes), max(sizes)),
        budget=budget,
        counts_tokens=any(
            response.completion_tokens > 1 for response in pool.responses
        ),
        once=results.pop(ONCE),
        always=results.pop(run.settings.fixed_budget),
        rules=tuple(results.values()),
        notes=run.notes,
    )


def _measures(pool: Pool) -> list[MeasureSpec]:
    if pool.signals:
        return ["auto"]
    return ["recorded"] if pool.has_scores else []


def _rule_result(run: Replay, row: Row) -> RuleResult:
    return RuleResult(
        method=row.method,
        accuracy=row.accuracy,
        samples=row.samples,
        tokens_vs_once=row.tokens_vs_once,
        tokens_vs_asc=row.tokens_vs_asc,
        tokens_vs_sc=row.tokens_vs_sc,
        accuracy_vs_sc=row.accuracy_vs_sc,
        accuracy_vs_once=row.accuracy_vs_once,
        worse_by_chance=worse_by_chance(run, row),
    )


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".sqlite")
