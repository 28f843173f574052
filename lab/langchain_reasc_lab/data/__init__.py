"""Published data sets: how their files are read, how their questions are asked, and how
answers are compared.
"""

from langchain_reasc_lab.data.formats import *  # noqa: F403
from langchain_reasc_lab.data.presets import *  # noqa: F403
