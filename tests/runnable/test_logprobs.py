"""Confidences that are missing, odd or made of something else, and what a run says of them."""

from typing import Any

import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import FingerprintMismatch, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure

from .fakes import TOP_K, Reply, Scripted, calibration, saying

pytestmark = pytest.mark.sync_only

LIKELY, OTHERS = -0.4, [-1.5, -2.7, -3.9]


def entry(token: str, *, chosen: float | None = LIKELY, others: list[float] = OTHERS) -> dict[str, Any]:
    ranked = [{"token": f"{token}{at}", "logprob": p} for at, p in enumerate((chosen, *others))]
    return {"token": token, "logprob": chosen, "top_logprobs": ranked}


def telling(told: Any) -> Scripted:
    """Says of each sample's tokens ``told(question, index, position, token)``, or None for no logprobs."""

    def reply(question: str, index: int) -> Reply:
        text = f"so the answer to this must after all be the number 42{index}"
        return Reply(text, told=lambda at, token: told(question, index, at, token))

    return Scripted(script=reply)


def test_a_response_without_an_answer_misses_nothing(runner: Any) -> None:
    reasc = ReASCRunnable(model=saying(Reply("I cannot tell.", logprob=None)), calibration=calibration(), max_samples=2)
    assert runner.account(reasc, "q")["without_confidence"] == 0


def test_odd_logprobs_are_mentioned_once_each_with_the_number_of_responses(runner: Any) -> None:
    def told(question: str, index: int, at: int, token: str) -> Any:
        if at == 3:
            return entry(token, chosen=None)
        return entry(token, others=[*OTHERS[:2], -9999.0]) if at == 5 and index else entry(token)

    reasc = ReASCRunnable(model=telling(told), calibration=calibration(mean=9.0), max_samples=3)
    left_out, clipped = [notice for notice in runner.solve(reasc, "q").notices if "responses)" in notice]
    assert "(in 3 of 3 responses)" in left_out
    assert "-9999.0" in clipped and "(in 2 of 3 responses)" in clipped


def test_a_calibration_made_at_another_k_is_refused_at_the_first_response(runner: Any) -> None:
    signal = "neg_entropy"
    made, model = calibration(signal=signal, top_k=20), telling(lambda question, index, at, token: entry(token))
    with pytest.raises(FingerprintMismatch, match=rf"'{signal}' \(k\): .* 20, .* 4.*allow_"):
        runner.invoke(ReASCRunnable(model=model, calibration=made), "q")
    assert len(model.log.calls) <= 4
    for fits in (
        ReASCRunnable(model=model, calibration=made, allow_fingerprint_mismatch=True),
        ReASCRunnable(model=model, calibration=calibration(signal=signal, top_k=4)),
        ReASCRunnable(model=model, calibration=calibration(signal=signal)),
        ReASCRunnable(model=model, calibration=calibration(signal=signal, top_k=20, fallback="weak")),
        ReASCRunnable(model=model, calibration=calibration(signal="token_logprob", top_k=20)),
    ):
        assert runner.invoke(fits, "q").content


def test_a_later_response_at_another_k_is_one_without_confidence(runner: Any) -> None:
    model = telling(lambda question, index, at, token: entry(token, others=OTHERS[: 3 - (index == 1)]))
    made = calibration(top_k=4, mean=9.0)
    with pytest.raises(LogprobsUnavailable, match=r"4, .* 3"):
        runner.invoke(ReASCRunnable(model=model, calibration=made), "q")
    counting = ReASCRunnable(model=model, calibration=made, on_missing_confidence="count", max_samples=3)
    result = runner.solve(counting, "q")
    assert [response.score is None for response in result.responses] == [False, True, False]
    assert result.message.response_metadata["reasc"]["without_confidence"] == 1


def test_another_vocabulary_is_refused(runner: Any) -> None:
    info = {"vocabulary_size": 1000, "top_k": 20}
    model = saying(Reply("it is 7", metadata={"token_signals": {"self_certainty": [9.0]}, "token_signals_info": info}))
    fits, other = (calibration(signal="self_certainty", vocabulary_size=one) for one in (1000, 151_936))
    assert runner.invoke(ReASCRunnable(model=model, calibration=fits), "q").content
    with pytest.raises(FingerprintMismatch, match=r"\(V\): .*151936.*1000"):
        runner.invoke(ReASCRunnable(model=model, calibration=other), "q")


def test_a_withheld_signal_is_missing_confidence_with_the_reason(runner: Any) -> None:
    model = telling(lambda question, index, at, token: entry(token, others=[-9999.0] * 3))
    with pytest.raises(LogprobsUnavailable, match=r"'top_k'.*raw_logprobs"):
        runner.invoke(ReASCRunnable(model=model, calibration=calibration(top_k=4)), "q")


def test_a_batch_calibrates_online_at_the_k_that_most_responses_have(runner: Any) -> None:
    def told(question: str, index: int, at: int, token: str) -> Any:
        sure = 0.4 + int(question[1:]) % 2 * 0.5 + int(question[1:]) / 1000
        return entry(token, chosen=-sure, others=OTHERS[: 2 if question == "q3" else 3])

    reasc = ReASCRunnable(model=telling(told), calibration="mixture", confidence=TOP_K, max_samples=2)
    messages = runner.batch(reasc, [f"q{at}" for at in range(20)], return_exceptions=True)
    odd = [at for at, message in enumerate(messages) if isinstance(message, Exception)]
    assert odd == [3]
    assert isinstance(messages[3], FingerprintMismatch)


def test_single_calls_learn_at_the_k_of_the_first(runner: Any) -> None:
    def told(question: str, index: int, at: int, token: str) -> Any:
        others = OTHERS[: 2 if question == "odd" else 3]
        return entry(token, chosen=-0.4 - len(question) / 100, others=others)

    measure = Measure("top_k", "mean")
    reasc = ReASCRunnable(model=telling(told), calibration="mixture", confidence=measure, max_samples=1)
    for question in ["q0", "odd", *(f"q{at}" for at in range(1, 64))]:
        runner.invoke(reasc, question)
    assert reasc.learned is not None
    assert (reasc.learned.n, reasc.learned.top_k) == (64, 4)
    with pytest.raises(FingerprintMismatch, match=r"4, .* 3"):
        runner.invoke(reasc, "odd")
