"""The odds of being right by score, from labelled responses, for the rules that weigh by odds."""

from collections.abc import Sequence

import numpy as np

from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.bayesian_vote import LogisticOdds
from langchain_reasc.method.evidence import Standardizer

__all__ = ["fit_odds"]


def fit_odds(scores: Sequence[float], correct: Sequence[bool]) -> LogisticOdds:
    """Fit a logistic regression of "is right" on z = (S − μ) / σ, with scikit-learn's penalty (C = 1).

    Args:
        scores: S(y) of n labelled responses, finite.
        correct: whether each is right.

    Raises:
        CalibrationDataError: all are right, or none is, or all scores are equal.
    """
    if len(set(correct)) < 2:
        raise CalibrationDataError(
            f"odds are learned from right and wrong responses; of {len(correct)}, {sum(correct)} are right. Label more"
        )
    mean, std = float(np.mean(scores)), float(np.std(scores))
    if not std > 0:
        raise CalibrationDataError(f"all {len(scores)} scores are {mean:g}, so they say nothing of being right")
    from sklearn.linear_model import LogisticRegression

    statistics = Standardizer(mean, std)
    fit = LogisticRegression().fit([[statistics.z(score)] for score in scores], correct)
    return LogisticOdds(statistics, float(fit.coef_[0, 0]), float(fit.intercept_[0]))
