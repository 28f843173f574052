"""Learning from questions that a small and a large model are both asked: online, in a file, and by ``calibrate``."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc import Escalation, Online, ReASCRunnable, save_calibration
from langchain_reasc.calibration import Calibration, EscalationLearner, LearnedEscalation, ObservationStore
from langchain_reasc.exceptions import (
    CalibrationDataError,
    CalibrationFileError,
    ConfigurationError,
    FingerprintMismatch,
)
from langchain_reasc.method import Race

from .fakes import PROMPT_TOKENS, TOP_K, Reply, Scripted, failing, saying

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
WITHIN = 0.2
ADMITTED = 20
"""More questions without a contradiction than it takes until answers of the small model stand: 18."""
CONFIRMED = 80
"""More questions without a contradiction than it takes until no rule is on trial."""
DOWN = Reply("", error=ConnectionError("down"))
SECRETS = ("capital", "sk-secret", "the answer")


def small(question: str, index: int) -> Reply:
    """No answer to "mute" questions, another each time to "hard" ones, and not the large model's to "wrong" ones."""
    if question.startswith(("mute", "hard")):
        return Reply("I cannot tell." if question.startswith("mute") else f"the answer is {index}")
    return Reply("the answer is 2" if question.startswith("wrong") else "the answer is 1")


def pair(
    script: Any = small,
    large: Any = None,
    *,
    within: float | None = WITHIN,
    audit: float = 0,
    state: Path | None = None,
    **options: Any,
) -> ReASCRunnable:
    learned = {
        "calibration": Online(state=state, audit=audit),
        "escalate_to": Escalation(large or saying("1"), within=within),
    }
    return ReASCRunnable(model=Scripted(script=script), **{**learned, **options})


def learner(reasc: Any) -> EscalationLearner:
    assert isinstance(reasc.calibrator, EscalationLearner)
    return reasc.calibrator


def known(reasc: Any) -> LearnedEscalation:
    """What was learned of the only kind of request."""
    return max(learner(reasc)._learned.values(), key=lambda one: (one.restarts, one.rows))


def ask(runner: Any, reasc: Any, count: int, name: str = "q") -> list[Any]:
    return [runner.account(reasc, f"{name}{at}") for at in range(count)]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level("INFO", "langchain_reasc.calibration.escalation_learner")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def test_the_large_model_answers_until_answers_of_the_small_one_may_stand(runner: Any, logged: Any) -> None:
    reasc = pair()
    assert reasc.learned is None
    accounts = ask(runner, reasc, CONFIRMED)
    stood = [one["answered_by"] for one in accounts].index("small")
    for at, one in enumerate(accounts[:stood]):
        assert (one["answered_by"], one["reason"], one["shadowed"]) == ("large", "escalated", True)
        assert f" {at} question" in one["notices"][0]
        assert one["models"].keys() == {"small", "large"} and "guarantee" not in one
    assert 10 < stood < ADMITTED
    on_trial = [one for one in accounts[stood:] if one["notices"]]
    shadowed = sum(one.get("shadowed", False) for one in on_trial)
    assert 8 <= shadowed < len(on_trial) / 2, "a second block, of a share of the questions"
    assert all("on trial" in one["notices"][0] for one in on_trial)
    assert not any(one.get("shadowed") for one in accounts[stood + len(on_trial) :])
    for one in accounts[stood:]:
        if "shadowed" in one:
            continue
        assert (one["reason"], one["models"].keys()) == ("unanimous", {"small"})
        assert "on 0 of" in one["guarantee"]
        assert "(95% confidence)" in one["guarantee"]
    [(_, admitted), (level, confirmed)] = logged()
    assert "on trial" in admitted
    assert level == "INFO" and confirmed == accounts[-1]["guarantee"]
    contested = runner.solve(reasc, "mute")
    account = contested.message.response_metadata["reasc"]
    assert (account["answered_by"], account["reason"]) == ("large", "escalated") and "shadowed" not in account
    assert "undecided" in contested.summary()
    assert reasc.learned is not None and reasc.learned.escalation == known(reasc)
    assert "price" in reasc.learned.summary()


