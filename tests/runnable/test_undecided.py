"""What is done when the budget is spent and the evidence is not sufficient, or nothing voted at all."""

import logging
import pickle
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from servers.chat_wire import Chat, Refused
from servers.fake_server import serving

from langchain_reasc import ChatReASC, ReASCRunnable
from langchain_reasc.complaints import forget_warnings
from langchain_reasc.exceptions import Undecided

from .fakes import PROMPT_TOKENS, Reply, saying

pytestmark = pytest.mark.sync_only

SPLIT = ("1", "2", "1", "2")


def reasc(*answers: str, **options: Any) -> ReASCRunnable:
    return ReASCRunnable(model=saying(*answers), max_samples=4, **options)


def test_or_an_error_that_has_all_that_was_paid_for(runner: Any) -> None:
    with pytest.raises(Undecided, match=r"'1' .* 2 of 4 responses") as raised:
        runner.invoke(reasc(*SPLIT, on_undecided="raise"), "q")
    result = raised.value.result
    assert [response.answer for response in result.responses] == list(SPLIT)
    assert result.usage.input_tokens == 4 * PROMPT_TOKENS
    assert not raised.value.is_retryable
    assert pickle.loads(pickle.dumps(raised.value)).result.decision == result.decision


class Strict(Chat):
    """A server that refuses a message of the assistant without content, as Anthropic's, Mistral's and Google's do."""

    def check(self, path: str, request: Any) -> None:
        super().check(path, request)
        if any(not message.get("content") for message in request["messages"]):
            raise Refused("content must not be empty")


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_a_conversation_goes_on_after_an_abstention(runner: Any, kind: Any) -> None:
    abstained = runner.invoke(reasc(*SPLIT, on_undecided="abstain"), "How much is it?")
    asked = [HumanMessage("How much is it?"), abstained, HumanMessage("Just try.")]
    with serving(Strict()) as served:
        model = ChatOpenAI(model="m", api_key="none", base_url=served.url, max_retries=0)
        assert runner.invoke(kind(model=model), asked).text == "it is 42"
        assert [one["content"] for one in served.requests[0]["messages"]] == ["How much is it?", "Just try."]


CUT_OFF = Reply("so it", metadata={"finish_reason": "length"})
COMPARED, LONGER = "answer='text'", "max_tokens=..."


@pytest.mark.parametrize(
    ("replies", "advice"),
    [
        ([Reply("I cannot tell.")], [COMPARED]),
        ([CUT_OFF], [LONGER]),
        ([Reply("I cannot tell."), Reply("I cannot tell."), CUT_OFF], [COMPARED, LONGER]),
        ([Reply("I cannot tell."), CUT_OFF], [LONGER]),
        ([Reply("")], []),
    ],
    ids=["nothing to compare", "cut off", "both", "mostly cut off", "empty"],
)
def test_how_to_get_votes_is_said_once_where_there_are_none(
    runner: Any, caplog: Any, replies: list[Reply], advice: list[str]
) -> None:
    forget_warnings()
    asked = ReASCRunnable(model=saying(*replies))
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        [notice] = [one for one in runner.solve(asked, "q").notices if "cast no vote" in one]
        runner.solve(asked, "again")
    [record] = caplog.records
    assert notice in record.getMessage()
    assert [one for one in (COMPARED, LONGER) if one in notice] == advice


@pytest.mark.parametrize(("replies", "given"), [(["4", CUT_OFF], True), (["4", CUT_OFF, "4"], False)], ids=str)
def test_advice_is_given_where_half_of_the_responses_need_it(runner: Any, replies: list[Any], given: bool) -> None:
    [notice] = [one for one in runner.solve(reasc(*replies), "q").notices if "cast no vote" in one]
    assert (LONGER in notice) == given


# Four responses of fifteen say "4", and others at most two each: nothing can overtake it, and most say otherwise.
SCATTERED = ("4", "1", "2", "3", "none", "4", "1", "2", "3", "none", "5", "6", "none", "4", "4", "7")


def scattered(**options: Any) -> ReASCRunnable:
    replies = [CUT_OFF if answer == "none" else answer for answer in SCATTERED]
    return ReASCRunnable(model=saying(*replies), concurrency=1, **options)


@pytest.mark.parametrize("on_undecided", ["raise", "abstain"])
def test_a_plurality_is_not_given_to_callers_who_ask_for_protection(runner: Any, on_undecided: Any) -> None:
    reasc = scattered(on_undecided=on_undecided)
    if on_undecided == "abstain":
        result = runner.solve(reasc, "q")
        assert result.message.text == "" and result.message.response_metadata["reasc"]["abstained"]
    else:
        with pytest.raises(Undecided, match=r"'4' .* \d of \d+ responses") as raised:
            runner.solve(reasc, "q")
        result = raised.value.result
    assert (result.decision.reason, result.undecided, result.unsupported) == ("plurality", True, True)


def test_a_plurality_is_given_to_others_as_the_most_common_answer(runner: Any) -> None:
    result = runner.solve(scattered(), "q")
    assert (result.decision.reason, result.undecided, result.unsupported) == ("agreement", True, True)
    assert result.summary().startswith("most common: ") and "4 of 15" in result.summary()
    assert result.decision.posterior < 0.8
    assert not runner.solve(scattered(min_share=0.25), "q").undecided


def test_min_share_may_ask_for_more_than_a_majority(runner: Any) -> None:
    model = saying(*"4414424444444444")
    kept = ReASCRunnable(model=model, concurrency=1, on_undecided="raise")
    assert runner.solve(kept, "q").decision.samples < 16
    strict = ReASCRunnable(model=saying(*"4414424144414444"), concurrency=1, on_undecided="raise", min_share=0.8)
    with pytest.raises(Undecided, match="most common"):
        runner.solve(strict, "q")
