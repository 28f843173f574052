"""The running confidence is read from chunks as they come, and from no chunk that cannot be trusted."""

from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc.method import ConfidenceCut
from langchain_reasc.models.chunks import message_of
from langchain_reasc.models.logprobs import read_signals
from langchain_reasc.models.running import StreamedConfidence

CUT = ConfidenceCut("token_logprob", 4, -1.0)
TOP_K = ConfidenceCut("top_k", 4, 3.0, top_k=2)


def token(logprob: float, *others: float, text: str = "ab") -> dict[str, Any]:
    ranked = [{"token": f"{at}", "logprob": one} for at, one in enumerate(others)]
    return {"token": text, "logprob": logprob, "bytes": None, "top_logprobs": ranked}


def chunk(*tokens: dict[str, Any], text: str | None = None) -> ChatGenerationChunk:
    said = "".join(one["token"] for one in tokens) if text is None else text
    info = {"logprobs": {"content": list(tokens)}} if tokens else None
    return ChatGenerationChunk(message=AIMessageChunk(said), generation_info=info)


def first_cut(cut: ConfidenceCut, *chunks: ChatGenerationChunk) -> int | None:
    """The number of the chunk with which the response is cut."""
    confidence = StreamedConfidence(cut)
    return next((at for at, one in enumerate(chunks) if confidence.falls_below(one)), None)


@pytest.mark.parametrize(
    ("cut", "chunks", "at"),
    [
        (CUT, [chunk(token(-2.0))] * 5, 3),
        (CUT, [chunk(token(-2.0), token(-2.0))] * 3, 1),
        (CUT, [chunk(text=""), *[chunk(token(-2.0))] * 4], 4),  # the role comes first
        (CUT, [chunk(token(-0.5))] * 4 + [chunk(token(-9.0))], 4),
        (CUT, [chunk(token(-0.5))] * 9, None),
        (TOP_K, [chunk(token(-0.2, -0.2, -2.0))] * 4, 3),
        (TOP_K, [chunk(token(-0.2, -0.2, -2.0, -9.0))] * 4, 3),  # one more alternative than k
        (TOP_K, [chunk(token(-0.2, -0.2, -2.0), token(-1.0, -1.0, -1.1))] * 2, 1),
        # Nothing that follows is trusted:
        (
            ConfidenceCut("self_certainty", 4, 99.0),
            [chunk(token(-2.0))] * 9,
            None,
        ),  # no server's give it
        (TOP_K, [chunk(token(-0.2, -0.2))] + [chunk(token(-0.2, -0.2, -2.0))] * 9, None),  # fewer than k
        (TOP_K, [chunk(token(-0.2, -0.2, -2.0), token(-0.2, -0.2, -2.0))] * 4, None),  # the same for two tokens
        (TOP_K, [chunk(token(-0.2, -0.9, -2.0), token(-1.0, -1.0, -1.1))] * 4, None),  # above the likeliest
        (TOP_K, [chunk(token(-1.5, -0.5, -2.0))] * 9, None),  # likelier than the second, and neither of them
        (CUT, [chunk(text="a text"), *[chunk(token(-2.0))] * 9], None),  # text without log-probabilities
        (CUT, [chunk(text="text"), chunk(text="text"), chunk(*[token(-2.0)] * 8, text="")], None),  # all at the end
        (CUT, [chunk(token(0.7))] + [chunk(token(-2.0))] * 9, None),
        (CUT, [chunk(token(-9999.0))] + [chunk(token(-2.0))] * 9, None),
    ],
)
def test_a_response_is_cut_with_the_chunk_that_lowers_it(
    cut: ConfidenceCut, chunks: list[ChatGenerationChunk], at: int | None
) -> None:
    assert first_cut(cut, *chunks) == at


@pytest.mark.parametrize("signal", ["token_logprob", "top_k", "neg_entropy"])
def test_the_signal_is_that_of_the_whole_response(signal: str) -> None:
    """It is cut with the token with which its recorded signal falls below."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        ranked = np.sort(np.log(rng.dirichlet(np.full(30, 0.3), 24))[:, :5].clip(-90), axis=1)[:, ::-1]
        said = [chunk(token(row[rng.integers(0, 3)], *row)) for row in ranked.tolist()]
        whole = message_of([AIMessageChunk(one.text, response_metadata=one.generation_info or {}) for one in said])
        values = read_signals(whole).signals[signal]
        cut = ConfidenceCut(signal, 6, float(np.median(values)), top_k=5)
        assert first_cut(cut, *said[:-1]) == ((cut.tokens(values) or 0) - 1 if cut.tokens(values) else None)
