"""Log-probabilities in OpenAI's shape, over real vocabularies."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableParallel
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import Measures, Recorder
from langchain_reasc_llama_cpp.native import NativeModel

from backends.llama_cpp.confidence.test_recorder import Sample
from backends.llama_cpp.faces import Face, merged, output_tokens
from langchain_reasc.models import read_signals

QUESTION = "Ann has 3 apples and buys 4 more. How many apples does Ann have?"
END, START, TH = 256, 257, 258  # of the tiny model, after the 256 bytes


def entries_of(model: NativeModel, logits: npt.NDArray[np.float32], tokens: list[int], k: int) -> list[dict[str, Any]]:
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
    """p(h) = 1/2, p(i) = p("th") = 1/4."""
    logits = np.full((1, native.vocabulary_size), -1e4, dtype=np.float32)
    logits[0, [ord("h"), ord("i"), TH]] = np.log([2, 1, 1]) + 5
    half, quarter = pytest.approx(np.log(0.5), abs=1e-6), pytest.approx(np.log(0.25), abs=1e-6)
    assert entries_of(native, logits, [TH], 2) == [
        {
            "token": "th",
            "bytes": [0x74, 0x68],
            "logprob": quarter,
            "top_logprobs": [
                {"token": "h", "bytes": [0x68], "logprob": half},
                {"token": "i", "bytes": [0x69], "logprob": quarter},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("tokens", "written"),
    [
        # é is two tokens here: neither is text alone, but the bytes join to it.
        (list("é".encode()), [("\ufffd", b"\xc3"), ("\ufffd", b"\xa9")]),
        ([END, START], [("<|im_end|>", b"<|im_end|>"), ("<|im_start|>", b"<|im_start|>")]),
        (list(range(256)), [(bytes([byte]).decode(errors="replace"), bytes([byte])) for byte in range(256)]),
    ],
    ids=["parts of characters", "control tokens", "every byte"],
)
def test_tokens_are_spelled_exactly(native: NativeModel, tokens: list[int], written: list[tuple[str, bytes]]) -> None:
    entries = entries_of(native, np.zeros((len(tokens), native.vocabulary_size), dtype=np.float32), tokens, 0)
    assert [(entry["token"], bytes(entry["bytes"])) for entry in entries] == written
    assert [entry["top_logprobs"] for entry in entries] == [[]] * len(tokens)
    assert entries[0]["logprob"] == pytest.approx(-np.log(native.vocabulary_size), abs=1e-6)


def test_the_drawn_token_need_not_be_among_the_likeliest(native: NativeModel) -> None:
    logits = np.random.default_rng(0).standard_normal((20, native.vocabulary_size)).astype(np.float32)
    worst = logits.argmin(axis=1).tolist()
    for row, entry in zip(logits, entries_of(native, logits, worst, 20), strict=True):
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert entry["logprob"] < values[-1]
        likeliest = np.argsort(-row, kind="stable")[:20]
        assert [bytes(other["bytes"]) for other in entry["top_logprobs"]] == [spelled(native, t) for t in likeliest]


def spelled(model: NativeModel, token: int) -> bytes:
    return {END: b"<|im_end|>", START: b"<|im_start|>"}.get(token) or model.piece(token)[0]


def test_equal_logits_come_in_the_order_of_their_ids(native: NativeModel) -> None:
    logits = np.zeros((1, native.vocabulary_size), dtype=np.float32)
    logits[0, 70] = 1
    (entry,) = entries_of(native, logits, [70], 4)
    assert [other["bytes"] for other in entry["top_logprobs"]] == [[70], [0], [1], [2]]


def test_entries_are_json_and_share_nothing(native: NativeModel) -> None:
    logits = np.random.default_rng(0).standard_normal((3, native.vocabulary_size)).astype(np.float32)
    entries = entries_of(native, logits, [5, 5, 5], 20)
    assert json.loads(json.dumps(entries)) == entries
    entries[0]["bytes"].append(0)
    assert entries[1]["bytes"] == [5]


@pytest.mark.parametrize("scale", [0.1, 3, 30])
def test_the_methods_reader_finds_the_recorded_signals_in_the_payload(shipped: ChatLlamaCpp, scale: float) -> None:
    """What a reader of OpenAI's shape computes from 20 alternatives is what the backend recorded with k = 20."""
    model = shipped.engine.model
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((50, model.vocabulary_size)) * scale).astype(np.float32)
    recorder: Recorder = Recorder(1, model)
    sample = Sample(Measures(("top_k", "token_logprob"), 20, 20))
    for row in logits:
        recorder.record(row[None], [int(row.argmax() if scale > 3 else rng.integers(row.size))], [sample])
    recorder.flush()
    content, recorded = recorder.logprobs_since(sample, 0), recorder.signals(sample)
    read = read_signals(AIMessage("x", response_metadata={"logprobs": {"content": content}})).signals
    if scale == 30:  # servers' "too unlikely to report" is read as -50, and here some alternatives are
        recorded = {"token_logprob": recorded["token_logprob"]}
    for name, values in recorded.items():
        np.testing.assert_allclose(read[name], values, atol=1e-5, rtol=0, err_msg=name)


