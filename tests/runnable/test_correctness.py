"""How likely the answer is right: in the account, and below which an answer is none."""

from typing import Any

import numpy as np
import pytest

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.calibration import Calibration, Observation, SupportCurve, fit
from langchain_reasc.exceptions import ConfigurationError, Undecided

from .fakes import calibration, saying

pytestmark = pytest.mark.sync_only

SPLIT = ("1", "2", "1", "2")  # support .5, P .3
UNANIMOUS = ("1",)  # support 5/6, P .8 (.5 + .2/.6 of the way)


def known(rule: str | None = "reasc", **fields: Any) -> Calibration:
    told = SupportCurve(points=((0.5, 0.3), (5 / 6, 0.8)), n=64, right=0.6, rule=rule)
    return calibration(**{"schema_version": 2, "weight": "count", "p_correct": told, **fields})


def reasc(*answers: str, **options: Any) -> ReASCRunnable:
    return ReASCRunnable(**{"model": saying(*answers), "max_samples": 4, "calibration": known(), **options})


def test_the_account_tells_how_likely_the_answer_is_right(runner: Any) -> None:
    for answers, expected in ((UNANIMOUS, 0.8), (SPLIT, 0.3)):
        result = runner.solve(reasc(*answers), "q")
        account = result.message.response_metadata["reasc"]
        assert account["p_correct"] == {"value": pytest.approx(expected), "source": "labels"}
        assert result.p_correct == account["p_correct"]["value"]
        assert result.message.text == "the answer is 1"


@pytest.mark.parametrize("given", [None, calibration(), known(rule="agreement"), "mixture"])
def test_where_nothing_tells_none_is_made_up(runner: Any, given: Any) -> None:
    result = runner.solve(reasc(*UNANIMOUS, calibration=given, on_missing_confidence="count"), "q")
    assert result.p_correct is None
    assert "p_correct" not in result.message.response_metadata["reasc"]


def test_what_a_safeguard_counts_has_the_probability_of_counts(runner: Any) -> None:
    weak = "the score does not separate right from wrong"
    assert runner.solve(reasc("1", calibration=known("asc", fallback=weak)), "q").p_correct == pytest.approx(0.8)
    assert runner.solve(reasc("1", calibration=known("reasc", fallback=weak)), "q").p_correct is None


def test_an_answer_that_is_not_likely_enough_is_none_whatever_the_evidence(runner: Any) -> None:
    result = runner.solve(reasc(*SPLIT, abstain_below=0.5), "q")
    account = result.message.response_metadata["reasc"]
    assert (result.message.content, result.undecided, account["abstained"]) == ("", True, True)
    assert account["abstained_because"] == "the answer is right with a probability of 0.3, below 0.5"
    assert result.message.usage_metadata == result.usage.bill
    sure = runner.solve(reasc(*UNANIMOUS, abstain_below=0.9), "q")
    assert (sure.decision.reason, sure.undecided, sure.message.content) == ("evidence", True, "")


def test_a_plurality_is_doubted_whatever_its_probability(runner: Any) -> None:
    split = reasc("1", "2", "3", "1", abstain_below=0.2)
    account = runner.account(split, "q")
    assert "1 of 3" in account["abstained_because"] and account["reason"] == "plurality"
    assert "abstained" not in runner.account(split.model_copy(update={"min_share": 0.0}), "q")


def test_or_an_error_says_why(runner: Any) -> None:
    with pytest.raises(Undecided, match=r"'1' .*0\.3, .*0\.5") as raised:
        runner.invoke(reasc(*SPLIT, abstain_below=0.5, on_undecided="raise"), "q")
    assert raised.value.result.p_correct == pytest.approx(0.3)


def test_agreement_is_not_called_correctness(runner: Any) -> None:
    told = SupportCurve(points=((0.5, 0.3),), n=64, right=0.6)
    result = runner.solve(reasc("1", calibration=known(p_correct=None, p_agree=told), abstain_below=0.5), "q")
    account = result.message.response_metadata["reasc"]
    assert (result.p_correct, result.p_agree) == (None, 0.3)
    assert "p_correct" not in account
    assert account["p_agree"] == {"value": 0.3, "source": "consensus"}
    assert "0.3" in account["abstained_because"]


@pytest.mark.parametrize("given", [None, "mixture", calibration(), known("agreement")])
def test_abstaining_without_a_probability_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"abstain_below=0.5 .*p_correct.*p_agree") as raised:
        reasc("1", calibration=given, abstain_below=0.5, on_missing_confidence="count")
    assert "--" not in str(raised.value)


def agreeing(**fields: Any) -> Calibration:
    """What counting votes on 32 questions without labels taught."""
    counted = [Observation(answers, np.zeros((0, 4))) for answers in ((0, 0, 0, 0), (0, 1, 0, 1))] * 16
    made = fit(counted, budget=4)
    assert made.p_agree and made.guarantee
    assert made.p_correct is None
    return made.model_copy(update=fields)


def test_without_labels_it_tells_how_likely_further_responses_agree(runner: Any) -> None:
    made = agreeing()
    result = runner.solve(reasc(*SPLIT, calibration=made, allow_fingerprint_mismatch=True), "q")
    account = result.message.response_metadata["reasc"]
    assert (account["method"], account["reason"], account["guarantee"]) == ("agreement", "budget", made.guarantee)
    assert account["p_agree"] == {"value": result.p_agree, "source": "consensus"}
    assert result.p_correct is None and "p_correct" not in account
    assert len(account["notices"]) == 1
    doubted = reasc(*SPLIT, calibration=made, allow_fingerprint_mismatch=True, abstain_below=0.9999)
    account = runner.account(doubted, "q")
    assert "probability" in account["abstained_because"]


@pytest.mark.parametrize("given", [None, known()])
def test_nothing_is_promised_where_nothing_holds(runner: Any, given: Any) -> None:
    account = runner.account(reasc(*UNANIMOUS, calibration=given, allow_fingerprint_mismatch=True), "q")
    assert "guarantee" not in account


def test_what_is_not_voted_on_is_not_doubted_and_no_answer_is_not_likely_enough(runner: Any) -> None:
    chat = ChatReASC(model=saying("1"), calibration=known(), abstain_below=0.9)  # a text, which is taken as it is
    message = runner.invoke(chat, "q")
    assert message.text == "the answer is 1"
    assert "p_correct" not in message.response_metadata["reasc"]
    account = runner.account(reasc("none", abstain_below=0.1, answer=lambda text: None), "q")
    assert account["abstained_because"] == "no response gave an answer"
