"""What a message says of its decision: 4 KB, whatever the answers are; the rest is in the result alone."""

import json
from typing import Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_reasc import ReASCAnswerParser, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import json_object, message_extractor
from langchain_reasc.exceptions import Undecided

from .fakes import Reply, Scripted

pytestmark = pytest.mark.sync_only

LONG = 5_000


@tool
def save(path: str, content: str, mode: str = "w") -> str:
    """Save a file."""
    return "saved"


def saving(index: int, text: str) -> Reply:
    return Reply("", calls=(("save", {"path": "a.txt", "content": f"{index}{text}{index}", "mode": "w"}),))


def of_fields(index: int, text: str, fields: int = 40) -> Reply:
    return Reply(json.dumps({f"field {at}": f"{index % 3}{text[:300]}" for at in range(fields)}))


def differing(reply: Any, text: str) -> Any:
    """A model whose responses all differ."""
    return Scripted(script=lambda question, index: reply(index, text)).bind_tools([save])


def size_of(message: Any) -> int:
    """Bytes of what ReASC says in a message, as JSON."""
    return len(json.dumps(message.response_metadata["reasc"]).encode())


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "calls": (saving, {}),
    "more calls than entries": (saving, {"max_samples": 80}),
    "texts": (lambda index, text: Reply(f"{index}{text}{index}"), {"answer": "text"}),
    "objects": (of_fields, {"answer": json_object()}),
    "objects by field": (of_fields, {"answer": json_object(by_field=True), "max_samples": 8}),
    "long names of fields": (
        lambda index, text: Reply(json.dumps({f"{at}{text[:300]}": index for at in range(20)})),
        {"answer": json_object(by_field=True, voted=[f"{at}" for at in range(20)]), "max_samples": 8},
    ),
    "answers that are just not long": (lambda index, text: Reply(f"{index}{text[:30]}"), {"answer": "text"}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_small_and_the_answer_is_had_whole(runner: Any, case: str) -> None:
    reply, options = CASES[case]
    letter = "😀" if case in ("calls", "objects") else '"'
    result = runner.solve(ReASCRunnable(model=differing(reply, letter * LONG), **options), "q")
    account = result.message.response_metadata["reasc"]
    assert size_of(result.message) <= 4096
    assert json.loads(json.dumps(account)) == account
    assert account["answer"] in account["evidence"] or case == "objects by field"
    assert ReASCAnswerParser().invoke(result.message) == result.answer
    assert sum(account["evidence"].values()) + account.get("others", {"evidence": 0})["evidence"] == pytest.approx(
        sum(result.decision.evidence.values())
    )


def test_equal_answers_are_recognised_and_others_told_apart(runner: Any) -> None:
    def reply(question: str, index: int) -> Reply:
        return Reply(f"{'x' * LONG}{index % 2 if question == 'q' else 1}{'x' * LONG}")

    accounts = runner.accounts(ReASCRunnable(model=Scripted(script=reply), answer="text"), ["q", "r"])
    one, other = accounts[0]["evidence"]
    assert one != other and accounts[1]["evidence"].keys() == {other}
    assert "sha256" in one and f"{2 * LONG + 1} characters" in one


def test_what_is_kept_of_an_agent_has_no_other_arguments(runner: Any) -> None:
    from agents.acting import Agents, agent_of

    saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    replies = {"q": saving, "saved": lambda index, text: Reply("done")}
    model = Scripted(script=lambda question, index: replies[question](index, "é" * LONG))
    agent = agent_of(model, ReASCMiddleware(max_run_tokens=10**6), tools=[save], checkpointer=saver)
    state = Agents(runner).ask(agent, "q", config)
    kept = saver.get_tuple(config)
    assert all(size_of(message) <= 4096 for message in state["messages"] if "reasc" in message.response_metadata)
    assert kept is not None and len(state["messages"][1].tool_calls[0]["args"]["content"]) > LONG
    spoken = str([message for message in kept.checkpoint["channel_values"]["messages"]])
    assert spoken.count("é" * LONG) == 1


def test_an_answer_that_its_message_does_not_spell_is_kept_whole(runner: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("x"))
    for answer in (lambda text: "y" * LONG, message_extractor(lambda message: "z" * LONG)):
        result = runner.solve(ReASCRunnable(model=model, answer=answer), "q")
        account = result.message.response_metadata["reasc"]
        assert ReASCAnswerParser().invoke(result.message) == result.answer == account.pop("whole_answer")
        assert size_of(result.message) <= 4096


def test_notices_and_errors_do_not_carry_answers_either(runner: Any) -> None:
    def failing(text: str) -> str:
        raise KeyError(text)

    model = Scripted(script=lambda question, index: Reply(f"{index}{'x' * LONG}"))
    message = runner.invoke(ReASCRunnable(model=model, answer=failing), "q")
    assert size_of(message) <= 4096
    abstained = runner.invoke(ReASCRunnable(model=model, answer="text", on_undecided="abstain"), "q")
    assert size_of(abstained) <= 4096 and ReASCAnswerParser().invoke(abstained) is None
    with pytest.raises(Undecided) as raised:
        runner.invoke(ReASCRunnable(model=model, answer="text", on_undecided="raise"), "q")
    assert len(str(raised.value)) < 1000


def test_a_message_that_was_changed_gives_no_half_answer(runner: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("x" * LONG))
    message = runner.invoke(ReASCRunnable(model=model, answer="text"), "q")
    with pytest.raises(OutputParserException, match="put it right behind a ReASCRunnable"):
        ReASCAnswerParser().invoke(AIMessage("42"))
    with pytest.raises(OutputParserException, match="was changed"):
        ReASCAnswerParser().invoke(message.model_copy(update={"content": "redacted"}))