def content_of(message: AIMessage) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = message.response_metadata["logprobs"]["content"]
    return content


def check_response(message: AIMessage, k: int) -> None:
    """One entry per token, which spell the text, with the numbers that the signals have."""
    content = content_of(message)
    assert len(content) == output_tokens(message)
    assert {len(entry["top_logprobs"]) for entry in content} == {k}
    spelled_out = "".join(entry["token"] for entry in content)
    assert spelled_out.startswith(message.text)  # and then the end token or the stop string
    assert all(entry["logprob"] <= 0 for entry in content)
    recorded = message.response_metadata["token_signals"]
    assert [entry["logprob"] for entry in content] == recorded["token_logprob"]
    if k == 20:
        np.testing.assert_allclose(
            read_signals(AIMessage("", response_metadata={"logprobs": {"content": content}})).signals["top_k"],
            recorded["top_k"],
            atol=1e-5,
        )


@pytest.mark.parametrize("k", [0, 5, 20])
def test_a_response_carries_them(face: Face, shipped: ChatLlamaCpp, k: int) -> None:
    check_response(face.invoke(shipped, QUESTION, logprobs=True, top_logprobs=k), k)


@pytest.mark.parametrize("options", [{}, {"max_tokens": 9}, {"stop": ["."]}], ids=["to its end", "length", "stop"])
def test_a_stream_gives_each_entry_once(face: Face, shipped: ChatLlamaCpp, options: dict[str, Any]) -> None:
    chunks = face.stream(shipped, QUESTION, logprobs=True, top_logprobs=2, seed=5, **options)
    assert sum("logprobs" in chunk.response_metadata for chunk in chunks) > 5
    check_response(merged(chunks), 2)


def test_samples_carry_them_cancelled_or_not(face: Face, endless: ChatLlamaCpp) -> None:
    got = face.sample(endless, "hello", n=4, max_tokens=50, cancel_after=1, logprobs=True)
    assert len(got) == 4
    for _, message in got:
        assert len(content_of(message)) == output_tokens(message)


def test_requests_beside_each_other_get_what_each_asked_for(face: Face, shipped: ChatLlamaCpp) -> None:
    both = ("top_k", "token_logprob")
    options: dict[str, dict[str, Any]] = {
        "logprobs": {"logprobs": True, "top_logprobs": 20, "signals": both},
        "few": {"logprobs": True, "signals": both},
        "signals": {"signals": ("self_certainty",)},
        "nothing": {"signals": ()},
    }
    beside = RunnableParallel({name: shipped.bind(**asked) for name, asked in options.items()})
    for answers in face.batch(beside, [QUESTION] * 3):
        check_response(answers["logprobs"], 20)
        check_response(answers["few"], 0)
        assert set(answers["signals"].response_metadata["token_signals"]) == {"self_certainty"}
        for name in ("signals", "nothing"):
            assert "logprobs" not in answers[name].response_metadata
        assert "token_signals" not in answers["nothing"].response_metadata
