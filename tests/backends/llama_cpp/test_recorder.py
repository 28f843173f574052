"""The recorder of signals and logprobs: sequences that want different things, blocks, threads and broken rows."""

import gc
import json
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import Measures, Recorder
from langchain_reasc_llama_cpp.native import NativeModel

from backends.llama_cpp.test_signals import reference_signals
from langchain_reasc.exceptions import ConfidenceError
from langchain_reasc.method.token_signals import SIGNALS

WANTS = (
    Measures(SIGNALS, 20),
    Measures(("self_certainty",)),
    Measures(("top_k", "token_logprob"), 7, 3),
    Measures((), 20, 20),
    Measures(("neg_entropy",), 20, 0),
    Measures(),
    Measures(("top_k",), 10**6),
)
both_ways = pytest.mark.parametrize("overlapped", [False, True], ids=["at once", "overlapped"])
small_and_large = pytest.mark.parametrize("vocabulary", [64, 20_000])


class Vocabulary(NativeModel):
    """A model of which nothing is known but V: all the recorder asks of one, until it spells tokens."""

    has_tokenizer = False

    def __init__(self, size: int) -> None:
        self.vocabulary_size = size


@dataclass(eq=False)
class Sample:
    measures: Measures
    signals: list[npt.NDArray[np.floating[Any]]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    rows: list[npt.NDArray[np.float32]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


Make, Rows = Callable[..., Recorder], npt.NDArray[np.float32]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Recorder] = []

    def recorder(vocabulary: int, *, overlapped: bool = False) -> Recorder:
        made.append(Recorder(8, Vocabulary(vocabulary), overlapped=overlapped))
        return made[-1]

    yield recorder
    for each in made:
        each.close()


def record(recorder: Recorder, samples: list[Sample], logits: Rows, chosen: list[int]) -> list[Sample]:
    """One step, which the samples remember; the logits vanish after it, as in a context."""
    for sample, row, token in zip(samples, logits, chosen, strict=True):
        sample.rows.append(row.copy())
        sample.tokens.append(token)
    unsound = recorder.record(logits, chosen, samples)
    logits[:] = np.nan
    return unsound


def run(recorder: Recorder, samples: list[Sample], vocabulary: int, steps: int) -> None:
    """Random steps with ever other samples in them, in ever other orders."""
    rng = np.random.default_rng(7)
    for _ in range(steps):
        live = [samples[i] for i in rng.permutation(len(samples))[: rng.integers(1, len(samples) + 1)]]
        logits = (rng.standard_normal((len(live), vocabulary)) * 5).astype(np.float32)
        assert record(recorder, live, logits, rng.integers(0, vocabulary, len(live)).tolist()) == []
    assert recorder.flush() == []


def check_against_float64(recorder: Recorder, sample: Sample) -> None:
    rows = np.array(sample.rows, dtype=np.float64)
    wanted = reference_signals(rows, sample.tokens, min(sample.measures.k, rows.shape[1]))
    found = recorder.signals(sample)
    assert tuple(found) == sample.measures.signals
    for name, values in found.items():
        np.testing.assert_allclose(values, wanted[name], atol=1e-4, rtol=0, err_msg=name)
    entries = recorder.logprobs_since(sample, 0)
    if sample.measures.logprobs is None:
        assert entries is None
        return
    assert entries is not None
    log_p = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
    np.testing.assert_allclose([entry["logprob"] for entry in entries], wanted["token_logprob"], atol=1e-4)
    top = [[other["logprob"] for other in entry["top_logprobs"]] for entry in entries]
    best = np.sort(log_p, axis=1)[:, ::-1][:, : sample.measures.logprobs]
    np.testing.assert_allclose(np.array(top).reshape(best.shape), best, atol=1e-4)


@both_ways
@pytest.mark.parametrize(("vocabulary", "steps"), [(32, 150), (8192, 20), (8193, 12), (50_000, 12)])
def test_sequences_that_want_different_things(make: Make, vocabulary: int, steps: int, overlapped: bool) -> None:
    recorder = make(vocabulary, overlapped=overlapped)
    samples = [Sample(wanted) for wanted in WANTS]
    assert recorder.signals(samples[1]) == {"self_certainty": []}
    run(recorder, samples, vocabulary, steps)
    for sample in samples:
        check_against_float64(recorder, sample)


@pytest.mark.parametrize("vocabulary", [259, 20_000])
def test_company_and_threads_change_no_bit(make: Make, vocabulary: int) -> None:
    alone, overlapped, together = make(vocabulary), make(vocabulary, overlapped=True), make(vocabulary)
    samples = [Sample(WANTS[i % len(WANTS)]) for i in range(8)]
    again = [Sample(sample.measures) for sample in samples]
    run(together, samples, vocabulary, 30)
    run(overlapped, again, vocabulary, 30)
    for sample, threaded in zip(samples, again, strict=True):
        single = Sample(sample.measures)
        for row, token in zip(sample.rows, sample.tokens, strict=True):
            alone.record(row[None], [token], [single])
        alone.flush()
        signals, logprobs = together.signals(sample), together.logprobs_since(sample, 0)
        assert signals == alone.signals(single) == overlapped.signals(threaded)
        assert logprobs == alone.logprobs_since(single, 0) == overlapped.logprobs_since(threaded, 0)


@both_ways
@small_and_large
@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_a_broken_row_fails_its_own_sequence_only(make: Make, vocabulary: int, broken: float, overlapped: bool) -> None:
    recorder = make(vocabulary, overlapped=overlapped)
    samples = [Sample(Measures(SIGNALS, 20, 5)) for _ in range(3)] + [Sample(Measures((), 20, 3))]
    rng = np.random.default_rng(0)
    failed: list[Sample] = []
    for step in range(3):
        logits = rng.standard_normal((4, vocabulary)).astype(np.float32)
        if step == 1:
            logits[2:, step] = broken  # the drawn one
        failed += record(recorder, samples, logits, [step] * 4)
    failed += recorder.flush()
    assert {id(one) for one in failed} == {id(one) for one in samples[2:]} and len(failed) == 2
    for sample in samples[2:] * 2:
        with pytest.raises(ConfidenceError, match="not finite"):
            recorder.logprobs_since(sample, 0)
    for sample in samples[:2]:
        check_against_float64(recorder, sample)


@both_ways
@small_and_large
def test_a_dropped_sequence_is_forgotten(make: Make, vocabulary: int, overlapped: bool) -> None:
    recorder = make(vocabulary, overlapped=overlapped)
    kept, dropped = Sample(Measures(SIGNALS, 20, 5)), Sample(Measures(SIGNALS, 20, 5))
    rng = np.random.default_rng(0)
    for step in range(5):
        logits = rng.standard_normal((2, vocabulary)).astype(np.float32)
        logits[1, 3] = np.nan
        owners = [kept, dropped] if step < 3 else [kept]
        record(recorder, owners, logits[: len(owners)], [step] * len(owners))
        if step == 2:
            recorder.drop(dropped)
            gone = weakref.ref(dropped)
            del dropped, owners
    assert recorder.flush() == []
    gc.collect()
    assert gone() is None
    check_against_float64(recorder, kept)


@both_ways
@small_and_large
def test_logprobs_come_in_pieces_while_streaming(make: Make, vocabulary: int, overlapped: bool) -> None:
    recorder = make(vocabulary, overlapped=overlapped)
    samples = [Sample(Measures(("top_k",), 20, 2)), Sample(Measures(("top_k",), 20, 2)), Sample(Measures())]
    rng = np.random.default_rng(0)
    pieces: list[dict[str, Any]] = []
    for step in range(30):
        record(recorder, samples, rng.standard_normal((3, vocabulary)).astype(np.float32), [step] * 3)
        if step % 4 == 3:
            new = recorder.logprobs_since(samples[0], len(pieces)) or []
            assert len(new) == 4
            pieces += new
    recorder.flush()
    assert (recorder.logprobs_since(samples[0], 0) or [])[:28] == pieces
    for sample in samples:
        check_against_float64(recorder, sample)


@pytest.mark.parametrize("wanted", [Measures(SIGNALS, 20), Measures((), 20, 20)], ids=["signals", "logprobs"])
def test_a_large_vocabulary_is_read_in_place(make: Make, wanted: Measures) -> None:
    recorder, samples = make(151_936), [Sample(wanted) for _ in range(8)]
    logits = np.random.default_rng(0).standard_normal((8, 151_936), dtype=np.float32)
    recorder.record(logits, [0] * 8, samples)
    tracemalloc.start()
    recorder.record(logits, [0] * 8, samples)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < logits[0].nbytes / 2


@both_ways
def test_blocks_are_used_again_and_closing_ends_the_thread(make: Make, overlapped: bool) -> None:
    before = threading.active_count()
    recorder = make(800, overlapped=overlapped)
    logits = np.zeros((8, 800), dtype=np.float32)
    peaks = []
    for wanted in (Measures(("self_certainty",), k) for k in range(1, 9)):  # requests that come and go
        samples = [Sample(wanted) for _ in range(8)]
        tracemalloc.start()
        for _ in range(50):
            recorder.record(logits, [0] * 8, samples)
        recorder.flush()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert all(later < 1 << 17 for _, later in pairwise(peaks)), peaks
    assert threading.active_count() == before + overlapped
    recorder.close()
    recorder.close()
    assert threading.active_count() == before


# Log-probabilities in OpenAI's shape, over real vocabularies.

END, TH = 256, 258  # of the tiny model, after the 256 bytes


def entries_of(model: NativeModel, logits: Rows, tokens: list[int], k: int) -> list[dict[str, Any]]:
    recorder: Recorder = Recorder(1, model)
    sample = Sample(Measures((), 20, k))
    for row, token in zip(logits, tokens, strict=True):
        recorder.record(row[None], [token], [sample])
    recorder.flush()
    found = recorder.logprobs_since(sample, 0)
    assert found is not None
    return found


@pytest.fixture
def native(tiny: ChatLlamaCpp) -> NativeModel:
    return tiny.engine.model


def test_the_shape_is_openais(native: NativeModel) -> None:
    """p(h) = 1/2, p(i) = p("th") = 1/4; what cannot come is reported as OpenAI does, and equal ones by their ids."""
    logits = np.full((1, native.vocabulary_size), -np.inf, dtype=np.float32)
    logits[0, [ord("h"), ord("i"), TH]] = np.log([2, 1, 1]) + 5
    half, quarter = pytest.approx(np.log(0.5), abs=1e-6), pytest.approx(np.log(0.25), abs=1e-6)
    [entry] = entries_of(native, logits, [TH], 4)
    assert entry == {
        "token": "th",
        "bytes": [0x74, 0x68],
        "logprob": quarter,
        "top_logprobs": [
            {"token": "h", "bytes": [0x68], "logprob": half},
            {"token": "i", "bytes": [0x69], "logprob": quarter},
            {"token": "th", "bytes": [0x74, 0x68], "logprob": quarter},
            {"token": "\0", "bytes": [0], "logprob": -9999.0},
        ],
    }
    assert json.loads(json.dumps(entry)) == entry


@pytest.mark.parametrize(
    ("tokens", "written"),
    [
        # é is two tokens here: neither is text alone, but the bytes join to it.
        (list("é".encode()), [("\ufffd", b"\xc3"), ("\ufffd", b"\xa9")]),
        ([END, END + 1], [("<|im_end|>", b"<|im_end|>"), ("<|im_start|>", b"<|im_start|>")]),
        ([*range(256)], [(bytes([byte]).decode(errors="replace"), bytes([byte])) for byte in range(256)]),
    ],
    ids=["parts of characters", "control tokens", "every byte"],
)
def test_tokens_are_spelled_exactly(native: NativeModel, tokens: list[int], written: list[tuple[str, bytes]]) -> None:
    entries = entries_of(native, np.zeros((len(tokens), native.vocabulary_size), dtype=np.float32), tokens, 0)
    assert [(entry["token"], bytes(entry["bytes"])) for entry in entries] == written
    assert [entry["top_logprobs"] for entry in entries] == [[]] * len(tokens)
    assert entries[0]["logprob"] == pytest.approx(-np.log(native.vocabulary_size), abs=1e-6)


def test_the_drawn_token_need_not_be_among_the_likeliest(native: NativeModel) -> None:
    logits = np.random.default_rng(0).standard_normal((20, native.vocabulary_size), dtype=np.float32)
    logits[:, 256:] = -99  # only single bytes
    worst = logits[:, :256].argmin(axis=1).tolist()
    for row, entry in zip(logits, entries_of(native, logits, worst, 20), strict=True):
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert entry["logprob"] < values[-1]
        assert [other["bytes"] for other in entry["top_logprobs"]] == [
            [t] for t in np.argsort(-row, kind="stable")[:20]
        ]
