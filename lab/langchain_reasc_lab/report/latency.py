"""What methods take in time, beside what they cost in tokens, with one, four or sixteen samples launched at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.stopping import Cap
from langchain_reasc_lab.replay.arrangement import Arrangement, padded
from langchain_reasc_lab.replay.methods import ASC_ROW, MIXTURE, OFFLINE, Method, Split, counting, weighing
from langchain_reasc_lab.replay.metrics import tflops
from langchain_reasc_lab.replay.wall_clock import Floats, WallClock, wall_clock
from langchain_reasc_lab.report.report import table
from langchain_reasc_lab.report.rows import Block, table_of
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Cell, Column, Table, listed


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
        note = "its responses were not timed, so latencies are in tokens; --tokens-per-second R makes them seconds"
        return Durations(tokens, tokens, note)
    note = "latencies by the times that were recorded, under the load of the recording"
    if missing.any():
        timed = ~missing & (tokens > 0)
        per_token = float(np.median(seconds[timed] / tokens[timed])) if timed.any() else 0.0
        seconds = np.where(missing, tokens * per_token, seconds)
        note += f"; {missing.sum()} of {responses} responses have none, and are taken to have come at the median rate"
    return Durations(seconds, tokens, note)


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

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decided:
    """What a method decided on the tested questions of one arrangement.

    Attributes:
        samples: shape (T,), responses that the decision on each of T questions rests on.
        alone: shape (T,), whether the first response to it is launched alone.
        audited: shape (T,), whether one more response is drawn after the decision.
        accuracy: share of right answers.
        most: responses to a question at most.
    """

    samples: npt.NDArray[np.int64]
    alone: Booleans
    audited: Booleans
    accuracy: float
    most: int


@table("latency", "What methods take in time when samples are launched at once")
def latency(studies: Sequence[Study]) -> Table:
    """Waves, latency and tokens of every method at concurrency 1, 4 and 16."""
    waves = Column("Waves", ".2f", "Waves per question.")
    general = (
        "Modelled as a live run: the first response goes alone while an open gate may accept it; responses are decided "
        "on in launch order, as they end; what then still runs is cut off; the next wave waits for all of the last. A "
        "machine that draws more sequences at once draws each more slowly, which is not modelled."
    )
    return table_of(studies, [Column("Method"), _AT_ONCE, waves, *_LATENCY, _TOKENS], _latency, notes=[general])


@table("batched", "ReASC in batches, beside ASC and ESC", paper="Table 14")
def batched(studies: Sequence[Study]) -> Table:
    """The paper's comparison of its batched variant, and beside it how this library runs."""
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


def _latency(study: Study) -> Block:
    response_times, timing = durations(study), _Timing(study)
    mean: dict[tuple[str, int], float] = {}
    rows = []
    for name, decided in timing.decided(lambda _: True).items():
        for at_once in CONCURRENCIES:
            clock = timing.clock(response_times, decided, at_once)
            mean[name, at_once] = float(clock.latency.mean())
            rows.append((name, at_once, float(clock.waves.mean()), *_times(clock), float(clock.tokens.mean())))
    notes = [f"{study.name}: {response_times.note}."]
    for at_once in CONCURRENCIES:
        if slower := [name for name, at in mean if at == at_once and _slower(name, at_once, mean)]:
            line = f"with {at_once} at once, ASC takes less time than {listed(slower)}"
            notes.append(f"{study.name}: {line}.")
    return rows, notes


def _slower(name: str, at_once: int, mean: Mapping[tuple[str, int], float]) -> bool:
    """Whether a rule of this library takes more time than ASC."""
    return name.startswith(("ReASC", "Finite", "Agreement")) and mean[name, at_once] > mean[ASC_ROW, at_once]


