"""Replay every method over recorded pools; tables and plots."""

from langchain_reasc_lab.replay.arrangement import *  # noqa: F403
from langchain_reasc_lab.replay.bootstrap import *  # noqa: F403
from langchain_reasc_lab.replay.methods import *  # noqa: F403
from langchain_reasc_lab.replay.metrics import *  # noqa: F403
from langchain_reasc_lab.replay.plots import *  # noqa: F403
from langchain_reasc_lab.replay.replay import *  # noqa: F403
from langchain_reasc_lab.replay.risk import *  # noqa: F403
from langchain_reasc_lab.replay.stream import *  # noqa: F403
from langchain_reasc_lab.replay.table import *  # noqa: F403
from langchain_reasc_lab.replay.verdict import *  # noqa: F403
from langchain_reasc_lab.replay.wall_clock import *  # noqa: F403
from langchain_reasc_lab.replay.worked import *  # noqa: F403
