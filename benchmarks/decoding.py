"""Tokens per second: beside the bare loop, of many questions at once, and what a prompt
costs.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks.bare_loop import BareLoop
from benchmarks.settings import (
    CELLS,
    QUESTION,
    Settings,
    check_tokens,
    open_bare,
    open_ours,
    prompt_ids,
    shipped_questions,
)
from benchmarks.table import Goal, Row, Spread, interleaved, ratios, seconds

_PARALLEL: Final = (1, 2, 4, 8, 16)
_LEFT_OVER: Final = (
    3,
    6,
    7,
    10,
    11,
    14,
    15,
)  # rows that kernels which work on four at a time leave two or three of
_SHARES: Final = {1: 25, 8: 8}
"""Samples together -> percent of a step on the shipped model that may be ours."""
_BESIDE: Final = 8
_SAMPLES: Final = 4
_STOPS: Final = ["cg", "qc"]  # the random model writes one of them sooner or later
_WORDS: Final = (
    "the careful reader weighs every number before adding it to the sum and writes "
    "each step on its own line"
)


def our_rate(model: ChatLlamaCpp, n: int, tokens: int, **options: Any) -> float:
    """Tokens per second of n samples, from the call to the last message.

    Raises:
        RuntimeError: a response has another length.
    """
    begun = time.perf_counter()
    with model.sample(QUESTION, n=n, max_tokens=tokens, **options) as samples:
        usage = [message.usage_metadata for _, message in samples]
    took = time.perf_counter() - begun
    check_tokens(
        "our model", [use["output_tokens"] if use else 0 for use in usage], tokens
    )
    return n * tokens / took


def large_model(settings: Settings) -> Iterator[Row]:
    """Exact self-certainty beside the bare loop, at a real model's shape."""
    name = settings.shape_name
    rates = yield from _against_bare(
        settings, settings.model_path, name, tokens=settings.tokens_or(32), rounds=11
    )
    yield Row(
        f"ours, n = 8 ÷ n = 1 tokens/s, {name}",
        ratios(rates["ours", 8], rates["ours", 1]),
        Goal("≥", 1.8),
    )


def left_over(settings: Settings) -> Iterator[Row]:
    """Numbers of samples that repacked kernels leave rows over of: we decode idle rows
    beside them.
    """
    path, name, tokens = (
        settings.model_path,
        settings.shape_name,
        settings.tokens_or(24),
    )
    rates = yield from _against_bare(
        settings, path, name, tokens=tokens, rounds=5, samples=_LEFT_OVER, least=1.1
    )
    yield Row(f"bare loop, n = 15, {name}, tokens/s", Spread.of(rates["bare", 15]))


def tiny_model(settings: Settings) -> Iterator[Row]:
    """The same on the shipped model, where our own code weighs most."""
    own, tokens = settings.for_shipped_model(), settings.tokens_or(200)
    yield from _against_bare(
        own, own.endless_shipped_path, "shipped model", tokens=tokens, rounds=15
    )


def _against_bare(
    settings: Settings,
    path: Path,
    name: str,
    *,
    tokens: int,
    rounds: int,
    samples: tuple[int, ...] = _PARALLEL,
    least: float = 0.97,
) -> Any:
    """Yields rows; returns the rates by who and n."""
    most = 16
    with (
        open_ours(settings, path, n_parallel=most, n_ctx=1024, n_cells=CELLS) as model,
        open_bare(settings, path, sequences=most) as bare,
    ):
        bare.prefill_rate(prompt_ids(model, QUESTION))
        turns = {}
        for n in samples:
            turns["ours", n] = partial(
                our_rate, model, n, tokens, signals=("self_certainty",)
            )
            turns["bare", n] = partial(bare.rate, n, tokens)
        rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    note = f"{tokens} tokens per response, {settings.threads} threads; prompt cached on both sides"
    for n in samples:
        row = f"with self-certainty ÷ bare llama_decode + sample loop, n = {n}, {name}"
        yield Row(
            row,
            ratios(rates["ours", n], rates["bare", n]),
            Goal("≥", least),
            note if n == samples[0] else "",
        )
    for n in samples:
        yield Row(f"ours, n = {n}, {name}, tokens/s", Spread.of(rates["ours", n]))
    return rates


