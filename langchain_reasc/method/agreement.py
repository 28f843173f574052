"""The agreement rule: stop when the whole budget would most likely give the same
answer.

The rule only looks at how often each answer was given: a partition of the number of
answers. In a Pitman–Yor process of discount d and concentration α (Pitman and Yor
1997), the next response gives answer i, seen n_i times, with probability (n_i − d) / (n
+ α), and a new answer with probability (α + k d) / (n + α), where k answers have been
seen. With d = −κ and α = mκ it is the symmetric Dirichlet over m answers. A
:class:`Prior` is a mixture of such processes, from models that nearly always agree with
themselves to models that hardly ever do.

The probability that the leader stays is exact: dynamic programming over partitions,
backwards from the last answer. With a :class:`~.score_model.ScoreModel`, the scores of
responses join the same posterior: of component c, and of the answer K that the whole
budget would give, it is proportional to w_c · EPPF_c(counts) · P(K | counts, c) ·
N(scores | c, K).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Response, is_cut_off_alone
from langchain_reasc.method.evidence import evidence_by_answer
from langchain_reasc.method.horizon import stays_ahead
from langchain_reasc.method.score_model import AnswerScores, ScoreModel
from langchain_reasc.method.stopping import (
    DEFAULT_BUDGET,
    StoppingRule,
    check_budget,
    check_probability,
)

__all__ = [
    "LARGEST_HORIZON",
    "Agreement",
    "Component",
    "Outlook",
    "Prior",
    "default_components",
    "final_answers",
    "likelihood",
    "likelihoods",
    "scored_horizon",
    "stays",
]

LARGEST_HORIZON: Final = 24
"""The most answers with an exact look-ahead. More answers have too many partitions to
count.
"""

Floats = npt.NDArray[np.float64]
Shape = tuple[int, ...]
"""How often each answer was given: first the followed answer (usually the leader), then
the others, largest first.
"""


@dataclass(frozen=True)
class Agreement(StoppingRule):
    """Stop when P(K is the answer | counts, scores) ≥ ``threshold``, where K is what
    the whole budget would answer.

    The probability is exact for the prior and the score model, which are learned
    without labels from how often answers agree, and how the scores of responses depend
    on it. A response without a score is a count, and one without a vote uses one of the
    remaining calls. The rule promises agreement with the majority of further responses,
    not a right answer. The rule itself does not stop at the end of the budget; combine
    it with :class:`~langchain_reasc.method.stopping.Cap`.

    With scores, K is what twice the budget would answer, up to 24 responses, and the
    answer is the likeliest one, also when the budget is spent: scores tell what further
    responses would answer. Without, the answer is the leader.

    Attributes:
        prior: the expected agreement of answers.
        threshold: θ, above one half.
        budget: the total number of responses, ``max_samples``. The probability is exact
            up to 24 answers. Beyond 24, only the two leading answers count, as in
            :class:`~langchain_reasc.method.horizon.FiniteHorizon`.
        scores: what the scores of responses tell; None if only answers count.
    """

    name: ClassVar[str] = "agreement"
    prior: "Prior"
    threshold: float = 0.97
    budget: int = DEFAULT_BUDGET
    scores: ScoreModel | None = None

    def __post_init__(self) -> None:
        check_probability("threshold", self.threshold)
        check_budget(self.budget)

    @property
    def reads_scores(self) -> bool:
        return self.scores is not None

    @cached_property
    def first_wave(self) -> int | None:
        """The fewest equal responses that stop, if their scores are the best or the
        worst; None if scores are not read.
        """
        if self.scores is None:
            return None
        extremes = [Response("", score) for score in self.scores.extremes]
        for number in range(1, self.budget):
            if any(self([response] * number).stop for response in extremes):
                return number
        return self.budget

    def __call__(self, responses: Sequence[Response]) -> Decision:
        evidence = evidence_by_answer((response.answer, 1.0) for response in responses)
        left = self.budget - len(responses)
        outlook = self._outlook(evidence, responses, left)
        stop = (
            left > 0
            and outlook.stays >= self.threshold
            and not is_cut_off_alone(responses)
        )
        return Decision(
            stop,
            outlook.answer,
            "agreement" if stop else None,
            len(responses),
            evidence,
            outlook.stays,
            agrees=outlook.agrees,
        )

    def leader_stays(self, votes: Mapping[str, float], left: int) -> float:
        """Return P(the leader now is what the whole budget would answer | counts); 0
        without a leader.

        Args:
            votes: how many responses gave each answer.
            left: remaining calls.
        """
        return self._of_leader(votes, left).stays

    def _outlook(
        self, votes: Mapping[str, float], responses: Sequence[Response], left: int
    ) -> "Outlook":
        """Return the answer, and how likely it is.

        Args:
            votes: how many responses gave each answer.
            responses: the responses, for their scores.
            left: remaining calls.
        """
        counts = tuple(sorted(map(int, votes.values()), reverse=True))
        if self.scores is None or not 0 < sum(counts) < LARGEST_HORIZON:
            return self._of_leader(votes, left)
        ranked = _ranked(votes)
        scores = self._normal_scores(self.scores, ranked, responses)
        likely = self.scores.log_likelihoods(scores, self.prior.agreement)
        horizon = scored_horizon(self.budget, sum(counts))
        index, stays, agrees = self.prior.likeliest(likely, counts, horizon)
        return Outlook(ranked[index], stays, agrees)

    def _of_leader(self, votes: Mapping[str, float], left: int) -> "Outlook":
        """Return the leader, and how likely it is by the counts alone."""
        ranked = _ranked(votes)
        if not ranked:
            return Outlook(None, 0.0, None)
        counts = tuple(int(votes[answer]) for answer in ranked)
        total = sum(counts)
        if left <= 0:
            stays = 1 / counts.count(counts[0])
        elif total >= LARGEST_HORIZON:
            second = counts[1] if len(counts) > 1 else 0
            stays = stays_ahead(counts[0], second, left)
        else:
            # Beyond 24, calls without an answer do not shorten the horizon, because
            # each horizon needs another table.
            is_exact = total + left <= LARGEST_HORIZON
            horizon = total + left if is_exact else self.budget
            stays = self.prior.leader_stays(counts, horizon)
        return Outlook(ranked[0], stays, self.prior.share(counts))

    def _normal_scores(
        self,
        scores: ScoreModel,
        answers: Sequence[str],
        responses: Sequence[Response],
    ) -> AnswerScores:
        """Return the normal scores of the answers."""
        rows = {answer: row for row, answer in enumerate(answers)}
        scored = [
            (rows[response.answer], response.score)
            for response in responses
            if response.answer in rows
            and response.score is not None
            and not response.blank
        ]
        # The last row is that of all other answers.
        number = [0.0] * (len(answers) + 1)
        total = [0.0] * (len(answers) + 1)
        normal = scores.normal_scores([score for _, score in scored])
        for (row, _), score in zip(scored, normal.tolist(), strict=True):
            number[row] += 1
            total[row] += score
        return AnswerScores.of_question(number, total)


class Outlook(NamedTuple):
    """An answer, and what to expect of it.

    Attributes:
        answer: the answer; None without a vote.
        stays: P(it is K, the answer of the whole budget).
        agrees: P(one further response would give it); None without a vote.
    """

    answer: str | None
    stays: float
    agrees: float | None


def scored_horizon(budget: int, answers: int) -> int:
    """Return the number of responses whose answer is K, with scores: twice the budget,
    as far as that is exact.

    Args:
        budget: responses to a question at most.
        answers: how many there are.
    """
    return max(min(2 * budget, LARGEST_HORIZON), answers)


def _ranked(votes: Mapping[str, float]) -> list[str]:
    """Return the answers, most votes first; of equal counts, the first one leads."""
    return sorted(votes, key=lambda answer: -votes[answer])


class Component(NamedTuple):
    """A Pitman–Yor process with discount d < 1 and concentration α > −d. If d < 0,
    there are at most α / −d answers.
    """

    discount: float
    concentration: float


@lru_cache(maxsize=1)
def default_components() -> tuple[Component, ...]:
    """Return a grid from "always the same answer" to "hardly ever the same", and tasks
    of 2, 3 and 5 answers.
    """
    processes = product((0.0, 0.3, 0.6, 0.85), (0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 40.0))
    choices = product((2, 3, 5), (0.2, 1.0, 5.0))
    return (
        *(Component(discount, concentration) for discount, concentration in processes),
        *(Component(-share, answers * share) for answers, share in choices),
    )


@dataclass(frozen=True)
class Prior:
    """A mixture of Pitman–Yor processes, with weights that sum to one."""

    components: tuple[Component, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.components) != len(self.weights) or not self.components:
            raise ConfigurationError(
                f"{len(self.components)} components have {len(self.weights)} weights"
            )
        if (
            any(weight < 0 for weight in self.weights)
            or abs(sum(self.weights) - 1) > 1e-6
        ):
            raise ConfigurationError(
                "the weights of a prior must be >= 0 and sum to 1, got a sum of "
                f"{sum(self.weights):g}"
            )

    @classmethod
    def uniform(cls) -> "Prior":
        """Return all default components with equal weights, for use before anything is
        learned.
        """
        components = default_components()
        return cls(components, (1 / len(components),) * len(components))

    @cached_property
    def agreement(self) -> Floats:
        """g_c: the logit of how often two answers of each component agree, from −3 to
        5; shape (components,).
        """
        grid = np.asarray(self.components, dtype=np.float64)
        again = 1 - grid[:, 0]
        other = np.maximum(grid[:, 1] + grid[:, 0], 1e-9)
        return np.clip(np.log(again / other), -3.0, 5.0)

    def leader_stays(self, counts: Sequence[int], horizon: int) -> float:
        """Return P(the answer of ``counts[0]`` has the most votes once there are
        ``horizon`` answers | the counts).

        Args:
            counts: how often each answer was given, the leader's count first; 1 to 24
                answers in all.
            horizon: final number of answers, at least ``sum(counts)``.
        """
        shape = _shape(counts)
        if (shape, horizon) not in self._known:
            stay = float(self.posterior(shape) @ stays(shape, horizon, self.components))
            # the weights' sum may be one rounding above 1
            self._known[shape, horizon] = min(1.0, stay)
        return self._known[shape, horizon]

    def likeliest(
        self, log_likelihoods: Floats, counts: tuple[int, ...], horizon: int
    ) -> tuple[int, float, float]:
        """Return the likeliest answer once there are ``horizon`` answers | the counts,
        the scores.

        Args:
            log_likelihoods: of the scores, for each answer, and for all others, as that
                of the horizon; shape (answers + 1, components).
            counts: how often each answer was given, largest first; 1 to 24 answers in
                all.
            horizon: final number of answers, at least ``sum(counts)``.

        Returns:
            Its index, P(it has the most votes at the horizon), and P(one further
            response would give it).
        """
        likely = np.asarray(self.weights) * likelihood(counts, self.components)
        likely = likely * np.exp(log_likelihoods - log_likelihoods.max())
        joint = likely * final_answers(counts, horizon, self.components)
        total = joint.sum()
        if not total > 0:  # no component allows these counts
            return 0, self.leader_stays(counts, horizon), self.share(counts)
        stay = joint.sum(axis=1) / total
        index = int(stay[:-1].argmax())
        agrees = self._next(likely, counts, horizon, index) / total
        # A sum may be one rounding above 1.
        return index, min(1.0, float(stay[index])), min(1.0, float(agrees))

    def _next(
        self, likely: Floats, counts: tuple[int, ...], horizon: int, index: int
    ) -> float:
        """Return the joint probability that one further response gives the answer of
        this index.
        """
        grid = np.asarray(self.components, dtype=np.float64)
        count = counts[index]
        share = np.maximum(count - grid[:, 0], 0.0) / (sum(counts) + grid[:, 1])
        after = counts
        if sum(counts) < min(horizon, LARGEST_HORIZON):
            after = (*counts[:index], count + 1, *counts[index + 1 :])
        final = final_answers(after, horizon, self.components)
        return float((likely * share * final).sum())

    def posterior(self, counts: Sequence[float]) -> Floats:
        """Return the weights of the components given the counts, shape (components,).

        If no component allows these counts, return the prior's weights.

        Args:
            counts: how often each answer was given.
        """
        weights = np.asarray(self.weights)
        joint: Floats = weights * likelihoods([counts], self.components)[0]
        return np.asarray(joint / joint.sum()) if joint.any() else weights

    def share(self, counts: Sequence[float]) -> float:
        """Return the expected share of the answer of ``counts[0]`` among infinitely
        many responses.

        Args:
            counts: how often each answer was given.
        """
        by_component = (
            max(counts[0] - d, 0.0) / (sum(counts) + concentration)
            for d, concentration in self.components
        )
        return float(self.posterior(counts) @ np.fromiter(by_component, float))

    @cached_property
    def _known(self) -> dict[tuple[Shape, int], float]:
        return {}


def likelihoods(
    partitions: Iterable[Sequence[float]], components: Sequence[Component]
) -> Floats:
    """Return P(a sequence of answers with these counts) for each component, shape
    (partitions, components).

    ∏_{i<k} (α + i d) / (α + 1)_{n−1} · ∏_i (1 − d)_{n_i − 1}, where i runs from 1 over
    the k different answers and (x)_m = x (x + 1) … (x + m − 1). The order of the
    answers does not matter.
    """
    from scipy.special import gammaln

    grid = np.asarray(components, dtype=np.float64)
    discount = grid[:, 0]
    concentration = grid[:, 1]
    again = 1 - discount
    rows = []
    for counts in partitions:  # in logarithms, as factorials soon overflow
        classes = np.arange(1, len(counts))[:, None]
        with np.errstate(divide="ignore"):  # a component that allows no more answers
            opened = np.log(np.maximum(concentration + classes * discount, 0.0)).sum(
                axis=0
            )
        repeats = sum(gammaln(again + count - 1) - gammaln(again) for count in counts)
        rows.append(
            np.exp(
                opened
                + repeats
                + gammaln(concentration + 1)
                - gammaln(concentration + sum(counts))
            )
        )
    return np.array(rows).reshape(len(rows), len(grid))


@lru_cache(maxsize=4096)
def likelihood(counts: Shape, components: tuple[Component, ...]) -> Floats:
    """Return :func:`likelihoods` of one partition, shape (components,)."""
    row: Floats = likelihoods([counts], components)[0]
    return row


@lru_cache(maxsize=2048)
def final_answers(
    counts: Shape, horizon: int, components: tuple[Component, ...]
) -> Floats:
    """Return P(each answer has the most votes at the horizon | the counts), and last
    that of any other answer; shape (answers + 1, components).

    Args:
        counts: how often each answer was given; 1 to 24 answers in all.
        horizon: final number of answers.
        components: the components.
    """
    rows = []
    for index, count in enumerate(counts):
        others = counts[:index] + counts[index + 1 :]
        rows.append(stays((count, *others), horizon, components))
    answers = np.array(rows)
    other = np.maximum(1 - answers.sum(axis=0), 0.0)
    return np.vstack((answers, other))


def stays(
    counts: Sequence[int], horizon: int, components: tuple[Component, ...]
) -> Floats:
    """Return P(the answer of ``counts[0]`` has the most votes at the horizon | the
    counts), shape (components,).

    If m answers are tied at the horizon, each counts 1/m. Votes after the 24th are
    assumed to name one of the two answers that lead after 24.

    Args:
        counts: how often each answer was given; 1 to 24 answers in all.
        horizon: final number of answers.
        components: the components.
    """
    n = sum(counts)
    shape = _shape(counts)
    probabilities: Floats = _table(horizon, components)[n][_positions(n)[shape]]
    return probabilities


def _shape(counts: Sequence[int]) -> Shape:
    return (counts[0], *sorted(counts[1:], reverse=True))


@lru_cache(maxsize=LARGEST_HORIZON)
def _table(horizon: int, components: tuple[Component, ...]) -> list[Floats]:
    """Return the probabilities after n ≤ 24 answers, up to the horizon; each of shape
    (shapes, components).
    """
    if horizon < 1:
        raise ConfigurationError(f"horizon must be at least 1 answer, got {horizon}")
    grid = np.asarray(components, dtype=np.float64)
    exact = min(horizon, LARGEST_HORIZON)
    values: list[Floats] = [np.zeros((0, len(grid)))] * (exact + 1)
    ends = [[_stays_to_the_end(shape, horizon - exact)] for shape in _positions(exact)]
    values[exact] = np.repeat(ends, len(grid), axis=1)
    discount = grid[:, 0]
    concentration = grid[:, 1]
    for n in range(exact - 1, 0, -1):
        into, *columns, begins = _steps(n)
        sizes, times, kinds = (column[:, None] for column in columns)
        weight = np.where(
            sizes > 0,
            times * (sizes - discount),
            np.maximum(concentration + kinds * discount, 0.0),
        )
        values[n] = np.add.reduceat(
            weight / (n + concentration) * values[n + 1][into], begins, axis=0
        )
    return values


def _stays_to_the_end(shape: Shape, left: int) -> float:
    followed, *rest = shape
    if left:
        return stays_ahead(followed, max(rest, default=0), left)
    return 1 / shape.count(followed) if followed == max(shape) else 0.0


@lru_cache(maxsize=LARGEST_HORIZON)
def _steps(
    n: int,
) -> tuple[npt.NDArray[np.intp], Floats, Floats, Floats, npt.NDArray[np.intp]]:
    """Return all transitions from n to n + 1 answers: several rows for each shape.

    Returns:
        For each row, the index of the new shape, how often the added answer was given
        before (0 for a new answer), how many answers were given that often, and how
        many different answers there are; and for each shape, its first row.
    """
    positions = _positions(n + 1)
    rows: list[tuple[int, int, int, int]] = []
    begins: list[int] = []
    for shape in _positions(n):
        begins.append(len(rows))
        rows += [
            (positions[after], size, times, len(shape))
            for after, size, times in _successors(shape)
        ]
    into, sizes, times, kinds = np.array(rows, dtype=np.intp).T
    return (
        into,
        sizes.astype(float),
        times.astype(float),
        kinds.astype(float),
        np.array(begins, dtype=np.intp),
    )


def _successors(shape: Shape) -> Iterator[tuple[Shape, int, int]]:
    followed, *rest = shape
    yield (followed + 1, *rest), followed, 1
    for size, times in Counter(rest).items():
        index = rest.index(size)  # the first of its size, so that the order stays
        yield (followed, *rest[:index], size + 1, *rest[index + 1 :]), size, times
    yield (*shape, 1), 0, 1


@lru_cache(maxsize=LARGEST_HORIZON + 1)
def _positions(n: int) -> dict[Shape, int]:
    """Return every shape of n answers with its index."""
    shapes = (
        (followed, *rest)
        for followed in range(1, n + 1)
        for rest in partitions(n - followed, n)
    )
    return {shape: index for index, shape in enumerate(shapes)}


def partitions(n: int, largest: int) -> Iterator[Shape]:
    if n == 0:
        yield ()
    for first in range(min(n, largest), 0, -1):
        for rest in partitions(n - first, first):
            yield (first, *rest)
