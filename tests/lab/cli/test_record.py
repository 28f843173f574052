"""What a recording is expected to cost, may cost, and has cost, as the command tells it."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from cli.interrupted import held, interrupted
from cli.test_commands import reasc
from langchain_reasc_lab.cli.budget import Budget
from langchain_reasc_lab.pools import DrawnQuestion, DrawnResponse, Message, PoolResponse, read_pool
from typer.testing import Result

from lab.pools.synthetic import write_lines
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError

PRICES = '{"currency": "EUR", "models": {"scripted-1": {"input": 1000, "output": 10000, "cached": 100}}}'


@pytest.fixture
def data(tmp_path: Path) -> Path:
    records = ({"question": f"How many are {at} and {9 - at}?", "answer": "5"} for at in range(10))
    (tmp_path / "prices.json").write_text(PRICES)
    return write_lines(tmp_path / "q.jsonl", *records)


def record(data: Path, *more: object, code: int = 0, model: str = "cli.chat_models.Scripted") -> Result:
    out = data.with_name("p.sqlite")
    return reasc("record", data, "--out", out, "--samples", 2, "--model-class", model, *more, code=code)


def priced(data: Path, *more: object, **options: Any) -> Result:
    return record(data, "--prices", data.with_name("prices.json"), *more, **options)


def test_a_dry_run_tells_and_draws_nothing(data: Path) -> None:
    told = priced(data, "--dry-run", "--max-tokens", 50).stdout.splitlines()
    assert told == [
        "To draw    20 responses to 10 questions",
        "Prompts    about 105 tokens, 4 letters each",
        "Responses  at most 1,000 tokens, 50 each as the model is set",
        "Cost       at most 10.11 EUR",
    ]
    unknown = priced(data, "--dry-run").stdout
    assert (
        "Responses  unknown until the first questions are recorded" in unknown and "0.10 EUR for the prompts" in unknown
    )
    assert "Cost" not in record(data, "--dry-run").stdout
    assert not data.with_name("p.sqlite").exists()


def test_the_bill_is_what_usage_says(data: Path) -> None:
    told = priced(data, "--model-kwargs", "details=true").stderr
    assert "After 3 questions: 400 + 160 tokens (±0%), about 2.00 EUR in all" in told
    bill = told.splitlines()[-5:-1]
    assert bill[0].startswith("Drawn      20 responses in ")
    assert bill[1:] == [
        "Prompts    400 tokens, 300 from a cache",
        "Responses  160 tokens, 120 of reasoning",
        "Cost       1.73 EUR",
    ]


@pytest.mark.full  # computes for long
def test_a_continued_recording_costs_what_is_drawn_anew(data: Path) -> None:
    priced(data, "--limit", 4)
    dry = priced(data, "--dry-run").stdout.splitlines()
    assert dry == [
        "To draw    12 responses to 6 questions (4 of 10 are recorded)",
        "Prompts    about 240 tokens, as recorded so far",
        "Responses  about 96 tokens (±0%), as in the 4 questions recorded",
        "Cost       about 1.20 EUR",
    ]
    told = priced(data).stderr
    assert "Drawn      12 responses in " in told and "Cost       1.20 EUR" in told
    more = priced(data, "--samples", 3).stderr
    assert "To draw    10 responses to 10 questions" in more and "Cost       1.00 EUR" in more
    again = priced(data, "--samples", 3).stderr
    assert "Nothing is to be drawn: all 10 questions are recorded" in again and "Drawn" not in again
    whole = reasc("pool", "show", data.with_name("p.sqlite"), "--prices", data.with_name("prices.json")).stdout
    assert "Held       30 responses" in whole and "Cost       3.00 EUR" in whole


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("usage=false", "12 responses came without usage; their tokens are estimated"),
        ("fails_once=true", "; 3 failed"),
    ],
)
def test_what_was_estimated_or_failed_is_in_the_bill_and_remembered(data: Path, option: str, says: str) -> None:
    bill = record(data, "--samples", 4, "--limit", 3, "--model-kwargs", option).stderr
    assert "Drawn      12 responses in " in bill and says in bill
    assert says in reasc("pool", "show", data.with_name("p.sqlite")).stdout


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--max-cost", "0.05"), "--max-cost allows 0.050 EUR, and 0.10 EUR are expected: nothing was drawn"),
        (("--max-tokens-total", "99"), "--max-tokens-total allows 99 tokens, and 105 tokens are expected: nothing"),
        (("--model", "scripted-2"), "no price for the model 'scripted-2'; did you mean 'scripted-1'?"),
    ],
)
def test_what_would_cost_too_much_or_has_no_price_is_not_begun(more: tuple[str, ...], says: str, data: Path) -> None:
    assert says in priced(data, *more, code=1).stderr
    assert not data.with_name("p.sqlite").exists()


def test_what_turns_out_to_cost_too_much_ends_and_is_kept(data: Path) -> None:
    told = priced(data, "--max-cost", 1.9, code=1).stderr
    assert "--max-cost allows 1.90 EUR, and 2.00 EUR are expected: what was recorded is kept" in told
    assert "Cost       0.60 EUR" in told
    assert len(read_pool(data.with_name("p.sqlite")).questions) == 3


def test_what_has_cost_as_much_as_it_may_ends_and_goes_on_with_as_much_again(data: Path) -> None:
    limited = ("--max-tokens-total", 100, "--limit", 3)  # too few for the first questions to tell
    told = record(data, *limited, code=1).stderr
    assert "--max-tokens-total allows 100 tokens, and 112 tokens are spent: what was recorded is kept" in told
    assert len(read_pool(data.with_name("p.sqlite")).questions) == 2
    record(data, *limited)
    assert len(read_pool(data.with_name("p.sqlite")).questions) == 3


def test_questions_in_flight_are_recorded_when_the_limit_is_reached(data: Path) -> None:
    told = record(data, "--max-tokens-total", 500, "--concurrency", 4, "--model-kwargs", "seconds=0.05", code=1).stderr
    kept = len(read_pool(data.with_name("p.sqlite")).questions)
    assert f"Drawn      {2 * kept} responses in " in told, "all that was paid for is there"


def test_workers_elsewhere_are_ended_at_the_limit() -> None:
    budget, given = Budget(max_tokens=25), []
    question = LabelledQuestion("q", "?", "5")
    drawn = DrawnQuestion(question, [DrawnResponse(PoolResponse("5", 10, prompt_tokens=0), Message(), None, None)])

    def elsewhere(pending: Any, sampler: Any) -> Generator[Any, None, None]:
        try:
            yield from pending
        finally:
            given.append("closed")

    for one in budget.limited(1, elsewhere)(["a", "b", "c", "d"], None):  # type: ignore[arg-type, list-item]
        given.append(one)  # type: ignore[arg-type]
        budget.add(drawn)
    assert given == ["a", "b", "c", "closed"]
    with pytest.raises(ConfigurationError, match="allows 25 tokens, and 30 tokens are spent"):
        budget.check()


def test_a_cost_needs_prices(data: Path) -> None:
    assert "--max-cost goes with --prices" in record(data, "--max-cost", 1, code=1).stderr


@pytest.mark.full
def test_ctrl_c_in_the_middle_leaves_a_bill_and_goes_on(data: Path) -> None:
    out, prices = data.with_name("p.sqlite"), data.with_name("prices.json")
    command = ["record", data, "--out", out, "--samples", 2, "--prices", prices]
    command += ["--model-class", "cli.chat_models.Scripted", "--model-kwargs"]
    told = interrupted(*command, "seconds=0.2", begun=lambda: held(out) >= 2)
    kept = held(out)
    assert "interrupted" in told and f"Drawn      {2 * kept} responses in " in told and 2 <= kept < 10
    reasc(*command, "seconds=0")
    assert held(out) == 10
