"""Join two recordings of the same questions: a small model's responses and a large
one's.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc_lab.pools import (
    MeasureSpec,
    Pool,
    PoolQuestion,
    PoolResponse,
    PoolScores,
    extractor_of,
)

__all__ = ["Answered", "JoinedQuestion", "Pair", "join"]

_FEWEST: Final = 10
"""Questions that two recordings must have in common."""
_FEW_DIFFER: Final = 0.1
"""The share of questions with different references up to which these questions are left
out.
"""


class Answered(NamedTuple):
    """A recorded response.

    Attributes:
        answer: equal for equal answers of either model; None if there is none.
        right: whether it is right.
        cost: in answers of the large model, as they cost on average.
        score: S(y); None if it is not read.
        cut_off: whether it ended early.
    """

    answer: str | None
    right: bool
    cost: float
    score: float | None = None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class JoinedQuestion:
    """A question with the responses of both models, in the order in which they are
    drawn.
    """

    small: tuple[Answered, ...]
    large: tuple[Answered, ...]


@dataclass(frozen=True)
class Pair:
    """A small and a large model on the same questions.

    Attributes:
        small: the small model's pool.
        large: the large model's.
        questions: the questions that both were asked, in the order of the small model's
            pool.
        comparable: whether equal answers of the two models can be told. If not, only
            what is right is known.
        scored: whether the small model's responses have scores.
        price_ratio: what a token (or an answer) of the large model costs, in those of
            the small one.
        flat: whether each answer of a model costs the same.
        notes: what to know of the join.
    """

    small: Pool
    large: Pool
    questions: tuple[JoinedQuestion, ...]
    comparable: bool
    scored: bool
    price_ratio: float
    flat: bool
    notes: tuple[str, ...]

    @cached_property
    def differs_from_itself(self) -> float:
        """How often two answers of the large model to one question differ; NaN if each
        question has only one.
        """
        return float(
            np.mean(
                [_differing(one.large) for one in self.questions if len(one.large) > 1]
                or [np.nan]
            )
        )

    @property
    def price(self) -> float:
        """What an answer of the small model costs on average, in answers of the large
        model.
        """
        return float(
            np.mean(
                [np.mean([given.cost for given in one.small]) for one in self.questions]
            )
        )


def join(
    small: Pool,
    large: Pool,
    *,
    price_ratio: float = 10.0,
    flat: bool = False,
    measure: MeasureSpec | None = None,
) -> Pair:
    """Join two pools by the ids of their questions, or by their inputs where that joins
    more.

    Args:
        small: the small model's responses.
        large: the large model's.
        price_ratio: what a token of the large model costs, in tokens of the small one.
            Prompt tokens count if both pools have them.
        flat: whether all answers of a model cost the same; ``price_ratio`` is then of
            answers.
        measure: the small model's measure of confidence; None for no scores.

    Raises:
        ConfigurationError: the price ratio is not above 0.
        PoolError: hardly any question is in both, or their references differ on many.
    """
    if not price_ratio > 0:
        raise ConfigurationError(f"price-ratio must be above 0, got {price_ratio:g}")
    pairs, notes = _joined(small, large)
    pairs, comparable, differing = _with_equal_references(small, large, pairs)
    notes += differing
    scores = None if measure is None else PoolScores(small).scores(measure)
    prompts = small.has_prompt_tokens and large.has_prompt_tokens
    if not flat and (
        counted_not := [pool for pool in (small, large) if not _counts_tokens(pool)]
    ):
        flat = True
        names = " and ".join(pool.path.name for pool in counted_not)
        notes.append(
            f"no token counts in {names}: each answer of a model costs the same, 1 : "
            f"{price_ratio:g}"
        )

    def cost(one: PoolResponse, ratio: float) -> float:
        return ratio * (
            1
            if flat
            else one.completion_tokens + (one.prompt_tokens or 0 if prompts else 0)
        )

    unit = float(
        np.mean(
            [
                np.mean(
                    [cost(one, price_ratio) for one in large.questions[at].responses]
                )
                for _, at in pairs
            ]
        )
    )
    if not unit > 0:
        raise PoolError(
            f"the responses of {large.path} have no tokens; pass --flat-cost to count "
            "answers"
        )

    def answered(
        model: str, question: PoolQuestion, scored: Sequence[float | None] | None
    ) -> tuple[Answered, ...]:
        return tuple(
            Answered(
                answer=_told(one, model) if not comparable else one.answer,
                right=bool(one.correct),
                cost=cost(one, price_ratio if model == "large" else 1.0) / unit,
                score=None if scored is None else scored[number],
                cut_off=one.cut_off,
            )
            for number, one in enumerate(question.responses)
        )

    questions = tuple(
        JoinedQuestion(
            answered("small", small.questions[one], scores[one] if scores else None),
            answered("large", large.questions[other], None),
        )
        for one, other in pairs
    )
    if comparable and (spelled := _differently_spelled(questions)) > _FEW_DIFFER / 5:
        notes.append(
            f"{spelled:.0%} of the pairs of right answers are spelled differently; a "
            "live run, too, would take them for different answers, unless it is told "
            "when two are the same"
        )
    return Pair(
        small,
        large,
        questions,
        comparable,
        scores is not None,
        price_ratio,
        flat,
        tuple(notes),
    )


def _joined(small: Pool, large: Pool) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the positions of the questions that are in both, and a note on how many
    are.
    """
    by_id = _shared(small, large, lambda one: one.id)
    by_input = _shared(
        small,
        large,
        lambda one: json.dumps(one.input, sort_keys=True) if one.input else None,
    )
    pairs, how = (by_input, "input") if len(by_input) > len(by_id) else (by_id, "id")
    held = min(len(small.questions), len(large.questions))
    if len(pairs) < max(_FEWEST, held / 10):
        raise PoolError(
            f"{small.path} and {large.path} have {len(pairs)} of {held} questions in "
            "common, by id or input. Record both models on the same questions; in JSON "
            "Lines, question_key may name a question for both"
        )
    left_out = len(small.questions) + len(large.questions) - 2 * len(pairs)
    more = f"; {left_out} questions are in one pool alone" if left_out else ""
    return pairs, [f"{len(pairs)} questions joined by {how}{more}"]


