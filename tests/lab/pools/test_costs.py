"""What a recording has cost, every token once; what it will cost, by the best that is known; and at which prices."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_reasc_lab.pools import DrawnQuestion, PendingQuestion, PoolResponse, QuestionSampler
from langchain_reasc_lab.pools.costs import Bill, Estimate, Price, estimate, read_prices

from lab.pools.synthetic import Guesser
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models import Integration, register_integration

DETAILED: Any = {
    "input_tokens": 100,
    "output_tokens": 50,
    "total_tokens": 150,
    "input_token_details": {"cache_read": 60, "cache_creation": 10, "audio": 3},
    "output_token_details": {"reasoning": 40},
}


def plain(prompt: int, completion: int) -> Any:
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}


def held(tokens: int, prompt: int | None = 100, **more: Any) -> PoolResponse:
    return PoolResponse("5", tokens, prompt_tokens=prompt, **more)


def test_what_usage_tells_is_what_is_billed() -> None:
    bill = Bill.of_responses([held(50), held(30)], [DETAILED, None])
    assert bill == Bill(responses=2, prompt=200, completion=80, cached=60, cache_written=10, reasoning=40)
    assert bill.tokens == 280
    assert Bill.of_responses([held(50), held(8, None), held(0, 0)]) == Bill(3, 200, 58, without_usage=1)


def test_each_kind_of_token_has_its_price_or_that_of_what_it_is_part_of() -> None:
    bill = Bill.of_responses([held(50)], [DETAILED])
    price = Price(input=10.0, output=100.0, cached=1.0, cache_write=20.0, reasoning=50.0)
    assert price.cost_of(bill) == pytest.approx((30 * 10 + 60 * 1 + 10 * 20 + 10 * 100 + 40 * 50) / 1e6)
    assert Price(input=10.0, output=100.0).cost_of(bill) == pytest.approx((100 * 10 + 50 * 100) / 1e6)


def drawn(*replies: AIMessage | Exception) -> Bill:
    """The bill of a question whose samples have these outcomes; those that failed are drawn again."""
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
    return Bill.of_drawn(result)


def said(usage: Any, **metadata: Any) -> AIMessage:
    return AIMessage("twelve chars", usage_metadata=usage, response_metadata=metadata)


RETRIED = said(plain(10, 5), failed_attempts=[{"error": "gone", "received_tokens": 7}])


@pytest.mark.parametrize(
    ("replies", "bill"),
    [
        ([said(plain(100, 5)), said(None)], Bill(2, 200, 5 + 3, without_usage=1)),
        ([said(plain(100, 0))], Bill(1, 0, 3, without_usage=1)),  # a text of no token
        ([RETRIED, ConnectionError("gone"), said(plain(10, 5))], Bill(2, 20, 5 + 7 + 5, failed=2, lost=7)),
    ],
)
def test_tokens_without_usage_are_estimated_and_failed_ones_count(
    replies: list[AIMessage | Exception], bill: Bill
) -> None:
    assert drawn(*replies) == bill


QUESTIONS = [LabelledQuestion(f"q{at}", "x" * 40, "6") for at in range(10)]
ALL = {question.id: 4 for question in QUESTIONS}


def estimated(model: Any = None, draws: dict[str, int] = ALL, recorded: dict[str, Bill] | None = None) -> Estimate:
    return estimate(model or Guesser(), QUESTIONS, draws, Template(), recorded or {})


def recorded(prompt: int, *completions: int) -> dict[str, Bill]:
    """Questions with two responses each."""
    return {f"q{at}": Bill(2, prompt, completion) for at, completion in enumerate(completions)}


class Counting(Guesser):
    def get_num_tokens_from_messages(self, messages: object, tools: object = None) -> int:
        return 11


SHARED = {"q0": Bill(4, 10, 40)}  # a prompt that counts once among 4 responses
OTHERS = {"another": Bill(4, 80, 40), "unsaid": Bill(4, 0, 120, without_usage=4)}


@pytest.mark.parametrize(
    ("options", "prompt", "prompt_by", "completion", "completion_by"),
    [
        ({}, 40 * 10, "characters", 0, None),
        ({"model": Guesser(max_tokens=50)}, 40 * 10, "characters", 40 * 50, "limit"),
        ({"model": Guesser().bind(max_tokens=7)}, 40 * 10, "characters", 40 * 7, "limit"),
        ({"model": Guesser(custom_get_token_ids=lambda text: [0] * (len(text) // 2))}, 40 * 20, "tokenizer", 0, None),
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
    assert (found.bill.prompt, found.prompt_by) == (prompt, prompt_by)
    assert (found.bill.completion, found.completion_by) == (completion, completion_by)
    assert found.questions == sum(count > 0 for count in options.get("draws", ALL).values())
    assert found.is_expected == (completion_by == "recorded" or not found.bill.responses)


def test_a_registered_class_counts_and_another_is_not_asked() -> None:
    assert estimated(Counting()).prompt_by == "characters"  # it might ask its provider
    register_integration(f"{Counting.__module__}.Counting")(lambda model: Integration(counts_tokens=True))
    assert estimated(Counting()).bill.prompt == 40 * 11


def test_the_interval_is_over_questions() -> None:
    found = estimated(recorded=recorded(40, 180, 200, 220))
    assert found.spread == pytest.approx(4.303 * (10 / 3**0.5) / 100, rel=1e-3)  # Student's t with 2 degrees of freedom
    assert estimated(recorded=recorded(40, 180, 200)).spread is None


def test_both_kinds_of_file(tmp_path: Path) -> None:
    toml, json = tmp_path / "p.toml", tmp_path / "p.json"
    toml.write_text('currency = "EUR"\n[models."a-model"]\ninput = 1\noutput = 2.5\ncached = 0.1\n')
    json.write_text('{"currency": "EUR", "models": {"a-model": {"input": 1, "output": 2.5, "cached": 0.1}}}')
    one, other = read_prices(toml), read_prices(json)
    assert one == other and one.currency == "EUR"
    assert (one.price_of("a-model").output, one.price_of("a-model").cached, one.price_of("a-model").reasoning) == (
        2.5,
        0.1,
        None,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"currency": "EUR", "models": {"m": {"inptu": 1, "output": 2}}}', "models.m.inptu is unknown; did you mean"),
        ('{"models": {"m": {"input": 1, "output": 2}}}', "currency is missing"),
        ('{"currency": "EUR", "models": {}}', "models is empty"),
        ('{"currency": "EUR", "models": {"m": {"input": -1, "output": 2}}}', "models.m.input: Input should be greater"),
        ('{"currency": "EUR", "models": {"m": {"input": NaN, "output": 2}}}', "models.m.input: Input should be a fin"),
        ('{"currency": ', "is not valid JSON"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_prices(tmp_path / "p.json")
    assert says in str(refused.value) and str(tmp_path / "p.json") in str(refused.value)
