"""Answers in free text: the whole response is the answer, and those that mean the same vote together."""

import inspect
import math
import unicodedata
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding

from langchain_reasc.answers.equivalence import Ask, Equivalence, Same, Unclear
from langchain_reasc.answers.extractors import Extractor
from langchain_reasc.answers.judge import JUDGE_PROMPT, filled, placeholders, verdict_of
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["free_text", "name_of_judge", "spelling"]

_ROUNDING = 1e-9
_SHOWN = 80  # characters of a reply in a notice


def free_text(
    *,
    same: Same | None = None,
    embeddings: Embeddings | None = None,
    threshold: float = 0.9,
    judge: Runnable[Any, Any] | None = None,
    prompt: str | None = None,
    timeout: float | None = None,
) -> Extractor:
    """The whole text is the answer, and answers that mean the same vote together: a summary, an explanation, advice.

    One of ``same``, ``embeddings`` and ``judge`` tells whether two answers do. Answers that differ only in case, white
    space or a full stop at the end are the same without being compared. Any other new answer is compared with the first
    answer of each class there is, in the order of the samples' launches, until one is the same: 16 answers that all
    differ cost 120 comparisons. A class is named by its first answer; that is ``reasc.answer``.

    A comparison that fails costs only itself: the two count as not the same, and a notice says how many failed. After
    three failures in a row nobody else is asked about this question's answers. Tool calls vote as ever, and a text that
    was cut off casts no vote.

    Args:
        same: compares two answers, and returns a bool.
        embeddings: two answers are the same where the cosine of their vectors is ``threshold`` or more. Each answer is
            embedded once.
        threshold: above 0, at most 1. What is right depends on the embedding model.
        judge: a chat model that is asked whether two answers mean the same, or any Runnable that takes the prompt as a
            string and gives an ``AIMessage``. Whatever the length of the answers, they are sent whole. Its calls are
            runs of their own below the question's, tagged ``reasc:judge``. Their tokens are
            :attr:`Usage.judge <langchain_reasc.runnable.result.Usage>`, and no part of the winning message's
            ``usage_metadata``: the judge is another model, with another price.
        prompt: what the judge is asked instead of
            :data:`~langchain_reasc.answers.judge.JUDGE_PROMPT`: a text with ``{first}``, ``{second}`` and, if wanted,
            ``{question}`` (the last human message), each best between tags of its own, as in ``<a>{first}</a>``: what
            an answer itself writes of the prompt's tags is escaped. The judge must reply yes or no: as a word at the
            beginning or end, or in JSON as ``{"same": true}``.
        timeout: seconds that a comparison may take. That of the question ends comparing too.

    Raises:
        ConfigurationError: not exactly one of the three, or an option that does not go with it.

    Example:
        >>> reasc = ReASCRunnable(model=llm, answer=free_text(judge=small_llm))
    """
    given = {"same": same, "embeddings": embeddings, "judge": judge}
    kinds = [kind for kind, one in given.items() if one is not None]
    if len(kinds) != 1:
        raise ConfigurationError(
            f"free_text needs one of same=, embeddings= and judge= to tell which answers mean the same, got "
            f"{' and '.join(kinds) or 'none'}"
        )
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"timeout is in seconds, above 0, got {timeout!r}")
    if prompt is not None and judge is None:
        raise ConfigurationError("prompt= is what a judge is asked, and goes with judge=")
    if same is not None:
        equivalence = _by_function(same, timeout)
    elif embeddings is not None:
        equivalence = _by_similarity(embeddings, threshold, timeout)
    else:
        assert judge is not None
        equivalence = _by_judge(judge, JUDGE_PROMPT if prompt is None else prompt, timeout)
    name = f"free_text:{equivalence.name}"
    return Extractor(str, name, canonical=_as_written, blocks=True, equivalence=equivalence)


def spelling(answer: str) -> str:
    """What two answers share that are the same whoever compares them."""
    return " ".join(answer.casefold().split()).rstrip(".。") or answer


def _as_written(text: str) -> str:
    return unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode("utf-8")).strip()


