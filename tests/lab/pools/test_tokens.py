"""The tokens of a recording: what was spent, every token once; and what will be, by the best that is known."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_reasc_lab.pools import DrawnQuestion, PendingQuestion, PoolResponse, QuestionSampler
from langchain_reasc_lab.pools.tokens import Estimate, TokenCount, estimate

from lab.pools.synthetic import Guesser
from langchain_reasc.data import LabelledQuestion, Template


def plain(prompt: int, completion: int) -> Any:
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}


def held(tokens: int, prompt: int | None = 100, **more: Any) -> PoolResponse:
    return PoolResponse("5", tokens, prompt_tokens=prompt, **more)


def test_what_usage_tells_is_what_is_counted() -> None:
    count = TokenCount.of_responses([held(50), held(30)])
    assert count == TokenCount(responses=2, prompt=200, completion=80)
    assert count.total == 280
    assert TokenCount.of_responses([held(50), held(8, None), held(0, 0)]) == TokenCount(3, 200, 58, without_usage=1)


def drawn(*replies: AIMessage | Exception) -> TokenCount:
    """The tokens of a question whose samples have these outcomes; those that failed are drawn again."""
    left = iter(replies)

    class Replying(Guesser):
        def _generate(self, *arguments: Any, **options: Any) -> ChatResult:
            if isinstance(reply := next(left), Exception):
                raise reply
            return ChatResult(generations=[ChatGeneration(message=reply)])

    samples = 1 + sum(not isinstance(one, Exception) for one in replies[1:])
    model = Replying()
    model.name_ = "one by one"
    sampler = QuestionSampler(model, Template(), samples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("langchain_reasc_lab.pools.drawing._CONCURRENCY", 1)
        result = sampler(PendingQuestion(QUESTIONS[0]))
    assert isinstance(result, DrawnQuestion)
    return TokenCount.of_drawn(result)


def said(usage: Any, **metadata: Any) -> AIMessage:
    return AIMessage("twelve chars", usage_metadata=usage, response_metadata=metadata)


RETRIED = said(plain(10, 5), failed_attempts=[{"error": "gone", "received_tokens": 7}])


@pytest.mark.parametrize(
    ("replies", "count"),
    [
        ([said(plain(100, 5)), said(None)], TokenCount(2, 200, 5 + 3, without_usage=1)),
        ([said(plain(100, 0))], TokenCount(1, 0, 3, without_usage=1)),  # a text of no token
        ([RETRIED, ConnectionError("gone"), said(plain(10, 5))], TokenCount(2, 20, 5 + 7 + 5, failed=2, lost=7)),
    ],
)
def test_tokens_without_usage_are_estimated_and_failed_ones_count(
    replies: list[AIMessage | Exception], count: TokenCount
) -> None:
    assert drawn(*replies) == count


QUESTIONS = [LabelledQuestion(f"q{at}", "x" * 40, "6") for at in range(10)]
ALL = {question.id: 4 for question in QUESTIONS}


def estimated(
    model: Any = None, draws: dict[str, int] = ALL, recorded: dict[str, TokenCount] | None = None
) -> Estimate:
    return estimate(model or Guesser(), QUESTIONS, draws, Template(), recorded or {})


def recorded(prompt: int, *completions: int) -> dict[str, TokenCount]:
    """Questions with two responses each."""
    return {f"q{at}": TokenCount(2, prompt, completion) for at, completion in enumerate(completions)}


SHARED = {"q0": TokenCount(4, 10, 40)}  # a prompt that counts once among 4 responses
OTHERS = {"another": TokenCount(4, 80, 40), "unsaid": TokenCount(4, 0, 120, without_usage=4)}


@pytest.mark.parametrize(
    ("options", "prompt", "prompt_by", "completion", "completion_by"),
    [
        ({}, 40 * 10, "characters", 0, None),
        ({"model": Guesser(max_tokens=50)}, 40 * 10, "characters", 40 * 50, "limit"),
        ({"model": Guesser().bind(max_tokens=7)}, 40 * 10, "characters", 40 * 7, "limit"),
        ({"recorded": recorded(40, 180, 200, 220)}, 40 * 20, "recorded", 40 * 100, "recorded"),
        ({"recorded": SHARED}, 40 * 2.5, "recorded", 40 * 10, "recorded"),
        ({"recorded": OTHERS}, 40 * 10, "characters", 40 * 20, "recorded"),
        ({"model": Guesser(max_tokens=50), "draws": {"q0": 1, "q1": 0}}, 10, "characters", 50, "limit"),
        ({"draws": {}}, 0, "characters", 0, None),
    ],
)
def test_an_estimate_rests_on_the_best_that_is_known(
    options: dict[str, Any], prompt: float, prompt_by: str, completion: int, completion_by: str | None
) -> None:
    found = estimated(**options)
    assert (found.tokens.prompt, found.prompt_by) == (prompt, prompt_by)
    assert (found.tokens.completion, found.completion_by) == (completion, completion_by)
    assert found.questions == sum(count > 0 for count in options.get("draws", ALL).values())
    assert found.is_expected == (completion_by == "recorded" or not found.tokens.responses)


def test_the_interval_is_over_questions() -> None:
    found = estimated(recorded=recorded(40, 180, 200, 220))
    assert found.spread == pytest.approx(4.303 * (10 / 3**0.5) / 100, rel=1e-3)  # Student's t with 2 degrees of freedom
    assert estimated(recorded=recorded(40, 180, 200)).spread is None
