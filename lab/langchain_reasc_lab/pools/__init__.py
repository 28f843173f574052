"""Recorded pools: responses of a model to questions, recorded once, and replayed under
every rule.

:func:`record_pool` writes a pool into one SQLite file, :func:`read_pool` reads one into
a :class:`Pool`.

``store`` is the file, ``pool`` what is read of it, ``reading`` how. ``drawing`` asks a
model, here or on ``ray_workers``, and ``recording`` keeps its responses.
``calibrating`` scores them and makes calibrations. ``graders`` and ``grading`` decide
again which are right. ``copying`` and ``json_lines`` copy pools, and ``public`` makes
them of what others published. ``tokens`` counts the tokens of recording one.
"""

from langchain_reasc_lab.pools.calibrating import *  # noqa: F403
from langchain_reasc_lab.pools.drawing import *  # noqa: F403
from langchain_reasc_lab.pools.pool import *  # noqa: F403
from langchain_reasc_lab.pools.reading import *  # noqa: F403
from langchain_reasc_lab.pools.recording import *  # noqa: F403
from langchain_reasc_lab.pools.store import *  # noqa: F403
