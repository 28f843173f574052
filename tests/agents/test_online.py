"""calibration="online" on the faces for agents: a memory for each model, of what is voted on alone."""

from pathlib import Path
from typing import Any

import pytest
from runnable.fakes import Reply, Scripted, saying

from agents.acting import ASKED, SUNNY, Agents, acting, agent_of, weather
from langchain_reasc import ChatReASC, Online, ReASCMiddleware
from langchain_reasc.calibration import ConsensusCalibrator
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch

pytestmark = pytest.mark.usefixtures("fits")


def memory(one: Any) -> ConsensusCalibrator:
    assert isinstance(one, ConsensusCalibrator)
    assert one.wait(10)
    return one


def test_a_chat_model_learns_from_votes_alone(runner: Any) -> None:
    model = Scripted(script=lambda question, index: weather("Paris") if question == "act" else Reply(SUNNY))
    chat = ChatReASC(model=model, calibration="online", max_samples=4)
    for question in ("act", "say", "act"):
        runner.invoke(chat, question)
    assert [question.answers for question in memory(chat.calibrator).observations] == [(0, 0, 0)] * 2


@pytest.mark.full
def test_a_chat_model_switches(runner: Any) -> None:
    chat = ChatReASC(model=saying(Reply("it is 1", -3.0)), calibration=Online(audit=0), answer="number")
    for at in range(32):
        runner.invoke(chat, f"q{at}")
    memory(chat.calibrator)
    account = runner.account(chat, "q")
    assert (account["reason"], account["launched"]) == ("gate", 1)
    assert chat.learned is not None and chat.learned.fingerprint.tools is None  # bound later, so not known yet
    assert chat.model_copy(update={"max_samples": 3}).calibrator is chat.calibrator


def test_an_agent_learns_from_step_to_step_and_keeps_it(agents: Agents, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    middleware = ReASCMiddleware(calibration=Online(state=path, audit=0), max_samples=4)
    agent = agent_of(acting({ASKED: [weather("Paris")], "": [SUNNY]}), middleware)
    for _ in range(3):
        agents.ask(agent)
    [one] = middleware._calibrators
    assert memory(one).observations.seen == 3
    one.save()  # type: ignore[union-attr]
    again = ReASCMiddleware(calibration=Online(state=path, audit=0), max_samples=4)
    agents.ask(agent_of(acting({ASKED: [weather("Paris")], "": [SUNNY]}), again))
    assert memory(again._calibrators[0]).observations.seen == 4


def test_models_of_an_agent_learn_apart_and_a_file_is_of_one_model(agents: Agents, tmp_path: Path) -> None:
    def named(name: str) -> Scripted:
        return acting({ASKED: [weather("Paris")], "": [SUNNY]}).model_copy(update={"model_name": name})

    middleware = ReASCMiddleware(calibration="online", max_samples=4)
    for name in ("ours", "theirs", "ours"):
        agents.ask(agent_of(named(name), middleware))
    assert [memory(one).observations.seen for one in middleware._calibrators] == [
        1,
        2,
    ]  # the model called last is the last
    kept = ReASCMiddleware(calibration=Online(state=tmp_path / "state.json"), max_samples=4)
    agents.ask(agent_of(named("ours"), kept))
    memory(kept._calibrators[0]).save()
    with pytest.raises(FingerprintMismatch, match="running 'theirs'"):
        agents.ask(agent_of(named("theirs"), kept))


def test_outcomes_of_steps_are_learned_from_whichever_model_took_them(agents: Agents, runner: Any) -> None:
    def named(name: str) -> Scripted:
        return acting({ASKED: [weather("Paris")], "": [SUNNY]}).model_copy(update={"model_name": name})

    middleware = ReASCMiddleware(calibration="online", max_samples=4)
    assert not runner.record_outcome(middleware, "0123456789abcdef", True), "nothing was asked yet"
    steps = [agents.ask(agent_of(named(name), middleware))["messages"][1] for name in ("ours", "theirs")]
    assert all(memory(one).observations.outcomes == 0 for one in middleware._calibrators)
    assert [runner.record_outcome(middleware, step, right) for step, right in zip(steps, (True, False), strict=True)]
    assert [row.correct for one in middleware._calibrators for row in memory(one).observations] == [True, False]
    with pytest.raises(ConfigurationError, match=r"calibration='online'.*None"):
        runner.record_outcome(ReASCMiddleware(), steps[0], True)