@pytest.mark.parametrize(
    ("name", "large", "samples"),
    [("q", ["1"], (3, 1)), ("hard", ["1"], (2, 1)), ("wrong", ["1"], (3, 2)), ("wrong", ["1", "2"], (3, 2))],
)
def test_a_question_in_the_shadow_is_billed_whole(
    runner: Any, name: str, large: list[str], samples: tuple[int, int]
) -> None:
    again = saying(*large)
    result = runner.solve(pair(large=again), name)
    account = result.message.response_metadata["reasc"]
    assert account["shadowed"] and result.answer == "1" and result.decision.reason == "escalated"
    assert "larger model" in result.summary()
    assert (account["models"]["small"]["launched"], account["models"]["large"]["launched"]) == samples
    bill = result.message.usage_metadata
    assert bill["total_tokens"] == sum(samples) * (PROMPT_TOKENS + 4) == result.usage.bill["total_tokens"]
    assert account["launched"] == sum(samples) == len(result.responses)
    assert [one.used for one in result.responses].count(True) == 1


@pytest.mark.parametrize(
    ("script", "large", "samples"),
    [
        (lambda question, index: Reply("it broke here", error=ConnectionError("down")), ["1"], (2, 1)),
        (lambda question, index: Reply("the answer is 2"), ["1", "it broke"], (3, 2)),
    ],
    ids=["small", "second answer"],
)
def test_a_failure_in_the_shadow_costs_no_answer_and_is_billed(
    runner: Any, script: Any, large: list[str], samples: tuple[int, int]
) -> None:
    again = iter(large)
    answers = {"the answer is 1": None}

    def once(question: str, index: int) -> Reply:
        said = next(again)
        return Reply(said, error=ConnectionError("down")) if "broke" in said else Reply(f"the answer is {said}")

    reasc = pair(script, Scripted(script=once))
    result = runner.solve(reasc, "q")
    account = result.message.response_metadata["reasc"]
    assert result.message.text in answers and account["answered_by"] == "large"
    assert account["launched"] == sum(samples) and account["failed"] == len(result.failures) > 0
    assert sum(one["launched"] for one in account["models"].values()) == sum(samples)
    assert account["tokens"]["output"] == sum(one.output_tokens for one in result.responses)
    assert known(reasc).rows == 1


def test_a_large_model_that_is_down_while_learning(runner: Any, logged: Any) -> None:
    large = failing(lambda question, index: Reply("the answer is 1"), lambda question, index: "down" in question)
    reasc = pair(large=large)
    account = runner.account(reasc, "down")
    assert (account["answered_by"], account["reason"]) == ("small", "unanimous")
    assert "guarantee" not in account and "the large model failed" in account["notices"][0]
    assert account["failed_reason"] == "unreachable" and "ConnectionError('down')" in account["failed_because"]
    with pytest.raises(Exception, match="down"):
        runner.invoke(pair(large=large, on_undecided="raise"), "down")
    assert learner(reasc).calibration is None
    (warned,) = [text for _, text in logged()]
    assert "unreachable" in warned and "'down'" not in warned, "the reason, and not the words of the server"


def test_where_nothing_can_be_admitted_the_large_model_answers_alone(runner: Any, logged: Any) -> None:
    reasc = pair()
    accounts = ask(runner, reasc, 60, "wrong")
    assert all(one["answered_by"] == "large" for one in accounts)
    shadowed = [one.get("shadowed", False) for one in accounts]
    assert all(shadowed[:8]) and sum(shadowed[20:]) <= 5
    last = accounts[-1]["notices"][0]
    assert last.startswith("the large model answers alone, by ") and "contradict it on" in last
    assert [line for line in logged() if "answers alone" in line[1]] == logged() and len(logged()) == 1
    alone = next(one for one in accounts[::-1] if "shadowed" not in one)
    assert alone["models"].keys() == {"large"}


def test_a_clean_first_topic_is_no_licence_for_the_next(runner: Any, path: Path) -> None:
    """An admitted rule is on trial, also in the file, and a bad second topic ends that at once."""
    ask(runner, pair(state=path), ADMITTED)
    reasc = pair(state=path)
    accounts = ask(runner, reasc, 80, "wrong")
    [stored] = ObservationStore.open(path).escalations()
    assert stored.restarts == 1 and stored.rule is None and stored == known(reasc)
    assert sum(one["answered_by"] == "small" for one in accounts) < 20
    assert accounts[-1]["answered_by"] == "large"


def test_drift_begins_learning_again(runner: Any, logged: Any) -> None:
    reasc = pair(audit=1.0)
    ask(runner, reasc, ADMITTED)
    assert known(reasc).rule is not None
    for at in range(200):
        runner.invoke(reasc, f"wrong{at}")
        if known(reasc).restarts:
            break
    assert at < 40 and known(reasc).rule is None and known(reasc).rows == 0
    assert [level for level, _ in logged()].count("WARNING") == 1
    assert runner.account(reasc, "q")["answered_by"] == "large"


