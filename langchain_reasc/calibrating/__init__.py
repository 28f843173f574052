"""Calibrating a chat model, or a pool of recorded responses: what is drawn and read before a calibration is made."""

from langchain_reasc.calibrating.calibrate import acalibrate, acalibrate_unlabelled, calibrate, calibrate_unlabelled
from langchain_reasc.calibrating.pool import (
    RECORDED,
    MeasureSpec,
    PoolScores,
    calibrate_mixture_on,
    calibrate_offline_on,
    calibrate_on_pool,
    recorded_measure,
)

__all__ = [
    "RECORDED",
    "MeasureSpec",
    "PoolScores",
    "acalibrate",
    "acalibrate_unlabelled",
    "calibrate",
    "calibrate_mixture_on",
    "calibrate_offline_on",
    "calibrate_on_pool",
    "calibrate_unlabelled",
    "recorded_measure",
]
