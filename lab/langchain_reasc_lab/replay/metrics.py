"""From outcomes to a table's rows: means over shuffles, intervals from a bootstrap over questions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from langchain_reasc.calibrating import MeasureSpec
from langchain_reasc_lab.replay.arrangement import COLUMNS
from langchain_reasc_lab.replay.bootstrap import RESAMPLES, Bootstrap, Estimate, exact, ratio
from langchain_reasc_lab.replay.comparison import Outcomes, RowKey
from langchain_reasc_lab.replay.methods import ASC_ROW
from langchain_reasc_lab.replay.replay import Replay

__all__ = ["RESAMPLES", "Estimate", "Row", "difference", "never_differs", "side_by_side", "summarize", "tflops"]


@dataclass(frozen=True, slots=True)
class Row:
    """One method under one measure.

    Attributes:
        method: the method's name.
        spec: the measure asked for; None for methods that count votes.
        accuracy: share of right answers; of none and of all, with the exact interval.
        samples: responses used per question.
        tokens: tokens generated per question, in the responses used.
        prompt_tokens: prompt tokens of those responses, each counted in full; None where the pool does not say.
        tokens_vs_sc: tokens relative to self-consistency.
        tokens_vs_asc: tokens relative to ASC.
        accuracy_vs_sc: accuracy minus self-consistency's on the same questions and responses.
        accuracy_vs_asc: accuracy minus ASC's, likewise.
        no_difference: whether no question was answered otherwise than by ASC, by another rule; the interval of
            ``accuracy_vs_asc`` is then the exact one of a share that was never seen.
        gated: share of questions answered by the gate from one response.
        tflops: 2N floating-point operations per generated token, in 10¹² per question; None without N.
        outcomes: what it rests on.
    """

    method: str
    spec: MeasureSpec | None
    accuracy: Estimate
    samples: Estimate
    tokens: Estimate
    prompt_tokens: float | None
    tokens_vs_sc: Estimate
    tokens_vs_asc: Estimate
    accuracy_vs_sc: Estimate
    accuracy_vs_asc: Estimate
    no_difference: bool
    gated: float
    tflops: float | None
    outcomes: Outcomes


def summarize(run: Replay, *, parameters: float | None = None, resamples: int = RESAMPLES) -> list[Row]:
    """The rows of a replay, in the order of its methods.

    A value is the mean over shuffles; its interval comes from resampling questions, each with all that it gave in the
    shuffles in which it was tested. All methods share the resamples, so that differences are paired.

    Args:
        run: a replay.
        parameters: N, the model's number of parameters, for TFLOPs (Kaplan et al. 2020: 2N per token).
        resamples: how often the bootstrap draws the questions again.
    """
    by_question = side_by_side(run.outcomes, seed=run.seed, resamples=resamples)
    sc, asc = (run.settings.fixed_budget, None), (ASC_ROW, None)

    def row(key: RowKey) -> Row:
        outcomes = run.outcomes[key]
        tokens, prompts = by_question.mean((key, "tokens")), by_question.mean((key, "prompt_tokens"))
        return Row(
            method=key[0],
            spec=key[1],
            accuracy=by_question.share((key, "correct")),
            samples=by_question.resampled((key, "samples")),
            tokens=by_question.resampled((key, "tokens")),
            prompt_tokens=None if np.isnan(prompts) else prompts,
            tokens_vs_sc=by_question.estimate(lambda mean: ratio(mean((key, "tokens")), mean((sc, "tokens")))),
            tokens_vs_asc=by_question.estimate(lambda mean: ratio(mean((key, "tokens")), mean((asc, "tokens")))),
            accuracy_vs_sc=difference(by_question, run.outcomes, key, sc),
            accuracy_vs_asc=difference(by_question, run.outcomes, key, asc),
            no_difference=never_differs(outcomes, run.outcomes[asc]),
            gated=by_question.mean((key, "gated")),
            tflops=None if parameters is None else tflops(parameters, tokens),
            outcomes=outcomes,
        )

    return [row(key) for key in run.outcomes]


def tflops(parameters: float, tokens: float) -> float:
    """10¹² floating-point operations for so many generated tokens: 2N each (Kaplan et al. 2020)."""
    return 2 * parameters * tokens / 1e12


def side_by_side(outcomes: Mapping[RowKey, Outcomes], *, seed: int, resamples: int = RESAMPLES) -> Bootstrap:
    """The means of several methods on the same arrangements; columns are named ((method, measure), column)."""
    columns = {(key, name): held.column(name) for key, held in outcomes.items() for name in COLUMNS}
    return Bootstrap(columns, next(iter(outcomes.values())).tested, seed=seed, resamples=resamples)


def difference(by_question: Bootstrap, outcomes: Mapping[RowKey, Outcomes], one: RowKey, other: RowKey) -> Estimate:
    """How much more accurate one method is than another on the same questions and responses.

    Where other rules never differed in an answer's being right, resamples of nothing say nothing: the interval is then
    Clopper and Pearson's bound on how many questions may differ all the same.
    """
    if never_differs(outcomes[one], outcomes[other]):
        most = exact(0, by_question.questions).high
        return Estimate(0.0, -most, most)
    return by_question.estimate(lambda mean: mean((one, "correct")) - mean((other, "correct")))


def never_differs(one: Outcomes, other: Outcomes) -> bool:
    """Whether they never differed in an answer's being right, and might have: their rules are not the same."""
    return one.rules != other.rules and np.array_equal(one.column("correct"), other.column("correct"), equal_nan=True)
