"""What a message says of its decision: the answer whole, and the strongest votes, with long answers cut."""

import json
from typing import Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_reasc import ChatReASC, ReASCAnswerParser, ReASCRunnable
from langchain_reasc.answers import json_object, message_extractor
from langchain_reasc.exceptions import Undecided
from langchain_reasc.method.stopping import Cap

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
def test_the_answer_is_whole_and_the_votes_are_cut(runner: Any, case: str) -> None:
    reply, options = CASES[case]
    letter = "😀" if case in ("calls", "objects") else '"'
    result = runner.solve(ReASCRunnable(model=differing(reply, letter * LONG), **options), "q")
    account = result.message.response_metadata["reasc"]
    assert json.loads(json.dumps(account)) == account
    assert account["answer"] == ReASCAnswerParser().invoke(result.message)
    if reply is saving:  # the message has the call
        assert account["answer"] in account["evidence"] and account["answer"].endswith("… [answer 1]")
    else:
        assert account["answer"] == result.answer
    assert all(len(answer) < 230 for answer in account["evidence"])
    parts = account.get("parts", {}).values()
    assert all(len(answer) < 230 for part in parts for answer in (part["answer"], *part["evidence"]))
    assert len(account["evidence"]) == min(16, len(result.decision.evidence)) and len(parts) <= 16
    assert sum(account["evidence"].values()) + account.get("others", {"evidence": 0})["evidence"] == pytest.approx(
        sum(result.decision.evidence.values())
    )


def test_parts_left_out_are_the_most_certain_ones(runner: Any) -> None:
    def reply(question: str, index: int) -> Reply:
        return Reply(json.dumps({f"{at:02}": index % 2 if at == 20 else "same" for at in range(24)}))

    model = ReASCRunnable(model=Scripted(script=reply), answer=json_object(by_field=True), max_samples=6)
    account = runner.invoke(model, "q").response_metadata["reasc"]
    named = [*account["parts"]]
    assert account["parts_left_out"] == 8 and "20" in named and named == sorted(named)


def test_long_answers_that_begin_alike_are_told_apart(runner: Any) -> None:
    model = Scripted(script=lambda question, index: Reply(f"{'x' * LONG}{index % 3}"))
    account = runner.invoke(ReASCRunnable(model=model, answer="text"), "q").response_metadata["reasc"]
    assert sorted(answer[200:] for answer in account["evidence"]) == [f"… [answer {at}]" for at in (1, 2, 3)]


def test_an_answer_that_its_message_does_not_spell_is_whole(runner: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("x"))
    for answer in (lambda text: "y" * LONG, message_extractor(lambda message: "z" * LONG)):
        result = runner.solve(ReASCRunnable(model=model, answer=answer), "q")
        assert ReASCAnswerParser().invoke(result.message) == result.answer
        assert ReASCAnswerParser().invoke(result.message.model_copy(update={"content": "redacted"})) == result.answer


def test_a_step_that_writes_a_long_file_keeps_it_once(runner: Any) -> None:
    model = Scripted(script=lambda question, index: saving(0, "x" * LONG)).bind_tools([save])
    message = runner.invoke(ChatReASC(model=model), "q")
    assert len(message.tool_calls[0]["args"]["content"]) > LONG
    assert len(json.dumps(message.response_metadata["reasc"])) < 2000


def test_notices_and_errors_do_not_carry_answers(runner: Any) -> None:
    def failing(text: str) -> str:
        if text.startswith("0"):
            return "0"
        raise KeyError(text)

    model = Scripted(script=lambda question, index: Reply(f"{index}{'x' * LONG}"))
    message = runner.invoke(ReASCRunnable(model=model, answer=failing, rule=Cap(20), max_samples=20), "q")
    notices = message.response_metadata["reasc"]["notices"]
    assert all(len(notice) <= 1001 for notice in notices)
    [more] = notices[16:]
    assert "3 more" in more and "solve()" in more
    abstained = runner.invoke(ReASCRunnable(model=model, answer="text", on_undecided="abstain"), "q")
    assert ReASCAnswerParser().invoke(abstained) is None
    with pytest.raises(Undecided) as raised:
        runner.invoke(ReASCRunnable(model=model, answer="text", on_undecided="raise"), "q")
    assert len(str(raised.value)) < 1000


def test_the_parser_refuses_messages_of_others() -> None:
    with pytest.raises(OutputParserException, match="ReASCRunnable"):
        ReASCAnswerParser().invoke(AIMessage("42"))
