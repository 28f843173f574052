"""What our own code costs by itself: the method's arithmetic, the signals, the imports,
memory.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_backend.logits import signals_from_logits
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.settings import Settings
from benchmarks.table import Goal, Row, Spread, interleaved, seconds
from langchain_reasc import ReASC, Response, decide
from langchain_reasc.calibration import Observation, fit_agreement
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.confidence import response_score
from langchain_reasc.method.evidence import Standardizer
from langchain_reasc.method.token_signals import SIGNALS

_OURS: Final = "from langchain_reasc import ReASCRunnable"
_MEGABYTE: Final = 1e6
_COPIED: Final = re.compile(r" (CPU\S*) model buffer size\s*=\s*([\d.]+) MiB")
"""What llama.cpp logs of weights in main memory; those it maps are counted by the
file's pages.
"""

_PROGRAM: Final = Path(__file__).with_name("memory_process.py")
_BASE: Final = (
    "import langchain_core.language_models.chat_models, langchain_core.runnables.base"
)


def method(settings: Settings) -> Iterator[Row]:
    """Scores, decisions and signals, without a model."""
    rng = np.random.default_rng(0)
    rounds = settings.rounds_or(15)
    tokens = rng.normal(size=30_000)
    scored = _milliseconds(lambda: response_score(tokens), rounds)
    yield Row("score of a 30,000-token response (bottom_group, W = 128), ms", scored)
    rule = ReASC(Standardizer(0.0, 1.0), gate=9.0)
    responses = [
        Response(str(answer), float(score))
        for answer, score in zip(
            rng.integers(0, 8, 16), rng.normal(size=16), strict=True
        )
    ]
    decided = _milliseconds(lambda: decide(rule, responses), rounds, repeat=20)
    yield Row("decision over 16 responses, all prefixes, ms", decided)
    yield from _agreement(rounds)
    for vocabulary in (800, 32_000, 151_936):
        logits = rng.normal(size=(8, vocabulary)).astype(np.float32) * 3
        chosen, scratch = (
            np.zeros(8, dtype=np.int64),
            np.empty((8, vocabulary), dtype=np.float32),
        )
        for signal in SIGNALS:
            work = partial(
                signals_from_logits, logits, chosen, signals=[signal], scratch=scratch
            )
            spent = _milliseconds(work, rounds, per=8)
            yield Row(
                f"{signal}, 8 sequences, V = {vocabulary:,}, per token, ms", spent
            )


def _agreement(rounds: int) -> Iterator[Row]:
    """Decisions by counts and scores, and what learning them takes."""
    rng = np.random.default_rng(0)
    questions = [_drawn_question(rng) for _ in range(4096)]
    for number in (512, 4096):
        asked = questions[:number]
        learn = partial(fit_agreement, asked, 0, budget=16)
        fitted = _milliseconds(learn, max(1, rounds // 5))
        yield Row(f"learning from {number:,} questions, ms", fitted)
    prior, scores = fit_agreement(questions[:512], 0, budget=16)
    rule = Agreement(prior, 0.95, 16, scores)
    asked_again = [question.responses(0) for question in questions[:64]]
    decided = _milliseconds(
        lambda: [rule(responses) for responses in asked_again],
        rounds,
        per=len(asked_again),
    )
    yield Row("decision by counts and scores, 1 to 16 responses, ms", decided)


def _drawn_question(rng: np.random.Generator) -> Observation:
    """Draw 1 to 16 responses with 2 likely answers, and scores."""
    number = int(rng.integers(1, 17))
    share = rng.beta(2.0, 1.0)
    answers = (rng.random(number) > share).astype(int)
    scores = rng.normal(size=number) + share - answers
    return Observation(tuple(answers.tolist()), scores[None])


def imports(settings: Settings) -> Iterator[Row]:
    """What importing ReASCRunnable adds to LangChain's own import."""
    turns = {
        "base": partial(_start, _BASE),
        "ours": partial(_start, f"{_BASE}; {_OURS}"),
    }
    figures = interleaved(turns, rounds=settings.rounds_or(10))
    beyond = [
        ours - base for ours, base in zip(figures["ours"], figures["base"], strict=True)
    ]
    yield Row(
        "import of langchain_core's chat models and runnables, ms",
        Spread.of(figures["base"]),
    )
    yield Row("import of ReASCRunnable, beyond that, ms", Spread.of(beyond))


