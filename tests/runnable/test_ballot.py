"""What live responses vote for, by every way of comparing them; the votes themselves are tested in tests/answers."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from servers.hostile_schemas import HOSTILE

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.answers import ToolVotes, json_object
from langchain_reasc.calibration import save_calibration
from langchain_reasc.exceptions import FingerprintMismatch

from .fakes import Reply, Scripted, saying

pytestmark = pytest.mark.sync_only


@tool
def book(city: str, price: float, seats: int = 1, note: str = "") -> str:
    """Book a trip."""
    return f"{seats} to {city} for {price}"


def booking(*calls: dict[str, Any] | str | None) -> Scripted:
    """A model whose sample i books ``calls[i]``, or says that text."""
    booked = (Reply("", calls=(("book", call),)) if isinstance(call, dict) else Reply(call or "no") for call in calls)
    return saying(*booked)


def solved(runner: Any, model: Scripted, **options: Any) -> Any:
    reasc = ReASCRunnable(model=model.bind_tools([book]), concurrency=1, **options)
    return runner.solve(reasc, "q")


def answers(result: Any) -> list[str | None]:
    return [response.answer for response in result.responses]


def test_calls_do_not_lose_to_texts_for_being_split(runner: Any) -> None:
    split = [{"city": city, "price": 1.0} for city in ("Bonn", "Ulm", "Hof", "Jena", "Kiel", "Rom")]
    model = booking(*split[:3], "no", "no", *split[3:])
    result = solved(runner, model, max_samples=8)
    assert result.message.tool_calls, "three texts of eight are no majority against five calls"
    parts = result.message.response_metadata["reasc"]["parts"]
    assert parts["kind"]["answer"] == '["book"]' and parts["kind"]["evidence"]['["book"]'] == 6.0


def test_arguments_may_be_left_out_of_the_vote_or_agree_nearly(runner: Any) -> None:
    calls = [{"city": f"BONN{' ' * n}", "price": 10 + n / 10, "note": str(n)} for n in range(4)]
    strict = solved(runner, booking(*calls), max_samples=4)
    assert len(set(answers(strict))) == 4 and strict.decision.reason == "budget"
    votes = ToolVotes(exclude_args=["note"], tolerance={"price": 0.35}, normalize={"city": "casefold"})
    near = solved(runner, booking(*calls), tool_votes=votes)
    assert len(set(answers(near))) == 1 and near.decision.reason == "agreement"
    assert near.message.tool_calls[0]["args"] == calls[0], "the call is given as the model made it"


@tool
def pay(euros: int, reasoning: str) -> str:
    """Pay."""
    return f"{euros} paid"


def test_what_a_model_thinks_aloud_in_an_argument_does_not_count(runner: Any) -> None:
    """Structured output by function calling has it, and so have the tools of many agents."""

    def script(question: str, index: int) -> Reply:
        return Reply("", calls=(("pay", {"euros": 5, "reasoning": f"thought {index}"}),))

    model = Scripted(script=script).bind_tools([pay])
    result = runner.solve(ReASCRunnable(model=model, concurrency=1), "q")
    assert (result.decision.reason, result.decision.samples) == ("agreement", 4)
    assert result.message.tool_calls[0]["args"] == {"euros": 5, "reasoning": "thought 0"}
    counted = ReASCRunnable(model=model, concurrency=1, max_samples=4, tool_votes=ToolVotes(exclude_args=()))
    assert len(set(answers(runner.solve(counted, "q")))) == 4


def test_what_the_schema_fills_in_and_refuses(runner: Any) -> None:
    calls = [{"city": "Bonn", "price": 1}, {"city": "Bonn", "price": "1", "seats": 1}, {"town": "Bonn"}]
    result = solved(runner, booking(*calls, calls[0]), max_samples=16)
    assert answers(result)[0] == answers(result)[1] and answers(result)[2] is None
    assert any("1 of 5 responses" in notice for notice in result.notices)


TRIPS = [
    {"reasoning": "a", "city": "Bonn", "price": 10.0},
    {"reasoning": "b", "city": "Bonn", "price": 12.0},
    {"reasoning": "c", "city": "Ulm", "price": 11.0},
    {"reasoning": "d", "city": "Bonn", "price": 11.0},
    {"reasoning": "e", "city": "Ulm", "price": 11.0},
]


def saying_objects(*objects: Any) -> Scripted:
    return saying(*(Reply(json.dumps(one)) for one in objects))


def test_an_object_that_no_response_gave_is_written_and_validated(runner: Any) -> None:
    objects = [{"a": 1, "b": 9}, {"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 1, "b": 9}, {"a": 8, "b": 2}]
    spec = json_object(by_field=True, voted=["a", "b"])
    model = saying_objects(*objects)
    result = runner.solve(ReASCRunnable(model=model, answer=spec, max_samples=5), "q")
    assert json.loads(result.message.text) == {"a": 1, "b": 2}
    assert "merged" not in result.message.response_metadata["reasc"], "one response gave it"
    both = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    never = {**both, "not": {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"]}}
    kept = [one for one in objects if one != {"a": 1, "b": 2}] * 2
    refusing = json_object(by_field=True, voted=["a", "b"], schema=never)
    result = runner.solve(ReASCRunnable(model=saying_objects(*kept), answer=refusing, max_samples=8), "q")
    assert json.loads(result.message.text) in kept, "the best whole object is given instead"
    assert json.loads(result.answer) == json.loads(result.message.text)


@pytest.mark.parametrize("fails", [False, True])
def test_none_is_put_together_that_the_callers_check_refuses(runner: Any, fails: bool) -> None:
    """Each sum is right, and that of the medians is not."""

    def adds_up(value: dict[str, Any]) -> bool:
        if fails and value["sum"] == 12:
            raise KeyError("no such sum")
        return value["a"] + value["b"] == value["sum"] or value["sum"] == 99

    sums = [{"a": a, "b": b, "sum": a + b} for a, b in ((2, 5), (2, 6), (3, 5), (2, 10), (2, 10), (7, 5))]
    medians = ReASCRunnable(model=saying_objects(*sums), answer=json_object(by_field=True), max_samples=6)
    result = runner.solve(medians, "q")
    wrong = json.loads(result.message.text)
    assert wrong["a"] + wrong["b"] != wrong["sum"] and result.message.response_metadata["reasc"]["merged"]
    assert any("field by field" in notice for notice in result.notices)
    checked = json_object(by_field=True, check=adds_up)
    result = runner.solve(ReASCRunnable(model=saying_objects(*sums), answer=checked, max_samples=6), "q")
    given = json.loads(result.message.text)
    assert given in sums and given["a"] + given["b"] == given["sum"]
    lone = runner.solve(
        ReASCRunnable(model=saying_objects({"a": 1, "b": 1, "sum": 5}), answer=checked, max_samples=2), "q"
    )
    assert lone.answer is None and any("(2)" in notice for notice in lone.notices)


def test_structured_output_of_a_chat_model_by_field(runner: Any) -> None:
    calls = [{key: trip[key] for key in ("city", "price")} for trip in TRIPS]
    spec = json_object(by_field=True, tolerance={"price": 0.5})
    chat = ChatReASC(model=booking(*calls), answer=spec, max_samples=5)
    message = runner.invoke(chat.bind_tools([book]), "q")
    assert isinstance(message, AIMessage)
    assert message.tool_calls[0]["args"] == {"city": "Bonn", "price": 11.0}


@pytest.mark.parametrize("case", ["pattern", "anyOf that doubles"])
def test_a_schema_that_takes_for_ever_ends_nothing_and_is_named(runner: Any, case: str) -> None:
    schema, value = HOSTILE[case]
    bound = {"type": "function", "function": {"name": "f", "parameters": schema}}
    model = saying(*[Reply("", calls=(("f", {"x": value}),))] * 4)
    began = time.monotonic()
    result = runner.solve(ReASCRunnable(model=model.bind(tools=[bound])), "q")
    assert result.message.tool_calls[0]["args"] == {"x": value}
    assert time.monotonic() - began < 60
    assert any("0.1 seconds" in notice for notice in result.notices)


VOTES = {"default": ToolVotes(), "counted": ToolVotes(exclude_args=()), "near": ToolVotes(tolerance={"euros": 1})}


@pytest.mark.parametrize("then", VOTES)
@pytest.mark.parametrize("now", VOTES)
def test_a_calibration_holds_for_the_votes_that_it_was_made_with(
    runner: Any, tmp_path: Path, then: str, now: str
) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("", calls=(("pay", {"euros": (index + len(question)) % 3, "reasoning": "so"}),))

    model = Scripted(script=script).bind_tools([pay])
    made = runner.calibrate(model, ["q" * count for count in range(1, 13)], max_samples=4, tool_votes=VOTES[then])
    save_calibration(made, tmp_path / "calibration.json")
    options: dict[str, Any] = {"model": model, "calibration": tmp_path / "calibration.json", "tool_votes": VOTES[now]}
    if then == now:
        assert runner.solve(ReASCRunnable(**options), "q").message.tool_calls
        return
    with pytest.raises(FingerprintMismatch, match="tool_votes: "):
        runner.solve(ReASCRunnable(**options), "q")
    assert runner.solve(ReASCRunnable(**options, allow_fingerprint_mismatch=True), "q").message.tool_calls
