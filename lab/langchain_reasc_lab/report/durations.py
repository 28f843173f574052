"""How long each recorded response takes: at a stated rate, as it was recorded, or in tokens."""

from dataclasses import dataclass

import numpy as np

from langchain_reasc_lab.replay.arrangement import padded
from langchain_reasc_lab.replay.wall_clock import Floats
from langchain_reasc_lab.report.study import Study

__all__ = ["Durations", "durations"]


@dataclass(frozen=True, slots=True)
class Durations:
    """How long each response takes.

    Attributes:
        times: shape (questions, responses), in recorded order; in seconds, or in tokens where the note says so.
        tokens: the tokens of the same responses.
        note: where they come from, in a sentence.
    """

    times: Floats
    tokens: Floats
    note: str


def durations(study: Study) -> Durations:
    """The time of each response: at the stated rate, or as it was recorded, or else its tokens.

    Where some have no recorded time, these are taken to have come at the median rate of the others.
    """
    rows = [question.responses for question in study.pool.questions]
    tokens = padded([[one.completion_tokens for one in row] for row in rows], 0.0)
    rate = study.settings.tokens_per_second
    if rate is not None:
        return Durations(tokens / rate, tokens, f"latencies at {rate:g} tokens per second of each sequence")
    seconds = padded([[np.nan if one.seconds is None else one.seconds for one in row] for row in rows], 0.0)
    missing = np.isnan(seconds)
    responses = sum(len(row) for row in rows)
    if missing.sum() == responses:
        told = "its responses were not timed, so latencies are in tokens; --tokens-per-second R makes them seconds"
        return Durations(tokens, tokens, told)
    told = "latencies by the times that were recorded, under the load of the recording"
    if missing.any():
        timed = ~missing & (tokens > 0)
        per_token = float(np.median(seconds[timed] / tokens[timed])) if timed.any() else 0.0
        seconds = np.where(missing, tokens * per_token, seconds)
        told += f"; {missing.sum()} of {responses} responses have none, and are taken to have come at the median rate"
    return Durations(seconds, tokens, told)
