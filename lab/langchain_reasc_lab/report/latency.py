"""The table of latency, beside cost in tokens, with one, four or sixteen samples launched at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.stopping import Cap
from langchain_reasc_lab.replay.arrangement import Arrangement, padded
from langchain_reasc_lab.replay.methods import ASC_ROW, MIXTURE, OFFLINE, Method, Split, counting, weighing
from langchain_reasc_lab.replay.metrics import tflops
from langchain_reasc_lab.replay.wall_clock import Floats, WallClock, wall_clock
from langchain_reasc_lab.report.blocks import Block, table_of
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table, listed

CONCURRENCIES: Final = (1, 4, 16)
_ESC: Final = "ESC (w=4)"
_AT_ONCE: Final = Column("At once", ".0f", "Samples launched at once: a wave.")
_TOKENS: Final = Column("Tokens", ".0f", "Tokens paid per question, those of samples that were cut off too.")
_LATENCY: Final = (
    Column(
        "Latency",
        ".2f",
        "From the first launch to the answer, the mean over questions: in seconds, or where a note says so in tokens, "
        "those of the slowest response of each wave.",
    ),
    Column("95th", ".2f", "The latency that 95 % of the questions stay below."),
)


def latency(studies: Sequence[Study]) -> Table:
    """Return waves, latency and tokens of every method at concurrency 1, 4 and 16."""
    waves = Column("Waves", ".2f", "Waves per question.")
    general = (
        "Modelled as a live run: the first response goes alone while an open gate may accept it; responses are decided "
        "on in launch order, as they end; what then still runs is cut off; the next wave waits for all of the last. A "
        "machine that draws more sequences at once draws each more slowly, which is not modelled."
    )
    return table_of(studies, [Column("Method"), _AT_ONCE, waves, *_LATENCY, _TOKENS], _latency, notes=[general])


def _latency(study: Study) -> Block:
    times, note = durations(study)
    notes, mean, rows = [f"{study.name}: {note}."], {}, []
    decided = _decided(study, lambda _: True)
    for name, by_split in decided.items():
        for at_once in CONCURRENCIES:
            clock = _clock(study, times, by_split, at_once)
            mean[name, at_once] = float(clock.latency.mean())
            rows.append((name, at_once, float(clock.waves.mean()), *_times(clock), float(clock.tokens.mean())))
    ours = [name for name in decided if name.startswith(("ReASC", "Finite", "Agreement"))]
    for at_once in CONCURRENCIES:
        if slower := [name for name in ours if mean[name, at_once] > mean[ASC_ROW, at_once]]:
            notes.append(f"{study.name}: with {at_once} at once, ASC takes less time than {listed(slower)}.")
    return rows, notes


def batched(studies: Sequence[Study]) -> Table:
    """Return the paper's comparison of its batched variant, and beside it how this library runs."""
    columns = [
        Column("Method"),
        _AT_ONCE,
        Column("Accuracy %", ".1f", "Right answers among the tested questions, the mean over arrangements."),
        _TOKENS,
        Column("TFLOPs", ".4g", "2N operations per token, in 10¹² per question, where N is known."),
        *_LATENCY,
    ]
    general = (
        "Batches are generated to their end, the first response in one with others, and the rule is applied to what "
        "came: so we read the paper's batched variant. The rows called live are how a live run does it: the first "
        "response alone while an open gate may accept it, and what still runs at the decision is cut off."
    )
    return table_of(studies, columns, _batched, notes=[general])


def _batched(study: Study) -> Block:
    times, note = durations(study)
    decided = _decided(study, lambda name: name in (ASC_ROW, _ESC, OFFLINE, MIXTURE))
    ours = [name for name in decided if name not in (ASC_ROW, _ESC)]
    plan = [(ASC_ROW, 1, False), (_ESC, 4, False)]
    plan += [(name, *how) for name in ours for how in ((1, False), (4, False), (4, True))]
    rows: list[Sequence[Cell]] = []
    for name, at_once, live in plan:
        clock = _clock(study, times, decided[name], at_once, live=live)
        accuracy = 100 * float(np.mean([one.accuracy for one in decided[name]]))
        tokens = float(clock.tokens.mean())
        spent = tflops(study.parameters.count, tokens) if study.parameters else None
        rows.append((f"{name}, live" if live else name, at_once, accuracy, tokens, spent, *_times(clock)))
    notes = [f"{study.name}: {note}."]
    if not ours:
        notes.append(f"There are no rows of ReASC: {study.uncalibrated or 'nothing could be calibrated'}.")
    return rows, notes


def _times(clock: WallClock) -> tuple[float, float]:
    return float(clock.latency.mean()), float(np.quantile(clock.latency, 0.95))


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
    recorded = [[one.seconds for one in question.responses] for question in study.pool.questions]
    seconds = padded([[np.nan if one is None else one for one in row] for row in recorded], 0.0)
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
        alone: shape (T,), whether the first response is launched alone.
        audited: shape (T,), whether one more response is drawn after the decision.
        accuracy: share of right answers.
        most: responses to a question at most.
    """

    arrangement: Arrangement
    samples: npt.NDArray[np.int64]
    alone: npt.NDArray[np.bool_]
    audited: npt.NDArray[np.bool_]
    accuracy: float
    most: int


def _decided(study: Study, include: Callable[[str], bool]) -> dict[str, list[_Decided]]:
    """Return what the methods of these names decided on each arrangement."""
    found: dict[str, list[_Decided]] = {}
    for split in study.splits:
        for method in _methods(study, split):
            if include(method.name) and not method.problem:
                found.setdefault(method.name, []).append(_decide(study, method, split))
    # A method that was not possible, or not needed, in some arrangements would be compared on others than the rest.
    return {name: each for name, each in found.items() if len(each) == len(study.splits)}


def _methods(study: Study, split: Split) -> Iterator[Method]:
    settings = study.settings.methods
    yield from counting(settings)
    if not study.uncalibrated:
        yield from weighing(study.pool, study.scores, split, study.spec, settings, study.calibrated(split))


def _decide(study: Study, method: Method, split: Split) -> _Decided:
    budget = study.settings.methods.max_samples
    arrangement = Arrangement(study.recorded, split, split.tested, budget)
    if method.learns is None:
        decisions = arrangement.decisions(method)
        alone = np.full(len(split.tested), method.rule.may_accept_first)
        audited = np.zeros_like(alone)
    else:
        streamed = arrangement.stream(method.learns).run()
        decisions, alone, audited = streamed.decisions, streamed.alone, streamed.audited
    samples = np.array([decision.samples for decision in decisions], dtype=np.int64)
    accuracy = float(np.nanmean(arrangement.cells(decisions, samples)[:, 0]))
    most = min(method.rule.samples, budget) if isinstance(method.rule, Cap) else budget
    return _Decided(arrangement, samples, alone, audited, accuracy, most)


def _clock(study: Study, times: Floats, decided: Sequence[_Decided], at_once: int, *, live: bool = True) -> WallClock:
    """Return waves, latency and tokens on all tested questions of all arrangements."""
    clocks = []
    for split, one in zip(study.splits, decided, strict=True):
        clock = wall_clock(
            one.arrangement.arranged(times),
            one.arrangement.arranged(study.recorded.tokens),
            one.samples,
            concurrency=at_once,
            lengths=np.minimum(study.recorded.lengths[np.asarray(split.tested)], one.most),
            alone=one.alone & live,
            audited=one.audited,
            cut_off=live,
        )
        clocks.append(clock)
    fields = ("waves", "launched", "latency", "tokens")
    return WallClock(*(np.concatenate([getattr(clock, name) for clock in clocks]) for name in fields))
