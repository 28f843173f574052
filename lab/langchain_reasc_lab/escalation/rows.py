"""The rows of the comparison: every way to use two models, on the same shuffles of the
same recorded questions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import DEFAULT_RACE, LearnedEscalation
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import (
    ASC,
    Cap,
    Decision,
    FirstConfident,
    Response,
    StoppingRule,
)
from langchain_reasc_lab.escalation.joining import JoinedQuestion, Pair
from langchain_reasc_lab.escalation.loop import Played, decided, learn, play_by
from langchain_reasc_lab.replay import Bootstrap, Estimate

__all__ = [
    "LARGE",
    "WITHIN",
    "CascadeRow",
    "Comparison",
    "Learned",
    "Majority",
    "compare_cascades",
]

LARGE: Final = "large model"
"""The row of the large model alone."""
WITHIN: Final = (0.02, 0.05, 0.1)
"""The bounds that learning has rows for."""
_FIXED: Final = 5
"""Samples of the small model in C3PO's first stage."""
_BUDGET: Final = 16
_FEW: Final = 0.1
"""The share of questions that may have too few responses for a row."""
_COLUMNS: Final = ("cost", "right", "escalated", "shadowed", "differs")
_TOLERATED: Final = 0.005
"""The loss of accuracy on the training questions up to which a threshold is lowered."""
_CORRELATED: Final = 0.2
"""How much of what is learned in shuffles of one recording is correlated, as in the
replay of one pool.
"""

