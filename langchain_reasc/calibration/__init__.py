"""Calibration: gate, statistics of scores and agreement rates, learned before a decision and kept as JSON.

``record`` is the file, top-down like its JSON, and ``fingerprint`` what it holds for. ``offline`` (Algorithm 1, on
labels), ``mixture`` (Algorithm 2, on first responses) and ``consensus`` (on how far responses agree) make one;
``selection`` chooses a measure by its ``auroc``, ``correctness`` adds how likely an answer is right. ``online`` and its
``learner`` learn from what is answered until ``drift`` tells that it no longer holds; ``online_state`` is what is kept,
and ``online_store`` where, ``sharing`` with other processes;
``merging`` joins several, and ``reliability`` says how its answers hold up.
"""

from langchain_reasc.calibration.auroc import *  # noqa: F403
from langchain_reasc.calibration.consensus import *  # noqa: F403
from langchain_reasc.calibration.correctness import *  # noqa: F403
from langchain_reasc.calibration.drift import *  # noqa: F403
from langchain_reasc.calibration.fingerprint import *  # noqa: F403
from langchain_reasc.calibration.learner import *  # noqa: F403
from langchain_reasc.calibration.merging import *  # noqa: F403
from langchain_reasc.calibration.mixture import *  # noqa: F403
from langchain_reasc.calibration.offline import *  # noqa: F403
from langchain_reasc.calibration.online import *  # noqa: F403
from langchain_reasc.calibration.online_state import *  # noqa: F403
from langchain_reasc.calibration.online_store import *  # noqa: F403
from langchain_reasc.calibration.record import *  # noqa: F403
from langchain_reasc.calibration.reliability import *  # noqa: F403
from langchain_reasc.calibration.selection import *  # noqa: F403
from langchain_reasc.calibration.sharing import *  # noqa: F403
