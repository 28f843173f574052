"""How likely the answer is right: in the account, and below which an answer is none."""

import json
from typing import Any

import numpy as np
import pytest

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.answers import json_object
from langchain_reasc.calibration import Calibration, Observation, RuleBlock, SupportCurve, fit
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable, Undecided
from langchain_reasc.method import Response
from langchain_reasc.method.agreement import Component, Prior
from langchain_reasc.method.score_model import ScoreModel

from .fakes import Reply, calibration, saying

pytestmark = pytest.mark.sync_only

SPLIT = ("1", "2", "1", "2")  # support .5, P .3
UNANIMOUS = ("1",)  # support 5/6, P .8 (.5 + .2/.6 of the way)


def known(rule: str | None = "reasc", **fields: Any) -> Calibration:
    points = ((0.5, 0.3), (5 / 6, 0.8))
    told = SupportCurve(points=points, low=(0.2, 0.7), high=(0.4, 0.9), n=64, right=0.6, rule=rule)
    return calibration(**{"schema_version": 3, "weight": "count", "p_correct": told, **fields})


def reasc(*answers: str, **options: Any) -> ReASCRunnable:
    return ReASCRunnable(**{"model": saying(*answers), "max_samples": 4, "calibration": known(), **options})


def test_the_account_tells_how_likely_the_answer_is_right(runner: Any) -> None:
    for answers, expected in (
        (UNANIMOUS, (0.8, [0.7, 0.9])),
        (SPLIT, (0.3, [0.2, 0.4])),
        ("1121", (0.55, [0.45, 0.65])),
    ):
        result = runner.solve(reasc(*answers), "q")
        account = result.message.response_metadata["reasc"]
        value, interval = map(pytest.approx, expected)
        assert account["p_correct"] == {"value": value, "source": "labels", "interval": interval}
        assert result.p_correct == account["p_correct"]["value"]
        assert result.p_correct_interval == tuple(account["p_correct"]["interval"])
        assert result.message.text == "the answer is 1"


def test_a_stream_tells_it_once_and_whole(runner: Any) -> None:
    """Chunks are added up, and lists of them would be joined."""
    chunks = runner.stream(reasc(*UNANIMOUS), "q")
    accounts = [chunk.response_metadata["reasc"] for chunk in chunks if "reasc" in chunk.response_metadata]
    assert [account["p_correct"]["interval"] for account in accounts] == [pytest.approx([0.7, 0.9])]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.response_metadata["reasc"] == accounts[0]
    assert json.loads(json.dumps(accounts[0])) == accounts[0]


@pytest.mark.parametrize("given", [None, calibration(), known(rule="agreement"), "mixture"])
def test_where_nothing_tells_none_is_made_up(runner: Any, given: Any) -> None:
    result = runner.solve(reasc(*UNANIMOUS, calibration=given, on_missing_confidence="count"), "q")
    assert (result.p_correct, result.p_correct_interval, result.p_agree) == (None, None, None)
    assert not {"p_correct", "p_agree"} & result.message.response_metadata["reasc"].keys()


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


def agreeing(*components: Component, **fields: Any) -> Calibration:
    """What was learned without labels from answers alone; by one component, two of two responses agree with .35."""
    prior = Prior(components or (Component(0.3, 1.0),), (1 / (len(components) or 1),) * (len(components) or 1))
    nothing: Any = dict.fromkeys(("signal", "score", "window", "mean", "std"))
    block = RuleBlock.agreement(prior, 0.97)
    return calibration(**{**nothing, "method": "consensus", "rule": block, "guarantee": "by agreement", **fields})


def test_agreement_is_not_called_correctness(runner: Any) -> None:
    """How likely one more response agrees is (votes − .3) / (all + 1)."""
    for answers, expected in (("1111", 0.675), ("1211", 0.54), ("1212", 0.34)):
        result = runner.solve(reasc(*answers, calibration=agreeing()), "q")
        account = result.message.response_metadata["reasc"]
        assert (result.p_correct, result.p_correct_interval) == (None, None)
        assert result.p_agree == result.decision.agrees == pytest.approx(expected)
        assert "p_correct" not in account
        assert account["p_agree"] == {"value": pytest.approx(expected), "source": "consensus"}
    account = runner.account(reasc(*"1111", calibration=agreeing(), abstain_below=0.7), "q")
    assert "agrees with one more response with a probability of 0.675, below 0.7" in account["abstained_because"]


def test_it_is_not_how_likely_the_whole_budget_gives_the_answer(runner: Any) -> None:
    """The posterior is; for a leader who cannot be caught up with it is 1, whatever a fifth response says."""
    result = runner.solve(reasc(*"1111", calibration=agreeing()), "q")
    assert (result.decision.samples, result.decision.posterior) == (3, 1.0)
    assert runner.solve(reasc(*"1212", calibration=agreeing()), "q").decision.posterior == 0.5


