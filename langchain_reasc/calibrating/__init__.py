"""Calibrating a chat model, or a pool of recorded responses: what is drawn and read before a calibration is made."""

from langchain_reasc.calibrating.calibrate import *  # noqa: F403
from langchain_reasc.calibrating.pool import *  # noqa: F403
