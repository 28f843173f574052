"""Questions drawn from the model of answers and scores itself, with what is not seen of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langchain_reasc.calibration import Observation
from langchain_reasc.method.agreement import Component, Prior
from langchain_reasc.method.score_model import ScoreModel
from langchain_reasc.method.stopping import Cap, Response, StoppingRule, decide


def drawn(component: Component, responses: int, rng: np.random.Generator) -> list[int]:
    answers: list[int] = []
    for n in range(responses):
        counts = np.bincount(answers) if answers else np.zeros(0)
        chances = [*(counts - component.discount), component.concentration + len(counts) * component.discount]
        answers.append(int(rng.choice(len(chances), p=np.maximum(chances, 0) / (n + component.concentration))))
    return answers


class Drawn(NamedTuple):
    """A question.

    Attributes:
        row: what is seen of it.
        component: the number of its component.
        final: K, what twice the budget would answer.
    """

    row: Observation
    component: int
    final: int


def questions_of(
    prior: Prior, model: ScoreModel, n: int, budget: int, seed: int, rule: StoppingRule | None = None
) -> list[Drawn]:
    """Draw questions. Their scores are normal scores already.

    Args:
        prior: how answers agree.
        model: how scores depend on it.
        n: how many.
        budget: responses to a question at most.
        seed: of it all.
        rule: where sampling stops early.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        component = int(rng.choice(len(prior.components), p=prior.weights))
        answers = np.array(drawn(prior.components[component], 2 * budget, rng))
        counts = np.bincount(answers)
        final = int(rng.choice(np.flatnonzero(counts == counts.max())))
        answers = answers[:budget]
        scores = model.intercept + model.of_questions * prior.agreement[component]
        scores = scores + model.of_answers * (answers == final) + rng.normal(0, model.question_variance**0.5)
        scores += rng.normal(0, model.answer_variance**0.5, counts.size)[answers]
        scores += rng.normal(0, model.response_variance**0.5, budget)
        used = budget if rule is None else _used(rule | Cap(budget), answers.tolist(), scores.tolist())
        row = Observation(tuple(answers[:used].tolist()), scores[None, :used])
        found.append(Drawn(row, component, final))
    return found


def _used(rule: StoppingRule, answers: Sequence[int], scores: Sequence[float]) -> int:
    given = [Response(str(answer), score) for answer, score in zip(answers, scores, strict=True)]
    return decide(rule, given).samples
