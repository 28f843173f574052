"""calibration="online": it counts votes until it has learned, audits what it decides then, and forgets what fails."""

import copy
import pickle
import random
import threading
from typing import Any

import numpy as np
import pytest
from langchain_core.prompts import ChatPromptTemplate
from sampling.test_parallel import parallel

from langchain_reasc import ChatReASC, Integration, Measure, Online, register_integration
from langchain_reasc.calibration import AnsweredQuestion, ConsensusCalibrator, learner
from langchain_reasc.calibration import online as learning_online
from langchain_reasc.exceptions import CalibrationDataError, ConfigurationError

from . import fakes
from .fakes import TOP_K, Reply, Scripted
from .learning import MINIMUM, QUESTIONS, answered, calibrator, drawn, online

BLANK = "I cannot tell."


def without_logprobs(question: str, index: int) -> Reply:
    return Reply(drawn(question, index).text, logprob=None)


def test_it_counts_until_it_has_learned_and_then_says_so(runner: Any, fits: Any, logged: Any) -> None:
    reasc = online()
    before = answered(runner, reasc)
    assert {account["method"] for account in before} == {"finite_horizon"}
    assert "(0 of 16 questions seen)" in before[0]["notices"][0]
    assert "(15 of 16 questions seen)" in before[15]["notices"][0]
    assert reasc.learned is not None and reasc.learned.n == MINIMUM
    assert reasc.learned.fingerprint.model == "scripted"
    easy, hard = answered(runner, reasc, ["q100", "q101"])
    assert (easy["method"], easy["reason"], easy["launched"]) == ("reasc", "gate", 1)
    [notice] = easy["notices"]
    assert "16 questions" in notice and "top_k/mean" in notice
    [(level, line)] = logged()
    assert level == "INFO" and notice in line
    assert hard["samples"] > 1


@pytest.mark.full
def test_kinds_of_request_are_decided_by_their_own(runner: Any, fits: Any) -> None:
    reasc = online()
    kinds = {name: ChatPromptTemplate.from_messages([("system", name), ("human", "{q}")]) for name in ("one", "two")}
    accounts: dict[str, list[Any]] = {name: [] for name in kinds}
    for at in range(MINIMUM):
        for name, prompt in kinds.items():
            accounts[name].append(runner.account(reasc, prompt.invoke({"q": f"q{at}"})))
            assert calibrator(reasc).wait(10)
    assert len({account["kind"] for account in accounts["one"]}) == 1
    assert accounts["one"][0]["kind"] != accounts["two"][0]["kind"]
    [notice] = runner.account(reasc, kinds["two"].invoke({"q": "q100"}))["notices"]
    assert "16 questions of this kind" in notice
    [notice] = runner.account(reasc, "q100")["notices"]
    assert "32 questions" in notice, "another kind is decided by what all say"


@pytest.mark.sync_only
def test_what_is_learned_from_are_answers_as_numbers_and_scores(runner: Any, fits: Any) -> None:
    replies = [Reply("it is 7", -2.0), Reply(BLANK, -9.0), Reply("it is 5", logprob=None), Reply("it is 7", -1.0)]
    answered(runner, online(lambda question, index: replies[index % 4], confidence=TOP_K))
    for observed in fits[0].questions:
        assert observed.answers == (0, None, 1, 0)
        np.testing.assert_allclose(observed.scores, [[2.0, 9.0, np.nan, 1.0]], rtol=1e-6)
        assert observed.right == ()
    answered(runner, online(confidence=Measure("token_logprob", "mean"), max_samples=1))
    answered(runner, online(max_samples=1))
    likely, stated = Measure("token_logprob", "mean"), Measure("verbalized", "mean")
    measures = [fit.measures for fit in fits]
    assert measures == [[TOP_K], [likely], [stated, likely]], "a measure is the only one"
    assert [one.questions[0].scores.shape[0] for one in fits] == [1, 1, 2]


def test_all_that_is_made_of_one_learns_together(runner: Any, fits: Any) -> None:
    reasc = online(max_samples=3)
    copies = [reasc, reasc.model_copy(update={"concurrency": 2}), copy.deepcopy(reasc)]
    reasc.min_share = 0.4
    for at in range(MINIMUM - 4):
        runner.invoke(copies[at % 3], f"q{at}")
    accounts = runner.accounts(copies[1], ["q90", "q91", "q92", "q93"], {"max_concurrency": 1})
    assert {account["method"] for account in accounts} == {"finite_horizon"}, "a batch is answered as it comes"
    assert calibrator(reasc).wait(10)
    assert reasc.learned is not None is not copies[2].learned
    assert reasc.model_copy(update={"model": Scripted(script=drawn)}).learned is None
    pickled = pickle.dumps(online(None, model=Scripted(script=None, log=None)))
    assert pickle.loads(pickled).calibration == Online(audit=0)


