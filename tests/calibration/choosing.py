"""Choosing a measure for responses that are given by their token signals."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from langchain_reasc.calibration import Selection, candidate_measures, select_among
from langchain_reasc.method.confidence import Measure, Spans

Responses = list[dict[str, npt.NDArray[np.float64]]]


def select_measure(
    responses: Sequence[Mapping[str, npt.ArrayLike]],
    correct: npt.ArrayLike,
    spans: Sequence[Spans | None] = (),
    span_scores: Sequence[str] = (),
    seed: int = 0,
) -> Selection:
    """Choose among all measures of the signals of these responses, of equal length."""
    names = list(responses[0])
    measures = candidate_measures(names, longest=max(np.size(held) for held in responses[0].values()))
    measures += [Measure(name, score) for name in names for score in span_scores]
    scores = [
        [np.nan if one.of_span and span is None else one(held, span) for one in measures]
        for held, span in zip(responses, spans or [Spans()] * len(responses), strict=True)
    ]
    return select_among(measures, np.array(scores).T, correct, seed=seed)
