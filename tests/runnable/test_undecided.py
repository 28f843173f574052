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
from langchain_reasc.exceptions import Undecided

from .fakes import PROMPT_TOKENS, Reply, saying

pytestmark = pytest.mark.sync_only

SPLIT = ("1", "2", "1", "2")


def reasc(*answers: str, **options: Any) -> ReASCRunnable:
    return ReASCRunnable(model=saying(*answers), max_samples=4, **options)


def test_or_an_error_that_has_all_that_was_paid_for(runner: Any) -> None:
    with pytest.raises(Undecided, match=r"'1' is undecided: .* only 2 of 4 responses gave it") as raised:
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


def test_no_answer_anywhere_is_said_after_a_wave_and_at_the_end(runner: Any, caplog: Any) -> None:
    reasc = ReASCRunnable(model=saying(Reply("no idea")), max_samples=12)
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        result = runner.solve(reasc, "q")
    assert (result.answer, result.decision.samples) == (None, 8)
    assert any(notice.startswith("8 of 8 responses cast no vote: ") for notice in result.notices)
    [record] = caplog.records
    assert record.getMessage().startswith("4 of 4 responses cast no vote")


# Four responses of fifteen say "4", and others at most two each: nothing can overtake it, and most say otherwise.
SCATTERED = ("4", "1", "2", "3", "none", "4", "1", "2", "3", "none", "5", "6", "none", "4", "4", "7")


def scattered(**options: Any) -> ReASCRunnable:
    replies = [Reply("no idea") if answer == "none" else answer for answer in SCATTERED]
    return ReASCRunnable(model=saying(*replies), concurrency=1, **options)


@pytest.mark.parametrize("on_undecided", ["raise", "abstain"])
def test_a_plurality_is_not_given_to_callers_who_ask_for_protection(runner: Any, on_undecided: Any) -> None:
    reasc = scattered(on_undecided=on_undecided)
    if on_undecided == "abstain":
        result = runner.solve(reasc, "q")
        assert result.message.text == "" and result.message.response_metadata["reasc"]["abstained"]
    else:
        with pytest.raises(Undecided, match=r"'4' is most common: only \d of \d+ responses gave it, and too") as raised:
            runner.solve(reasc, "q")
        result = raised.value.result
    assert (result.decision.reason, result.undecided, result.unsupported) == ("plurality", True, True)


def test_a_plurality_is_given_to_others_as_the_most_common_answer(runner: Any) -> None:
    result = runner.solve(scattered(), "q")
    assert (result.decision.reason, result.undecided, result.unsupported) == ("agreement", True, True)
    assert result.summary() == "most common: only 4 of 15 responses gave it, and further ones would hardly change that"
    assert result.decision.posterior < 0.8
    assert not runner.solve(scattered(min_share=0.25), "q").undecided


def test_min_share_may_ask_for_more_than_a_majority(runner: Any) -> None:
    model = saying(*"4414424444444444")
    kept = ReASCRunnable(model=model, concurrency=1, on_undecided="raise")
    assert runner.solve(kept, "q").decision.samples < 16
    strict = ReASCRunnable(model=saying(*"4414424144414444"), concurrency=1, on_undecided="raise", min_share=0.8)
    with pytest.raises(Undecided, match="most common: only"):
        runner.solve(strict, "q")