def _milliseconds(
    work: Callable[[], object], rounds: int, *, repeat: int = 1, per: int = 1
) -> Spread:
    """Milliseconds of one of ``per`` parts of a call."""

    def turn() -> float:
        return seconds(lambda: [work() for _ in range(repeat)]) / repeat / per * 1e3

    return Spread.of(turn() for _ in range(rounds))


def _start(code: str) -> float:
    return (
        seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True)) * 1e3
    )


def resident(settings: Settings) -> Iterator[Row]:
    """Memory of a process that has a model with n_ctx=8,192 and decoded eight answers
    to a prompt of 500 tokens.
    """
    goal = Goal("≤", 150, " MB")
    context = 1024 if settings.quick else 8192
    vocabulary = settings.shape.vocabulary
    measure = f"resident memory over weights + KV + compute buffers, V = {vocabulary:,}, n_ctx = {context:,}, MB"
    if not Path("/proc/self/smaps").exists():
        yield Row(measure, None, goal, "needs Linux's /proc")
        return
    found = [_measure(settings, context) for _ in range(settings.rounds_or(3))]

    def spread(name: str) -> Spread:
        return Spread.of(one[name] for one in found)

    yield Row(
        measure,
        spread("over"),
        goal,
        "weights: the file's resident pages and what llama.cpp repacks; of the "
        "buffers what is resident. Interpreter and imports included, of packages that "
        "langchain-reasc[llama-cpp] requires: others are as if not installed",
    )
    for name, what in (
        ("interpreter", "of that, the bare interpreter"),
        ("others", "of that, imports of LangChain, numpy and llama-cpp-python"),
        ("ours", "of that, import of this backend"),
        (
            "rest",
            (
                "of that, everything else (llama.cpp's vocabulary and scratch, logits, "
                "our buffers)"
            ),
        ),
        ("weights", "weights"),
        ("KV", "KV cache"),
        ("compute", "compute buffers, as far as resident"),
        ("reserved", "compute buffers, as llama.cpp reserves them"),
        ("worked", "resident in all"),
    ):
        yield Row(f"{what}, MB", spread(name))


def _measure(settings: Settings, context: int) -> dict[str, float]:
    """Megabytes by what holds them."""
    options = {
        "model_path": str(settings.model_path),
        "n_ctx": context,
        "n_threads": settings.threads,
        "n_gpu_layers": settings.n_gpu_layers,
        "flash_attn": settings.flash_attn,
    }
    command = [
        sys.executable,
        str(_PROGRAM),
        json.dumps(options),
        json.dumps(_not_required()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the measured process failed:\n{done.stderr[-2000:]}")
    seen = json.loads(done.stdout.splitlines()[-1])
    seen["weights"] += sum(
        float(size) * 2**20
        for where, size in _COPIED.findall(done.stderr)
        if "Mapped" not in where
    )
    seen["over"] = seen["worked"] - seen["weights"] - seen["KV"] - seen["compute"]
    seen["rest"] = seen["over"] - seen["interpreter"] - seen["others"] - seen["ours"]
    return {name: size / _MEGABYTE for name, size in seen.items()}


def _not_required() -> list[str]:
    """Top-level packages that are installed here, and that somebody who installs the
    backend alone would not have.
    """
    required, left = set[str](), [Requirement("langchain-reasc[llama-cpp]")]
    while left:
        wanted = left.pop()
        if (name := canonicalize_name(wanted.name)) not in required:
            required.add(name)
            needed = map(Requirement, requires(name) or ())
            extras = ("", *wanted.extras)
            left += [
                each
                for each in needed
                if each.marker is None
                or any(each.marker.evaluate({"extra": extra}) for extra in extras)
            ]
    return [
        package
        for package, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in required for owner in owners)
    ]
