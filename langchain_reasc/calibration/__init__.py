"""Calibration: where the gate stands and how scores are standardized, found once and kept as JSON."""

from langchain_reasc.calibration.fingerprint import check_fingerprint, check_made_of, fingerprint_of
from langchain_reasc.calibration.offline import calibrate_offline
from langchain_reasc.calibration.online import OnlineCalibrator, calibrate_online
from langchain_reasc.calibration.schema import AUROC, Calibration, Fingerprint, Gate, Mixture, RejectedMeasure
from langchain_reasc.calibration.selection import Selection, select_measure
from langchain_reasc.calibration.storage import load_calibration, save_calibration

__all__ = [
    "AUROC",
    "Calibration",
    "Fingerprint",
    "Gate",
    "Mixture",
    "OnlineCalibrator",
    "RejectedMeasure",
    "Selection",
    "calibrate_offline",
    "calibrate_online",
    "check_fingerprint",
    "check_made_of",
    "fingerprint_of",
    "load_calibration",
    "save_calibration",
    "select_measure",
]
