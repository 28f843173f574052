"""Calibrating a chat model: its questions are asked, with right answers or without, and what came is learned from."""

from langchain_reasc.calibrating.calibrate import acalibrate, calibrate
from langchain_reasc.calibrating.calibrate_unlabelled import acalibrate_unlabelled, calibrate_unlabelled

__all__ = ["acalibrate", "acalibrate_unlabelled", "calibrate", "calibrate_unlabelled"]
