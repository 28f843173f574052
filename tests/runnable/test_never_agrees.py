"""Calls and objects with a text that is written anew each time: sampling stops, and says what to leave out."""

import json
import logging
from typing import Any

import pytest
from langchain_core.tools import tool

from langchain_reasc import ChatReASC, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import ToolVotes, json_object
from langchain_reasc.complaints import forget_warnings
from langchain_reasc.exceptions import Undecided

from .fakes import Reply, Scripted

pytestmark = pytest.mark.sync_only


@tool
def mail(to: str, body: str, note: str = "") -> str:
    """Send a mail."""
    return "sent"


def draft(index: int) -> str:
    return " ".join(f"word{at}of{index}" for at in range(40))


def mailing(to: Any = lambda index: "ann", **more: Any) -> Scripted:
    """A model that writes another body in each sample."""

    def reply(question: str, index: int) -> Reply:
        if question == "sent":
            return Reply("done")
        return Reply("", calls=(("mail", {"to": to(index), "body": draft(index), **more}),))

    return Scripted(script=reply)


def told(result: Any) -> str:
    return next((notice for notice in result.notices if "agreement is hopeless" in notice), "")


def test_it_stops_early_and_says_so_with_the_call_that_agrees_in_the_rest(runner: Any) -> None:
    model = mailing(lambda index: "bob" if index == 0 else "ann").bind_tools([mail])
    result = runner.solve(ReASCRunnable(model=model, concurrency=1), "q")
    assert (result.decision.reason, result.undecided) == ("hopeless", True)
    assert result.decision.samples <= 8
    assert result.message.tool_calls[0]["args"] == {"to": "ann", "body": draft(1)}
    assert "mail.body" in told(result)
    account = result.message.response_metadata["reasc"]
    assert account["reason"] == "hopeless" and told(result) in account["notices"]
    assert "hopeless" in result.summary()


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, 'tool_votes=ToolVotes(exclude_args=["body"])'),
        ({"tool_votes": ToolVotes(exclude_args=["note"])}, 'tool_votes=ToolVotes(exclude_args=["note", "body"])'),
        (
            {"tool_votes": ToolVotes(exclude_args={"mail": ["note"]})},
            'tool_votes=ToolVotes(exclude_args={"mail": ["note", "body"]})',
        ),
        ({"tool_votes": ToolVotes(hierarchical=False)}, 'tool_votes=ToolVotes(exclude_args=["body"])'),
    ],
    ids=str,
)
def test_the_option_is_named_as_it_is_written_and_does_it(runner: Any, options: Any, advice: str) -> None:
    model = mailing(note="n").bind_tools([mail])
    assert told(runner.solve(ReASCRunnable(model=model, **options), "q")).endswith(advice)
    followed = eval(f"dict({advice})", {"ToolVotes": ToolVotes})
    assert runner.solve(ReASCRunnable(model=model, **followed), "q").decision.reason == "agreement"


@pytest.mark.parametrize("by_field", [False, True])
def test_objects_are_told_of_by_their_own_option(runner: Any, by_field: bool) -> None:
    def reply(question: str, index: int) -> Reply:
        return Reply(json.dumps({"urgent": True, "euros": 12, "summary": draft(index)}))

    model = Scripted(script=reply)
    result = runner.solve(ReASCRunnable(model=model, answer=json_object(by_field=by_field)), "q")
    assert (result.decision.reason, result.decision.never_agrees) == ("hopeless", ("summary",))
    assert result.decision.samples <= 8 and json.loads(result.answer)["euros"] == 12
    advice = told(result).rpartition("the vote: ")[2]
    followed = eval(f"dict({advice})", {"json_object": json_object, "True": True})
    assert runner.solve(ReASCRunnable(model=model, **followed), "q").decision.reason == "agreement"


@pytest.mark.parametrize("on_undecided", ["raise", "abstain"])
def test_it_is_undecided(runner: Any, on_undecided: Any) -> None:
    reasc = ReASCRunnable(model=mailing().bind_tools([mail]), on_undecided=on_undecided)
    if on_undecided == "raise":
        with pytest.raises(Undecided, match=r"hopeless: mail\.body.*exclude_args"):
            runner.invoke(reasc, "q")
    else:
        message = runner.invoke(reasc, "q")
        assert not message.tool_calls and message.response_metadata["reasc"]["abstained"]


@pytest.mark.parametrize("face", [ChatReASC, ReASCMiddleware])
def test_agents_tell_the_option_and_log_it_once(runner: Any, face: Any, caplog: pytest.LogCaptureFixture) -> None:
    from agents.acting import Agents, agent_of

    agent = (
        agent_of(ChatReASC(model=mailing()), tools=[mail])
        if face is ChatReASC
        else agent_of(mailing(), ReASCMiddleware(), tools=[mail])
    )
    caplog.set_level(logging.WARNING, "langchain_reasc")
    forget_warnings()
    states = [Agents(runner).ask(agent, "q") for _ in range(3)]
    accounts = [state["messages"][1].response_metadata["reasc"] for state in states]
    assert [account["reason"] for account in accounts] == ["hopeless"] * 3
    for account in accounts:
        assert any("mail.body" in notice and "exclude_args" in notice for notice in account["notices"])
    assert sum("exclude_args" in record.getMessage() for record in caplog.records) == 1
