"""Calibration: what is learned before a decision (gate, statistics of scores, how answers agree), kept as JSON."""

from langchain_reasc.calibration.asked import FixedPrompt, answer_name, fixed_prompt
from langchain_reasc.calibration.correctness import agreement_with_rest, fit_support_curve, with_p_correct
from langchain_reasc.calibration.fingerprint import check_fingerprint, check_made_of, fingerprint_of
from langchain_reasc.calibration.mixture import MixtureCalibrator, calibrate_mixture
from langchain_reasc.calibration.offline import auroc_within, calibrate_offline
from langchain_reasc.calibration.schema import (
    AUROC,
    Calibration,
    Fingerprint,
    Gate,
    HashedPart,
    MeasureBlock,
    Mixture,
    RejectedMeasure,
    RuleBlock,
    Safeguard,
    SupportCurve,
)
from langchain_reasc.calibration.selection import Selection, select_measure
from langchain_reasc.calibration.storage import load_calibration, save_calibration

__all__ = [
    "AUROC",
    "Calibration",
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
    "SupportCurve",
    "agreement_with_rest",
    "answer_name",
    "auroc_within",
    "calibrate_mixture",
    "calibrate_offline",
    "check_fingerprint",
    "check_made_of",
    "fingerprint_of",
    "fit_support_curve",
    "fixed_prompt",
    "load_calibration",
    "save_calibration",
    "select_measure",
    "with_p_correct",
]