def our_share(settings: Settings) -> Iterator[Row]:
    """What a step on the shipped model costs beyond llama.cpp's own decoding and
    sampling, with all five signals.
    """
    own, tokens = settings.for_shipped_model(), settings.tokens_or(200)
    path = own.endless_shipped_path
    outside: dict[int, list[float]] = {n: [] for n in _SHARES}
    with (
        open_ours(own, path, n_ctx=1024, n_cells=CELLS) as model,
        open_bare(own, path, sequences=8) as bare,
    ):
        bare.prefill_rate(prompt_ids(model, QUESTION))

        def ours(n: int) -> float:
            before = model.engine.context.decode_seconds
            took = n * tokens / our_rate(model, n, tokens)
            outside[n].append(
                (took - model.engine.context.decode_seconds + before) / took * 100
            )
            return took

        turns = {("ours", n): partial(ours, n) for n in _SHARES}
        turns |= {("bare", n): partial(_bare_seconds, bare, n, tokens) for n in _SHARES}
        took = interleaved(turns, rounds=settings.rounds_or(15))
    for n, most in _SHARES.items():
        shares = [
            (1 - floor / all_) * 100
            for all_, floor in zip(took["ours", n], took["bare", n], strict=True)
        ]
        row = f"step at n = {n}, shipped model, five signals: % beyond the bare loop's llama_decode and sampling"
        note = f"{tokens} tokens per response, all of a call included" if n == 1 else ""
        yield Row(row, Spread.of(shares), Goal("≤", most, " %"), note)
        # with a GPU, llama_decode returns before it has computed
        if not settings.n_gpu_layers:
            row = f"the same, n = {n}: % outside llama_decode, llama.cpp's sampling included"
            yield Row(row, Spread.of(outside[n][1:]))  # without the round that warms up


def _bare_seconds(bare: BareLoop, n: int, tokens: int) -> float:
    return n * tokens / bare.rate(n, tokens)


def attention(settings: Settings) -> Iterator[Row]:
    """Why the other measures run without flash attention on a processor, and what
    keeping old prompts costs.
    """
    size = 100 if settings.quick else 1000
    name = f"bare loop without flash attention ÷ with, {size:,}-token prompt, {settings.shape_name}"
    off, on = (replace(settings, flash_attn=flash) for flash in (False, True))
    path = settings.model_path
    with (
        open_bare(off, path, sequences=_BESIDE) as without,
        open_bare(on, path, sequences=_BESIDE) as with_it,
    ):
        yield from _prefill(
            without,
            with_it,
            size,
            settings,
            name,
            ("flash attention off", "flash attention on"),
        )
        yield _decode(without, with_it, _BESIDE, settings, name)
    yield from _idle(settings)


def _idle(settings: Settings) -> Iterator[Row]:
    """llama.cpp's attention reads the cache up to the last cell in use, whosever they
    are.
    """
    size, path = (200 if settings.quick else 2000), settings.model_path
    name = f"bare loop with {size:,} idle tokens in the cache ÷ without, 50-token prompt, {settings.shape_name}"
    with (
        open_bare(settings, path, sequences=_BESIDE) as crowded,
        open_bare(settings, path, sequences=_BESIDE) as alone,
    ):
        crowded.prefill_rate(_prompt(50), idle=_prompt(size))
        alone.prefill_rate(_prompt(50))
        yield _decode(crowded, alone, _BESIDE, settings, name)


