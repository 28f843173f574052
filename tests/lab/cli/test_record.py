"""How many tokens a recording is expected to take, may take, and has taken, as the command tells it."""

import gzip
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from cli.interrupted import held, interrupted
from cli.test_commands import reasc
from langchain_reasc_lab.cli.budget import Budget
from langchain_reasc_lab.pools import DrawnQuestion, DrawnResponse, Message, PoolResponse, read_pool, read_ungraded
from langchain_reasc_lab.report import CONTENTS
from typer.testing import Result

from lab.pools.synthetic import write_lines
from langchain_reasc.calibration import load_calibration
from langchain_reasc.data import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    records = ({"question": f"How many are {at} and {9 - at}?", "answer": "5"} for at in range(10))
    return write_lines(tmp_path / "q.jsonl", *records)


def record(data: Path, *more: object, code: int = 0, model: str = "cli.chat_models.Scripted") -> Result:
    out = data.with_name("p.sqlite")
    return reasc("record", data, "--out", out, "--samples", 2, "--model-class", model, *more, code=code)


def test_a_dry_run_tells_and_draws_nothing(data: Path) -> None:
    told = record(data, "--dry-run", "--max-tokens", 50).stdout.splitlines()
    assert told == [
        "To draw    20 responses to 10 questions",
        "Prompts    about 105 tokens, 4 letters each",
        "Responses  at most 1,000 tokens, 50 each as the model is set",
    ]
    unknown = record(data, "--dry-run").stdout
    assert "Responses  unknown until the first questions are recorded" in unknown
    assert not data.with_name("p.sqlite").exists()


def test_what_usage_says_is_what_was_spent(data: Path) -> None:
    told = record(data).stderr
    assert "After 3 questions: 400 + 160 tokens (±0%) in all" in told
    spent = told.splitlines()[-4:-1]
    assert spent[0].startswith("Drawn      20 responses in ")
    assert spent[1:] == ["Prompts    400 tokens", "Responses  160 tokens"]


def test_a_continued_recording_takes_what_is_drawn_anew(data: Path) -> None:
    record(data, "--limit", 4)
    dry = record(data, "--dry-run").stdout.splitlines()
    assert dry == [
        "To draw    12 responses to 6 questions (4 of 10 are recorded)",
        "Prompts    about 240 tokens, as recorded so far",
        "Responses  about 96 tokens (±0%), as in the 4 questions recorded",
    ]
    told = record(data).stderr
    assert "Drawn      12 responses in " in told and "Prompts    240 tokens" in told
    more = record(data, "--samples", 3).stderr
    assert "To draw    10 responses to 10 questions" in more and "Prompts    200 tokens" in more
    again = record(data, "--samples", 3).stderr
    assert "Nothing is to be drawn: all 10 questions are recorded" in again and "Drawn" not in again
    whole = reasc("pool", "show", data.with_name("p.sqlite")).stdout
    assert "Held       30 responses" in whole and "Prompts    600 tokens" in whole


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


def test_what_would_take_too_much_is_not_begun(data: Path) -> None:
    refused = record(data, "--max-tokens-total", 99, code=1).stderr
    assert "--max-tokens-total allows 99 tokens, and 105 tokens are expected: nothing was drawn" in refused
    assert not data.with_name("p.sqlite").exists()


def test_what_turns_out_to_take_too_much_ends_and_is_kept(data: Path) -> None:
    told = record(data, "--max-tokens-total", 500, code=1).stderr
    assert "--max-tokens-total allows 500 tokens, and 560 tokens are expected: what was recorded is kept" in told
    assert "Prompts    120 tokens" in told
    assert len(read_pool(data.with_name("p.sqlite")).questions) == 3


def test_what_has_taken_as_much_as_it_may_ends_and_goes_on_with_as_much_again(data: Path) -> None:
    limited = ("--max-tokens-total", 100, "--limit", 3)  # too few for the first questions to tell
    told = record(data, *limited, code=1).stderr
    assert "100 tokens, and 112 tokens" in told
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
    with pytest.raises(ConfigurationError, match=r"25 tokens, .*30 tokens"):
        budget.check()


