"""A study: one pool with the settings under which it is looked at, and what several tables need, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from langchain_reasc.evaluation.methods import MethodSettings, Split
from langchain_reasc.evaluation.metrics import Row, summarize
from langchain_reasc.evaluation.replay import Replay, replay, splits
from langchain_reasc.evaluation.scoring import MeasureSpec, PoolScores
from langchain_reasc.pools.pool import Pool

__all__ = ["Study", "StudySettings"]


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What all tables of a report share.

    Attributes:
        shuffles: how often a pool is rearranged; 0 keeps the recorded order.
        calibration_size: questions whose first responses calibrate.
        seed: the seed of all that is random.
        methods: the budget, and the accuracy asked of the gate.
        parameters: N, the model's number of parameters, for TFLOPs; None where nobody said.
        tokens_per_second: the rate of one sequence, for latencies; None takes recorded times.
    """

    shuffles: int = 10
    calibration_size: int = 128
    seed: int = 0
    methods: MethodSettings = field(default_factory=MethodSettings)
    parameters: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class Study:
    """One pool under these settings.

    Attributes:
        name: what the pool is called in tables.
        pool: recorded responses.
        measure: by what ReASC weighs: ``"auto"``, ``"recorded"`` or one measure; None where the pool has no scores.
        settings: what all tables share.
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
    def splits(self) -> Sequence[Split]:
        """The arrangements: which questions calibrate, which are tested, and in which order responses are seen."""
        size = 0 if self.measure is None else self.settings.calibration_size
        return list(splits(self.pool, size, shuffles=self.settings.shuffles, seed=self.settings.seed))

    @cached_property
    def run(self) -> Replay:
        """The usual methods and the controls, replayed."""
        return replay(
            self.pool,
            [] if self.measure is None else [self.measure],
            shuffles=self.settings.shuffles,
            seed=self.settings.seed,
            calibration_size=self.settings.calibration_size,
            settings=self.settings.methods,
            controls=True,
        )

    @cached_property
    def rows(self) -> list[Row]:
        """The same, summed up."""
        return summarize(self.run, parameters=self.settings.parameters)