def builds(settings: Settings) -> Iterator[Row]:
    """Another build of llama.cpp beside the one that is installed: with AMX, say, or
    for an older processor.
    """
    if settings.other_build is None:
        yield Row(
            "another build of llama.cpp ÷ this one",
            None,
            note="give its libraries by --other-build FOLDER",
        )
        return
    size = 100 if settings.quick else 500
    for quantization in ("Q4_0", "Q8_0"):
        own = replace(settings, quantization=quantization)
        other = replace(own, libraries=settings.other_build.resolve())
        name = f"the other build ÷ this one, {own.shape_name}"
        path = own.model_path
        with (
            open_bare(other, path, sequences=_BESIDE) as theirs,
            open_bare(own, path, sequences=_BESIDE) as ours,
        ):
            note = (
                f"this build: {ours.build()}; the other: {theirs.build()}"
                if quantization == "Q4_0"
                else ""
            )
            long = f"{name}, {size}-token prompt"
            yield from _prefill(
                theirs, ours, size, own, long, ("other build", "this build"), note
            )
            for n in (1, _BESIDE):
                yield _decode(theirs, ours, n, own, name)


def _prefill(
    one: BareLoop,
    other: BareLoop,
    size: int,
    settings: Settings,
    name: str,
    called: tuple[str, str],
    note: str = "",
) -> Iterator[Row]:
    turns = {loop: partial(loop.prefill_rate, _prompt(size)) for loop in (one, other)}
    rates = interleaved(turns, rounds=settings.rounds_or(2))
    yield Row(f"{name}: prefill", ratios(rates[one], rates[other]), note=note)
    for loop, what in zip((one, other), called, strict=True):
        yield Row(f"prefill, {what}, tokens/s", Spread.of(rates[loop]))


def _decode(
    one: BareLoop, other: BareLoop, n: int, settings: Settings, name: str
) -> Row:
    turns = {
        loop: partial(loop.rate, n, settings.tokens_or(16)) for loop in (one, other)
    }
    rates = interleaved(turns, rounds=settings.rounds_or(5))
    return Row(f"{name}: decode, n = {n}", ratios(rates[one], rates[other]))


def _prompt(size: int) -> list[int]:
    return [300 + i % 1000 for i in range(size)]


def batch_shipped(settings: Settings) -> Iterator[Row]:
    """Many questions at once through LangChain's ``abatch``, beside one after the
    other, on the shipped model.

    Each question wants four samples, and takes them by ``asample(question, n=4)``. Both
    begin with a freshly loaded model, so that no prompt is cached. Beside the ratio
    stands what decoding alone could gain: the bare loop with as many samples of one
    prompt as we decode together, against four.
    """
    own, questions = (
        settings.for_shipped_model(),
        shipped_questions(8 if settings.quick else 64),
    )
    yield from _compared(
        own, None, "shipped model", questions, {}, parallel=8, rounds=3
    )
    yield _floor(own, own.endless_shipped_path, "shipped model", parallel=8)


def batch(settings: Settings) -> Iterator[Row]:
    """The same at a real model's shape, with stop strings that end responses at very
    different lengths.
    """
    count, longest = (4, 12) if settings.quick else (12, 96)
    path, name, options = (
        settings.model_path,
        settings.shape_name,
        {"max_tokens": longest, "stop": _STOPS},
    )
    yield from _compared(
        settings, path, name, shipped_questions(count), options, parallel=16, rounds=2
    )
    yield _floor(settings, path, name, parallel=16)


def _compared(
    settings: Settings,
    path: Path | None,
    name: str,
    questions: Sequence[str],
    options: dict[str, Any],
    *,
    parallel: int,
    rounds: int,
) -> Iterator[Row]:
    together: defaultdict[bool, list[float]] = defaultdict(list)

    def rate(*, at_once: bool) -> float:
        with open_ours(
            settings, path, n_parallel=parallel, n_ctx=1024, n_cells=CELLS
        ) as model:
            model.invoke(QUESTION, max_tokens=2)
            steps, begun = model.engine.context.steps, time.perf_counter()
            tokens = asyncio.run(_answer(model, questions, options, at_once=at_once))
            took = time.perf_counter() - begun
            together[at_once].append(tokens / (model.engine.context.steps - steps))
        return tokens / took

    turns = {at_once: partial(rate, at_once=at_once) for at_once in (True, False)}
    rates = interleaved(turns, rounds=settings.rounds_or(rounds))
    yield Row(
        (
            f"{len(questions)} questions × {_SAMPLES} samples by abatch ÷ one after the "
            f"other with n = {_SAMPLES}, {name}"
        ),
        ratios(rates[True], rates[False]),
        Goal("≥", 1.7),
        (
            f"tokens/s; n_parallel={parallel}, five signals, {settings.threads} threads, "
            "no prompt cached before"
        ),
    )
    for at_once, how in ((True, "abatch"), (False, "one after the other")):
        yield Row(f"{how}, {name}, tokens/s", Spread.of(rates[at_once]))
        yield Row(f"{how}, tokens per decode step", Spread.of(together[at_once][1:]))


