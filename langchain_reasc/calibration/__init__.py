"""Calibration: what is learned before a decision (gate, statistics of scores, how answers agree), kept as JSON."""

from langchain_reasc.calibration.asked import FixedPrompt, answer_name, fixed_prompt
from langchain_reasc.calibration.correctness import agreement_with_rest, fit_correctness
from langchain_reasc.calibration.fingerprint import check_fingerprint, check_made_of, fingerprint_of
from langchain_reasc.calibration.mixture import MixtureCalibrator, calibrate_mixture
from langchain_reasc.calibration.offline import auroc_within, calibrate_offline
from langchain_reasc.calibration.schema import (
    AUROC,
    Calibration,
    Correctness,
    Fingerprint,
    Gate,
    HashedPart,
    MeasureBlock,
    Mixture,
    RejectedMeasure,
    RuleBlock,
    Safeguard,
)
from langchain_reasc.calibration.selection import Selection, select_measure
from langchain_reasc.calibration.storage import load_calibration, save_calibration

__all__ = [
    "AUROC",
    "Calibration",
    "Correctness",
    "Fingerprint",
    "FixedPrompt",
    "Gate",
    "HashedPart",
    "MeasureBlock",
    "Mixture",
    "MixtureCalibrator",
    "RejectedMeasure",
    "RuleBlock",
    "Safeguard",
    "Selection",
    "agreement_with_rest",
    "answer_name",
    "auroc_within",
    "calibrate_mixture",
    "calibrate_offline",
    "check_fingerprint",
    "check_made_of",
    "fingerprint_of",
    "fit_correctness",
    "fixed_prompt",
    "load_calibration",
    "save_calibration",
    "select_measure",
]
