"""What users find out later, whether an answer was right, and how likely answers are right by that."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc import ChatReASC
from langchain_reasc.calibration import Observation, fit
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Cap, decide
from langchain_reasc.method.decision import support

from .fakes import Reply, Scripted
from .learning import MINIMUM, calibrator, online


def half_sure(question: str, index: int) -> Reply:
    """The right answer is 1: to every other question it is given by nine of ten, to the others by four of ten."""
    rng = random.Random(f"{question} {index}")
    share = 0.9 if int(question[1:]) % 2 else 0.4
    return Reply(f"it is {1 if rng.random() < share else rng.choice([2, 3])}")


def told(runner: Any, reasc: Any, at: int) -> bool:
    message = runner.invoke(reasc, f"q{at}")
    assert calibrator(reasc).wait(10)
    answer = message.response_metadata["reasc"]["answer"]
    return bool(
        runner.record_outcome(reasc, message if at % 2 else message.response_metadata["reasc"]["id"], answer == "1")
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "kept", [pytest.param(True, id="in a store"), pytest.param(False, id="in memory", marks=pytest.mark.slow)]
)
def test_outcomes_tell_how_likely_an_answer_is_right(runner: Any, tmp_path: Path, kept: bool) -> None:
    reasc = online(half_sure, max_samples=6, state=tmp_path / "s.sqlite" if kept else None)
    before = runner.solve(reasc, "q0")
    assert all(told(runner, reasc, at) for at in range(1, 80))
    assert calibrator(reasc).wait(20) and calibrator(reasc).observations.outcomes == 79
    reliable = reasc.learned
    assert reliable is not None and reliable.p_correct is not None and reliable.p_correct.n >= 60
    sure, unsure = runner.solve(reasc, "q101"), runner.solve(reasc, "q100")
    assert (before.p_correct is None and 0.5 < unsure.p_correct < sure.p_correct < 1.0) or unsure.p_correct < 0.8
    assert f"{reliable.n} questions, {reliable.p_correct.n} of them" in sure.notices[0]
    assert sure.message.response_metadata["reasc"]["p_correct"]["source"] == "labels"
    assert calibrator(reasc).wait(10)
    kept = {question.id: question.p_correct for question in calibrator(reasc).observations}
    accounts = [one.message.response_metadata["reasc"] for one in (before, sure, unsure)]
    assert [kept[one["id"]] for one in accounts] == [None, sure.p_correct, unsure.p_correct], "what was said then"


@pytest.mark.full
def test_outcomes_come_back_and_reach_other_processes(runner: Any, tmp_path: Path) -> None:
    one, other = (online(half_sure, max_samples=6, state=tmp_path / "s.sqlite") for _ in range(2))
    ids = []
    for at in range(MINIMUM):
        ids.append(runner.account(one, f"q{at}")["id"])
        assert calibrator(one).wait(10)
    assert runner.record_outcome(other, ids[3], True)
    assert runner.record_outcome(other, ids[3], False), "somebody thought better of it"
    assert calibrator(other).observations.outcomes == 1
    again = calibrator(online(half_sure, state=tmp_path / "s.sqlite"))
    assert [question.correct for question in again.observations] == [None] * 3 + [False] + [None] * (MINIMUM - 4)


@pytest.mark.full
def test_an_outcome_may_come_before_the_question_was_learned_from(runner: Any, tmp_path: Path) -> None:
    reasc = online(half_sure, state=tmp_path / "s.sqlite")
    for at in range(2 * MINIMUM):
        assert runner.record_outcome(reasc, runner.invoke(reasc, f"q{at}"), True)
        if at % 8 == 7:
            assert calibrator(reasc).wait(10)
    assert calibrator(reasc).observations.outcomes == 2 * MINIMUM and reasc.learned is not None


@pytest.mark.full
def test_a_process_calibrates_on_outcomes_that_another_one_was_told(runner: Any, tmp_path: Path) -> None:
    one, other = (online(half_sure, max_samples=6, state=tmp_path / "s.sqlite") for _ in range(2))
    for at in range(70):
        account = runner.account(one, f"q{at}")
        assert calibrator(one).wait(20)
        assert runner.record_outcome(other, account["id"], account["answer"] == "1")
    learned = one.learned
    assert learned is not None and learned.p_correct is not None and learned.p_correct.n >= 40


@pytest.mark.parametrize(
    ("calibration", "given", "why"),
    [
        (None, "0123456789abcdef", "calibration='online'.*None"),
        ("online", AIMessage("it is 1"), "ReASC"),
    ],
)
def test_what_cannot_be_told(runner: Any, calibration: Any, given: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        runner.record_outcome(online(half_sure, calibration=calibration), given, True)


def test_what_is_not_known_is_said(runner: Any) -> None:
    reasc = online(half_sure)
    assert runner.record_outcome(reasc, "0123456789abcdef", True) is False
    chat = ChatReASC(model=Scripted(script=half_sure), calibration="online")
    alone = runner.invoke(chat, "q0")
    assert runner.record_outcome(chat, alone, True) is False, "a text that was not voted on"
    voting = chat.model_copy(update={"answer": "number"})
    assert runner.record_outcome(voting, runner.invoke(voting, "q0"), True) is True


def answered(rng: np.random.Generator, told: Callable[[bool], float]) -> tuple[Observation, bool]:
    """A question whose first answer is right as often as responses give it, and whose outcome is told so often."""
    share = rng.choice([0.4, 0.6, 0.95])
    given = np.where(rng.random(6) < share, 1, rng.integers(2, 4, 6)).tolist()
    answer = max(given, key=given.count)
    right = bool(rng.random() < given.count(answer) / 6)
    outcome = right if rng.random() < told(right) else None
    return Observation(tuple(given), np.empty((0, 6)), decided=6, answer=answer, correct=outcome), right


@pytest.mark.full
@pytest.mark.parametrize(
    ("told", "off"),
    [
        pytest.param(lambda right: 0.3, 0.06, id="at random"),
        pytest.param(lambda right: 0.1 if right else 0.5, None, id="mostly complaints", marks=pytest.mark.slow),
    ],
)
def test_p_correct_is_of_questions_whose_outcome_was_told(told: Callable[[bool], float], off: float | None) -> None:
    """Told at random, it holds of all; where complaints are told sooner, answers are more often right than it says."""
    promised, found = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        questions = [answered(rng, told)[0] for _ in range(400)]
        made = fit(questions, budget=6)
        assert made.p_correct is not None
        for question, right in (answered(rng, told) for _ in range(400)):
            decision = decide(made.rule(budget=6) | Cap(6), question.responses(None))
            if decision.answer == str(question.answer):
                promised.append(made.p_correct.probability(support(decision) or 0.0))
                found.append(right)
    assert len(found) > 1000
    gap = float(np.mean(found) - np.mean(promised))
    assert abs(gap) < off if off else gap > 0.1


def test_complaints_alone_tell_nothing() -> None:
    rng = np.random.default_rng(0)
    questions = [answered(rng, lambda right: 0.0 if right else 1.0)[0] for _ in range(400)]
    assert sum(question.correct is False for question in questions) > 50
    assert fit(questions).p_correct is None