def _floor(settings: Settings, path: Path, name: str, *, parallel: int) -> Row:
    """What decoding more samples together gains at best here: equally long, all of one
    prompt.
    """
    with open_ours(settings, path, n_ctx=1024) as model:
        prompt = prompt_ids(model, QUESTION)
    with open_bare(settings, path, sequences=parallel) as bare:
        bare.prefill_rate(prompt)
        turns = {
            n: partial(bare.rate, n, settings.tokens_or(48))
            for n in (parallel, _SAMPLES)
        }
        rates = interleaved(turns, rounds=settings.rounds_or(5))
    spread = ratios(rates[parallel], rates[_SAMPLES])
    return Row(f"bare loop, n = {parallel} ÷ n = {_SAMPLES} tokens/s, {name}", spread)


async def _answer(
    model: ChatLlamaCpp,
    questions: Sequence[str],
    options: dict[str, Any],
    *,
    at_once: bool,
) -> int:
    """Tokens generated for all the questions."""

    async def sample(question: str) -> int:
        async with model.asample(question, n=_SAMPLES, **options) as samples:
            usage = [message.usage_metadata async for _, message in samples]
        return sum(use["output_tokens"] for use in usage if use)

    runnable = RunnableLambda(sample)
    if at_once:
        return sum(await runnable.abatch(list(questions)))
    return sum([await runnable.ainvoke(question) for question in questions])


def shared_prefix(settings: Settings) -> Iterator[Row]:
    """Prefill of a second question after the same system prompt of 1,000 tokens."""
    size = 100 if settings.quick else 1000
    first_question, second_question = (
        "Now add 17 and 25, please.",
        "How much is 6 times 7 then?",
    )
    firsts, others = [], []
    with open_ours(settings, settings.model_path, n_ctx=4096) as model:
        model.invoke(QUESTION, max_tokens=2)
        for index in range(settings.rounds_or(4)):
            # a beginning of its own: nothing is cached
            system = SystemMessage(f"{index} {_text_of(model, size)}")
            firsts.append(_prefill_seconds(model, system, first_question))
            others.append(_prefill_seconds(model, system, second_question))
    name = f"second question with a {size:,}-token shared system prompt"
    yield Row(
        f"{name}: prefill time ÷ first, {settings.shape_name}",
        ratios(others, firsts),
        Goal("≤", 0.1),
    )
    yield Row("prefill of the first, s", Spread.of(firsts))
    yield Row("prefill of the second, s", Spread.of(others))


def interference(settings: Settings) -> Iterator[Row]:
    """How long an answer under way has to wait for its next token while a prompt of
    4,000 tokens is prefilled.
    """
    size = 300 if settings.quick else 4000
    alone, beside, prefills = [], [], []
    with open_ours(
        settings, settings.model_path, n_ctx=size + 1024, n_cells=2 * size + 2048
    ) as model:
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
    """Gaps before the long prompt was given, gaps while it was prefilled, and the
    seconds until its first token.

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


def _prefill_seconds(
    model: ChatLlamaCpp, system: SystemMessage, question: str
) -> float:
    """How long the prompt's prefill took, as the response tells."""
    response = model.invoke([system, HumanMessage(question)], max_tokens=1)
    return float(response.response_metadata["timing"]["prefill"])


def _text_of(model: ChatLlamaCpp, size: int) -> str:
    """A text of about ``size`` tokens."""
    per_repeat = model.get_num_tokens(f" {_WORDS}.")
    return " ".join([f"{_WORDS}."] * (size // per_repeat + 1))
