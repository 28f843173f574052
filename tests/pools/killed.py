"""What is killed in the tests of recordings: a process that records with a model that answers at once."""

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from langchain_reasc.pools import Message, PoolQuestion, PoolResponse, PoolStore, record_pool
from pools.synthetic import Guesser, labelled

__all__ = ["QUESTIONS", "die_while_writing", "record"]

QUESTIONS = 16


def record(path: Path, samples: int, concurrency: int = 1, told: Connection | None = None) -> None:
    """Record, and tell how many questions are done once they are, in the end None."""

    def tell(done: int | None, _: int = 0) -> None:
        if told is not None:
            told.send(done)

    # It takes as long as it takes to write what it said, so that kills come during either.
    model = Guesser(hears=lambda text, seed: time.sleep(0.001))
    tell(-1)
    options = {"samples": samples, "concurrency": concurrency, "answer": "boxed"}
    record_pool(model, labelled(QUESTIONS), path, on_question=tell, **options)
    tell(None)


def die_while_writing(path: Path) -> None:
    """Be killed within a transaction that is larger than SQLite's memory, so that half of it is in the file."""
    store = PoolStore.open(path)
    with store.transaction():
        for number in range(QUESTIONS):
            store.set_references(f"q{number}", ["lost"])
        store.add(PoolQuestion("lost", ("7",), (PoolResponse("7", 1),), "?"), [Message("x" * 20_000_000)])
        os.kill(os.getpid(), signal.SIGKILL)
