"""The table of ReASC in batches, beside ASC and ESC: cost in tokens and in time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.stopping import Cap
from langchain_reasc_lab.replay.arrangement import Arrangement, padded
from langchain_reasc_lab.replay.methods import ASC_ROW, MIXTURE, OFFLINE, Method, Split, counting, weighing
from langchain_reasc_lab.replay.metrics import tflops
from langchain_reasc_lab.replay.wall_clock import Floats, WallClock, wall_clock
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Block, Cell, Column, Table, table_of

_ESC: Final = "ESC (w=4)"
_METHODS: Final = (ASC_ROW, _ESC, OFFLINE, MIXTURE)
_COLUMNS: Final = (
    Column("Method"),
    Column("At once", ".0f", "Samples launched at once: a wave."),
    Column("Accuracy %", ".1f", "Right answers among the tested questions, the mean over arrangements."),
    Column("Tokens", ".0f", "Tokens paid per question, those of samples that were cut off too."),
    Column("TFLOPs", ".4g", "2N operations per token, in 10¹² per question, where N is known."),
    Column(
        "Latency",
        ".2f",
        "From the first launch to the answer, the mean over questions: in seconds, or where a note says so in tokens, "
        "those of the slowest response of each wave.",
    ),
    Column("95th", ".2f", "The latency that 95 % of the questions stay below."),
)
_MODELLED: Final = (
    "Batches are generated to their end, the first response in one with others, and the rule is applied to what came: "
    "so we read the paper's batched variant. The rows called live are how a live run does it: the first response alone "
    "while an open gate may accept it, and what still runs at the decision is cut off. A machine that draws more "
    "sequences at once draws each more slowly, which is not modelled."
)


def batched(studies: Sequence[Study]) -> Table:
    """Return the paper's comparison of its batched variant, and beside it how this library runs."""
    return table_of(studies, _COLUMNS, _batched, notes=[_MODELLED])


def _batched(study: Study) -> Block:
    times, note = durations(study)
    notes = [f"{study.name}: {note}."]
    decided = _decided(study)
    plan = [(ASC_ROW, 1, False), (_ESC, 4, False)]
    for name in (OFFLINE, MIXTURE):
        if name in decided:
            plan += [(name, 1, False), (name, 4, False), (name, 4, True)]
    rows: list[Sequence[Cell]] = []
    for name, at_once, live in plan:
        clock = _clock(study, times, decided[name], at_once, live=live)
        accuracy = 100 * float(np.mean([decisions.accuracy for decisions in decided[name]]))
        tokens = float(clock.tokens.mean())
        spent = tflops(study.parameters.count, tokens) if study.parameters else None
        latency, slow = float(clock.latency.mean()), float(np.quantile(clock.latency, 0.95))
        rows.append((f"{name}, live" if live else name, at_once, accuracy, tokens, spent, latency, slow))
    if OFFLINE not in decided and MIXTURE not in decided:
        notes.append(f"There are no rows of ReASC: {study.uncalibrated or 'nothing could be calibrated'}.")
    return rows, notes


def durations(study: Study) -> tuple[Floats, str]:
    """Return the time of each response: at the stated rate, or as it was recorded, or else its tokens.

    Where some have no recorded time, these are taken to have come at the median rate of the others.

    Returns:
        Shape (questions, responses), in recorded order; in seconds, or in tokens where the note says so. And the note:
        where the times come from.
    """
    tokens, rate = study.recorded.tokens, study.settings.tokens_per_second
    if rate is not None:
        return tokens / rate, f"latencies at {rate:g} tokens per second of each sequence"
    recorded = [[response.seconds for response in question.responses] for question in study.pool.questions]
    seconds = padded([[np.nan if time is None else time for time in row] for row in recorded], 0.0)
    missing = np.isnan(seconds)
    responses = sum(map(len, recorded))
    if missing.sum() == responses:
        note = "its responses were not timed, so latencies are in tokens; --tokens-per-second R makes them seconds"
        return tokens, note
    note = "latencies by the times that were recorded, under the load of the recording"
    if missing.any():
        timed = ~missing & (tokens > 0)
        per_token = float(np.median(seconds[timed] / tokens[timed])) if timed.any() else 0.0
        seconds = np.where(missing, tokens * per_token, seconds)
        note += f"; {missing.sum()} of {responses} responses have none, and are taken to have come at the median rate"
    return seconds, note


@dataclass(frozen=True, slots=True)
class _Decided:
    """A method's decisions on the T tested questions of one arrangement.

    Attributes:
        arrangement: these questions.
        samples: shape (T,), responses on which each decision rests.
        alone: whether the first response is launched alone.
        accuracy: share of right answers.
        most: responses to a question at most.
    """

    arrangement: Arrangement
    samples: npt.NDArray[np.int64]
    alone: bool
    accuracy: float
    most: int


def _decided(study: Study) -> dict[str, list[_Decided]]:
    """Return what each method decided on each arrangement, without methods that were impossible on some of them."""
    decided: dict[str, list[_Decided]] = {}
    for split in study.splits:
        for method in _methods(study, split):
            if method.name in _METHODS and not method.problem:
                decided.setdefault(method.name, []).append(_decide(study, method, split))
    return {name: decisions for name, decisions in decided.items() if len(decisions) == len(study.splits)}


def _methods(study: Study, split: Split) -> Iterator[Method]:
    settings = study.settings.methods
    yield from counting(settings)
    if not study.uncalibrated:
        yield from weighing(study.pool, study.scores, split, study.spec, settings, study.calibrated(split))


def _decide(study: Study, method: Method, split: Split) -> _Decided:
    budget = study.settings.methods.max_samples
    arrangement = Arrangement(study.recorded, split, split.tested, budget)
    decisions = arrangement.decisions(method)
    samples = np.array([decision.samples for decision in decisions], dtype=np.int64)
    accuracy = float(np.nanmean(arrangement.cells(decisions, samples)[:, 0]))
    most = min(method.rule.samples, budget) if isinstance(method.rule, Cap) else budget
    return _Decided(arrangement, samples, method.rule.may_accept_first, accuracy, most)


def _clock(study: Study, times: Floats, decided: Sequence[_Decided], at_once: int, *, live: bool) -> WallClock:
    """Return latency and tokens on all tested questions of all arrangements."""
    clocks = []
    for split, decisions in zip(study.splits, decided, strict=True):
        clock = wall_clock(
            decisions.arrangement.arranged(times),
            decisions.arrangement.arranged(study.recorded.tokens),
            decisions.samples,
            concurrency=at_once,
            lengths=np.minimum(study.recorded.lengths[np.asarray(split.tested)], decisions.most),
            alone=decisions.alone and live,
            cut_off=live,
        )
        clocks.append(clock)
    fields = ("launched", "latency", "tokens")
    return WallClock(*(np.concatenate([getattr(clock, name) for clock in clocks]) for name in fields))
