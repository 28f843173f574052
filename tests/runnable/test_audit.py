"""What calibration="online" has learned is audited with one more response, and forgotten where it fails."""

from typing import Any, cast

import pytest

from langchain_reasc.calibration import ConsensusCalibrator
from langchain_reasc.runnable.question import Question
from langchain_reasc.sampling import Sample

from .fakes import Reply, failing
from .learning import answered, calibrator, drawn, online


@pytest.mark.parametrize("audit", [0.0, 1.0])
def test_an_audit_is_paid_for_named_and_decides_nothing(runner: Any, fits: Any, audit: float) -> None:
    reasc = online(audit=audit)
    answered(runner, reasc)
    result = runner.solve(reasc, "q100")
    account = result.message.response_metadata["reasc"]
    assert (account["samples"], account["launched"], result.decision.samples) == (1, 1 + audit, 1)
    assert [response.used for response in result.responses] == [True, False][: 1 + int(audit)]
    assert result.usage.bill["output_tokens"] == sum(one.output_tokens for one in result.responses)
    assert result.notices[1:] == (
        ("one more response was paid for to audit this answer: it agrees with it",) if audit else ()
    )
    assert calibrator(reasc).wait(10)
    assert calibrator(reasc).state().questions[-1].answers == ((0, 0) if audit else (0,))


def test_an_audit_that_comes_to_nothing_costs_no_answer(runner: Any, fits: Any) -> None:
    reasc = online(failing(drawn, lambda question, index: (question, index) == ("q100", 1)).script, audit=1)
    answered(runner, reasc)
    result = runner.solve(reasc, "q100")
    assert (result.answer, len(result.failures)) == ("1", 1)
    assert "one more response was paid for to audit this answer, and came to nothing" in result.notices


def test_an_audit_that_disagrees_says_so_and_does_not_confuse_what_is_told_of_votes(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("no idea") if question == "q100" and index == 1 else drawn(question, index)

    reasc = online(script, audit=1)
    answered(runner, reasc)
    notices = runner.solve(reasc, "q100").notices
    assert notices[1:] == ("one more response was paid for to audit this answer: it does not agree with it",)


@pytest.mark.parametrize("limit", [{"max_samples": 1}, {"token_budget": 1}])
def test_an_audit_keeps_to_the_limits_of_a_question(runner: Any, fits: Any, limit: dict[str, Any]) -> None:
    reasc = online(audit=1, **limit)
    answered(runner, reasc)
    assert runner.account(reasc, "q100")["launched"] == 1


def test_which_questions_are_audited_is_settled_by_their_number_and_the_seed() -> None:
    def audited(seed: int) -> list[bool]:
        one = ConsensusCalibrator(seed=seed)
        return [one.audits(0.05) for _ in range(2000)]

    assert audited(1) == audited(1) != audited(2)
    assert 60 < sum(audited(1)) < 140


def test_responses_that_agree_otherwise_than_was_learned_begin_it_anew(runner: Any, fits: Any, logged: Any) -> None:
    def script(question: str, index: int) -> Reply:
        answer = index if question.startswith("x") else 1
        return Reply(f"it is {answer}", -1.5)  # below the gate, so that sampling goes on

    reasc = online(script, max_samples=4)
    answered(runner, reasc)
    after = answered(runner, reasc, [f"x{i}" for i in range(20)])
    methods = [account["method"] for account in after]
    switched = methods.index("asc")
    assert 3 <= switched <= 12 and set(methods[switched:]) == {"asc"}
    forgotten = "responses agree with one another otherwise than was learned, so that was forgotten: counting votes"
    assert after[switched]["notices"][0] == f"{forgotten} (ASC) and learning again (0 of 32 questions seen)"
    assert ("WARNING", after[switched]["notices"][0]) in logged()
    answered(runner, reasc, [f"x{i}" for i in range(32)])
    assert reasc.learned is not None and [len(fit.questions) for fit in fits[-2:]] == [32, 40]
    assert calibrator(reasc).state().alarms == 1


def test_audits_alone_tell_where_first_responses_are_accepted(runner: Any, fits: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply(f"it is {index if question.startswith('x') else 1}", -3.0)

    reasc = online(script, audit=1, max_samples=8)
    answered(runner, reasc)
    assert "asc" in {account["method"] for account in answered(runner, reasc, [f"x{i}" for i in range(20)])}


def test_an_audit_takes_the_place_of_no_sample_that_was_paid_for(runner: Any, fits: Any) -> None:
    """Of five samples in flight the decision falls after one; one never came, and the others were cut off."""
    reasc = online(audit=1.0, max_samples=16)
    answered(runner, reasc)
    question = Question(reasc._setup, "q100", {})
    question.begin(reasc.learned)
    assert [*question.launch(5)] == [0, 1, 2, 3, 4]
    response = runner.solve(reasc, "q100").responses[0]
    for index, status in {0: "complete", 1: "cancelled", 3: "cancelled", 4: "cancelled"}.items():
        question.add(Sample(index, response.message, cast(Any, status)))
    assert question.decision is not None
    assert question.samples_to_launch == 1
    assert [*question.launch(1)] == [5]
