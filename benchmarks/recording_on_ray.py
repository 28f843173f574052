"""What Ray costs a recording: questions a second beside one process, memory of the driver, bytes on the way.

The model is left out: workers give the same made-up answer at once, of as many responses and tokens as are asked for,
so that what is measured is the way there and back, and the pool.

    python -m benchmarks.recording_on_ray --questions 10000
"""

import argparse
import pickle
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langchain_reasc_lab.pools import (
    DrawnQuestion,
    DrawnResponse,
    Message,
    PendingQuestion,
    PoolResponse,
    PoolStore,
    QuestionSampler,
    Recording,
    sample_questions,
)
from langchain_reasc_lab.pools.ray_workers import RayWorkers

from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import ContextOverflowError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models import SignalReading

SIGNALS = ("self_certainty", "kl_uniform", "top_k", "token_logprob", "neg_entropy")
Answers = Iterator[tuple[PendingQuestion, DrawnQuestion | ContextOverflowError]]
_FIRST_SEEN = 512  # questions, at whose powers of two memory is read


@dataclass(frozen=True)
class AtOnce(QuestionSampler):
    """Answers without asking anybody."""

    tokens: int = 0

    def __call__(self, asked: PendingQuestion) -> DrawnQuestion:
        random = np.random.default_rng(len(asked.question.id))
        return DrawnQuestion(asked.question, [self._one(random) for _ in range(self.samples)])

    def _one(self, random: np.random.Generator) -> DrawnResponse:
        signals = {name: random.normal(size=self.tokens).astype("f4") for name in SIGNALS}
        response = PoolResponse("7", self.tokens, seconds=0.0)
        return DrawnResponse(response, Message("word " * self.tokens), SignalReading(signals), {"top_k": 20})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--questions", type=int, default=2_000)
    options.add_argument("--samples", type=int, default=16)
    options.add_argument("--tokens", type=int, default=60, help="of a response")
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()

    asking = AtOnce(None, Template(), given.samples, tokens=given.tokens)  # type: ignore[arg-type]  # it asks no model
    asked = [PendingQuestion(LabelledQuestion(f"q{at}", f"question {at}", "7")) for at in range(given.questions)]
    print(f"{given.questions:,} questions of {given.samples} responses of {given.tokens} tokens")
    print(f"{len(pickle.dumps(asking(asked[0]))):,} bytes from a worker for each question")
    alone = recorded("one process", sample_questions(asked[:1_000], asking, 1))
    on_ray = recorded("on Ray", RayWorkers(count=given.workers, concurrency=2)(asked, asking))
    print(f"Ray adds {1e3 * (on_ray - alone):.1f} ms to each question")


def recorded(name: str, answers: Answers) -> float:
    """Seconds for each question, from the first that came; prints what was seen on the way."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.sqlite"
        recording, start, begun = Recording(PoolStore.create(path), {}, Measure()), time.perf_counter(), 0.0
        for count, (_, answered) in enumerate(answers, start=1):
            begun = begun or time.perf_counter()
            assert isinstance(answered, DrawnQuestion)
            recording.add_question(answered)
            if count & (count - 1) == 0 and count >= _FIRST_SEEN:
                print(f"{name}: {resident() / 1e6:.0f} MB of memory after {count:,} questions", flush=True)
        took = (time.perf_counter() - begun) / count
        print(
            f"{name}: the first after {begun - start:.1f} s, then {1 / took:,.0f} a second; {resident() / 1e6:.0f} MB"
        )
        recording.store.close()
        print(f"{name}: {path.stat().st_size / count:,.0f} bytes of the pool for each question", flush=True)
    return took


def resident() -> Any:
    """Bytes of memory that this process has, as Linux tells it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