def test_a_share_of_questions_is_audited() -> None:
    reasc = pair()
    for at in range(CONFIRMED):
        reasc.invoke(f"q{at}")
    kind = max(learner(reasc)._learned, key=lambda one: learner(reasc)._learned[one].rows)
    course = [learner(reasc).course(kind, 0.05) for _ in range(2000)]
    assert 60 <= sum(one.shadowed for one in course) <= 140 and all(one.rule for one in course)
    again = EscalationLearner(within=WITHIN)
    first, then = ([one.course("", 0.5).shadowed for _ in range(20)] for one in (again, EscalationLearner()))
    assert first == then, "the choice is reproducible"


def test_kinds_of_request_are_learned_apart(runner: Any) -> None:
    reasc = pair()
    for at in range(ADMITTED):
        runner.invoke(reasc, [SystemMessage("Be brief."), HumanMessage(f"q{at}")])
    told = [
        runner.account(reasc, [SystemMessage(system), HumanMessage("q")])["answered_by"]
        for system in ("Be brief.", "Be long.")
    ]
    assert told == ["small", "large"]


def test_what_was_learned_is_shared_by_copies_and_by_no_other(runner: Any) -> None:
    reasc = pair()
    ask(runner, reasc, ADMITTED)
    assert isinstance(reasc.escalate_to, Escalation)
    dearer, stricter = replace(reasc.escalate_to, prices=3.0), replace(reasc.escalate_to, within=0.1)
    for change in ({"concurrency": 1}, {"escalate_to": dearer}, {"escalate_to": reasc.escalate_to}):
        assert reasc.model_copy(update=change).calibrator is reasc.calibrator, change
    larger = Scripted(script=lambda question, index: Reply("the answer is 1"), model_name="larger")
    for change in (
        {"escalate_to": stricter},
        {"escalate_to": larger},
        {"model": Scripted(script=small, model_name="other")},
    ):
        other = reasc.model_copy(update=change)
        assert runner.account(other, "q")["answered_by"] == "large", change
    with pytest.raises(ConfigurationError, match=r"calibration='online' .*escalate_to"):
        runner.record_outcome(reasc, "id", True)


def test_the_time_may_be_over_in_the_shadow(runner: Any) -> None:
    slow = pair(lambda question, index: Reply("the answer is 1", delay=0.1), timeout=0.2)
    account = runner.account(slow, "q")
    assert account["answered_by"] == "large" and account["reason"] == "escalated"
    assert known(slow).rows == 0 or account["models"]["small"]["reason"] == "failed"


