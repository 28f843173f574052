"""ReASC with a part changed: the same calibrations, another gate, weight or scale."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError, PoolError
from langchain_reasc.method.stopping import ASC, Cap, ReASC, StoppingRule
from langchain_reasc_lab.replay.methods import MIXTURE, OFFLINE, Calibrated, Method, Split
from langchain_reasc_lab.replay.replay import Outcomes, RowKey
from langchain_reasc_lab.report.study import Study

__all__ = [
    "GATE_ALONE",
    "STAGE_2",
    "Change",
    "calibrations",
    "changed",
    "gate_alone",
    "impossible",
    "key",
    "stage_2",
    "variants",
]

GATE_ALONE: Final = "Gate, then counting"
STAGE_2: Final = "Stage 2 alone"

Change = Callable[[ReASC], StoppingRule]


def gate_alone(rule: ReASC) -> StoppingRule:
    """Stage 1, after which votes are counted."""
    return replace(rule, weight="count")


def stage_2(rule: ReASC) -> StoppingRule:
    """Stage 2 for all questions."""
    return replace(rule, gate=None)


def calibrations(study: Study) -> dict[str, str]:
    """The rows of the paper's ReASC that some arrangement could be calibrated for -> how they are calibrated.

    Raises:
        PoolError: there is none, and why.
    """
    run, told = study.run, {OFFLINE: "offline", MIXTURE: "mixture"}
    had = {row: how for row, how in told.items() if not impossible(run.outcomes[row, study.spec])}
    if not had:
        why = run.outcomes[OFFLINE, study.spec].problems[0]
        raise PoolError(f"nothing could be calibrated on {study.name}: {why}")
    return had


def impossible(held: Outcomes) -> bool:
    """Whether a method could be had in no arrangement, and counted votes instead."""
    return len(held.problems) == len(held.cells)


def key(study: Study, row: str, name: str) -> RowKey:
    """By what the outcomes of a variant are known."""
    return f"{row}: {name}", study.measure


def variants(study: Study, changes: Mapping[str, Change]) -> dict[RowKey, Outcomes]:
    """What the changes make of the paper's rule, by either calibration.

    Args:
        study: the pool.
        changes: name -> what becomes of the rule, without the cap on samples. One that raises
            :class:`~langchain_reasc.exceptions.ConfigurationError` cannot be had; its outcomes then have a problem.

    Raises:
        PoolError: ReASC cannot be studied on this pool.
    """

    def methods_of(split: Split) -> Iterator[Method]:
        made = study.calibrated(split)
        for row, calibration in ((OFFLINE, made.offline), (MIXTURE, made.mixture)):
            for name, change in changes.items():
                yield changed(study, key(study, row, name), made, calibration or made.offline, change)

    return study.compare(methods_of)


def changed(
    study: Study, named: RowKey, made: Calibrated, calibration: Calibration | Exception, change: Change
) -> Method:
    """The paper's rule of a calibration with a change; without either, counting votes with the reason."""
    cap = Cap(study.settings.methods.max_samples)
    name, spec = named
    try:
        if isinstance(calibration, Exception):
            raise calibration
        rule = calibration.rule(safeguard="paper", on_missing_confidence="count")
        assert isinstance(rule, ReASC)  # the paper's, of either algorithm
        return Method(name, change(rule) | cap, spec, made.measure, calibration)
    except (CalibrationDataError, ConfigurationError) as error:
        return Method(name, ASC() | cap, spec, problem=str(error))