def _shared(
    small: Pool, large: Pool, name: Callable[[PoolQuestion], str | None]
) -> list[tuple[int, int]]:
    there = {
        key: at
        for at, one in enumerate(large.questions)
        if (key := name(one)) is not None
    }
    return [
        (at, there[key])
        for at, one in enumerate(small.questions)
        if (key := name(one)) in there
    ]


def _with_equal_references(
    small: Pool, large: Pool, pairs: list[tuple[int, int]]
) -> tuple[list[tuple[int, int]], bool, list[str]]:
    """Leave out the few questions whose references differ.

    Returns:
        The pairs, whether answers can be compared, and notes. They cannot be if the
        references are letters that differ between the recordings: each then shuffled
        the options of a question in its own way.

    Raises:
        PoolError: other references differ on many questions.
    """
    extractors = [extractor_of(pool.metadata) for pool in (small, large)]
    references = [
        tuple(
            {
                extract.form(extract.label(reference)).key
                for reference in pool.questions[at].references
            }
            for extract, pool, at in zip(extractors, (small, large), pair, strict=True)
        )
        for pair in pairs
    ]
    differing = [
        at
        for at, (one, other) in enumerate(references)
        if one and other and not one & other
    ]
    if not differing:
        return pairs, True, []
    one, other = (min(each) for each in references[differing[0]])
    example = f"question {small.questions[pairs[differing[0]][0]].id!r}: {one!r} and {other!r}"
    if len(differing) <= _FEW_DIFFER * len(pairs):
        kept = [pair for at, pair in enumerate(pairs) if at not in set(differing)]
        return (
            kept,
            True,
            [
                (
                    f"{len(differing)} questions have different references ({example}) and "
                    "are left out"
                )
            ],
        )
    letters = all(
        len(answer) == 1 and answer.isalpha()
        for each in references
        for side in each
        for answer in side
    )
    if not letters:
        raise PoolError(
            f"the references of {small.path} and {large.path} differ on "
            f"{len(differing)} of {len(pairs)} questions ({example}), so these are "
            "different questions, or one pool is labelled wrong"
        )
    note = (
        f"the right letter differs on {len(differing)} of {len(pairs)} questions "
        f"({example}): each recording shuffled the options, so answers of the two "
        "cannot be compared; what is right decides instead, as with labels"
    )
    return pairs, False, [note]


def _told(one: PoolResponse, model: str) -> str | None:
    """Return what is known of an answer that cannot be compared: right answers are
    equal, wrong ones not.
    """
    return (
        None
        if one.answer is None
        else "right"
        if one.correct
        else f"{one.answer} ({model})"
    )


def _counts_tokens(pool: Pool) -> bool:
    return any(one.completion_tokens > 1 for one in pool.responses)


def _differing(given: Sequence[Answered]) -> float:
    """Return how often two of these responses differ; one without an answer differs
    from all.
    """
    answers = [one.answer for one in given]
    alike = sum(answers.count(one) - 1 for one in answers if one is not None)
    return 1 - alike / (len(answers) * (len(answers) - 1))


def _differently_spelled(questions: Sequence[JoinedQuestion]) -> float:
    """Return the share of questions that both models answer rightly, on which they
    spell the answer differently.
    """
    first = [
        [
            next((given.answer for given in side if given.right), None)
            for side in (one.small, one.large)
        ]
        for one in questions
    ]
    both = [small != large for small, large in first if None not in (small, large)]
    return float(np.mean(both)) if both else 0.0
