"""Simulated questions: the distribution of answers to each, and the right one.

A kind of answers draws what all questions of a pool share, and then each question's
distribution. How often the heaviest answer is right follows, if nothing else is said,
what was recorded of the shipped model on its word problems: one in five at a share of
.2, half at .35, all but one in a hundred at .9.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_ELSEWHERE: Final = -1  # the right answer is none that the model ever gives
_STICKS: Final = (
    20  # answers of a Pitman-Yor prior that can come twice; what is left comes once
)
_EVEN_AT, _STEEPNESS = 0.35, 9.0


@dataclass(frozen=True, slots=True)
class Questions:
    """Simulated questions.

    Attributes:
        shares: shape (questions, answers), P(answer) of a response that has one; what
            is left of 1 goes to answers that are given once only.
        right: shape (questions,), the column of the right answer; -1 if it is none of
            them.
        unanswered: shape (questions,), P(a response has no answer).
        alike: whether all responses to a question are the same, as at temperature 0.
    """

    shares: Floats
    right: Integers
    unanswered: Floats
    alike: bool = False

    @property
    def heaviest(self) -> Floats:
        """The largest share of each question, shape (questions,)."""
        return np.asarray(self.shares.max(axis=1))

    @property
    def likely(self) -> Floats:
        """P(a response is right), shape (questions,)."""
        shares = np.take_along_axis(
            self.shares, np.maximum(self.right, 0)[:, None], axis=1
        )[:, 0]
        return np.where(self.right >= 0, shares * (1 - self.unanswered), 0.0)


def draw_answers(
    rng: np.random.Generator, questions: Questions, budget: int
) -> tuple[Integers, Integers]:
    """Draw responses to the questions.

    Returns:
        Answers, shape (questions, budget), numbered in the order of their first
        appearance, -1 for none; and the right answer, shape (questions,), by the same
        number, -2 where no response gives it.
    """
    drawn = _columns(rng, questions.shares, 1 if questions.alike else budget)
    once = drawn == questions.shares.shape[1]
    drawn = np.where(once, drawn + np.arange(drawn.shape[1]), drawn)
    drawn[rng.random(drawn.shape) < questions.unanswered[:, None]] = -1
    drawn = np.broadcast_to(drawn, (len(drawn), budget))
    answers = numbered(drawn)
    correct = (drawn == questions.right[:, None]) & (drawn >= 0)
    first = correct.argmax(axis=1)
    return answers, np.where(
        correct.any(axis=1), answers[np.arange(len(answers)), first], -2
    )


def numbered(labels: Integers) -> Integers:
    """Number the answers to each question in the order of their first appearance, from
    0; -1 stays -1.

    Args:
        labels: shape (questions, budget), any numbers that tell answers apart.
    """
    if not labels.size:
        return labels
    answered = labels >= 0
    # where an equal one came first
    appeared = (labels[:, :, None] == labels[:, None, :]).argmax(axis=2)
    new = answered & (appeared == np.arange(labels.shape[1]))
    return np.where(
        answered, np.take_along_axis(new.cumsum(axis=1) - 1, appeared, axis=1), -1
    )


def _columns(rng: np.random.Generator, shares: Floats, size: int) -> Integers:
    """Draw ``size`` columns of each row by their shares; one more than there are for
    what is left of 1.
    """
    numbers = rng.random((len(shares), size))
    drawn = np.zeros(numbers.shape, dtype=np.int64)
    for reached in np.cumsum(shares, axis=1).T:
        drawn += numbers >= reached[:, None]
    return drawn


def _usually_heaviest(
    rng: np.random.Generator, shares: Floats, unanswered: float | Floats = 0.0
) -> Questions:
    """The heaviest is right with expit(9 (share - .35)); else any other by its share,
    or none with (1 - share)².
    """
    rows, at = np.arange(len(shares)), shares.argmax(axis=1)
    share = shares[rows, at]
    others = shares.copy()
    others[rows, at] = 0.0
    other = _columns(rng, others / np.maximum(1 - share, 1e-12)[:, None], 1)[:, 0]
    other[(rng.random(len(shares)) < (1 - share) ** 2) | (other == shares.shape[1])] = (
        _ELSEWHERE
    )
    right = np.where(
        rng.random(len(shares)) < 1 / (1 + np.exp(-_STEEPNESS * (share - _EVEN_AT))),
        at,
        other,
    )
    return Questions(shares, right, np.broadcast_to(unanswered, right.shape))


def _dirichlet(rng: np.random.Generator, n: int) -> Questions:
    return _usually_heaviest(rng, _symmetric(rng, n))


def _pitman_yor(rng: np.random.Generator, n: int) -> Questions:
    return _usually_heaviest(
        rng,
        _sticks(rng, n, discount=rng.uniform(0, 0.6), strength=_between(rng, 0.1, 10)),
    )


def _recorded_like(rng: np.random.Generator, n: int) -> Questions:
    """Many questions on which nearly all agree beside many with a long tail, as small
    models have them.
    """
    easy = rng.random(n) < rng.uniform(0.3, 0.7)
    shares = np.where(
        easy[:, None],
        _sticks(rng, n, 0.0, 0.1),
        _sticks(rng, n, 0.3, _between(rng, 0.5, 5)),
    )
    return _usually_heaviest(rng, shares)


def _two_hard(rng: np.random.Generator, n: int) -> Questions:
    return _two(rng, n, mean=rng.uniform(0.5, 0.75), spread=_between(rng, 3, 100))


def _two_easy(rng: np.random.Generator, n: int) -> Questions:
    return _two(rng, n, mean=rng.uniform(0.8, 0.95), spread=_between(rng, 2, 20))


def _two(rng: np.random.Generator, n: int, *, mean: float, spread: float) -> Questions:
    """Yes or no: the right answer's share is Beta distributed, narrowly where
    ``spread`` is large.
    """
    share = rng.beta(mean * spread, (1 - mean) * spread, n)
    return Questions(
        np.stack([share, 1 - share], axis=1), np.zeros(n, dtype=np.int64), np.zeros(n)
    )


def _two_modes(rng: np.random.Generator, n: int) -> Questions:
    """Two answers share nearly all; the heavier is right on 20 to 80 % of a pool's
    questions, else the lighter.
    """
    both, evenness = rng.uniform(0.8, 0.95), _between(rng, 3, 30)
    share = both * rng.beta(evenness, evenness, n)
    shares = np.column_stack([share, both - share, np.full((n, 3), (1 - both) / 3)])
    heavier = shares.argmax(axis=1)
    right = np.where(rng.random(n) < rng.uniform(0.2, 0.8), heavier, 1 - heavier)
    return Questions(shares, right, np.zeros(n))


def _hopeless(rng: np.random.Generator, n: int) -> Questions:
    """Nearly every response has an answer of its own, and the right one is seldom among
    them.
    """
    shares = _sticks(
        rng, n, discount=rng.uniform(0.3, 0.85), strength=_between(rng, 4, 40)
    )
    right = _columns(rng, shares, 1)[:, 0]
    right[(right == _STICKS) | (rng.random(n) < 0.7)] = _ELSEWHERE
    return Questions(shares, right, np.zeros(n))


def _near_perfect(rng: np.random.Generator, n: int) -> Questions:
    slips = rng.beta(1, rng.uniform(20, 80), n)
    shares = np.column_stack(
        [1 - slips, slips[:, None] * rng.dirichlet(np.full(3, 0.5), n)]
    )
    right = np.where(rng.random(n) < 0.995, 0, 1)
    return Questions(shares, right, np.zeros(n))


def _without_answer(rng: np.random.Generator, n: int) -> Questions:
    """40 % of the responses have no answer, on some questions nearly all of them."""
    return _usually_heaviest(rng, _symmetric(rng, n), unanswered=rng.beta(2, 3, n))


def _temperature_0(rng: np.random.Generator, n: int) -> Questions:
    right = np.where(rng.random(n) < rng.uniform(0.3, 0.95), 0, _ELSEWHERE)
    return Questions(np.ones((n, 1)), right, np.zeros(n), alike=True)


def _symmetric(rng: np.random.Generator, n: int) -> Floats:
    return rng.dirichlet(np.full(rng.integers(3, 11), _between(rng, 0.1, 3)), n)


def _sticks(
    rng: np.random.Generator, n: int, discount: float, strength: float
) -> Floats:
    """The first shares of a Pitman-Yor prior by stick breaking: V_k ~ Beta(1 - d, α + k
    d).
    """
    broken = rng.beta(
        1 - discount, strength + discount * np.arange(1, _STICKS + 1), (n, _STICKS)
    )
    left = np.cumprod(1 - broken, axis=1)
    return np.asarray(broken * np.column_stack([np.ones(n), left[:, :-1]]))


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


ANSWERS: Final[dict[str, Callable[[np.random.Generator, int], Questions]]] = {
    "Dirichlet": _dirichlet,
    "Pitman-Yor": _pitman_yor,
    "like recorded": _recorded_like,
    "two answers, hard": _two_hard,
    "two answers, easy": _two_easy,
    "two modes": _two_modes,
    "hopeless": _hopeless,
    "near-perfect": _near_perfect,
    "40 % without": _without_answer,
    "temperature 0": _temperature_0,
}
"""Kinds of answers: name -> (generator, questions) -> questions."""
