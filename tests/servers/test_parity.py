"""On the same tokens, the real llama-server and the engine give the same confidence and decisions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage
from runnable.fakes import Reply, Scripted, calibration

from langchain_reasc import Measure, ReASCResult, ReASCRunnable
from langchain_reasc.models import read_signals
from langchain_reasc.sampling import draw_samples

from .conftest import Chat
from .llama_server import LlamaServer, brief, llama_server

pytestmark = pytest.mark.full  # a real server

backend = pytest.importorskip("langchain_reasc_llama_cpp")
AGREE = 1e-3
LOGPROBS = {"logprobs": True, "top_logprobs": 20}
MEASURE = Measure("top_k", "mean")


@pytest.fixture(scope="module")
def exact_server(full_precision: Path) -> Iterator[LlamaServer]:
    """Weights and KV cache of 32 bits, so that only the order of sums differs between two builds of llama.cpp."""
    pytest.importorskip("xllamacpp")
    with llama_server(full_precision, cache="F32") as server:
        yield server


@pytest.fixture(scope="module")
def exact_engine(full_precision: Path) -> Iterator[Any]:
    with backend.ChatLlamaCpp(model_path=full_precision, type_k="f32", type_v="f32", seed=1) as model:
        yield model


def tokens(message: AIMessage) -> list[list[int]]:
    """Bytes of each token but the end token, which llama-server leaves out of streams."""
    given = [token["bytes"] for token in message.response_metadata["logprobs"]["content"]]
    return given[:-1] if given[-1] in ([], list(b"<|im_end|>")) else given


def reading(engine: Any, question: str, said: AIMessage) -> AIMessage:
    """Return the engine's logprobs of a response's tokens. A grammar forces the same text."""
    grammar = f"root ::= {json.dumps(said.text)}"
    own: AIMessage = engine.invoke(question, grammar=grammar, temperature=0, logprobs=True, top_logprobs=20)
    assert tokens(own) == tokens(said), "the same tokens, not only the same text"
    return own


@pytest.mark.parametrize(
    ("chat", "streamed"), [("ChatOpenAI", True), ("ChatOpenAICompatible", False)], indirect=["chat"]
)
def test_greedy_answers_and_their_confidence_agree(
    streamed: bool, chat: Chat, exact_server: LlamaServer, exact_engine: Any
) -> None:
    greedy = chat.real(exact_server, **LOGPROBS, temperature=0, streaming=streamed, stream_usage=True)
    for problem in brief(2):
        theirs = greedy.invoke(problem.input)
        ours = exact_engine.invoke(problem.input, temperature=0, logprobs=True, top_logprobs=20)
        assert theirs.text == ours.text and tokens(theirs) == tokens(ours)
        length = len(tokens(ours))
        for name in ("top_k", "token_logprob"):
            apart = read_signals(theirs).signals[name][:length] - read_signals(ours).signals[name][:length]
            assert np.abs(apart).max() < AGREE, name


def rereading(engine: Any, said: list[AIMessage]) -> Scripted:
    """Sample i is what the server said in sample i, with the confidence that the engine has in it."""

    def script(question: str, index: int) -> Reply:
        theirs = said[index]
        signals = read_signals(reading(engine, question, theirs)).signals
        same = {name: values[: len(tokens(theirs))] for name, values in signals.items()}
        return Reply(theirs.text, logprob=None, metadata={"token_signals": same})

    return Scripted(script=script)


@pytest.mark.parametrize("chat", ["ChatOpenAICompatible"], indirect=True)
def test_both_reach_the_same_decisions(chat: Chat, exact_server: LlamaServer, exact_engine: Any) -> None:
    model = chat.real(exact_server, **LOGPROBS)
    questions = [problem.input for problem in brief(4)]
    firsts = [
        MEASURE(read_signals(draw_samples(model, question, 1, first=100)[0].message).signals) for question in questions
    ]
    made = calibration(mean=np.mean(firsts), std=np.std(firsts), gate=np.quantile(firsts, 0.7))
    options = {"calibration": made, "answer": "boxed", "max_samples": 6, "allow_fingerprint_mismatch": True}
    decisions = []
    for question in questions:
        theirs = ReASCRunnable(model=model, **options).solve(question)
        said = [response.message for response in theirs.responses if response.used]
        # A sample more than the server's decision took would be an IndexError.
        ours = ReASCRunnable(model=rereading(exact_engine, said), concurrency=1, **options).solve(question)
        assert decided(ours) == decided(theirs)
        assert ours.decision.posterior == pytest.approx(theirs.decision.posterior, abs=AGREE)
        decisions.append(theirs.decision)
    assert {"gate", "evidence"} <= {decision.reason for decision in decisions}


def decided(result: ReASCResult) -> tuple[Any, ...]:
    return result.answer, result.decision.samples, result.decision.reason
