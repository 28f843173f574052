"""What learning online loses when confidence turns in the middle of a stream:
``python -m benchmarks.turned_signal``.

Simulated questions are asked one after another as ``calibration="online"`` asks them,
audits included. From one of them on, scores are kept, mirrored (inverted: the surest
response seems the least sure) or dealt out at random (noise); their distribution stays
the same, and so do the answers. Only streams whose scores tell right from wrong
responses are shown.

A question counts as watched where it goes on beyond its first response or is audited.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from langchain_reasc_lab.replay.stream import Stream, Streamed
from langchain_reasc_lab.simulation.pools import Responses, kind_of, simulated_pool
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.command import parser_of
from benchmarks.configurations import NAMED, decisions
from langchain_reasc.calibration import learner
from langchain_reasc.method import ASC, Measure, Response

KEPT, INVERTED, NOISE = "kept", "inverted", "noise"
WAYS: Final = (KEPT, INVERTED, NOISE)
TELLING: Final = ("medium", "strong", "skewed", "within questions")
"""Kinds of signals that are turned."""
AFTER: Final = 200
"""Questions after the turn on which accuracy is compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in one stream after the turn.

    Attributes:
        turned: what became of its scores.
        questions: questions that were decided with scores.
        ended: which test made learning start anew after the turn: of ``confidence``,
            of ``agreement``; or not.
        delay: questions until then.
        watched: those of them that were watched.
        lost: points of accuracy less than ASC's on the questions after the turn; with
            the test, and without it.
        alarms: of the test of confidence, in the whole stream.
    """

    turned: str
    questions: int
    ended: str
    delay: int
    watched: int
    lost: tuple[float, float]
    alarms: int


def turned(responses: Responses, at: int, how: str, seed: int) -> Responses:
    """Return the same responses with other scores of the questions from this one on."""
    scores = responses.scores.copy()
    after = scores[:, at:].reshape(len(scores), -1)
    if how == INVERTED:
        order = np.argsort(after, axis=1)
        np.put_along_axis(
            after, order, np.take_along_axis(after, order[:, ::-1], axis=1), axis=1
        )
    elif how == NOISE:
        after = after[:, np.random.default_rng(seed).permutation(after.shape[1])]
    scores[:, at:] = after.reshape(scores[:, at:].shape)
    return replace(responses, scores=scores)


def stream(responses: Responses, *, tested: bool = True) -> Streamed:
    """Ask the questions one after another, with or without the drift test of
    confidence.
    """

    @cache
    def read(measure: Measure | None) -> Sequence[Sequence[Response]]:
        number = None if measure is None else NAMED.index(measure)
        return [
            responses.to_question(question, number)
            for question in range(len(responses))
        ]

    questions = Stream(
        read,
        list(responses.scores),
        NAMED[: len(responses.scores)],
        responses.answers.shape[1],
    )
    if tested:
        return questions.run()
    with patch.object(learner, "separation", lambda *_: ()):
        return questions.run()


def outcomes(
    index: int, *, questions: int, turn: int, seed: int, ways: Sequence[str]
) -> Iterator[Outcome]:
    """Yield what happens in the stream of this number; nothing if its scores tell
    little.
    """
    if kind_of(index).signal not in TELLING:
        return
    pool = simulated_pool(index, seed=seed, questions=questions)
    right, after = pool.tested.right, slice(turn, turn + AFTER)
    asc = 100 * float((decisions(ASC(), pool.tested)[1] == right)[after].mean())
    for how in ways:
        given = turned(pool.tested, turn, how, seed)
        run = stream(given)
        ended = next(
            (row for row in range(turn, questions) if run.measures[row] is None),
            questions,
        )
        without = run if how == KEPT else stream(given[: turn + AFTER], tested=False)
        watched = np.array([one.samples > 1 for one in run.decisions]) | run.audited
        yield Outcome(
            how,
            sum(measure is not None for measure in run.measures),
            "not" if ended == questions else run.alarms[ended - 1],
            ended - turn,
            int(watched[turn:ended].sum()),
            (
                asc - _accuracy(run, right, after),
                asc - _accuracy(without, right, after),
            ),
            list(run.alarms.values()).count("confidence"),
        )


def _accuracy(run: Streamed, right: npt.NDArray[np.int64], some: slice) -> float:
    """The share of right answers to these questions, in percent."""
    answers = [
        -1 if one.answer is None else int(one.answer) for one in run.decisions[some]
    ]
    return 100 * float((np.array(answers) == right[some]).mean())


def table(found: Sequence[Outcome]) -> Table:
    """Return a row for each way in which scores turned."""
    shown = Table(box=SIMPLE_HEAD)
    shown.add_column("Scores")
    for heading in (
        "Streams",
        "Test",
        "Agreement",
        "None",
        "Median",
        "90 %",
        "≤ 200",
        "Lost",
        "Untested",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for how in dict.fromkeys(one.turned for one in found):
        rows = [one for one in found if one.turned == how]
        ended, soon = (
            Counter(one.ended for one in rows),
            [one.ended != "not" and one.watched <= 200 for one in rows],
        )
        ends = [
            f"{ended[one] / len(rows):.0%}"
            for one in ("confidence", "agreement", "not")
        ]
        delays = [
            f"{np.quantile([one.watched for one in rows], at):.0f}" for at in (0.5, 0.9)
        ]
        lost = [f"{one:+.2f}" for one in np.mean([one.lost for one in rows], axis=0)]
        shown.add_row(
            how, str(len(rows)), *ends, *delays, f"{np.mean(soon):.0%}", *lost
        )
    shown.caption = (
        "Learning began anew by the test of confidence, by that of agreement, or not; "
        "after so many watched questions (median, 90 % of streams, share within 200). "
        "Lost: points of accuracy less than ASC's "
        f"on the {AFTER} questions after the turn, with the test of confidence, and "
        "without it."
    )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how trust ended, how soon, what was lost by then, and how often the test
    erred.
    """
    parser = parser_of("turned_signal", __doc__)
    parser.add_argument(
        "--pools",
        type=int,
        default=100,
        help="streams, of which those with telling scores are asked (%(default)s)",
    )
    parser.add_argument(
        "--questions", type=int, default=1500, help="in each stream (%(default)s)"
    )
    parser.add_argument(
        "--turn",
        type=int,
        default=950,
        help="the question from which on scores turn (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--scores",
        nargs="+",
        choices=WAYS,
        default=WAYS,
        help="what becomes of them (all)",
    )
    given = parser.parse_args(arguments)
    asked = {
        "questions": given.questions,
        "turn": given.turn,
        "seed": given.seed,
        "ways": given.scores,
    }
    found = [one for index in range(given.pools) for one in outcomes(index, **asked)]
    console = Console(width=100, highlight=False)
    console.print(
        f"{given.pools} streams of {given.questions} questions (seed {given.seed}); "
        f"scores turn at {given.turn}."
    )
    console.print(table(found))
    kept = [one for one in found if one.turned == KEPT]
    alarms, watched = (
        sum(one.alarms for one in kept),
        sum(one.questions for one in kept),
    )
    if watched:
        often = f"{5_000 * alarms / watched:.2f} per 5,000"
        console.print(
            f"Scores kept: {alarms} false alarms in {watched:,} questions that were "
            f"decided with scores, {often}."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
