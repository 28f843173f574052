"""Calibrate a chat model, or a pool of recorded responses: draw the responses and read their votes and scores."""

from langchain_reasc.calibrating.calibrate import *  # noqa: F403
from langchain_reasc.calibrating.pool import *  # noqa: F403