def test_of_several_parts_the_least_certain_one_is_told(runner: Any) -> None:
    texts = [f'{{"a": 1, "b": {b}}}' for b in (2, 3, 2, 2)]
    model = saying(*map(Reply, texts))
    result = runner.solve(reasc(model=model, calibration=agreeing(), answer=json_object(by_field=True)), "q")
    account = result.message.response_metadata["reasc"]
    assert result.answer == texts[0]
    parts = result.decision.parts
    assert {name: part.agrees for name, part in parts.items()} == pytest.approx({"a": 0.74, "b": 0.54})
    assert account["p_agree"]["value"] == result.decision.agrees == pytest.approx(0.54)
    labels = agreeing(p_correct=known("agreement").p_correct)
    told = runner.solve(reasc(model=model, calibration=labels, answer=json_object(by_field=True)), "q")
    assert told.p_correct == pytest.approx(0.36), "at .54"
    assert told.p_correct_interval == pytest.approx((0.26, 0.46))


EASY_OR_HARD = Prior((Component(0.0, 0.02), Component(0.6, 10.0)), (0.5, 0.5))
SCORES = ScoreModel(((0.0, -2.0), (4.0, 2.0)), 0.0, 0.5, 0.5, 0.5, 0.1, 0.2)


def test_scores_are_a_part_of_it(runner: Any) -> None:
    """The surer a response, the likelier another one agrees with it; a response without a score is a vote."""
    made = calibration(method="consensus", rule=RuleBlock.agreement(EASY_OR_HARD, 0.95, SCORES))
    agrees = []
    for logprob in (-0.5, None, -3.5):
        model = saying(Reply("it is 1", logprob))
        result = runner.solve(reasc(model=model, calibration=made, max_samples=1), "q")
        agrees.append(result.p_agree)
    assert agrees == sorted(agrees) and agrees[0] < agrees[1] - 0.1 < agrees[2] - 0.2


@pytest.mark.parametrize(
    ("answers", "scores", "says"),
    [("67", (0.3, 3.8), "decided: "), ("667", (0.3, 0.3, 3.9), "likeliest by its scores")],
)
@pytest.mark.parametrize("options", [{}, {"on_undecided": "raise"}], ids=["answered", "raised if undecided"])
def test_what_scores_decide_needs_no_majority(
    runner: Any, answers: str, scores: tuple[float, ...], says: str, options: Any
) -> None:
    telling = ScoreModel(((0.0, -2.0), (4.0, 2.0)), 0.0, 0.0, 1.6, 0.2, 0.05, 0.2)
    made = calibration(
        method="consensus", rule=RuleBlock.agreement(Prior((Component(0.0, 1.0),), (1.0,)), 0.95, telling)
    )
    model = saying(*(Reply(answer, -score) for answer, score in zip(answers, scores, strict=True)))
    result = runner.solve(reasc(model=model, calibration=made, concurrency=1, max_samples=16, **options), "q")
    assert (result.answer, result.undecided, result.decision.samples) == ("7", False, len(answers))
    assert result.summary().startswith(says)


@pytest.mark.parametrize("missing", [{}, {"on_missing_confidence": "error"}, {"on_missing_confidence": "count"}])
def test_a_response_without_a_score_is_counted_with_a_notice(runner: Any, missing: Any) -> None:
    """Whatever is done with it by the paper's rule."""
    made = calibration(method="consensus", rule=RuleBlock.agreement(EASY_OR_HARD, 0.95, SCORES))
    model = saying(*[Reply("it is 1", None)] * 4)
    asking = reasc(model=model, calibration=made, concurrency=1, **missing)
    result = runner.solve(asking, "q")
    assert result.answer == "1"
    assert result.message.response_metadata["reasc"]["without_confidence"] == result.decision.samples
    [notice] = [one for one in result.notices if "no confidence" in one]
    asked = result.decision.samples
    assert notice.startswith(f"{asked} of {asked} ") and "count as one vote each" in notice
    counted = made.rule(budget=asking.max_samples)([Response("1")] * asked)
    assert (result.p_agree, result.decision.posterior) == pytest.approx((counted.agrees, counted.posterior))
    with pytest.raises(LogprobsUnavailable):
        runner.solve(reasc(model=model, calibration=calibration(), concurrency=1), "q")


@pytest.mark.parametrize("given", [None, "mixture", calibration(), known("agreement")])
def test_abstaining_without_a_probability_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"abstain_below=0.5 .*p_correct.*p_agree") as raised:
        reasc("1", calibration=given, abstain_below=0.5, on_missing_confidence="count")
    assert "--" not in str(raised.value)


def learned(**fields: Any) -> Calibration:
    """What counting votes on 32 questions without labels taught."""
    counted = [Observation(answers, np.zeros((0, 4))) for answers in ((0, 0, 0, 0), (0, 1, 0, 1))] * 16
    made = fit(counted, budget=4)
    assert made.by_agreement and made.guarantee
    assert made.p_correct is None
    return made.model_copy(update=fields)


def test_without_labels_it_tells_how_likely_one_further_response_agrees(runner: Any) -> None:
    made = learned()
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
