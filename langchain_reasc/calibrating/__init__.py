"""Calibrate a chat model: draw responses to questions, and read their votes and scores."""

from langchain_reasc.calibrating.calibrate import *  # noqa: F403
