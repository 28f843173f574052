"""How much accuracy each configuration loses to ASC on simulated pools:
``python -m benchmarks.simulated_pools``.

There are 100 kinds of pools: 10 of answers, each with 10 of signals. Each configuration
learns from the 16 to 512 warm-up questions of a pool and is then compared with ASC on
20,000 others, in points of accuracy and in tokens (those of the warm-up not counted).
It holds where its loss is at most 0.3 points on average over each kind of answers and
of signal, and above 1 point in at most 5 % of all pools. A pool takes about a second of
one processor.
"""

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, islice
from typing import Any, Final

import numpy as np
from langchain_reasc_lab.simulation.answers import ANSWERS
from langchain_reasc_lab.simulation.pools import (
    WARM_UPS,
    Responses,
    kind_of,
    simulated_pool,
)
from langchain_reasc_lab.simulation.signals import SIGNAL_KINDS
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.command import parser_of
from benchmarks.configurations import CONFIGURATIONS, decisions
from langchain_reasc.method.stopping import ASC, StoppingRule

MEAN_LOSS: Final = 0.3
LOSS, SHARE = 1.0, 0.05
QUESTIONS: Final = 20_000
_GROUPS: Final[dict[str, tuple[str, Collection[object]]]] = {
    "answers": ("", ANSWERS),
    "signal": ("signal: ", SIGNAL_KINDS),
    "warm_up": ("warm-up: ", WARM_UPS),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one configuration did on one pool.

    Attributes:
        pool: the pool's number.
        answers: its kind of answers.
        signal: its kind of signal.
        warm_up: warm-up questions.
        configuration: a name in :data:`~benchmarks.configurations.CONFIGURATIONS`.
        loss: ASC's accuracy minus its own, in points.
        tokens: its tokens over ASC's.
    """

    pool: int
    answers: str
    signal: str
    warm_up: int
    configuration: str
    loss: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of one configuration over pools of a kind.

    Attributes:
        kind: what the pools have in common.
        pools: how many there are.
        tokens: mean of tokens over ASC's.
        mean: mean loss, in points.
        high: the loss that 95 % of the pools stay below.
        above: share of pools that lose more than 1 point.
    """

    kind: str
    pools: int
    tokens: float
    mean: float
    high: float
    above: float

    @classmethod
    def over(cls, kind: str, outcomes: Sequence[Outcome]) -> "Losses":
        """Those of these outcomes, which are of one configuration."""
        losses = np.array([outcome.loss for outcome in outcomes])
        return cls(
            kind=kind,
            pools=len(losses),
            tokens=float(np.mean([outcome.tokens for outcome in outcomes])),
            mean=float(losses.mean()),
            high=float(np.quantile(losses, 0.95)),
            above=float((losses > LOSS).mean()),
        )


def compared(
    index: int,
    *,
    seed: int = 0,
    questions: int = QUESTIONS,
    configurations: Sequence[str] = tuple(CONFIGURATIONS),
) -> list[Outcome]:
    """What each configuration does on the pool of this number."""
    pool = simulated_pool(index, seed=seed, questions=questions)
    asc_right, asc_tokens = accuracy_and_tokens(pool.tested, ASC())
    found = []
    for name in configurations:
        with threadpool_limits(1):  # the processes share the processors already
            rule, measure = CONFIGURATIONS[name](pool.warm_up)
        right, tokens = accuracy_and_tokens(pool.tested, rule, measure)
        loss, kind = 100 * (asc_right - right), pool.kind
        found.append(
            Outcome(
                index,
                kind.answers,
                kind.signal,
                len(pool.warm_up),
                name,
                loss,
                tokens / asc_tokens,
            )
        )
    return found


def accuracy_and_tokens(
    tested: Responses, rule: StoppingRule, measure: int = 0
) -> tuple[float, int]:
    """What a rule does on these questions: its accuracy, and the tokens that it spends."""
    samples, answers = decisions(rule, tested, measure)
    spent = np.take_along_axis(
        np.cumsum(tested.tokens, axis=1), samples[:, None] - 1, axis=1
    )
    return float((answers == tested.right).mean()), int(spent.sum())


def run(
    pools: int = 1000,
    *,
    seed: int = 0,
    jobs: int = 1,
    kinds: Sequence[str] = (),
    questions: int = QUESTIONS,
    configurations: Sequence[str] = tuple(CONFIGURATIONS),
) -> Iterator[list[Outcome]]:
    """What each configuration does on each pool.

    Args:
        pools: how many.
        seed: the seed of them all.
        jobs: processes.
        kinds: kinds of answers and of signals; only pools of one of them are taken, all
            if there are none.
        questions: tested questions of each pool.
        configurations: names in :data:`~benchmarks.configurations.CONFIGURATIONS`.

    Yields:
        The outcomes on one pool after another.
    """
    taken = islice(
        (index for index in count() if not kinds or _of_any(index, kinds)), pools
    )
    work = partial(
        compared, seed=seed, questions=questions, configurations=configurations
    )
    if jobs == 1:
        yield from map(work, taken)
    else:
        with ProcessPoolExecutor(jobs) as processes:
            yield from processes.map(work, taken)


def _of_any(index: int, kinds: Sequence[str]) -> bool:
    kind = kind_of(index)
    return kind.answers in kinds or kind.signal in kinds


def losses_by(attribute: str, outcomes: Sequence[Outcome]) -> list[Losses]:
    """The losses of one configuration by ``answers``, ``signal`` or ``warm_up``."""
    prefix, kinds = _GROUPS[attribute]
    groups = {
        kind: [one for one in outcomes if getattr(one, attribute) == kind]
        for kind in kinds
    }
    return [
        Losses.over(f"{prefix}{kind}", group) for kind, group in groups.items() if group
    ]


def verdict(name: str, outcomes: Sequence[Outcome]) -> tuple[bool, str]:
    """Whether a configuration holds, and a line that says so."""
    every, kinds = (
        Losses.over("all", outcomes),
        losses_by("answers", outcomes) + losses_by("signal", outcomes),
    )
    worst = max(kinds, key=lambda losses: losses.mean)
    often = max(kinds, key=lambda losses: losses.above)
    holds = worst.mean <= MEAN_LOSS and every.above <= SHARE
    return holds, (
        f"{name} {'HOLDS' if holds else 'FAILS'}: loses at most {worst.mean:.2f} on "
        f"average over a kind ({worst.kind}); above {LOSS:g} point in "
        f"{every.above:.1%} of pools, at most {often.above:.1%} of a kind"
        + (f" ({often.kind})" if often.above else "")
    )


def _table(name: str, outcomes: Sequence[Outcome]) -> Table:
    table = Table(
        title=name, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    table.add_column("kind of pool")
    for heading in ("pools", "tokens / ASC", "mean loss", "95 %", f"above {LOSS:g}"):
        table.add_column(heading, justify="right")
    groups = [
        losses for attribute in _GROUPS for losses in losses_by(attribute, outcomes)
    ]
    for losses in (*groups, Losses.over("all", outcomes)):
        figures = f"{losses.pools} {losses.tokens:.2f} {losses.mean:+.2f} {losses.high:+.2f} {losses.above:.1%}"
        table.add_row(losses.kind, *figures.split())
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    given = _parser().parse_args(arguments)
    options = {
        name: getattr(given, name)
        for name in ("seed", "jobs", "kinds", "questions", "configurations")
    }
    shown = Console(stderr=True)
    by_pool = track(
        run(given.pools, **options),
        "Pools",
        given.pools,
        console=shown,
        disable=not shown.is_terminal,
    )
    outcomes = [outcome for found in by_pool for outcome in found]
    by_name = {
        name: [o for o in outcomes if o.configuration == name]
        for name in given.configurations
    }
    if given.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))
        return 0
    console = Console(width=80, highlight=False)
    for name, found in by_name.items():
        console.print(_table(name, found), "")
    for name, found in by_name.items():
        console.print(verdict(name, found)[1])
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"at least 1, got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("simulated_pools", __doc__)
    kinds = (*ANSWERS, *SIGNAL_KINDS)
    parser.add_argument(
        "--pools", type=_positive, default=1000, help="how many (%(default)s)"
    )
    parser.add_argument(
        "--questions",
        type=_positive,
        default=QUESTIONS,
        help="tested in each (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        help="processes (%(default)s)",
    )
    several: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    for option, names, default in (
        ("kinds", kinds, ()),
        ("configurations", CONFIGURATIONS, tuple(CONFIGURATIONS)),
    ):
        text = f"only these: {'; '.join(names)}".replace("%", "%%")
        parser.add_argument(
            f"--{option}", choices=names, default=default, help=text, **several
        )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print every outcome as JSON instead of tables",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