def started(path: Path, *lines: str) -> "subprocess.Popen[str]":
    """A process of its own, in which ``asked(n)`` asks n questions of a pair with this state."""
    program = "\n".join(
        [
            "import os, signal, sys, multiprocessing; sys.path.insert(0, 'tests')",
            "from runnable.test_escalation_learning import *",
            f"path = Path({str(path)!r})",
            "def asked(count, reasc=None, name='q'):",
            "    reasc = reasc or pair(state=path)",
            "    for at in range(count): reasc.invoke(f'{name}{at}')",
            *lines,
        ]
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def ended(*processes: "subprocess.Popen[str]") -> str:
    return "".join(process.communicate(timeout=600)[1] for process in processes)


def rows(path: Path) -> int:
    return sum(one.rows for one in ObservationStore.open(path).escalations())


@pytest.mark.sync_only
def test_processes_that_share_a_file_learn_together(runner: Any, path: Path) -> None:
    other = started(path, "asked(6)")
    reasc = pair(state=path)
    ask(runner, reasc, 6)
    assert ended(other) == "" and rows(path) == 12
    ask(runner, reasc, 1)
    assert rows(path) == 13 == known(reasc).rows
    ask(runner, reasc, ADMITTED - 13)
    assert runner.account(pair(state=path), "q")["answered_by"] == "small"
    assert known(reasc) == ObservationStore.open(path).escalations()[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_processes_that_are_killed_or_forked_lose_nothing(path: Path) -> None:
    fork = "if not os.fork(): asked(3, reasc); sys.exit(0)"
    killed = "asked(4, reasc); os.wait(); os.kill(os.getpid(), signal.SIGKILL)"
    ended(started(path, "reasc = pair(state=path)", "asked(2, reasc)", fork, killed))
    assert rows(path) == 9


def test_the_file_says_nothing_of_what_was_asked(path: Path) -> None:
    reasc = pair(state=path)
    reasc.invoke("which capital", api_key="sk-secret")
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = b"".join(one.read_bytes() for one in path.parent.iterdir())
    assert not [one for one in SECRETS if one.encode() in data]


def test_what_cannot_be_written_is_written_later(
    runner: Any, path: Path, monkeypatch: pytest.MonkeyPatch, logged: Any
) -> None:
    monkeypatch.setattr(ObservationStore, "WAIT", 0.02)
    reasc = pair(state=path)
    ask(runner, reasc, 2)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert all(one["answered_by"] == "large" for one in ask(runner, reasc, 3))
        assert known(reasc).rows == 5, "it goes on learning"
    assert rows(path) == 2
    ask(runner, reasc, 1)
    assert rows(path) == 6 == known(reasc).rows
    warned = [line for level, line in logged() if level == "WARNING"]
    assert len(warned) == 1 and "not kept" in warned[0]


def test_another_promise_or_large_model_begins_anew_and_spoils_nothing(runner: Any, path: Path) -> None:
    ask(runner, pair(state=path), ADMITTED)
    larger = Scripted(script=lambda question, index: Reply("the answer is 1"), model_name="larger")
    for change in ({"within": 0.1}, {"large": larger}):
        reasc = pair(state=path, **change)
        assert runner.account(reasc, "q")["answered_by"] == "large", change
        assert known(reasc).rows == 1
    assert runner.account(pair(state=path), "q")["answered_by"] == "small"


def test_a_file_of_another_small_model_is_refused(runner: Any, path: Path) -> None:
    ask(runner, pair(state=path), ADMITTED)
    other = {"model": Scripted(script=small, model_name="other")}
    larger = Escalation(saying("1"), within=WITHIN)
    options: Any = {"calibration": Online(state=path), "escalate_to": larger}
    with pytest.raises(FingerprintMismatch, match=r"state=.*'scripted'.*'other'"):
        ReASCRunnable(**other, **options)
    reasc = ReASCRunnable(**other, **options, allow_fingerprint_mismatch=True)
    assert runner.account(reasc, "q")["answered_by"] in ("small", "large")


@pytest.mark.parametrize("content", [b"", b"{}", b"SQLite format 3\0 and no more"])
def test_a_file_of_something_else_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CalibrationFileError, match=r"state\.sqlite"):
        pair(state=path)
    assert path.read_bytes() == content
    with pytest.raises(CalibrationFileError, match="no folder"):
        pair(state=path.parent / "further" / "state.sqlite")


def test_an_older_file_gets_its_table(runner: Any, path: Path) -> None:
    ask(runner, pair(state=path), 1)
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("DROP TABLE escalations")
    reasc = pair(state=path)
    ask(runner, reasc, 2)
    assert rows(path) == 2 == known(reasc).rows
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute('UPDATE escalations SET known = \'{"rows": "capital"}\'')
    with pytest.raises(CalibrationFileError, match="cannot be read") as raised:
        runner.invoke(pair(state=path), "q")
    assert "capital" not in str(raised.value)


def questions(count: int, *names: str, label: str | None = None) -> list[Any]:
    asked = [f"{name}{at}" for at in range(count) for name in names or ("q",)]
    return asked if label is None else [(one, label) for one in asked]


def calibrated(runner: Any, given: Any, script: Any = small, large: Any = None, **options: Any) -> Calibration:
    options = {"escalate_to": Escalation(large or saying("1"), within=WITHIN), **options}
    made: Calibration = runner.calibrate(Scripted(script=script), given, **options)
    return made


def test_calibrating_asks_in_random_order(runner: Any) -> None:
    """Easy questions are often first in a list."""

    def order(given: list[str], **options: Any) -> list[str]:
        large = saying("1")
        calibrated(runner, given, large=large, concurrency=1, **options)
        return [*dict.fromkeys(question for question, _ in large.log.calls)]

    given = questions(12)
    asked = order(given)
    assert asked != given and sorted(asked) == sorted(given)
    assert order(given) == asked, "the seed is 0"
    assert order(given, seed=1) not in (asked, given)


@pytest.mark.parametrize("label", [None, "1", "3"], ids=["no labels", "large is right", "both are wrong"])
def test_calibrating_on_both(runner: Any, label: str | None, tmp_path: Path) -> None:
    moved: list[tuple[int, int]] = []
    large = saying("1")
    made = calibrated(runner, questions(30, label=label), large=large, progress=lambda *at: moved.append(at))
    assert made.escalation is not None and made.escalation.rows == 30 and made.escalation.rule is not None
    assert moved[-1] == (30, 30)
    again = Calibration.model_validate_json(made.model_dump_json(by_alias=True))
    assert again == made and again.summary() == made.summary()
    save_calibration(made, tmp_path / "calibration.json")
    for given in (made, tmp_path / "calibration.json"):
        reasc = ReASCRunnable(model=Scripted(script=small), escalate_to=large, calibration=given)
        account = runner.account(reasc, "q")
        assert (account["answered_by"], account["reason"]) == ("small", "unanimous")
        assert account["guarantee"] == made.escalation.promise(made.escalation.rule)
        what = "is wrong where the large model is right" if label else "contradicts an answer that the large model"
        assert what in account["guarantee"]
        assert runner.account(reasc, "mute")["answered_by"] == "large"
        assert reasc.learned == made


def test_no_more_is_promised_than_was_tested(runner: Any) -> None:
    made = calibrated(runner, questions(30))
    both: Any = {"model": Scripted(script=small), "calibration": made}
    with pytest.raises(ConfigurationError, match=r"within=0.1 .*\(0.2\)"):
        ReASCRunnable(**both, escalate_to=Escalation(saying("1"), within=0.1))
    for within in (None, WITHIN, 0.3):
        larger = Escalation(saying("1"), within=within)
        assert "guarantee" in runner.account(ReASCRunnable(**both, escalate_to=larger), "q")


def test_a_rule_given_beside_a_calibration_decides(runner: Any) -> None:
    made = calibrated(runner, questions(30))
    reasc = ReASCRunnable(model=Scripted(script=small), escalate_to=saying("1"), calibration=made, rule=Race(2))
    account = runner.account(reasc, "wrong")
    assert (account["answered_by"], account["samples"], "guarantee" in account) == ("small", 2, False)


def test_a_batch_learns_and_tells_each_change_once(runner: Any, logged: Any) -> None:
    reasc = pair(concurrency=1)
    runner.batch(reasc, [f"q{at}" for at in range(60)], {"max_concurrency": 8})
    lines = [line for _, line in logged()]
    admitted, *confirmed = lines
    assert "on trial" in admitted and len(confirmed) <= 1 and known(reasc).rows >= 18


def test_with_labels_a_contradiction_is_a_right_answer_lost(runner: Any) -> None:
    wrong = {one: calibrated(runner, questions(30, "wrong", label=one)).escalation for one in ("1", "2")}
    assert wrong["1"] is not None and wrong["1"].rule is None, "the large model is right"
    assert wrong["2"] is not None and wrong["2"].rule is not None, "the small one is"


@pytest.mark.parametrize(("label", "rows"), [("2", 0), (None, 5)])
def test_what_labels_tell_is_not_what_agreement_promises(
    runner: Any, label: str | None, rows: int, tmp_path: Path
) -> None:
    calibrated(runner, questions(5, label=label), checkpoint=tmp_path / "rows.sqlite")
    reasc = pair(state=tmp_path / "rows.sqlite")
    ask(runner, reasc, 1)
    assert known(reasc).rows == rows + 1 and not known(reasc).labelled


def test_few_questions_admit_nothing_and_the_large_model_answers(runner: Any, caplog: Any) -> None:
    made = calibrated(runner, questions(3))
    assert made.escalation is not None and made.escalation.rule is None
    assert "3 questions" in caplog.text
    reasc = ReASCRunnable(model=Scripted(script=small), escalate_to=saying("1"), calibration=made)
    account = runner.account(reasc, "q")
    assert account["answered_by"] == "large" and account["models"].keys() == {"large"}
    assert "3 questions" in account["notices"][0]


def test_questions_that_fail_are_left_out(runner: Any, caplog: Any) -> None:
    large = failing(lambda question, index: Reply("the answer is 1"), lambda question, index: "down" in question)
    made = calibrated(runner, questions(5, "q", "down"), large=large)
    assert made.escalation is not None and made.escalation.rows == 5
    assert "5 in all" in caplog.text
    with pytest.raises(CalibrationDataError, match="2 questions"):
        calibrated(runner, questions(2, "down"), large=large)
    with pytest.raises(CalibrationDataError, match="no question"):
        calibrated(runner, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency .*got 0"),
        ({"max_samples": 2}, "max_samples=2"),
    ],
)
def test_options_of_calibrate_that_are_wrong(runner: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        calibrated(runner, questions(1), **options)


def test_questions_of_a_checkpoint_are_not_asked_again(runner: Any, path: Path) -> None:
    first = calibrated(runner, questions(5), checkpoint=path).escalation
    asked = ObservationStore.open(path).escalations()
    again = calibrated(runner, questions(8), checkpoint=path).escalation
    assert first is not None and again is not None and asked == [first]
    assert (first.rows, again.rows) == (5, 8)


def test_a_calibration_of_other_models_or_prompts_is_refused(runner: Any) -> None:
    system = SystemMessage("Be brief.")
    made = calibrated(runner, [[system, HumanMessage(f"q{at}")] for at in range(30)])
    other = Scripted(script=small, model_name="other")
    with pytest.raises(FingerprintMismatch, match=r"'scripted'.*'other'"):
        ReASCRunnable(model=other, escalate_to=saying("1"), calibration=made)
    with pytest.raises(FingerprintMismatch, match=r"\(escalate_to\): .*'other'"):
        ReASCRunnable(model=Scripted(script=small), escalate_to=other, calibration=made)
    reasc = ReASCRunnable(model=Scripted(script=small), escalate_to=saying("1"), calibration=made)
    with pytest.raises(FingerprintMismatch, match="system"):
        runner.invoke(reasc, [SystemMessage("Be long."), HumanMessage("q")])
    assert runner.account(reasc, [system, HumanMessage("q")])["answered_by"] == "small"
    loose = reasc.model_copy(update={"allow_fingerprint_mismatch": True})
    assert runner.account(loose, "q")["answered_by"] == "small"


def test_a_calibration_of_two_counts_votes_for_one(runner: Any) -> None:
    made = calibrated(runner, questions(30))
    alone = ReASCRunnable(model=Scripted(script=small), calibration=made)
    account = runner.account(alone, "q")
    assert account["answer"] == "1" and "answered_by" not in account and "guarantee" not in account


def test_what_was_learned_online_is_saved_and_used(runner: Any, tmp_path: Path) -> None:
    reasc = pair()
    ask(runner, reasc, ADMITTED)
    assert reasc.learned is not None
    save_calibration(reasc.learned, tmp_path / "learned.json")
    text = json.loads((tmp_path / "learned.json").read_text())
    assert text["escalation"]["within"] == WITHIN and text["large"]["model"] == "scripted"
    other = ReASCRunnable(model=Scripted(script=small), escalate_to=saying("1"), calibration=tmp_path / "learned.json")
    assert runner.account(other, "q")["answered_by"] == "small"


def confident(question: str, index: int) -> Reply:
    """Sure of the large model's answer to every other question, and of nothing, with three opinions, else."""
    sure = int(question.lstrip("q")) % 2 == 0
    return Reply(f"the answer is {1 if sure else index + 2}", -2.0 if sure else -1.0)


def test_the_confidence_of_the_first_response_may_decide(runner: Any, tmp_path: Path) -> None:
    reasc = pair(confident, confidence=TOP_K, within=0.3)
    accounts = ask(runner, reasc, 150)
    assert known(reasc).rule is not None and "most confident" in known(reasc).rule
    assert [one["reason"] for one in accounts[-2:]] == ["gate", "escalated"]
    assert [one["launched"] for one in accounts[-2:]] == [1, 2]
    assert "most confident" in accounts[-1]["guarantee"]
    assert reasc.learned is not None and reasc.learned.measure == TOP_K
    save_calibration(reasc.learned, tmp_path / "learned.json")
    given = ReASCRunnable(
        model=Scripted(script=confident), escalate_to=saying("1"), calibration=tmp_path / "learned.json"
    )
    assert [one["answered_by"] for one in ask(runner, given, 2)] == ["small", "large"]


def test_one_file_keeps_what_is_learned_of_one_model_and_of_two(runner: Any, path: Path) -> None:
    ask(runner, pair(state=path), 2)
    alone = ReASCRunnable(model=Scripted(script=small), calibration=Online(state=path))
    ask(runner, alone, 2)
    assert alone.calibrator is not None
    alone.calibrator.wait(10)
    alone.calibrator.close()
    ask(runner, pair(state=path), 1)
    assert rows(path) == 3 and ObservationStore.open(path).observations().seen == 2
