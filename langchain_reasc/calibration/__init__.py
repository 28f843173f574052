"""Calibration: gate, statistics of scores and agreement rates, learned before a decision and kept as JSON.

``record`` is the file, top-down like its JSON, and ``fingerprint`` what it holds for. ``offline`` (Algorithm 1, on
labels), ``mixture`` (Algorithm 2, on first responses) and ``consensus`` (on how far responses agree) make one;
``selection`` chooses a measure by its ``auroc``, ``correctness`` adds how likely an answer is right.

``calibration="online"`` appends a row for each answered question: ``observations`` says what a row is and which rows
count, ``observation_file`` how they are kept, ``observation_log`` how processes exchange them. ``learner`` makes
calibrations of the rows, ``drift`` tells from the rows that these no longer hold, and ``online`` is the thread that
does all of this. ``reliability`` says how answers hold up. ``summary`` describes calibrations and rows in words.
"""

from langchain_reasc.calibration.auroc import *  # noqa: F403
from langchain_reasc.calibration.drift import *  # noqa: F403
from langchain_reasc.calibration.fingerprint import *  # noqa: F403
from langchain_reasc.calibration.fitting import *  # noqa: F403
from langchain_reasc.calibration.learner import *  # noqa: F403
from langchain_reasc.calibration.mixture import *  # noqa: F403
from langchain_reasc.calibration.observation_file import *  # noqa: F403
from langchain_reasc.calibration.observation_log import *  # noqa: F403
from langchain_reasc.calibration.observations import *  # noqa: F403
from langchain_reasc.calibration.offline import *  # noqa: F403
from langchain_reasc.calibration.online import *  # noqa: F403
from langchain_reasc.calibration.promises import *  # noqa: F403
from langchain_reasc.calibration.record import *  # noqa: F403
from langchain_reasc.calibration.reliability import *  # noqa: F403
from langchain_reasc.calibration.selection import *  # noqa: F403
from langchain_reasc.calibration.trust import *  # noqa: F403