def _batched(study: Study) -> Block:
    response_times, timing = durations(study), _Timing(study)
    found = timing.decided(lambda name: name in (ASC_ROW, _ESC, OFFLINE, MIXTURE))
    weighing = [name for name in found if name not in (ASC_ROW, _ESC)]
    plan = [(ASC_ROW, 1, False), (_ESC, 4, False)]
    plan += [row for name in weighing for row in ((name, 1, False), (name, 4, False), (name, 4, True))]
    rows: list[Sequence[Cell]] = []
    for name, at_once, live in plan:
        clock = timing.clock(response_times, found[name], at_once, live=live)
        tokens, parameters = float(clock.tokens.mean()), study.parameters
        accuracy = 100 * float(np.mean([one.accuracy for one in found[name]]))
        spent = None if parameters is None else tflops(parameters.count, tokens)
        rows.append((f"{name}, live" if live else name, at_once, accuracy, tokens, spent, *_times(clock)))
    notes = [f"{study.name}: {response_times.note}."]
    if not weighing:
        notes.append(f"There are no rows of ReASC: {study.uncalibrated or 'nothing could be calibrated'}.")
    return rows, notes


class _Timing:
    """Methods on the arrangements of one study."""

    def __init__(self, study: Study) -> None:
        self._study, self._recorded = study, study.recorded
        self._budget = study.settings.methods.max_samples

    def decided(self, include: Callable[[str], bool]) -> dict[str, list[Decided]]:
        """What the methods of these names decided on each arrangement."""
        found: dict[str, list[Decided]] = {}
        for split in self._study.splits:
            for method in self._methods(split):
                if include(method.name) and not method.problem:
                    found.setdefault(method.name, []).append(self._decide(method, split))
        # A method that was not possible, or not needed, in some arrangements would be compared on others than the rest.
        return {name: each for name, each in found.items() if len(each) == len(self._study.splits)}

    def clock(
        self, response_times: Durations, decided: Sequence[Decided], at_once: int, *, live: bool = True
    ) -> WallClock:
        """Waves, latency and tokens on all tested questions of all arrangements."""
        clocks = []
        for split, one in zip(self._study.splits, decided, strict=True):
            clock = wall_clock(
                self._arranged(response_times.times, split),
                self._arranged(response_times.tokens, split),
                one.samples,
                concurrency=at_once,
                lengths=np.minimum(self._recorded.lengths[np.asarray(split.tested)], one.most),
                alone=one.alone & live,
                audited=one.audited,
                cut_off=live,
            )
            clocks.append(clock)
        fields = ("waves", "launched", "latency", "tokens")
        return WallClock(*(np.concatenate([getattr(clock, name) for clock in clocks]) for name in fields))

    def _methods(self, split: Split) -> Iterator[Method]:
        study, settings = self._study, self._study.settings.methods
        yield from counting(settings)
        if not study.uncalibrated:
            made = study.calibrated(split)
            yield from weighing(study.pool, study.scores, split, study.spec, settings, made)

    def _decide(self, method: Method, split: Split) -> Decided:
        arrangement = Arrangement(self._recorded, split, split.tested, self._budget)
        if method.learns is None:
            decisions = arrangement.decisions(method)
            alone, audited = np.zeros((2, len(split.tested)), dtype=bool)
            alone[:] = method.rule.may_accept_first
        else:
            streamed = arrangement.stream(method.learns).run()
            decisions, alone, audited = streamed.decisions, streamed.alone, streamed.audited
        samples = np.array([decision.samples for decision in decisions], dtype=np.int64)
        cells = arrangement.cells(decisions, samples)
        most = min(method.rule.samples, self._budget) if isinstance(method.rule, Cap) else self._budget
        return Decided(samples, alone, audited, float(np.nanmean(cells[:, 0])), most)

    def _arranged(self, values: Floats, split: Split) -> Floats:
        """Of the tested questions, in the order in which methods see them; zero where there is no response."""
        arranged = np.zeros((len(split.tested), min(self._budget, values.shape[1])))
        for row, question in enumerate(split.tested):
            seen = split.orders[question][: self._budget]
            arranged[row, : len(seen)] = values[question, seen]
        return arranged


def _times(clock: WallClock) -> tuple[float, float]:
    return float(clock.latency.mean()), float(np.quantile(clock.latency, 0.95))
