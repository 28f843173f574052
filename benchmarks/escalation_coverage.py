"""Whether escalation keeps its promise: ``python -m benchmarks.escalation_coverage``.

In a made-up world, questions are of several kinds; the answers of both models to a
question of one kind are drawn independently, so that the true rate of contradictions of
every rule is known. A run learns from the first question on, as live, by the loop that
replays recordings. In a stationary world at most 5 % of runs may ever admit a rule that
contradicts the large model on more questions than ``--within`` allows. In the others, a
model or the order changes midway; there it counts how soon the rule is closed.

Streams ask easy and hard questions in topics or in blocks, which the promise does not
cover. Of these it is told how often a bad rule is admitted, and decides with the usual
audits, and on how many of all questions an answer was delivered that contradicts the
large model. A thousand runs of all worlds and streams take some 40 minutes on two
cores.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from langchain_reasc_lab.escalation import AUDITED, Answered, JoinedQuestion, play
from langchain_reasc_lab.replay import exact
from scipy.stats import norm

from benchmarks.command import parser_of
from langchain_reasc.calibration import LearnedEscalation
from langchain_reasc.method import FirstConfident, Race, StoppingRule

PRICE: Final = 0.1
"""What an answer of the small model costs, in answers of the large one."""
_DRAWN: Final = 3  # responses of the small model: as many as the longest race
_SPREAD: Final = 1.0  # of scores


class Kind(NamedTuple):
    """A kind of question. Each model answers A or B, or something that it never says
    again.

    Attributes:
        share: the share of questions.
        small: how likely the small model answers A, and B.
        large: the same of the large model.
        score: the mean score of the small model's responses.
    """

    share: float
    small: tuple[float, float]
    large: tuple[float, float]
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """Questions of several kinds.

    Attributes:
        kinds: the kinds; what they leave of the shares are questions to which both
            models always answer A.
        then: the kinds after the change; empty for a stationary world.
        scored: whether scores are read.
    """

    kinds: Sequence[Kind]
    then: Sequence[Kind] = ()
    scored: bool = False


def worlds(within: float) -> dict[str, World]:
    """Return the worlds by name; several have a rate of contradictions of exactly
    ``within``.
    """
    w, sure = within, (1.0, 0.0)
    wrong = (0.0, 1.0)
    even = (0.5, 0.5)
    return {
        "no contradictions": World([Kind(0.3, (0.6, 0.0), sure)]),
        "half of the bound": World([Kind(w / 2, wrong, sure)]),
        "at the bound": World([Kind(w, wrong, sure)]),
        "just above it": World([Kind(1.2 * w, wrong, sure)]),
        "far above it": World([Kind(4 * w, wrong, sure), Kind(0.3, (0.4, 0.0), sure)]),
        "2 votes at the bound": World([Kind(w / 0.49, (0.3, 0.7), sure)]),
        "1 vote at the bound": World([Kind(4 * w, (0.75, 0.0), sure)]),
        "small right, large wrong": World(
            [Kind(w, sure, wrong), Kind(0.2, (0.5, 0.3), sure)]
        ),
        "the same errors": World(
            [Kind(0.3, (0.2, 0.8), (0.3, 0.7)), Kind(w / 2, wrong, sure)]
        ),
        "large differs from itself": World(
            [Kind(0.5, (0.7, 0.3), even), Kind(w / 2, wrong, sure)]
        ),
        "yes or no": World(
            [Kind(4 * w, even, (0.9, 0.1)), Kind(0.3, (0.9, 0.1), (0.95, 0.05))]
        ),
        "answers that never agree": World(
            [Kind(1 - w, (0.0, 0.0), (0.0, 0.0)), Kind(w, (0.0, 0.0), sure)]
        ),
        "scores tell": World([Kind(4 * w, wrong, sure, -2.0)], scored=True),
        "scores tell nothing, at the bound": World([Kind(w, wrong, sure)], scored=True),
        "scores tell nothing": World([Kind(2 * w, wrong, sure)], scored=True),
        "scores mislead": World([Kind(w, wrong, sure, 2.0)], scored=True),
        "scores at the bound": World(
            [Kind(4 * w, (0.0, 0.0), sure, -0.5)], scored=True
        ),
        "the small model gets worse": World(
            [Kind(w / 5, wrong, sure)], then=[Kind(4 * w, wrong, sure)]
        ),
        "the large model changes": World(
            [Kind(w / 5, wrong, sure)], then=[Kind(2 * w, sure, wrong)]
        ),
        "easy questions first": World(
            [], then=[Kind(3 * w, wrong, sure), Kind(0.3, (0.5, 0.2), sure)]
        ),
    }


@dataclass(frozen=True, slots=True)
class Stream:
    """Questions that come in topics or in blocks.

    Attributes:
        contradicted: the share of a hard topic's questions on which every rule
            contradicts the large model.
        hard: the share of hard topics.
        length: the mean number of questions of a topic, which is geometric; 1 for
            questions in random order.
        order: ``"blocks"`` asks all hard questions last, and ``"sorted"`` has
            contradictions become more frequent from question to question.
    """

    contradicted: float
    hard: float
    length: float = 1.0
    order: Literal["topics", "blocks", "sorted"] = "topics"

    @property
    def rate(self) -> float:
        """The rate of contradictions over all questions, of every rule."""
        return self.contradicted * self.hard

    def hardness(self, questions: int, rng: np.random.Generator) -> list[float]:
        """Return how hard each question is, from 0 to 1, in the order of asking."""
        if self.order == "blocks":
            easy = round((1 - self.hard) * questions)
            return [0.0] * easy + [1.0] * (questions - easy)
        if self.order == "sorted":
            rising: list[float] = np.linspace(0, 2 * self.hard, questions).tolist()
            return rising
        asked: list[float] = []
        while len(asked) < questions:
            is_hard = rng.random() < self.hard
            length = rng.geometric(1 / self.length)
            asked += [float(is_hard)] * length
        return asked[:questions]

    def kinds(self, hardness: float) -> list[Kind]:
        """Return the kinds of questions of a topic. Of hard ones more are contested."""
        sure, wrong = (1.0, 0.0), (0.0, 1.0)
        return [
            Kind(self.contradicted * hardness, wrong, sure),
            Kind(0.1 + 0.2 * hardness, (0.5, 0.2), sure),
        ]


STREAMS: Final[Mapping[str, Stream]] = {
    "8.3 % in random order": Stream(0.25, 1 / 3),
    "8.3 % in topics of 20": Stream(0.25, 1 / 3, 20),
    "8.3 % in topics of 50": Stream(0.25, 1 / 3, 50),
    "8.3 % in topics of 100": Stream(0.25, 1 / 3, 100),
    "6 % in topics of 50, a tenth hard": Stream(0.6, 0.1, 50),
    "10 %, the easy half first": Stream(0.2, 0.5, order="blocks"),
    "7.5 %, sorted": Stream(0.15, 0.5, order="sorted"),
    "2 % in random order": Stream(0.1, 0.2),
    "2 % in topics of 50": Stream(0.1, 0.2, 50),
}
"""The streams by name, with their rates of contradictions."""


def contradictions(kinds: Sequence[Kind], rule: StoppingRule) -> float:
    """Return the true rate of contradictions of a rule."""

    def of(kind: Kind) -> float:
        (a, b), (large_a, large_b) = kind.small, kind.large
        other = (1 - a - b) * (large_a**2 + large_b**2) if _votes(rule) == 1 else 0.0
        return a ** _votes(rule) * large_b**2 + b ** _votes(rule) * large_a**2 + other

    return sum(kind.share * _confident(rule, kind) * of(kind) for kind in kinds)


def excess(kinds: Sequence[Kind], rule: StoppingRule) -> float:
    """Return how much more often the answer differs from the large model's than the
    large model's own.
    """

    def of(kind: Kind) -> float:
        (a, b), (large_a, large_b) = kind.small, kind.large
        votes = _votes(rule)
        other = 1 - a - b if votes == 1 else 0.0
        return a**votes * (1 - large_a) + b**votes * (1 - large_b) + other

    itself = sum(
        kind.share * (1 - kind.large[0] ** 2 - kind.large[1] ** 2) for kind in kinds
    )
    return (
        sum(kind.share * _confident(rule, kind) * of(kind) for kind in kinds) - itself
    )


def cost(kinds: Sequence[Kind], rule: StoppingRule | None) -> float:
    """Return what a question costs by a rule, in answers of the large model; None: by
    the large model alone.
    """
    if rule is None:
        return 1.0

    def of(kind: Kind) -> float:
        (a, b), votes = kind.small, _votes(rule)
        samples = 1 + sum(
            a**equal + b**equal if equal > 1 else 1.0 for equal in range(1, votes)
        )
        accepted = a**votes + b**votes if votes > 1 else _confident(rule, kind)
        return PRICE * samples + 1 - accepted

    return sum(kind.share * of(kind) for kind in _completed(kinds))


def _completed(kinds: Sequence[Kind]) -> list[Kind]:
    return [
        *kinds,
        Kind(max(0.0, 1 - sum(kind.share for kind in kinds)), (1.0, 0.0), (1.0, 0.0)),
    ]


def _votes(rule: StoppingRule) -> int:
    return rule.votes if isinstance(rule, Race) else 1


def _confident(rule: StoppingRule, kind: Kind) -> float:
    """Return how likely the first response is confident enough for the rule."""
    return (
        float(norm.sf(rule.threshold, kind.score, _SPREAD))
        if isinstance(rule, FirstConfident)
        else 1.0
    )


def drawn_question(kinds: Sequence[Kind], rng: np.random.Generator) -> JoinedQuestion:
    """Draw a question with the responses of both models."""
    every = _completed(kinds)
    kind = every[
        int(np.searchsorted(np.cumsum([one.share for one in every]), rng.random()))
    ]
    score = float(rng.normal(kind.score, _SPREAD))

    def answered(model: str, number: int) -> Answered:
        (a, b), u = getattr(kind, model), rng.random()
        answer = "A" if u < a else "B" if u < a + b else f"{model} {number}"
        return Answered(answer, True, PRICE if model == "small" else 1.0, score)

    return JoinedQuestion(
        tuple(answered("small", number) for number in range(_DRAWN)),
        tuple(answered("large", at) for at in range(2)),
    )


def learning(
    kinds: Sequence[Kind],
    questions: int,
    known: LearnedEscalation,
    rng: np.random.Generator,
) -> Iterator[tuple[LearnedEscalation, float, bool]]:
    """Answer questions as live, and yield what is known after each, what it cost, and
    whether it was shadowed.

    Nothing is learned from a question that is not shadowed, so that only its mean cost
    is taken.
    """
    for _ in range(questions):
        number = rng.random()
        course = known.course(number, AUDITED)
        if course.shadowed:
            played, known = play(drawn_question(kinds, rng), number, known)
            yield known, played.cost, True
        else:
            yield known, cost(kinds, course.rule), False


class Run(NamedTuple):
    """What one run showed.

    Attributes:
        admitted: whether any rule was ever admitted.
        above: whether one was whose true rate of contradictions is the bound or more.
        beyond: whether one was whose answer differs so much more often than the large
            model's own.
        cost: the mean cost of a question, in answers of the large model.
        audits: shadowed questions after the change until no bad rule decides; None if
            that did not come, NaN if none decided at the change.
        questions: all questions until then.
    """

    admitted: bool
    above: bool
    beyond: bool
    cost: float
    audits: float | None = np.nan
    questions: float | None = np.nan


def run(name: str, seed: int, *, within: float, questions: int, after: int) -> Run:
    """Let it learn in one world."""
    world = worlds(within)[name]
    rng = np.random.default_rng([seed, list(worlds(within)).index(name)])
    known, before = (
        LearnedEscalation(within=within, scored=world.scored),
        frozenset[str](),
    )
    admitted = above = beyond = False
    spent = 0.0
    start = known
    for known, paid, shadowed in learning(world.kinds, questions, start, rng):
        spent += paid
        if not shadowed:
            continue
        now = frozenset(
            rule for rule, one in known.tested.items() if one.admitted is not None
        )
        for rule in (known.rule_named(one) for one in now - before):
            admitted = True
            above |= contradictions(world.kinds, rule) >= within - 1e-12
            beyond |= excess(world.kinds, rule) >= within - 1e-12
        before = now
    found = Run(admitted, above, beyond, spent / questions)
    if not world.then or not _bad(known, world.then):
        return found
    audits = 0
    for at, (then, _, shadowed) in enumerate(
        learning(world.then, after, known, rng), start=1
    ):
        audits += shadowed
        if shadowed and not _bad(then, world.then):
            return found._replace(audits=audits, questions=at)
    return found._replace(audits=None, questions=None)


class StreamRun(NamedTuple):
    """What one run of a stream showed.

    Attributes:
        decided: whether any rule ever decided.
        free: whether one ever decided with the usual audits.
        delivered: the share of all questions to which an answer was given that
            contradicts the large model.
        shadowed: the share of questions that both models were asked.
        cost: the mean cost of a question, in answers of the large model.
    """

    decided: bool
    free: bool
    delivered: float
    shadowed: float
    cost: float


def run_stream(name: str, seed: int, *, within: float, questions: int) -> StreamRun:
    """Let it learn from one stream."""
    stream = STREAMS[name]
    rng = np.random.default_rng([seed, list(STREAMS).index(name)])
    known = LearnedEscalation(within=within)
    share = known.share(AUDITED)
    rule = None
    decided = False
    free = False
    delivered = 0.0
    shadowed = 0
    spent = 0.0
    for hardness in stream.hardness(questions, rng):
        kinds = stream.kinds(hardness)
        number = rng.random()
        if number >= share:
            spent += cost(kinds, rule)
            if rule is not None:
                delivered += contradictions(kinds, rule)
            continue
        played, known = play(drawn_question(kinds, rng), number, known)
        shadowed += 1
        spent += played.cost
        share = known.share(AUDITED)
        rule = None if known.rule is None else known.rule_named(known.rule)
        decided |= rule is not None
        free |= rule is not None and share == AUDITED
    return StreamRun(
        decided, free, delivered / questions, shadowed / questions, spent / questions
    )


def print_streams(
    names: Iterable[str], pool: Executor, seeds: Sequence[int], **options: Any
) -> None:
    """Run each stream with each seed, and print a table."""
    print(
        "\n| stream | a rule decided | with the usual audits | contradictions "
        "delivered: mean, 95 % of runs | asked of both | cost |"
    )
    print("|---|---|---|---|---|---|")
    for name in names:
        run_seed = partial(run_stream, name, **options)
        runs = list(pool.map(run_seed, seeds, chunksize=4))
        decided = exact(sum(each.decided for each in runs), len(runs)).percent
        free = exact(sum(each.free for each in runs), len(runs)).percent
        delivered = [100 * each.delivered for each in runs]
        most = np.quantile(delivered, 0.95)
        shadowed = 100 * np.mean([each.shadowed for each in runs])
        spent = np.mean([each.cost for each in runs])
        print(
            f"| {name} | {decided.value:.0f} % {decided.interval('.0f')} | "
            f"{free.value:.0f} % {free.interval('.0f')} | "
            f"{np.mean(delivered):.2f} %, {most:.1f} % | {shadowed:.0f} % | "
            f"{spent:.2f} |",
            flush=True,
        )


def _bad(known: LearnedEscalation, kinds: Sequence[Kind]) -> bool:
    """Return whether a rule decides that contradicts more often than is allowed."""
    return (
        known.rule is not None
        and contradictions(kinds, known.rule_named(known.rule)) > known.within
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = parser_of("escalation_coverage", __doc__)
    parser.add_argument(
        "--runs", type=int, default=1000, help="of each world (%(default)s)"
    )
    parser.add_argument(
        "--questions", type=int, default=600, help="of each run (%(default)s)"
    )
    parser.add_argument(
        "--after", type=int, default=2000, help="questions after a change (%(default)s)"
    )
    parser.add_argument(
        "--within", type=float, default=0.05, help="the bound (%(default)s)"
    )
    parser.add_argument(
        "--stream-questions",
        type=int,
        default=2000,
        help="of each run of a stream (%(default)s)",
    )
    parser.add_argument(
        "--worlds",
        nargs="*",
        choices=worlds(0.05),
        metavar="NAME",
        help="some of them alone",
    )
    parser.add_argument(
        "--streams",
        nargs="*",
        choices=STREAMS,
        metavar="NAME",
        help="some of them alone",
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="at once (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    chosen_worlds = list(worlds(given.within))
    chosen_streams = list(STREAMS)
    if given.worlds is not None or given.streams is not None:
        chosen_worlds = given.worlds or []
        chosen_streams = given.streams or []
    seeds = range(given.seed, given.seed + given.runs)
    print(
        f"{given.runs} runs of {given.questions} questions in each world, of "
        f"{given.stream_questions} in each stream, within {given.within:g} (seed "
        f"{given.seed})\n"
    )
    if chosen_worlds:
        print(
            "| world | rate by 3, 2, 1 votes | a rule admitted | above the bound | "
            "differs too often | cost |"
        )
        print("|---|---|---|---|---|---|")
    changed = {}
    with ProcessPoolExecutor(given.processes) as pool:
        for name in chosen_worlds:
            one = partial(
                run,
                name,
                within=given.within,
                questions=given.questions,
                after=given.after,
            )
            runs = list(pool.map(one, seeds, chunksize=8))
            kinds = worlds(given.within)[name].kinds
            rates = ", ".join(
                f"{100 * contradictions(kinds, Race(votes)):.3g}" for votes in (3, 2, 1)
            )
            admitted, above, beyond = (
                exact(sum(getattr(each, what) for each in runs), len(runs)).percent
                for what in ("admitted", "above", "beyond")
            )
            spent = np.mean([each.cost for each in runs])
            print(
                f"| {name} | {rates} % | {admitted.value:.1f} % | {above.value:.1f} % "
                f"{above.interval('.1f')} | {beyond.value:.1f} % "
                f"{beyond.interval('.1f')} | {spent:.2f} |",
                flush=True,
            )
            if worlds(given.within)[name].then:
                changed[name] = [
                    each
                    for each in runs
                    if each.audits is None or each.audits == each.audits
                ]
        if chosen_streams:
            print_streams(
                chosen_streams,
                pool,
                seeds,
                within=given.within,
                questions=given.stream_questions,
            )
    if changed:
        print(
            "\n| change | runs with a bad rule | audits until it is closed: median, 90 "
            "% | questions | never |"
        )
        print("|---|---|---|---|---|")
    for name, runs in changed.items():
        closed = [[one.audits, one.questions] for one in runs if one.audits is not None]
        never = len(runs) - len(closed)
        each = np.array(
            [*closed, *[[np.inf, np.inf]] * never] or [[np.nan, np.nan]],
            dtype=np.float64,
        )
        audits, asked = np.quantile(each, [0.5, 0.9], axis=0, method="inverted_cdf").T
        print(
            f"| {name} | {len(runs)} | {audits[0]:.0f}, {audits[1]:.0f} | "
            f"{asked[0]:.0f}, {asked[1]:.0f} | {never} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
