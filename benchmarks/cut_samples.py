"""What cutting weak samples in the middle saves, and what it loses: ``python -m benchmarks.cut_samples``.

Simulated questions are asked one after another as ``calibration="online"`` asks them, once with weak samples cut and
once without. A response's score is the mean of its token signal, and its lowest group mean is that less a random
amount; where it is weak, it falls below the threshold after a random share of its tokens. From one question on, scores
are kept, dealt out at random (noise: the null hypothesis that confidence says nothing) or mirrored (inverted); what is
compared are the questions after it, in streams in which samples may be cut by then.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.replay.stream import Stream, Streamed
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.command import parser_of
from benchmarks.turned_signal import KEPT, WAYS, turned
from langchain_reasc.calibration import DEFAULT_CUT_QUANTILE
from langchain_reasc.method import ConfidenceCut, Measure, Response

MEASURES = [Measure("token_logprob", "mean"), Measure("token_logprob", "lowest_group", 8)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What cutting did in one stream after the turn, compared with the same stream without.

    Attributes:
        turned: what became of its scores.
        signal: the kind of its signal before.
        cut: the share of samples that were cut.
        tokens: tokens per question, with cutting and without.
        gained: points of accuracy gained.
    """

    turned: str
    signal: str
    cut: float
    tokens: tuple[float, float]
    gained: float


def stream(responses: Responses, seed: int, quantile: float) -> Streamed:
    """Ask the questions one after another; with a quantile above 0, weak samples are cut."""
    rng = np.random.default_rng([seed, 1])
    mean = responses.scores[0]
    lowest = mean - 0.5 * mean.std() * np.abs(rng.normal(size=mean.shape))
    after = np.ceil(rng.uniform(0.1, 1, mean.shape) * responses.tokens).astype(np.int64)

    def cut_after(cut: ConfidenceCut) -> npt.NDArray[np.int64]:
        return np.where((lowest < cut.threshold) & (after < responses.tokens), after, 0)

    @cache
    def read(measure: Measure | None) -> Sequence[Sequence[Response]]:
        scores = np.stack([mean, lowest])[MEASURES.index(measure)] if measure else None
        questions = [responses.to_question(question, None) for question in range(len(responses))]
        if scores is None:
            return questions
        return [
            [Response(one.answer, float(score)) for one, score in zip(drawn, row, strict=True)]
            for drawn, row in zip(questions, scores, strict=True)
        ]

    options = {"cut_after": cut_after, "cut_quantile": quantile} if quantile else {}
    return Stream(read, [mean, lowest], MEASURES, responses.answers.shape[1], **options).run()  # type: ignore[arg-type]


def outcomes(
    index: int, *, questions: int, turn: int, seed: int, quantile: float, ways: Sequence[str]
) -> Iterator[Outcome]:
    """Yield what cutting does in the stream of this number; nothing where no sample may be cut at the turn."""
    pool = simulated_pool(index, seed=seed, questions=questions)
    calibration = stream(pool.tested[: turn + 1], seed, quantile).calibration
    if calibration is None or calibration.cut is None:
        return
    for how in ways:
        given = turned(pool.tested, turn, how, seed)
        cutting, without = stream(given, seed, quantile), stream(given, seed, 0.0)
        (spent, right), (before, known) = (_spent_and_right(given, run, turn) for run in (cutting, without))
        cut = (cutting.cut[turn:] > 0).sum() / cutting.launched[turn:].sum()
        yield Outcome(how, pool.kind.signal, float(cut), (spent, before), 100 * (right - known))


def _spent_and_right(responses: Responses, run: Streamed, turn: int) -> tuple[float, float]:
    """Tokens per question and the share of right answers, from the turn on."""
    drawn = np.minimum(run.launched + run.audited, responses.tokens.shape[1])[:, None]
    tokens = np.where(run.cut > 0, run.cut, responses.tokens) * (np.arange(responses.tokens.shape[1]) < drawn)
    answers = np.array([-1 if one.answer is None else int(one.answer) for one in run.decisions])
    return float(tokens[turn:].sum(axis=1).mean()), float((answers == responses.right)[turn:].mean())


def table(found: Sequence[Outcome]) -> Table:
    """Return a row for each way in which scores turned, and for each kind of signal where they were kept."""
    shown = Table(box=SIMPLE_HEAD)
    shown.add_column("Scores", no_wrap=True)
    for heading in ("Streams", "Cut", "Tokens with ÷ without", "Most", "Δ accuracy", "Its error", "Worst"):
        shown.add_column(heading, justify="right")
    kept = [one for one in found if one.turned == KEPT]
    groups = {how: [one for one in found if one.turned == how] for how in WAYS}
    groups |= {f"  {kind}": [one for one in kept if one.signal == kind] for kind in sorted({o.signal for o in kept})}
    for name, rows in groups.items():
        if rows:
            spent, before = np.array([one.tokens for one in rows]).T
            gained = np.array([one.gained for one in rows])
            error = gained.std(ddof=1) / np.sqrt(gained.size) if gained.size > 1 else np.nan
            tokens = f"{spent.sum() / before.sum():.3f}", f"{(spent / before).max():.2f}"
            accuracy = f"{gained.mean():+.2f}", f"{error:.2f}", f"{gained.min():+.2f}"
            shown.add_row(name, str(len(rows)), f"{np.mean([one.cut for one in rows]):.0%}", *tokens, *accuracy)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what cutting saves and loses."""
    parser = parser_of("cut_samples", __doc__)
    parser.add_argument("--pools", type=int, default=66, help="streams, of which some trust a measure (%(default)s)")
    parser.add_argument("--questions", type=int, default=1200, help="in each stream (%(default)s)")
    parser.add_argument("--turn", type=int, default=200, help="the question from which on scores turn (%(default)s)")
    parser.add_argument("--quantile", type=float, default=DEFAULT_CUT_QUANTILE, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scores", nargs="+", choices=WAYS, default=WAYS, help="what becomes of them (all)")
    given = vars(parser.parse_args(arguments))
    pools, ways = given.pop("pools"), given.pop("scores")
    streams = {index: list(outcomes(index, **given, ways=ways)) for index in range(pools)}
    found = [one for stream in streams.values() for one in stream]
    asked = Counter(kind_of(index).signal for index in streams)
    cut = Counter(kind_of(index).signal for index, stream in streams.items() if stream)
    console = Console(highlight=False)
    console.print(
        f"{pools} streams of {given['questions']} questions (seed {given['seed']}); scores turn at {given['turn']}, "
        f"samples are cut below the {given['quantile']:g} quantile of first responses."
    )
    of_each = ", ".join(f"{kind} {cut[kind]} of {asked[kind]}" for kind in asked)
    console.print(f"By the turn they are cut, of the streams with each kind of signal, in: {of_each}.")
    console.print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