@pytest.mark.full
def test_ctrl_c_in_the_middle_tells_what_was_spent_and_goes_on(data: Path) -> None:
    out = data.with_name("p.sqlite")
    command = ["record", data, "--out", out, "--samples", 2]
    command += ["--model-class", "cli.chat_models.Scripted", "--model-kwargs"]
    told = interrupted(*command, "seconds=0.2", begun=lambda: held(out) >= 2)
    kept = held(out)
    assert "interrupted" in told and f"Drawn      {2 * kept} responses in " in told and 2 <= kept < 10
    reasc(*command, "seconds=0")
    assert held(out) == 10


@pytest.mark.full
def test_a_text_with_a_question_a_line_is_recorded_and_calibrated_on(tmp_path: Path) -> None:
    data = tmp_path / "questions.txt"
    data.write_text("".join(f"How many are {at} and {at}?\n" for at in range(20)) + "\nHow many are 1 and 1?\n")
    told = record(data, "--seed", 3).stderr
    pool = tmp_path / "p.sqlite"
    assert f"reasc pool calibrate {pool}" in told and f"reasc grade {pool}" in told
    stored = read_ungraded(pool)
    assert len(stored.questions) == 20 and not any(question.references for question in stored.questions)
    told = reasc("pool", "calibrate", pool, "--out", tmp_path / "c.json").stderr
    calibration = load_calibration(tmp_path / "c.json")
    assert calibration.method == "consensus" and calibration.measure is None and calibration.p_correct is None
    assert f"{pool} has no token signals" in told
    labels = write_lines(tmp_path / "labels.jsonl", {"question": "How many are 1 and 1?", "answer": "5"})
    assert "reasc grade" in reasc("report", pool, code=1).stderr
    reasc("grade", pool, "--grader", "exact", "--data", labels)
    record(data, "--seed", 3, "--samples", 3)
    [labelled] = read_pool(pool).questions
    assert labelled.references == ("5",), "a text does not take labels away"
    assert "question_field" not in record(data, "--question-field", "q", code=1).stderr


@pytest.mark.full
@pytest.mark.parametrize("options", [[], ["--signal", "token_logprob"], ["--method", "paper"]])
def test_a_text_that_a_model_with_log_probabilities_answers_is_calibrated_on(
    tmp_path: Path, options: list[str]
) -> None:
    pytest.importorskip("langchain_reasc_llama_cpp")
    data, pool, out = tmp_path / "q.txt", tmp_path / "p.sqlite", tmp_path / "c.json"
    cups = [f"Lena has {red} red cups and {red + 3} blue cups. How many cups does Lena have now?" for red in range(20)]
    data.write_text("\n".join(cups))
    reasc("record", data, "--out", pool, "--samples", 4, "--seed", 1)
    paper = "--method" in options
    told = reasc("pool", "calibrate", pool, "--out", out, *options, code=int(paper))
    if paper:
        assert "paper" in told.stderr and not out.exists()
        return
    calibration = load_calibration(out)
    assert calibration.method == "consensus" and calibration.n == 20 and calibration.p_correct is None
    assert calibration.fingerprint.model is not None


@pytest.mark.parametrize("name", ["q.text", "q.txt.gz"])
def test_other_names_of_texts(tmp_path: Path, name: str) -> None:
    text = b"one?\ntwo?\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert "To draw    4 responses to 2 questions" in record(tmp_path / name, "--dry-run", "--max-tokens", 9).stdout
    for option in (("--format", "gsm8k"), ("--answer-field", "a")):
        refused = record(tmp_path / name, *option, code=1).stderr
        assert name in refused and option[1] in refused


def test_missing_logprobs_are_told_after_the_first_question_with_the_tables_that_they_cost(data: Path) -> None:
    lines = record(data).stderr.splitlines()
    [at] = [at for at, line in enumerate(lines) if "log-probabilities" in line]
    assert at < next(at for at, line in enumerate(lines) if line.startswith("After 3 questions"))
    lost = {entry.name for entry in CONTENTS if not entry.by_votes}
    assert lost <= set(re.findall(r"\w+", lines[at])) and "stage1" in lost
    assert "log-probabilities" not in record(data, "--samples", 2).stderr, "nothing was drawn"