class Mute(Scripted):
    """Of a class that is known to return no logprobs."""


def test_it_needs_no_logprobs(runner: Any) -> None:
    register_integration(f"{Mute.__module__}.Mute")(lambda model: Integration(no_logprobs="its maker says so"))
    reasc = online(model=Mute(script=without_logprobs), max_samples=6)
    accounts = answered(runner, reasc, [*QUESTIONS, "q100"])
    assert "its maker says so" in str(accounts[0]["notices"])
    assert reasc.learned is not None and reasc.learned.measure is None
    assert "16 questions" in accounts[-1]["notices"][1] and "answers alone" in accounts[-1]["notices"][1]
    assert (accounts[-1]["answer"], accounts[-1]["without_confidence"]) == ("1", 0)


def of_three(token: str, logprob: float, k: int = 3) -> dict[str, Any]:
    """A token with three alternatives in place of one."""
    others = [{"token": token + "'" * at, "logprob": logprob - at, "bytes": None} for at in range(k)]
    return {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": others}


@pytest.mark.parametrize("later", [None, of_three], ids=["stay away", "have another k"])
def test_logprobs_that_change_later_cost_no_answer(runner: Any, fits: Any, monkeypatch: Any, later: Any) -> None:
    reasc = online(
        lambda question, index: (drawn if later or question != "q100" else without_logprobs)(question, index),
        confidence=TOP_K,
    )
    answered(runner, reasc)
    assert fits[0].options["provenance"] == {"top_k": {"top_k": 1, "vocabulary_size": None}}
    if later:
        monkeypatch.setattr(fakes, "openai_token", later)
        assert reasc.learned is not None
        monkeypatch.setitem(reasc.learned.__dict__, "top_k", 1)
    [account] = answered(runner, reasc, ["q100"])
    assert (account["answer"], account["method"], account["without_confidence"]) == ("1", "reasc", account["samples"])
    assert "no confidence" in account["notices"][1]
    assert np.isnan([*calibrator(reasc).observations][-1].scores).all()


@pytest.mark.sync_only
@pytest.mark.parametrize("error", [CalibrationDataError("all the same"), ZeroDivisionError()])
def test_a_failure_in_learning_costs_no_answer(runner: Any, monkeypatch: Any, logged: Any, error: Exception) -> None:
    def fail(*_: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(learner, "fit", fail)
    account = answered(runner, online(max_samples=2), [*QUESTIONS, "q100"])[-1]
    assert account["answer"] is not None
    if isinstance(error, CalibrationDataError):
        [notice] = account["notices"]
        assert "16 questions" in notice
    else:
        assert "ERROR" in [level for level, _ in logged()]


@pytest.mark.sync_only
def test_learning_holds_no_caller_up_and_remembers_a_bounded_number(runner: Any, monkeypatch: Any) -> None:
    go_on, scored_by = threading.Event(), AnsweredQuestion.scored_by
    monkeypatch.setattr(AnsweredQuestion, "scored_by", lambda *_, **given: go_on.wait(10) and scored_by(*_, **given))
    reasc = online(max_samples=1)
    for at in range(70):
        runner.invoke(reasc, f"q{at}")
    assert not calibrator(reasc).wait(0)
    go_on.set()
    assert calibrator(reasc).wait(10)
    assert calibrator(reasc).observations.seen in (64, 65)


@pytest.mark.sync_only
def test_no_thread_to_learn_in_costs_no_answer(runner: Any, monkeypatch: Any, caplog: Any) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(learning_online, "start_daemon", refuse)
    assert answered(runner, online(), ["q0"])[0]["answer"] == "1"
    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize(
    ("values", "message"),
    [({"audit": 1.5}, "audit=1.5"), ({"audit": "often"}, "audit='often'"), ({"state": 3}, "state=3")],
)
def test_wrong_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        online(**values)


@pytest.mark.full
@pytest.mark.sync_only
def test_objects_are_learned_from_as_wholes(runner: Any, fits: Any) -> None:
    texts = ['{"a": 1, "b": 2}', '{"a": 1, "b": 3}', '{"a": 4, "b": 2}', '{"a": 1, "b": 2}']
    reasc = online(lambda question, index: Reply(texts[index % 4], -1.5), answer="json", audit=1, max_samples=8)
    answered(runner, reasc, [*QUESTIONS, "q100"])
    assert {observed.answers[:4] for observed in fits[0].questions} == {(0, 1, 2, 0)}
    assert not calibrator(reasc).observations.restarts


@pytest.mark.sync_only
def test_responses_without_an_answer_are_no_trouble(runner: Any) -> None:
    reasc = online(lambda question, index: Reply(BLANK, -1.5), max_samples=3)
    assert {account["answer"] for account in answered(runner, reasc, [*QUESTIONS, "q100"])} == {None}
    assert all(set(one.answers) == {None} for one in calibrator(reasc).observations)


def test_a_question_given_back_as_it_is_teaches_nothing(runner: Any) -> None:
    chat = ChatReASC(model=Scripted(script=drawn), calibration="online")
    runner.invoke(chat, "q0")
    assert calibrator(chat).wait(10)
    assert calibrator(chat).observations.seen == 0


@pytest.mark.parametrize(
    ("audit", "second"),
    [
        (0.0, Reply()),
        (1.0, Reply("it is 1", -3.0)),
        (1.0, Reply(BLANK)),
        (1.0, Reply("", error=ConnectionError("down"))),
    ],
)
def test_an_audit_is_paid_for_named_and_decides_nothing(runner: Any, fits: Any, audit: float, second: Reply) -> None:
    reasc = online(lambda q, index: second if (q, index) == ("q100", 1) else drawn(q, index), audit=audit)
    answered(runner, reasc)
    result = runner.solve(reasc, "q100")
    account = result.message.response_metadata["reasc"]
    assert (account["answer"], account["samples"], account["launched"]) == ("1", 1, 1 + audit)
    assert [response.used for response in result.responses] == [True, False][: 1 + int(audit)]
    assert result.usage.bill["output_tokens"] == sum(one.output_tokens for one in result.responses)
    assert len(result.failures) == (second.error is not None)
    assert len(result.notices) == 1 + audit + len(result.failures)
    assert not audit or "audit" in result.notices[1]
    assert calibrator(reasc).wait(10)
    learned = {"": (0,), "it is 1": (0, 0), BLANK: (0, None)}["" if second.error or not audit else second.text]
    kept = [*calibrator(reasc).observations][-1]
    assert kept.answers == learned
    assert np.isfinite(kept.scores).any(axis=0).all()


@pytest.mark.sync_only
@pytest.mark.slow  # learns of many questions
def test_a_measure_stays_trusted_where_answers_are_audited(runner: Any) -> None:
    def script(question: str, index: int) -> Reply:
        rng = random.Random(f"{question} {index}")
        right = rng.random() < 0.6
        return Reply(f"it is {1 if right else rng.choice([2, 3, 4])}", -rng.gauss(9.0 if right else 7.0, 0.7))

    reasc = online(script, confidence=TOP_K, audit=0.5, max_samples=16)
    answered(runner, reasc, [f"q{at}" for at in range(70)])
    assert reasc.learned is not None and (reasc.learned.n, reasc.learned.measure) == (63, TOP_K)


@pytest.mark.sync_only
def test_an_audit_keeps_to_the_limit_of_a_question(runner: Any, fits: Any) -> None:
    reasc = online(audit=1, max_samples=1)
    answered(runner, reasc)
    assert runner.account(reasc, "q100")["launched"] == 1


def test_which_questions_are_audited_is_settled_by_their_number_and_the_seed() -> None:
    def audited(seed: int) -> list[bool]:
        one = ConsensusCalibrator(seed=seed)
        return [one.audits(0.05) for _ in range(2000)]

    assert audited(1) == audited(1) != audited(2)
    assert 60 < sum(audited(1)) < 140


@pytest.mark.full
@pytest.mark.sync_only
@pytest.mark.parametrize("audit", [0, 1])
def test_responses_that_agree_otherwise_than_was_learned_begin_it_anew(runner: Any, logged: Any, audit: int) -> None:
    """Seen by the votes that decide, or, where the first response does, by audits alone."""

    def script(question: str, index: int) -> Reply:
        if question.startswith("x"):
            return Reply(f"it is {index}", -3.5)
        return drawn(question, index) if audit else Reply("it is 1", -3.0)

    reasc = online(script, audit=audit, confidence=TOP_K)
    answered(runner, reasc, [f"q{i}" for i in range(64)])
    after = answered(runner, reasc, [f"x{i}" for i in range(20)])
    methods = [account["method"] for account in after]
    switched = methods.index("finite_horizon")
    assert switched >= 3 and set(methods[switched:]) == {"finite_horizon"}
    assert {account["samples"] for account in after[:switched]} == {1 if audit else 4}
    assert "(0 of 16 questions seen)" in after[switched]["notices"][0]
    assert ("WARNING", after[switched]["notices"][0]) in logged()


def test_an_audit_takes_the_place_of_no_sample_that_was_paid_for(
    runner: Any, fits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate takes no first response without logprobs; of the six then in flight three decide, and one never came."""
    monkeypatch.setattr("langchain_reasc.runnable.question.fewest_further", lambda rule, responses, most: most)
    reasc = online(model=parallel(loses=[4]), audit=1, max_samples=16, concurrency=6, on_missing_confidence="count")
    answered(runner, reasc)
    result = runner.solve(reasc, "q100")
    assert result.decision.samples == 4
    assert [response.index for response in result.responses] == [0, 1, 2, 3, 5, 6, 7]
