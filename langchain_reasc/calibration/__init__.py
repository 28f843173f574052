"""Calibration: what is learned of a model before it decides, kept as JSON.

A question that was asked is a row, an ``Observation``: ``observations`` says what a row is and which rows count,
``observation_file`` how they are kept, ``observation_log`` how processes exchange them. ``fitting`` makes every
calibration of rows, with labels or without: ``trust`` says whether a measure of confidence deserves to weigh votes,
``selection`` chooses one by labels, ``offline`` is Algorithm 1, ``promises`` what is said of an answer. ``mixture`` is
Algorithm 2, on first responses.

``record`` is the file of a calibration, top-down like its JSON, ``fingerprint`` what it holds for, ``summary`` a
calibration in words. ``learner`` fits again as rows come, ``drift`` tells from them that what was learned no longer
holds, and ``online`` is the thread that does all of this. ``reliability`` says how answers hold up.
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
