"""From outcomes to a table's rows: means over shuffles, intervals from a bootstrap over questions."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_reasc.evaluation.methods import ASC_ROW
from langchain_reasc.evaluation.replay import Outcomes, Replay, RowKey
from langchain_reasc.evaluation.scoring import MeasureSpec

__all__ = ["RESAMPLES", "Estimate", "Row", "summarize"]

RESAMPLES = 2000
_BATCH = 100  # resamples at a time, so that memory stays small on large pools

Array = npt.NDArray[np.float64]
_CORRECT, _SAMPLES, _TOKENS, _PROMPTS, _GATED, _ = range(6)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One method under one measure.

    Attributes:
        method: the method's name.
        spec: the measure asked for; None for methods that count votes.
        accuracy: share of right answers.
        samples: responses used per question.
        tokens: tokens generated per question, in the responses used.
        prompt_tokens: prompt tokens of those responses, each counted in full; None where the pool does not say.
        tokens_vs_sc: tokens relative to self-consistency.
        tokens_vs_asc: tokens relative to ASC.
        accuracy_vs_asc: accuracy minus ASC's on the same questions and responses.
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
    accuracy_vs_asc: Estimate
    no_difference: bool
    gated: float
    tflops: float | None
    outcomes: Outcomes


def summarize(run: Replay, *, parameters: float | None = None, resamples: int = RESAMPLES) -> list[Row]:
    """The rows of a replay, in the order of its methods.

    A value is the mean over shuffles; its interval comes from resampling questions, each represented by its mean over
    the shuffles in which it was tested. All methods share the resamples, so that differences are paired.

    Args:
        run: a replay.
        parameters: N, the model's number of parameters, for TFLOPs (Kaplan et al. 2020: 2N per token).
        resamples: how often the bootstrap draws the questions again.
    """
    keys = list(run.outcomes)
    values = np.stack([_over_shuffles(run.outcomes[key]) for key in keys])  # (methods, columns)
    resampled = _bootstrap(np.stack([_per_question(run.outcomes[key]) for key in keys], axis=1), resamples, run.seed)
    sc, asc = keys.index((run.settings.fixed_budget, None)), keys.index((ASC_ROW, None))

    def row(at: int, key: RowKey) -> Row:
        def estimate(of: Callable[[Array, int], Array]) -> Estimate:
            low, high = np.percentile(of(resampled, at), [2.5, 97.5])
            return Estimate(float(of(values[None], at)[0]), float(low), float(high))

        tokens = float(values[at, _TOKENS])
        prompts = float(values[at, _PROMPTS])
        same = _always_like(run.outcomes[key], run.outcomes[keys[asc]])
        difference = estimate(lambda cells, i: cells[:, i, _CORRECT] - cells[:, asc, _CORRECT])
        return Row(
            method=key[0],
            spec=key[1],
            accuracy=estimate(lambda cells, i: cells[:, i, _CORRECT]),
            samples=estimate(lambda cells, i: cells[:, i, _SAMPLES]),
            tokens=estimate(lambda cells, i: cells[:, i, _TOKENS]),
            prompt_tokens=None if np.isnan(prompts) else prompts,
            tokens_vs_sc=estimate(lambda cells, i: _ratio(cells[:, i, _TOKENS], cells[:, sc, _TOKENS])),
            tokens_vs_asc=estimate(lambda cells, i: _ratio(cells[:, i, _TOKENS], cells[:, asc, _TOKENS])),
            accuracy_vs_asc=_never_seen(run.outcomes[key]) if same else difference,
            no_difference=same,
            gated=float(values[at, _GATED]),
            tflops=None if parameters is None else 2 * parameters * tokens / 1e12,
            outcomes=run.outcomes[key],
        )

    return [row(at, key) for at, key in enumerate(keys)]


def _over_shuffles(outcomes: Outcomes) -> Array:
    """Mean over the tested questions of each shuffle, then over shuffles; shape (columns,)."""
    tested = ~np.isnan(outcomes.cells[:, :, _CORRECT])
    per_shuffle = np.where(tested[:, :, None], outcomes.cells, 0.0).sum(axis=1) / tested.sum(axis=1)[:, None]
    return np.asarray(per_shuffle.mean(axis=0))


def _per_question(outcomes: Outcomes) -> Array:
    """Mean over the shuffles in which a question was tested; shape (questions tested at all, columns)."""
    tested = ~np.isnan(outcomes.cells[:, :, _CORRECT])
    times = tested.sum(axis=0)
    sums = np.where(tested[:, :, None], outcomes.cells, 0.0).sum(axis=0)
    return np.asarray(sums[times > 0] / times[times > 0, None])


def _always_like(one: Outcomes, asc: Outcomes) -> bool:
    """Whether they never differed in an answer's being right, and might have: their rules are not the same."""
    return one.rules != asc.rules and np.array_equal(one.cells[..., _CORRECT], asc.cells[..., _CORRECT], equal_nan=True)


def _never_seen(outcomes: Outcomes) -> Estimate:
    """No difference, with Clopper and Pearson's bound on how many differ: resamples of nothing say nothing."""
    from scipy.stats import binomtest

    questions = int((~np.isnan(outcomes.cells[..., _CORRECT])).any(axis=0).sum())
    most = float(binomtest(0, questions).proportion_ci(0.95, method="exact").high)
    return Estimate(0.0, -most, most)


def _bootstrap(cells: Array, resamples: int, seed: int) -> Array:
    """Means over resampled questions: (questions, methods, columns) -> (resamples, methods, columns)."""
    n = len(cells)
    rng = np.random.default_rng([seed, resamples])
    flat = cells.reshape(n, -1)
    means = []
    for start in range(0, resamples, _BATCH):
        times_drawn = rng.multinomial(n, np.full(n, 1 / n), size=min(_BATCH, resamples - start))
        means.append(times_drawn @ flat / n)
    return np.concatenate(means).reshape(resamples, *cells.shape[1:])


def _ratio(one: Array, other: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a pool of empty responses: 0 / 0 is "not a number", no crash
        return np.asarray(one / other)
