"""What our own code costs, beside the model it drives: prints each cost and its share of a decode step.

    make bench

Minimum, median and maximum of interleaved rounds; quote the medians and the ratios.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from langchain_reasc import ReASC, Response, decide
from langchain_reasc.confidence import response_score
from langchain_reasc.evidence import Standardizer
from langchain_reasc.token_signals import SIGNALS, signals_from_logits

ROUNDS = 15


def timed(work: Callable[[], object], repeat: int = 1) -> list[float]:
    """Milliseconds per call, one figure per round."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(repeat):
            work()
        rounds.append((time.perf_counter() - start) / repeat * 1e3)
    return rounds


def report(name: str, rounds: list[float], unit: str = "ms") -> None:
    low, middle, high = min(rounds), statistics.median(rounds), max(rounds)
    print(f"{name:58} {low:9.3f} {middle:9.3f} {high:9.3f} {unit}")


def method() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=30_000)
    report("score of a 30,000-token response (bottom_group, W=128)", timed(lambda: response_score(tokens)))
    rule = ReASC(Standardizer(0.0, 1.0), gate=9.0)
    responses = [
        Response(str(answer), float(score))
        for answer, score in zip(rng.integers(0, 8, 16), rng.normal(size=16), strict=True)
    ]
    report("decision over 16 responses, all prefixes", timed(lambda: decide(rule, responses), 20))
    for vocabulary in (800, 32_000, 151_936):
        logits = rng.normal(size=(8, vocabulary)).astype(np.float32) * 3
        chosen, scratch = np.zeros(8, dtype=np.int64), np.empty((8, vocabulary), dtype=np.float32)
        for signal in SIGNALS:
            work = lambda: signals_from_logits(logits, chosen, signals=[signal], scratch=scratch)  # noqa: B023, E731
            report(f"{signal}, 8 sequences, V = {vocabulary:,}, per token", [ms / 8 for ms in timed(work)])


def imports() -> None:
    base = "import langchain_core.language_models.chat_models, langchain_core.runnables.base"

    def start(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - began) * 1e3

    pairs = [(start(base), start(f"{base}; import langchain_reasc")) for _ in range(ROUNDS)]
    report("import of langchain_core's chat models and runnables", [one for one, _ in pairs])
    report("import langchain_reasc, beyond that", [both - one for one, both in pairs])


def engine() -> None:
    from langchain_reasc_llama_cpp import ChatLlamaCpp

    question = "Lena has 27 red cups and 14 blue cups. Lena buys 3 packs of 6 cups. How many cups does Lena have now?"
    with ChatLlamaCpp(signals=SIGNALS) as all_signals, ChatLlamaCpp(signals=("token_logprob",)) as one_signal:
        rates: dict[tuple[str, int], list[float]] = {}
        for _ in range(7):
            for n in (1, 8, 16):
                for name, model in (("all five signals", all_signals), ("token_logprob only", one_signal)):
                    began = time.perf_counter()
                    usage = [message.usage_metadata for _, message in model.sample(question, n=n)]
                    tokens = sum(use["output_tokens"] for use in usage if use)
                    rates.setdefault((name, n), []).append(tokens / (time.perf_counter() - began))
    for (name, n), rounds in rates.items():
        report(f"shipped model, n = {n}, {name}", rounds, "tokens/s")


if __name__ == "__main__":
    print(f"{'':58} {'min':>9} {'median':>9} {'max':>9}")
    method()
    imports()
    engine()
