"""A small model before a large one, replayed on two recordings of the same questions.

``joining`` finds the questions that both were asked, ``loop`` answers them one after
another as a live run does, and learns. ``rows`` compares the ways to ask them over
shuffles, ``table`` shows it.
"""

from langchain_reasc_lab.escalation.joining import *  # noqa: F403
from langchain_reasc_lab.escalation.loop import *  # noqa: F403
from langchain_reasc_lab.escalation.rows import *  # noqa: F403
from langchain_reasc_lab.escalation.table import *  # noqa: F403