def _by_function(same: Same, timeout: float | None) -> Equivalence:
    if not callable(same) or inspect.iscoroutinefunction(same):
        raise ConfigurationError(f"same= is a function (first, second) -> bool, not a coroutine's, got {same!r}")
    name = getattr(same, "__name__", type(same).__name__)
    return Equivalence(name=f"same({name})", kind="same", between=partial(_told_by, same), timeout=timeout)


def _by_similarity(embeddings: Embeddings, threshold: float, timeout: float | None) -> Equivalence:
    if not callable(getattr(embeddings, "embed_documents", None)):
        raise ConfigurationError(f"embeddings= is a LangChain Embeddings, got {type(embeddings).__name__}")
    if not 0 < threshold <= 1:
        raise ConfigurationError(f"threshold is a cosine above 0 and at most 1, got {threshold!r}")
    return Equivalence(
        name=f"embeddings({_model_name(embeddings)} >= {threshold:g})",
        kind="embeddings",
        between=partial(_similar, embeddings, threshold),
        timeout=timeout,
    )


def _by_judge(judge: Runnable[Any, Any], prompt: str, timeout: float | None) -> Equivalence:
    if not isinstance(judge, Runnable):
        raise ConfigurationError(f"judge= is a chat model, got {type(judge).__name__}")
    if missing := {"first", "second"} - placeholders(prompt):
        names = " and ".join(f"{{{name}}}" for name in sorted(missing))
        raise ConfigurationError(f"the judge's prompt lacks {names}, which stand for the two answers")
    return Equivalence(
        name=name_of_judge(judge, prompt, usual=JUDGE_PROMPT),
        kind="judge",
        between=partial(_judged, judge, prompt),
        timeout=timeout,
    )


def _told_by(function: Callable[[str, str], Any], question: str, ask: Ask) -> Same:
    def same(first: str, second: str) -> bool:
        told = function(first, second)
        if not isinstance(told, bool | np.bool_):  # a similarity, say, would always count as True
            raise Unclear(f"same= must return a bool, got {type(told).__name__}")
        return bool(told)

    return same


def _similar(embeddings: Embeddings, threshold: float, question: str, ask: Ask) -> Same:
    directions: dict[str, npt.NDArray[np.float64]] = {}  # empty where it has none

    def direction(answer: str) -> npt.NDArray[np.float64]:
        if answer not in directions:
            [vector] = embeddings.embed_documents([answer])
            directions[answer] = _direction(np.asarray(vector, dtype=np.float64))
        return directions[answer]

    def same(first: str, second: str) -> bool:
        one, other = direction(first), direction(second)
        if one.shape != other.shape or not one.size or not other.size:
            raise Unclear(f"vectors of {one.size} and {other.size} usable entries cannot be compared")
        return bool(one @ other >= threshold - _ROUNDING)

    return same


def _direction(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The vector at length 1; empty where it has no direction, because it is zero or not finite."""
    largest = np.max(np.abs(vector), initial=0.0)
    if vector.ndim != 1 or not (math.isfinite(largest) and largest > 0):
        return np.empty(0)
    scaled = vector / largest  # or the squares of very large ones were infinite
    return np.asarray(scaled / np.linalg.norm(scaled))


def _judged(judge: Runnable[Any, Any], prompt: str, question: str, ask: Ask) -> Same:
    def same(first: str, second: str) -> bool:
        reply = ask(judge, filled(prompt, question=question, first=first, second=second))
        verdict = verdict_of(reply)
        if verdict is None:
            raise Unclear(f"the judge said neither yes nor no: {str(reply.text)[:_SHOWN]!r}")
        return verdict

    return same


def name_of_judge(judge: Any, prompt: str, *, usual: str) -> str:
    """What a judge is called in messages and files, by its model and by its prompt where that is not the usual one."""
    other = "" if prompt == usual else f", prompt {zlib.crc32(prompt.encode()):08x}"
    return f"judge({_model_name(judge)}{other})"


def _model_name(model: Any) -> str:
    while isinstance(model, RunnableBinding):
        model = model.bound
    if isinstance(model, BaseChatModel):
        named = model._get_ls_params().get("ls_model_name")
    else:
        named = getattr(model, "model_name", None) or getattr(model, "model", None)
    return named if isinstance(named, str) and named else type(model).__name__
