"""A study: one pool, its settings, and the computations that several tables share."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Final

from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import PoolError
from langchain_reasc.method import ReASC, StoppingRule
from langchain_reasc_lab.pools import MeasureSpec, Pool, PoolScores
from langchain_reasc_lab.replay.arrangement import RecordedPool
from langchain_reasc_lab.replay.methods import (
    MIXTURE,
    OFFLINE,
    Calibrated,
    Method,
    MethodSettings,
    Split,
    calibrated_on,
    method_by,
    paper_rule,
)
from langchain_reasc_lab.replay.metrics import Row, summarize
from langchain_reasc_lab.replay.replay import (
    Outcomes,
    Replay,
    RowKey,
    calibrating,
    check_sizes,
    compare,
    replay,
    splits,
)

_SIZE: Final = re.compile(
    r"(?<![0-9a-z.])(a?)(\d+(?:\.\d+)?)(b|m)(?![0-9a-z])", re.IGNORECASE
)
_EXPERTS: Final = re.compile(r"\d+x\d", re.IGNORECASE)

Change = Callable[[ReASC], StoppingRule]
"""What becomes of the paper's rule, without the cap on samples."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """N, of a mixture of experts those that work on a token, and who says so, to be
    read after "N = 7e+09, ".
    """

    count: float
    source: str


def parameters_of(metadata: Mapping[str, Any]) -> Parameters | None:
    """Return N as a pool's metadata tells it: its ``"parameters"``, or else the name of
    the model (``Qwen2.5-7B``).

    Of a name like ``Qwen3-30B-A3B`` the 3 billion are taken that work on a token;
    ``Mixtral-8x7B`` does not say how many those are.

    Args:
        metadata: the pool's description of its recording.

    Returns:
        None if nothing tells.
    """
    count, fingerprint = metadata.get("parameters"), metadata.get("fingerprint")
    if (
        isinstance(count, int | float)
        and not isinstance(count, bool)
        and math.isfinite(count)
        and count > 0
    ):
        return Parameters(float(count), "as the pool says")
    name = fingerprint.get("model") if isinstance(fingerprint, Mapping) else None
    if not isinstance(name, str) or _EXPERTS.search(name):
        return None
    # those that work on a token first
    sizes = sorted(_SIZE.findall(name), key=lambda found: not found[0])
    if not sizes:
        return None
    _, number, unit = sizes[0]
    return Parameters(
        float(number) * (1e9 if unit in "bB" else 1e6),
        f"as the name of the model, {name}, says",
    )


@dataclass(frozen=True, slots=True)
class StudySettings:
    """The settings that all tables of a report share.

    Attributes:
        shuffles: how often a pool is rearranged; 0 keeps the recorded order.
        calibration_size: questions whose first responses calibrate; None for the usual
            number.
        seed: the seed of all that is random.
        methods: the budget, and the accuracy asked of the gate.
        parameters: N, the model's number of parameters, for TFLOPs; None if nobody
            said.
        tokens_per_second: the rate of one sequence, for latencies; None takes recorded
            times.
    """

    shuffles: int = 10
    calibration_size: int | None = None
    seed: int = 0
    methods: MethodSettings = field(default_factory=MethodSettings)
    parameters: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """One pool under these settings.

    Attributes:
        name: the pool's name in tables.
        pool: recorded responses.
        measure: ReASC's measure: ``"auto"``, ``"recorded"`` or one measure; None if the
            pool has no scores.
        settings: the settings that all tables share.
    """

    name: str
    pool: Pool
    measure: MeasureSpec | None
    settings: StudySettings

    @cached_property
    def scores(self) -> PoolScores:
        """The scores of the pool's responses, under any measure."""
        return PoolScores(self.pool)

    @cached_property
    def recorded(self) -> RecordedPool:
        """The pool as arrays."""
        return RecordedPool(self.pool, self.scores)

    @cached_property
    def uncalibrated(self) -> str | None:
        """Why ReASC cannot be studied on this pool; None if it can."""
        questions, (size, note) = (
            len(self.pool.questions),
            calibrating(self.pool, self.settings.calibration_size),
        )
        if self.measure is None:
            return (
                f"{self.name} has neither scores nor token signals, so no row weighs "
                "votes by confidence; record it from a model that returns "
                "log-probabilities to have them"
            )
        if not size:
            return f"{self.name}: {note}"
        if questions <= size:
            return (
                f"{self.name} holds {questions} "
                f"question{'s' if questions > 1 else ''}; a calibration on {size} "
                "leaves none to test, so ReASC has no rows. Record more, or ask for a "
                "smaller calibration size"
            )
        return None

    @property
    def spec(self) -> MeasureSpec:
        """The measure that was asked for.

        Raises:
            PoolError: ReASC cannot be studied on this pool.
        """
        if self.uncalibrated or self.measure is None:
            raise PoolError(str(self.uncalibrated))
        return self.measure

    @cached_property
    def calibration_size(self) -> int:
        """The number of calibration questions: 0 if ReASC cannot be studied, and all
        questions are tested.
        """
        return (
            0
            if self.uncalibrated
            else calibrating(self.pool, self.settings.calibration_size)[0]
        )

    @cached_property
    def splits(self) -> Sequence[Split]:
        """The arrangements: which questions calibrate, which are tested, and in which
        order responses are seen.
        """
        return self.arranged(self.calibration_size)

    def arranged(self, calibration_size: int) -> Sequence[Split]:
        """The arrangements with so many calibration questions."""
        check_sizes(self.pool, calibration_size, self.settings.shuffles)
        return list(
            splits(
                self.pool,
                calibration_size,
                shuffles=self.settings.shuffles,
                seed=self.settings.seed,
            )
        )

    @cached_property
    def _calibrated(self) -> dict[int, Calibrated]:
        return {}

    def calibrated(self, split: Split) -> Calibrated:
        """Return what one of the :attr:`splits` determines by both algorithms, under
        :attr:`spec`.
        """
        if split.number not in self._calibrated:
            methods = self.settings.methods
            self._calibrated[split.number] = calibrated_on(
                self.pool, self.scores, split, self.spec, methods
            )
        return self._calibrated[split.number]

    def compare(
        self,
        methods_of: Callable[[Split], Iterable[Method]],
        *,
        arranged: Sequence[Split] | None = None,
        equal_cost: Mapping[str, str] | None = None,
    ) -> dict[RowKey, Outcomes]:
        """Return what methods do on these arrangements, or else on those of the study:
        see :func:`compare`.
        """
        budget = self.settings.methods.max_samples
        return compare(
            self.recorded,
            arranged or self.splits,
            methods_of,
            budget=budget,
            equal_cost=equal_cost,
        )

    @cached_property
    def run(self) -> Replay:
        """The usual methods and the controls, replayed."""
        return replay(
            self.pool,
            [] if self.uncalibrated else [self.spec],
            shuffles=self.settings.shuffles,
            seed=self.settings.seed,
            calibration_size=self.settings.calibration_size,
            settings=self.settings.methods,
            controls=True,
            recorded=self.recorded,
            calibrated=lambda split, spec: self.calibrated(split),
        )

    @cached_property
    def rows(self) -> list[Row]:
        """The same, summed up."""
        return summarize(
            self.run, parameters=self.parameters.count if self.parameters else None
        )

    @cached_property
    def parameters(self) -> Parameters | None:
        """N, the model's number of parameters, as the settings or else the pool tells;
        None if neither does.
        """
        if self.settings.parameters is not None:
            return Parameters(self.settings.parameters, "as given")
        return parameters_of(self.pool.metadata)

    def calibrations(self) -> dict[str, str]:
        """Return the rows of the paper's ReASC that some arrangement allows -> how they
        are calibrated.

        Raises:
            PoolError: there is none, and why.
        """
        outcomes, names = self.run.outcomes, {OFFLINE: "offline", MIXTURE: "mixture"}
        possible = {
            row: how
            for row, how in names.items()
            if not outcomes[row, self.spec].impossible
        }
        if not possible:
            why = outcomes[OFFLINE, self.spec].problems[0]
            raise PoolError(f"nothing could be calibrated on {self.name}: {why}")
        return possible

    def variant_key(self, row: str, name: str) -> RowKey:
        """Return by what the outcomes of a variant of a row are known."""
        return f"{row}: {name}", self.measure

    def variants(
        self,
        changes: Mapping[str, Change],
        calibrated: Callable[[Split, str], Calibrated] | None = None,
    ) -> dict[RowKey, Outcomes]:
        """Return what the paper's rule does with a change, by either calibration.

        Args:
            changes: name -> the change. One that raises
                :class:`~langchain_reasc.exceptions.ConfigurationError` cannot be had;
                its outcomes then have a problem.
            calibrated: what an arrangement determines for the change of this name; as
                in all other tables, if None.

        Raises:
            PoolError: ReASC cannot be studied on this pool.
        """

        def methods_of(split: Split) -> Iterator[Method]:
            for row, name in product((OFFLINE, MIXTURE), changes):
                made = calibrated(split, name) if calibrated else self.calibrated(split)
                calibration = (
                    made.mixture or made.offline if row == MIXTURE else made.offline
                )
                key, settings = self.variant_key(row, name), self.settings.methods
                yield method_by(
                    calibration, *key, made.measure, settings, changed(changes[name])
                )

        return self.compare(methods_of)


def changed(change: Change) -> Callable[[Calibration], StoppingRule]:
    """Return what makes the paper's rule of a calibration, with a change."""

    def rule_of(calibration: Calibration) -> StoppingRule:
        rule = paper_rule(calibration)
        assert isinstance(rule, ReASC)  # the paper's, of either algorithm
        return change(rule)

    return rule_of
