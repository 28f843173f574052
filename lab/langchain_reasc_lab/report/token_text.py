"""How confident a model was token by token: the text of some responses, coloured, or a line where no text was kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import CalibrationDataError, PoolError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.pools import PoolQuestion
from langchain_reasc_lab.replay.plots import empty_figure, legend_below
from langchain_reasc_lab.report.contents import figure
from langchain_reasc_lab.report.drawing import RIGHT, WRONG, for_each_pool, svg
from langchain_reasc_lab.report.parts import Figure
from langchain_reasc_lab.report.signals import chosen
from langchain_reasc_lab.report.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

__all__ = ["coloured", "tokens"]

_SHOWN: Final = 2  # right ones, and as many wrong ones
_SHARES: Final = (10, 25, 50)
_SHADES: Final = (0.6, 0.38, 0.18, 0.0)
_LONGEST: Final = 12  # tokens that a line is smoothed over, at most

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A response: its number from 1, what it answered, S(y), its signal, and its text cut into tokens, if known."""

    number: int
    answer: str | None
    correct: bool
    score: float
    signal: Array
    pieces: Sequence[str] | None

    @property
    def name(self) -> str:
        said = "no answer" if self.answer is None else f"answer {self.answer}"
        return f"Response {self.number}, {'right' if self.correct else 'wrong'} ({said})"

    @property
    def words(self) -> str:
        lowest = float(self.signal.min())
        return (
            f"{self.name}: {self.signal.size} tokens, S(y) = {self.score:.4g}, the least sure token has {lowest:.4g}."
        )


@figure("tokens", "Confidence token by token", paper="Figures 1 and 6")
def tokens(studies: Sequence[Study]) -> list[Figure]:
    """One question of each pool: its first right and wrong responses."""
    return for_each_pool(studies, _of_pool)


def _of_pool(at: int, study: Study) -> Figure:
    measure = chosen(study)
    if not isinstance(measure, Measure):
        raise PoolError(f"{study.pool.path} has scores of whole responses, and no signal of tokens")
    which = _typical(study, measure)
    question, shown = study.pool.questions[which], _responses(study, measure, which)
    written = all(one.pieces is not None for one in shown)
    words = " ".join(one.words for one in shown)
    notes = [
        f"Question {question.id}: of those with right and wrong responses the one whose difference between their mean "
        f"scores by {measure} is the median. Its first {_SHOWN} right and first {_SHOWN} wrong responses.",
    ]
    if written:
        html = coloured(question, shown)
        notes.append(f"The darker, the less sure ({measure.signal}); dotted: the least sure 10 % of all tokens shown.")
    else:
        title = f"{measure.signal} along the tokens of responses to question {question.id} in {study.name}"
        html = svg(lambda: _lines(shown, measure.signal), f"tokens-{at}", title)
        notes.append("The pool does not say which characters its tokens spell, as earlier recordings do not: lines.")
    return Figure(html, words, notes=notes)


def _typical(study: Study, measure: Measure) -> int:
    """The question whose right and wrong responses differ in their mean score by the median of such differences."""
    scores, gaps = study.scores.array(measure), {}
    for at, question in enumerate(study.pool.questions):
        held = scores[at, : len(question.responses)]
        right = np.array([bool(one.correct) for one in question.responses])
        known = np.isfinite(held)
        if (known & right).any() and (known & ~right).any():
            gaps[at] = float(held[known & right].mean() - held[known & ~right].mean())
    if not gaps:
        raise CalibrationDataError(
            f"no question in {study.pool.path} has both a right and a wrong response with token signals"
        )
    ranked = sorted(gaps, key=lambda at: (gaps[at], at))
    return ranked[len(ranked) // 2]


def _responses(study: Study, measure: Measure, which: int) -> list[_Shown]:
    question, signals = study.pool.questions[which], study.pool.signals
    assert signals is not None
    held, scores = signals.of(question.id), study.scores.array(measure)[which]
    texts, lengths = study.pool.texts(question.id), study.pool.token_lengths(question.id)
    all_shown = [
        _Shown(
            number + 1,
            one.answer,
            bool(one.correct),
            float(scores[number]),
            held[number][measure.signal],
            _cut(texts[number], lengths[number], held[number][measure.signal].size),
        )
        for number, one in enumerate(question.responses)
        if np.isfinite(scores[number])
    ]
    return [one for right in (True, False) for one in [each for each in all_shown if each.correct is right][:_SHOWN]]


def _cut(text: str | None, lengths: Sequence[int] | None, values: int) -> list[str] | None:
    """The text's tokens; None where they are not known, or are not those that have values."""
    if text is None or lengths is None or len(lengths) != values or sum(lengths) != len(text):
        return None
    ends = np.cumsum(lengths).tolist()
    return [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def coloured(question: PoolQuestion, shown: Sequence[_Shown]) -> str:
    """The responses as HTML: the darker a token, the less sure the model was of it."""
    every = np.concatenate([one.signal for one in shown])
    bounds = np.percentile(every, _SHARES)
    asked = question.input if isinstance(question.input, str) else f"question {question.id}"
    parts = [f'<p class="asked" dir="auto">{escape(asked)}</p>', _legend()]
    for one in shown:
        parts.append(f'<p class="answered">{escape(one.name)}, S(y) = {one.score:.4g}</p>')
        levels = np.searchsorted(bounds, one.signal, side="right").tolist()
        spans = (
            _span("".join(piece for piece, _ in run), level)
            for level, run in groupby(zip(one.pieces or (), levels, strict=True), key=lambda pair: pair[1])
        )
        parts.append(f'<p class="tokens" dir="auto" style="white-space: pre-wrap">{"".join(spans)}</p>')
    return f'<div class="token-text">{"".join(parts)}</div>'


def _span(text: str, level: int) -> str:
    if not text or not _SHADES[level]:
        return escape(text)
    line = "; text-decoration: underline dotted" if level == 0 else ""
    return f'<span style="background: rgba(217, 119, 43, {_SHADES[level]}){line}">{escape(text)}</span>'


def _legend() -> str:
    names = [f"least sure {_SHARES[0]} %", f"to {_SHARES[1]} %", f"to {_SHARES[2]} %"]
    return f'<p class="legend">{" ".join(_span(name, level) for level, name in enumerate(names))}</p>'


def _lines(shown: Sequence[_Shown], signal: str) -> "Drawn":
    drawn = empty_figure(5.2, 3.6)
    axes = drawn.subplots()
    for at, one in enumerate(shown):
        window = max(1, min(_LONGEST, one.signal.size // 4))
        smooth = np.convolve(one.signal, np.ones(window) / window, mode="valid")
        colour, dashes = (RIGHT if one.correct else WRONG), "--" if at % _SHOWN else "-"
        axes.plot(np.arange(smooth.size) + window / 2, smooth, dashes, color=colour, linewidth=1.3, label=one.name)
    axes.set_xlabel("token")
    axes.set_ylabel(f"{signal}, moving mean")
    axes.grid(alpha=0.25)
    legend_below(drawn)
    return drawn