Cells = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Majority(StoppingRule):
    """Draw ``samples`` responses; accept the leading answer if at least ``votes`` of
    them give it (C3PO's first stage).

    Attributes:
        samples: the fixed number of responses.
        votes: the votes that accept an answer.
    """

    name: ClassVar[str] = "majority"
    samples: int
    votes: int

    @property
    def first_wave(self) -> int:
        return self.samples

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self.tally(responses)
        if len(responses) < self.samples:
            return tally
        accepted = max(tally.evidence.values(), default=0) >= self.votes
        return replace(
            tally, stop=True, reason="unanimous" if accepted else "contested"
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """What the learning loop knew at the end of one shuffle.

    Attributes:
        rule: the rule that decides; None if it was refused: the large model then
            answers alone.
        promise: what the rule promises, and what that rests on; empty if it was
            refused.
        tested: rule -> (questions, contradictions, the question after which it was
            admitted).
        restarts: how often drift made it begin again.
    """

    rule: str | None
    promise: str
    tested: dict[str, tuple[int, int, int | None]]
    restarts: int


@dataclass(frozen=True, slots=True)
class CascadeRow:
    """One way to use both models.

    Attributes:
        name: what it is called.
        cost: what a question costs, in answers of the large model. None if half of the
            questions trained it.
        later: the same over the last questions.
        accuracy: the share of right answers; of rows that were trained, over the last
            half.
        versus_large: accuracy minus the large model's, on the same questions.
        escalated: the share that the large model answered.
        shadowed: the share that both answered, to learn.
        differs: how often the answer is another than the large model's, where it did
            not answer.
        trained: whether it was trained with labels on the first half of the questions.
        learned: what it knew at the end of each shuffle; empty if it does not learn.
    """

    name: str
    cost: Estimate | None
    later: Estimate
    accuracy: Estimate
    versus_large: Estimate
    escalated: float
    shadowed: float
    differs: float
    trained: bool
    learned: tuple[Learned, ...]


@dataclass(frozen=True)
class Comparison:
    """All rows.

    Attributes:
        pair: the two recordings.
        rows: the rows; the first is the large model alone.
        shuffles: how often the questions were rearranged; 0 for the recorded order.
        last: how many of the last questions ``later`` is about.
        seed: the seed of the shuffles.
        notes: what to know of the pair and of the rows.
    """

    pair: Pair
    rows: tuple[CascadeRow, ...]
    shuffles: int
    last: int
    seed: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shuffle:
    """One arrangement: the questions in the order in which they are asked, and where
    each is in the pair.
    """

    pair: Pair
    questions: Sequence[JoinedQuestion]
    order: npt.NDArray[np.int64]
    drawn: Sequence[float]

    @property
    def half(self) -> int:
        return len(self.questions) // 2


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to answer the questions of a shuffle; a trained one answers the last half
    alone.
    """

    name: str
    run: Callable[[_Shuffle], "tuple[Sequence[Played], LearnedEscalation | None]"]
    learns: bool = False
    trained: bool = False


def compare_cascades(
    pair: Pair,
    *,
    shuffles: int = 0,
    seed: int = 0,
    within: Sequence[float] = WITHIN,
    last: int | None = None,
    budget: int = _BUDGET,
    on_progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Answer the questions of a pair in every way, over shuffles of questions and
    responses.

    Args:
        pair: the recordings.
        shuffles: how often questions and responses are rearranged; 0 for the recorded
            order.
        seed: the seed of the shuffles.
        within: bounds on the rate of contradictions, each with a row that learns.
        last: how many of the last questions are counted apart; None for half.
        budget: the most votes of one model.
        on_progress: called with (arrangements done, arrangements).

    Raises:
        ConfigurationError: a number is out of range.
    """
    count = len(pair.questions)
    last = count - count // 2 if last is None else last
    if not 0 < last <= count:
        raise ConfigurationError(
            f"last is a number of questions from 1 to {count}, got {last}"
        )
    if wrong := [one for one in within if not 0 < one < 1]:
        raise ConfigurationError(f"within is between 0 and 1, got {wrong[0]:g}")
    ways, notes = _ways(pair, within, budget)
    cells = {
        way.name: np.full((max(1, shuffles), count, len(_COLUMNS)), np.nan)
        for way in ways
    }
    learned: dict[str, list[Learned]] = {way.name: [] for way in ways}
    later = np.zeros((max(1, shuffles), count), dtype=bool)
    second = np.zeros_like(later)
    for at in range(max(1, shuffles)):
        shuffle = _shuffled(pair, seed, at) if shuffles else _recorded(pair, seed)
        later[at, shuffle.order[count - last :]] = True
        second[at, shuffle.order[shuffle.half :]] = True
        for way in ways:
            played, known = way.run(shuffle)
            where = shuffle.order[shuffle.half :] if way.trained else shuffle.order
            cells[way.name][at, where] = [
                [getattr(one, name) for name in _COLUMNS] for one in played
            ]
            if known is not None:
                learned[way.name].append(_what_is_known(known))
        if on_progress:
            on_progress(at + 1, max(1, shuffles))
    tested = {False: np.ones_like(later), True: second}
    means = {
        (trained, part): Bootstrap(
            {
                (way.name, name): cells[way.name][:, :, place]
                for way in ways
                if trained or not way.trained
                for place, name in enumerate(_COLUMNS)
            },
            of,
            seed=seed,
        )
        for trained in sorted({way.trained for way in ways})
        for part, of in (("all", tested[trained]), ("later", tested[trained] & later))
    }
    rows = tuple(_row(way, means, tuple(learned[way.name])) for way in ways)
    return Comparison(pair, rows, shuffles, last, seed, (*pair.notes, *notes))


def _row(
    way: _Way, means: dict[tuple[bool, str], Bootstrap], learned: tuple[Learned, ...]
) -> CascadeRow:
    every, later = means[way.trained, "all"], means[way.trained, "later"]
    correlated = _CORRELATED if way.learns or way.trained else 0.0
    right, large = (way.name, "right"), (LARGE, "right")
    none = Estimate(0.0, np.nan, np.nan)
    return CascadeRow(
        name=way.name,
        cost=None
        if way.trained
        else every.resampled((way.name, "cost"), learned=correlated),
        later=later.resampled((way.name, "cost"), learned=correlated),
        accuracy=every.share(right, learned=correlated),
        versus_large=none
        if way.name == LARGE
        else every.difference(right, large, learned=correlated),
        escalated=every.mean((way.name, "escalated")),
        shadowed=every.mean((way.name, "shadowed")),
        differs=every.mean((way.name, "differs")),
        trained=way.trained,
        learned=learned,
    )


def _recorded(pair: Pair, seed: int) -> _Shuffle:
    drawn = np.random.default_rng([seed, 0]).random(len(pair.questions))
    return _Shuffle(
        pair, pair.questions, np.arange(len(pair.questions)), drawn.tolist()
    )


def _shuffled(pair: Pair, seed: int, at: int) -> _Shuffle:
    rng = np.random.default_rng([seed, at])
    order = rng.permutation(len(pair.questions))
    questions = [
        JoinedQuestion(
            *(
                tuple(side[k] for k in rng.permutation(len(side)))
                for side in (one.small, one.large)
            )
        )
        for one in (pair.questions[place] for place in order.tolist())
    ]
    return _Shuffle(pair, questions, order, rng.random(len(order)).tolist())


def _ways(
    pair: Pair, within: Sequence[float], budget: int
) -> tuple[list[_Way], list[str]]:
    """Return the ways that the recordings allow, and notes on those that they do not."""
    notes = list[str]()
    counts = {
        side: [len(getattr(one, side)) for one in pair.questions]
        for side in ("small", "large")
    }
    fewest = {side: int(np.quantile(each, _FEW)) for side, each in counts.items()}
    for side, each in counts.items():
        if fewest[side] >= _FIXED and (short := sum(one < _FIXED for one in each)):
            notes.append(
                f"{short} questions have fewer than {_FIXED} responses of the {side} "
                "model; votes end there"
            )
    ways = [_Way(LARGE, _by(None)), _Way("small model", _alone("small", Cap(1)))]
    for side, held in fewest.items():
        if held >= _FIXED:
            ways.append(_Way(f"{side}, votes (SC@{_FIXED})", _alone(side, Cap(_FIXED))))
        if held >= 3:
            ways.append(
                _Way(
                    f"{side}, votes (ASC)", _alone(side, ASC() | Cap(min(budget, held)))
                )
            )
    if fewest["small"] >= DEFAULT_RACE.votes:
        ways.append(
            _Way(f"{DEFAULT_RACE.votes} equal votes, else large", _by(DEFAULT_RACE))
        )
    else:
        notes.append(
            f"the small model has {fewest['small']} responses to some questions, too "
            "few for equal votes"
        )
    if fewest["large"] < 2:
        notes.append(
            "the large model has 1 response to some questions: an accepted answer that "
            "differs from it counts as a contradiction, and how often the large model "
            "differs from itself is not known"
        )
    ways += [
        _Way(f"learned, within {100 * one:g} %", _learning(one), learns=True)
        for one in within
    ]
    if fewest["small"] >= _FIXED:
        ways += [
            _Way(f"C3PO, {votes} of {_FIXED}, else large", _by(Majority(_FIXED, votes)))
            for votes in range(_FIXED // 2 + 1, _FIXED + 1)
        ]
    if pair.scored:
        ways.append(_Way("by confidence, else large", _by_confidence, trained=True))
    return ways, notes


def _by(rule: StoppingRule | None) -> Callable[[_Shuffle], tuple[list[Played], None]]:
    return lambda shuffle: ([play_by(rule, one) for one in shuffle.questions], None)


def _alone(
    side: str, rule: StoppingRule
) -> Callable[[_Shuffle], tuple[list[Played], None]]:
    """Let one model vote, whatever comes of it."""

    def voted(question: JoinedQuestion) -> Played:
        given, large = getattr(question, side), question.large[0]
        decision = decided(rule, given)
        right = decision.answer is not None and next(
            one.right for one in given if one.answer == decision.answer
        )
        cost = sum(one.cost for one in given[: decision.samples])
        return Played(
            cost, right, side == "large", differs=decision.answer != large.answer
        )

    return lambda shuffle: ([voted(one) for one in shuffle.questions], None)


def _learning(
    within: float,
) -> Callable[[_Shuffle], tuple[list[Played], LearnedEscalation]]:
    return lambda shuffle: learn(
        shuffle.questions,
        shuffle.drawn,
        LearnedEscalation(within=within, scored=shuffle.pair.scored),
        labelled=not shuffle.pair.comparable,
    )


def _by_confidence(shuffle: _Shuffle) -> tuple[list[Played], None]:
    """Accept first responses from the score on that cost hardly any accuracy in the
    first half.
    """
    train, test = shuffle.questions[: shuffle.half], shuffle.questions[shuffle.half :]
    scores = np.array(
        [-np.inf if (score := one.small[0].score) is None else score for one in train]
    )
    threshold = lowest_threshold(scores, *_right(train))
    return [play_by(FirstConfident(threshold), one) for one in test], None


def lowest_threshold(
    scores: Cells, small: npt.NDArray[np.bool_], large: npt.NDArray[np.bool_]
) -> float:
    """Return the lowest threshold from which on the small model's answers cost half a
    point; infinity for none.

    Args:
        scores: shape (n,), by which questions are kept for the small model, the highest
            first.
        small: shape (n,), whether the small model is right.
        large: shape (n,), whether the large model is right.
    """
    order = np.argsort(-scores, kind="stable")
    gained = np.cumsum(small[order].astype(int) - large[order].astype(int))
    # equal scores are kept together
    last = np.append(np.diff(scores[order]) != 0, True)
    fits = np.flatnonzero((gained >= -_TOLERATED * scores.size) & last)
    return float(scores[order][fits[-1]]) if fits.size else float("inf")


def _right(questions: Sequence[JoinedQuestion]) -> Iterator[Any]:
    yield np.array([one.small[0].right for one in questions])
    yield np.array([one.large[0].right for one in questions])


def _what_is_known(known: LearnedEscalation) -> Learned:
    tested = {
        name: (sum(one.rows), one.contradicted, one.admitted)
        for name, one in known.tested.items()
        if sum(one.rows)
    }
    rule = known.rule
    return Learned(rule, known.promise(rule) if rule else "", tested, known.restarts)


def rules_at_the_end(row: CascadeRow) -> Counter[str | None]:
    """Return the rules that decided at the end, with the number of shuffles; None where
    it was refused.
    """
    return Counter(one.rule for one in row.learned)
