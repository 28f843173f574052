"""The measure behind a figure of one pool, where ``auto`` chooses another in each arrangement: that of the first."""

from langchain_reasc.calibration import Calibration
from langchain_reasc.evaluation.from_pool import calibrate_offline_on
from langchain_reasc.evaluation.scoring import MeasureSpec
from langchain_reasc.exceptions import PoolError
from langchain_reasc.lab.study import Study
from langchain_reasc.method.confidence import Measure

__all__ = ["chosen_measure", "first_calibration"]


def first_calibration(study: Study) -> Calibration:
    """Algorithm 1 on the first arrangement's calibration questions.

    Raises:
        CalibrationDataError: they determine none.
        PoolError: the pool has neither scores nor token signals.
    """
    split, methods = study.splits[0], study.settings.methods
    return calibrate_offline_on(
        study.pool,
        study.scores,
        split.firsts(split.calibration),
        _measure(study),
        p_target=methods.p_target,
        seed=methods.seed,
    )


def chosen_measure(study: Study) -> Measure | str:
    """By what ReASC weighs in the first arrangement: a measure, or ``"recorded"``; errors as for the calibration."""
    spec = _measure(study)
    if spec != "auto":
        return spec
    split = study.splits[0]
    return study.scores.select(split.firsts(split.calibration), seed=study.settings.methods.seed).measure


def _measure(study: Study) -> MeasureSpec:
    if study.measure is None:
        raise PoolError(f"{study.pool.path} has no scores or token signals, from which confidence could be told")
    return study.measure
