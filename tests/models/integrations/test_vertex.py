"""ChatVertexAI over REST, where langchain-google-vertexai is installed: it brings gRPC and several cloud clients."""

import numpy as np
import pytest
from runnable.fakes import calibration
from servers.fake_server import serving

from langchain_reasc import ReASCRunnable
from langchain_reasc.models import read_signals

from .openai_wires import TOKENS, alternatives, chosen
from .other_wires import Gemini


def test_logprobs_arrive_whole() -> None:
    """Its client is asynchronous over gRPC only, which no HTTP server answers."""
    vertex = pytest.importorskip("langchain_google_vertexai")
    credentials = pytest.importorskip("google.auth.credentials").AnonymousCredentials()
    place = {"project": "p", "location": "l", "transport": "rest", "credentials": credentials}
    made = calibration(mean=100.0)
    with serving(Gemini()) as served:
        model = vertex.ChatVertexAI(model="gemini", base_url=served.root, seed=3, max_retries=1, **place)
        result = ReASCRunnable(model=model, calibration=made, allow_fingerprint_mismatch=True).solve("q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    for response in result.responses:
        signals = read_signals(response.message).signals
        np.testing.assert_allclose(signals["token_logprob"], [chosen(at) for at in range(len(TOKENS))], rtol=1e-6)
        np.testing.assert_allclose(signals["top_k"], [-np.mean(alternatives(5))] * len(TOKENS), rtol=1e-6)
    assert sorted(request["generationConfig"]["seed"] for request in served.requests) == [3, 4, 5, 6]
