"""What a prompt costs: a shared beginning prefilled once, and a long one beside answers under way."""

import threading
import time
from collections.abc import Iterator
from typing import Final

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.rounds import Spread, ratios, seconds
from benchmarks.settings import QUESTION, Settings, open_ours
from benchmarks.table import Goal, Row

__all__ = ["interference", "shared_prefix"]

_WORDS: Final = (
    "the careful reader weighs every number before adding it to the sum and writes each step on its own line"
)


def shared_prefix(settings: Settings) -> Iterator[Row]:
    """Prefill of a second question after the same system prompt of 1,000 tokens."""
    size = 100 if settings.quick else 1000
    first_question, second_question = "Now add 17 and 25, please.", "How much is 6 times 7 then?"
    firsts, others = [], []
    with open_ours(settings, settings.model_path, n_ctx=4096) as model:
        model.invoke(QUESTION, max_tokens=2)
        for index in range(settings.rounds_or(4)):
            system = SystemMessage(f"{index} {_text_of(model, size)}")  # a beginning of its own: nothing is cached
            firsts.append(_prefill_seconds(model, system, first_question))
            others.append(_prefill_seconds(model, system, second_question))
    name = f"second question with a {size:,}-token shared system prompt"
    yield Row(f"{name}: prefill time ÷ first, {settings.shape_name}", ratios(others, firsts), Goal("≤", 0.1))
    yield Row("prefill of the first, s", Spread.of(firsts))
    yield Row("prefill of the second, s", Spread.of(others))


def interference(settings: Settings) -> Iterator[Row]:
    """How long an answer under way has to wait for its next token while a prompt of 4,000 tokens is prefilled."""
    size = 300 if settings.quick else 4000
    alone, beside, prefills = [], [], []
    with open_ours(settings, settings.model_path, n_ctx=size + 1024, n_cells=2 * size + 2048) as model:
        model.invoke(QUESTION, max_tokens=2)
        for index in range(settings.rounds_or(1)):
            prompt = f"{index} {_text_of(model, size)}"
            quiet, disturbed, prefill = _gaps(model, prompt)
            alone.append(max(quiet) * 1e3)
            beside.append(max(disturbed) * 1e3)
            prefills.append(prefill)
    name = f"longest gap between tokens of a running answer, {settings.shape_name}, ms"
    yield Row(f"{name}: alone", Spread.of(alone))
    yield Row(f"{name}: while a {size:,}-token prompt is prefilled", Spread.of(beside))
    yield Row("that prompt's time to its first token, s", Spread.of(prefills))


def _gaps(model: ChatLlamaCpp, prompt: str) -> tuple[list[float], list[float], float]:
    """Gaps before the long prompt was given, gaps while it was prefilled, and the seconds until its first token.

    The answer ends when the prefill does.
    """
    begun, ended = threading.Event(), threading.Event()
    took: list[float] = []

    def ask() -> None:
        begun.set()
        try:
            took.append(seconds(lambda: model.invoke(prompt, max_tokens=1)))
        finally:
            ended.set()

    other = threading.Thread(target=ask)
    quiet: list[float] = []
    disturbed: list[float] = []
    last = None
    for _ in model.stream(QUESTION):
        now = time.perf_counter()
        if last is not None:
            (disturbed if begun.is_set() else quiet).append(now - last)
        last = now
        if len(quiet) == 16 and not begun.is_set():
            other.start()
            begun.wait()
        if ended.is_set():
            break
    other.join()
    return quiet, disturbed or [float("nan")], took[0]


def _prefill_seconds(model: ChatLlamaCpp, system: SystemMessage, question: str) -> float:
    """How long the prompt's prefill took, as the response tells."""
    response = model.invoke([system, HumanMessage(question)], max_tokens=1)
    return float(response.response_metadata["timing"]["prefill"])


def _text_of(model: ChatLlamaCpp, size: int) -> str:
    """A text of about ``size`` tokens."""
    per_repeat = model.get_num_tokens(f" {_WORDS}.")
    return " ".join([f"{_WORDS}."] * (size // per_repeat + 1))
