"""What a calibration for each kind of request is worth: ``python -m benchmarks.kinds_of_request``.

A stream of simulated questions is of several kinds of request, each with answers of its own, as those of an application
with several tools and prompts are. It is answered by what was learned of all of them together, and by what was learned
of each kind, which borrows from all; both are compared with ASC. In the middle the shares of the kinds turn around, so
that what was rare is frequent: nothing else changes, and an alarm of drift is a false one.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Final

import numpy as np
from langchain_reasc_lab.replay.stream import Stream, Streamed
from langchain_reasc_lab.simulation.pools import Responses, simulated_pool
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.command import parser_of
from benchmarks.configurations import NAMED, decisions
from langchain_reasc.method import ASC, Measure, Response

WAYS: Final = ("all together", "each kind")
_LOST: Final = attrgetter("lost")


@dataclass(frozen=True, slots=True)
class Mixed:
    """Questions of several kinds of request.

    Attributes:
        responses: to all of them, in the order in which they are asked.
        kinds: the number of the kind of each.
    """

    responses: Responses
    kinds: Sequence[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was decided on the questions of one kind in one stream.

    Attributes:
        way: how it was learned.
        share: which part of the questions is of this kind.
        tokens: over those of ASC.
        lost: points of accuracy less than ASC's.
        alarms: false ones, in the whole stream.
    """

    way: str
    share: float
    tokens: float
    lost: float
    alarms: int


def mixed(index: int, *, kinds: int, questions: int, seed: int) -> Mixed:
    """Draw a stream: each kind is half as frequent as the one before it, and from the middle on twice as frequent."""
    rng = np.random.default_rng([seed, index, kinds])
    pools = [simulated_pool(index * kinds + kind, seed=seed, questions=questions).tested for kind in range(kinds)]
    shares = 0.5 ** np.arange(kinds)
    half = questions // 2
    drawn = [rng.choice(kinds, size=half, p=part / part.sum()) for part in (shares, shares[::-1])]
    kind_of = np.concatenate(drawn)
    rows = np.arange(len(kind_of))
    answers, tokens, right = (
        np.stack([getattr(pool, name) for pool in pools])[kind_of, rows] for name in ("answers", "tokens", "right")
    )
    scores = np.stack([pool.scores for pool in pools])[kind_of, :, rows].transpose(1, 0, 2)
    return Mixed(Responses(answers, scores, tokens, right), kind_of.tolist())


def streamed(given: Mixed, way: str, measures: int) -> Streamed:
    """Ask the questions one after another."""

    @cache
    def read(measure: Measure | None) -> Sequence[Sequence[Response]]:
        number = None if measure is None else NAMED.index(measure)
        return [given.responses.to_question(question, number) for question in range(len(given.responses))]

    kinds = [f"kind {kind}" for kind in given.kinds] if way == "each kind" else None
    budget = given.responses.answers.shape[1]
    return Stream(read, list(given.responses.scores[:measures]), NAMED[:measures], budget, kinds=kinds).run()


def outcomes(given: Mixed, measures: int) -> list[Outcome]:
    """Return what both ways do on the questions of each kind."""
    responses, found = given.responses, list[Outcome]()
    spent = np.cumsum(responses.tokens, axis=1)
    rows, kinds = np.arange(len(responses)), np.array(given.kinds)
    samples, answers = decisions(ASC(), responses)
    asc_tokens, asc_right = spent[rows, samples - 1], answers == responses.right
    for way in WAYS:
        run = streamed(given, way, measures)
        samples = np.array([one.samples for one in run.decisions])
        drawn = np.minimum(samples + run.audited, spent.shape[1])
        tokens = spent[rows, drawn - 1]
        right = np.array([-1 if one.answer is None else int(one.answer) for one in run.decisions]) == responses.right
        for kind in np.unique(kinds):
            of_kind = kinds == kind
            lost = 100 * float(asc_right[of_kind].mean() - right[of_kind].mean())
            ratio = float(tokens[of_kind].sum() / asc_tokens[of_kind].sum())
            found.append(Outcome(way, float(of_kind.mean()), ratio, lost, len(run.alarms)))
    return found


def table(found: Sequence[Sequence[Outcome]]) -> Table:
    """Return a row for each way."""
    shown = Table(box=SIMPLE_HEAD)
    shown.add_column("Learned of", no_wrap=True)
    for heading in ("Tokens ÷ ASC", "Δ points", "worst kind", "kinds −1", "kinds −2", "False alarms"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for way in WAYS:
        streams = [[one for one in stream if one.way == way] for stream in found]
        lost = [one.lost for stream in streams for one in stream]
        points = (-_over_streams(streams, "lost"), -float(np.mean([max(map(_LOST, stream)) for stream in streams])))
        above = (float(np.mean([one > bound for one in lost])) for bound in (1, 2))
        alarms = float(np.mean([stream[0].alarms for stream in streams]))
        figures = (f"{_over_streams(streams, 'tokens'):.2f}", *(f"{one:+.2f}" for one in points))
        shown.add_row(way, *figures, *(f"{one:.0%}" for one in above), f"{alarms:.2f}")
    return shown


def _over_streams(streams: Sequence[Sequence[Outcome]], name: str) -> float:
    """Return the mean over streams of a figure, each kind as frequent as it is."""
    return float(np.mean([sum(one.share * getattr(one, name) for one in stream) for stream in streams]))


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = parser_of("kinds_of_request", __doc__)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--questions", type=int, default=2000, help="of a stream")
    parser.add_argument("--kinds", type=int, default=4, help="of request")
    parser.add_argument("--measures", type=int, default=2, help="of confidence; 0: answers alone")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    drawn = {"kinds": given.kinds, "questions": given.questions, "seed": given.seed}
    streams = track(range(given.streams), "Streams", console=Console(stderr=True))
    found = [outcomes(mixed(index, **drawn), given.measures) for index in streams]
    Console(width=100).print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
