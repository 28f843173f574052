"""The table of ReASC in batches, beside ASC and ESC: cost in tokens and in time."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from langchain_reasc_lab.replay.arrangement import Arrangement, padded
from langchain_reasc_lab.replay.methods import (
    ASC_ROW,
    MIXTURE,
    OFFLINE,
    Method,
    Split,
    counting,
    weighing,
)
from langchain_reasc_lab.replay.metrics import tflops
from langchain_reasc_lab.replay.wall_clock import Floats, WallClock, wall_clock
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Block, Cell, Column, Table, table_of

_ROWS: Final = (
    (ASC_ROW, 1, False),
    ("ESC (w=4)", 4, False),
    (OFFLINE, 1, False),
    (OFFLINE, 4, False),
    (OFFLINE, 4, True),
    (MIXTURE, 1, False),
    (MIXTURE, 4, False),
    (MIXTURE, 4, True),
)
"""The rows: method, samples launched at once, and whether as in a live run or in
batches.
"""
_METHODS: Final = {name for name, *_ in _ROWS}
_COLUMNS: Final = (
    Column("Method"),
    Column("At once", ".0f", "Samples launched at once: a wave."),
    Column(
        "Accuracy %",
        ".1f",
        "Right answers among the tested questions, the mean over arrangements.",
    ),
    Column(
        "Tokens",
        ".0f",
        "Tokens paid per question, those of samples that were cut off too.",
    ),
    Column(
        "TFLOPs",
        ".4g",
        "2N operations per token, in 10¹² per question, where N is known.",
    ),
    Column(
        "Latency",
        ".2f",
        "From the first launch to the answer, the mean over questions: in seconds, or "
        "where a note says so in tokens, those of the slowest response of each wave.",
    ),
    Column("95th", ".2f", "The latency that 95 % of the questions stay below."),
)
_MODELLED: Final = (
    "Batches are generated to their end, the first response in one with others, and "
    "the rule is applied to what came: so we read the paper's batched variant. The "
    "rows called live are how a live run does it: the first response alone while an "
    "open gate may accept it, and what still runs at the decision is cut off. A "
    "machine that draws more sequences at once draws each more slowly, which is not "
    "modelled."
)


def batched(studies: Sequence[Study]) -> Table:
    """Return the paper's comparison of its batched variant, and beside it how this
    library runs.
    """
    return table_of(studies, _COLUMNS, _batched, notes=[_MODELLED])


def _batched(study: Study) -> Block:
    budget = study.settings.methods.max_samples
    times, note = durations(study)
    notes = [f"{study.name}: {note}."]
    accuracies: dict[str, list[float]] = {}
    clocks: dict[tuple[str, int, bool], list[WallClock]] = {}
    for split in study.splits:
        for method in _methods(study, split):
            arrangement = Arrangement(study.recorded, split, split.tested, budget)
            decisions = arrangement.decisions(method)
            samples = np.array(
                [decision.samples for decision in decisions], dtype=np.int64
            )
            accuracy = float(np.nanmean(arrangement.cells(decisions, samples)[:, 0]))
            accuracies.setdefault(method.name, []).append(accuracy)
            lengths = np.minimum(
                study.recorded.lengths[np.asarray(split.tested)], budget
            )
            for name, at_once, live in _ROWS:
                if name != method.name:
                    continue
                clock = wall_clock(
                    arrangement.arranged(times),
                    arrangement.arranged(study.recorded.tokens),
                    samples,
                    concurrency=at_once,
                    lengths=lengths,
                    alone=method.rule.first_wave == 1 and live,
                    cut_off=live,
                )
                clocks.setdefault((name, at_once, live), []).append(clock)
    rows: list[Sequence[Cell]] = []
    for name, at_once, live in _ROWS:
        of_splits = clocks.get((name, at_once, live), [])
        # the method was impossible in some arrangements
        if len(of_splits) < len(study.splits):
            continue
        latency = np.concatenate([clock.latency for clock in of_splits])
        tokens = float(np.concatenate([clock.tokens for clock in of_splits]).mean())
        spent = tflops(study.parameters.count, tokens) if study.parameters else None
        shown = f"{name}, live" if live else name
        accuracy = 100 * float(np.mean(accuracies[name]))
        slow = float(np.quantile(latency, 0.95))
        rows.append(
            (shown, at_once, accuracy, tokens, spent, float(latency.mean()), slow)
        )
    if len(rows) == 2:
        notes.append(
            "There are no rows of ReASC: "
            f"{study.uncalibrated or 'nothing could be calibrated'}."
        )
    return rows, notes


def _methods(study: Study, split: Split) -> Iterator[Method]:
    """Yield the methods of the table that are possible on an arrangement."""
    settings = study.settings.methods
    methods = [*counting(settings)]
    if not study.uncalibrated:
        methods += weighing(
            study.pool,
            study.scores,
            split,
            study.spec,
            settings,
            study.calibrated(split),
        )
    yield from (
        method for method in methods if method.name in _METHODS and not method.problem
    )


def durations(study: Study) -> tuple[Floats, str]:
    """Return the time of each response: at the stated rate, or as it was recorded; its
    tokens if some were not timed.

    Returns:
        Shape (questions, responses), in recorded order; in seconds, or in tokens where
        the note says so. And the note: where the times come from.
    """
    tokens, rate = study.recorded.tokens, study.settings.tokens_per_second
    if rate is not None:
        return (
            tokens / rate,
            f"latencies at {rate:g} tokens per second of each sequence",
        )
    times = [
        [response.seconds for response in question.responses]
        for question in study.pool.questions
    ]
    if any(time is None for row in times for time in row):
        note = "responses without a recorded time, so latencies are in tokens; --tokens-per-second R makes them seconds"
        return tokens, note
    seconds = padded([[float(time or 0) for time in row] for row in times], 0.0)
    return (
        seconds,
        "latencies by the times that were recorded, under the load of the recording",
    )
