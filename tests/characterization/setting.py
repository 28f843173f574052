"""What several of the tests sample under: a calibration, a tool, one sample at a time."""

from typing import Any

from langchain_core.tools import tool

import langchain_reasc as lr

from .fakes import Reply

ONE: Any = {"concurrency": 1}
TIES = ["1", "2"] * 8
TOP_K = lr.Measure("top_k", "mean")


def calibration(**options: Any) -> lr.Calibration:
    """μ = 1.5; a score is minus the log-probability of a reply's tokens."""
    scores, right = [0.2, 0.5, 0.8, 1.0, 1.2] * 4 + [1.8, 2.0, 2.2, 2.4, 2.9] * 4, [False] * 20 + [True] * 20
    return lr.calibrate_offline(scores, right, measure=TOP_K, **options)


@tool
def book(city: str, nights: int = 1) -> str:
    """Book a hotel."""
    return f"booked {city}"


def booking(*cities: str, **fields: Any) -> Reply:
    return Reply("booking", calls=[("book", {"city": city}) for city in cities], **fields)
