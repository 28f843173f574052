"""ReASC on the real llama-server: calibrating, deciding, and billing every token."""

from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import PoolScores, calibrate_offline_on, record_pool

from langchain_reasc import ASC, Measure, ReASCRunnable, load_calibration, save_calibration
from langchain_reasc.answers import equivalent
from langchain_reasc.exceptions import FingerprintMismatch
from langchain_reasc.models import read_signals

from .conftest import WAYS, Chat, each_client
from .llama_server import LlamaServer, brief, problems

MEASURE = Measure("top_k", "bottom_group", window=8)
CALIBRATED_ON = 28


@pytest.mark.parametrize(("chat", "runner"), [("ChatOpenAICompatible", WAYS[1])], indirect=True)
def test_calibrating_and_deciding(runner: Any, chat: Chat, real_server: LlamaServer, tmp_path: Path) -> None:
    model = chat.real(real_server)
    questions = problems("calibration", CALIBRATED_ON)
    pool = record_pool(model, questions, tmp_path / "pool.sqlite", samples=1, answer="boxed", measure=MEASURE)
    firsts = [(at, 0) for at in range(len(pool.questions))]
    path = tmp_path / "calibration.json"
    save_calibration(calibrate_offline_on(pool, PoolScores(pool), firsts, MEASURE, p_target=0.8), path)

    made = load_calibration(path)
    assert (made.method, made.measure, made.n) == ("offline", MEASURE, CALIBRATED_ON)
    assert made.accuracy is not None and 0.3 < made.accuracy < 0.95, "the shipped model solves some, not all"
    assert made.auroc is not None and made.auroc.value > 0.6, "confidence from the server tells right from wrong"
    assert made.fingerprint.sampling["temperature"] == 1.0
    with pytest.raises(FingerprintMismatch, match=r"temperature: .*1\.0.*0\.5"):
        ReASCRunnable(model=chat.real(real_server, temperature=0.5), calibration=path)

    reasc = ReASCRunnable(model=model, calibration=made.as_in_paper(), answer="boxed", max_samples=8)
    results = [runner.solve(reasc, question.input) for question in brief(4)]
    right = sum(equivalent(result.answer, each.reference) for result, each in zip(results, brief(4), strict=True))
    assert right >= 2
    assert {result.decision.reason for result in results} <= {"gate", "evidence", "budget"}
    assert sum(result.decision.samples for result in results) < 8 * len(results), "it stops early"
    for result in results:
        assert not result.failures
        for response in result.responses:
            if response.status == "complete" and response.answer is not None:
                assert response.score is not None and response.score > 0


@each_client
def test_every_token_that_the_server_generates_is_on_the_bill(
    runner: Any, chat: Chat, real_server: LlamaServer
) -> None:
    model = chat.real(real_server)
    getattr(model, "capabilities", bool)()  # ours asks its questions once, and they cost tokens
    asked = model.bind(logprobs=True, top_logprobs=20)
    real_server.wait_until_idle()
    before = real_server.generated()
    reasc = ReASCRunnable(model=asked, answer="boxed", max_samples=4, rule=ASC(0.9999))  # nothing is cut off
    result = runner.solve(reasc, brief(1)[0].input)
    real_server.wait_until_idle()
    assert result.usage.output_tokens == real_server.generated() - before
    assert not result.usage.estimated
    for response in result.responses:
        # In a stream llama-server leaves out the end token.
        missing = response.output_tokens - len(read_signals(response.message).signals["top_k"])
        assert missing in (0, 1)
