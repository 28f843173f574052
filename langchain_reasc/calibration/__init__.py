"""Calibration: what is learned about a model before it decides, stored as JSON.

Every question that was asked is a row, an ``Observation``. ``answered_question`` scores
the responses of a live question. ``observations`` says which rows count,
``observation_file`` stores them in SQLite, and ``observation_log`` shares the file
between processes.

``fitting`` makes a calibration from rows, with or without labels, and says how many
samples to expect. ``agreement_fit`` learns the agreement rule: how answers agree, and
what scores tell of it. ``promises`` says how likely an answer is right. For the paper's
rule, ``selection`` chooses a measure by labels, ``algorithm1`` is Algorithm 1, and
``mixture`` is Algorithm 2, on first responses.

``calibration`` is the result, with its ``parts`` and its ``stored_rule``; ``file``
reads and writes it, ``summary`` describes it in words. ``learner`` fits again as rows
arrive, ``drift`` notices that the rows have changed, and ``online`` does this in a
thread. ``reliability`` compares probabilities with outcomes. ``escalation`` tells which
answers of a small model may stand without asking a large one, and
``escalation_learner`` learns it.
"""

from langchain_reasc.calibration.agreement_fit import *  # noqa: F403
from langchain_reasc.calibration.algorithm1 import *  # noqa: F403
from langchain_reasc.calibration.answered_question import *  # noqa: F403
from langchain_reasc.calibration.auroc import *  # noqa: F403
from langchain_reasc.calibration.calibration import *  # noqa: F403
from langchain_reasc.calibration.drift import *  # noqa: F403
from langchain_reasc.calibration.escalation import *  # noqa: F403
from langchain_reasc.calibration.escalation_learner import *  # noqa: F403
from langchain_reasc.calibration.file import *  # noqa: F403
from langchain_reasc.calibration.fitting import *  # noqa: F403
from langchain_reasc.calibration.learner import *  # noqa: F403
from langchain_reasc.calibration.mixture import *  # noqa: F403
from langchain_reasc.calibration.observation_file import *  # noqa: F403
from langchain_reasc.calibration.observation_log import *  # noqa: F403
from langchain_reasc.calibration.observations import *  # noqa: F403
from langchain_reasc.calibration.online import *  # noqa: F403
from langchain_reasc.calibration.parts import *  # noqa: F403
from langchain_reasc.calibration.promises import *  # noqa: F403
from langchain_reasc.calibration.reliability import *  # noqa: F403
from langchain_reasc.calibration.selection import *  # noqa: F403
from langchain_reasc.calibration.stored_rule import *  # noqa: F403
