"""A larger model for contested questions: ``reasc ask``, ``calibrate`` and ``inspect`` with ``--escalate-...``."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.chat_wire import Chat
from servers.fake_server import Served, serving

from cli.interrupted import interrupted
from cli.test_commands import reasc
from langchain_reasc.calibration import LearnedEscalation, ObservationStore, Shadowed, load_calibration
from langchain_reasc.exceptions import CalibrationFileError
from langchain_reasc.models.fingerprint import Fingerprint

GUESSER = ("--model-class", "characterization.guesser.Guesser")
SURE = ("--model-class", "cli.chat_models.Scripted")
DEAD = ("--escalate-url", "http://127.0.0.1:9/v1", "--escalate-model", "big")


@pytest.fixture
def large() -> Iterator[Served]:
    with serving(Chat(words=("so", " \\boxed{7}"))) as served:
        yield served


def at(served: Served) -> tuple[str, ...]:
    return ("--escalate-url", served.url, "--escalate-model", "big")


@pytest.mark.full
def test_ask_says_which_model_answered_and_what_each_cost(large: Served) -> None:
    contested = reasc("ask", "What is 4?", *GUESSER, "--seed", 1, "--trace", *at(large))
    assert contested.stdout == "7\n"
    said = contested.stderr
    assert "small model #2" in said and "large model #1" in said
    assert "smaller one is undecided" in said
    assert "small model: 2 samples, 12 tokens" in said
    assert "large model: 1 sample, 2 tokens" in said and "evidence 7: 1.00" in said
    data = json.loads(reasc("ask", "What is 4?", *GUESSER, "--seed", 1, "--json", *at(large)).stdout)
    assert (data["answered_by"], data["reason"], [*data["models"]]) == ("large", "escalated", ["small", "large"])
    assert data["method"] == "race" and "shadowed" not in data, "one question is too few to learn from"
    assert "promises nothing" in said and "reasc calibrate" in said
    assert [one["asked"] for one in data["responses"]] == ["small", "small", "large"]
    requests = len(large.requests)
    agreed = reasc("ask", "What?", *SURE, *at(large)).stderr
    assert "3 of 3 responses gave it" in agreed and "small model: 3 samples" in agreed and "large model:" not in agreed
    assert len(large.requests) == requests and "temperature" not in large.requests[0]


def test_a_larger_model_that_is_down_is_told_and_the_small_one_answers() -> None:
    ended = reasc("ask", "What is 4?", *GUESSER, "--seed", 1, *DEAD, code=3)
    assert ended.stdout in ("5\n", "6\n", "7\n")
    assert "large model failed" in ended.stderr and "no server at" in ended.stderr


WRONG = {
    "two larger models": (("--escalate-to", "a.gguf", *DEAD), "exclude each other"),
    "a name alone": (("--escalate-model", "big"), "--escalate-model goes with --escalate-url"),
    "a key alone": (("--escalate-key", "K"), "--escalate-key goes with --escalate-url"),
    "a price alone": (("--price-ratio", "3"), "--price-ratio goes with --escalate-to or --escalate-url"),
    "no such file": (("--escalate-to", "big.gguf"), "big.gguf"),
    "no provider": (("--escalate-to", "big"), "write the provider before it, as in openai:gpt-4o-mini (pip install"),
    "an address": (
        ("--escalate-to", "http://gpu2:8000"),
        "http://gpu2:8000 is an address: give it as --url, or --escal",
    ),
    "no key": (("--escalate-to", "openai:gpt-4o"), "ChatOpenAI refuses these arguments: OpenAIError: Missing cred"),
    "no such variable": ((*DEAD, "--escalate-key", "NOWHERE_KEY"), "variable NOWHERE_KEY is not set"),
    "a negative price": ((*DEAD, "--price-ratio", "-1"), "--price-ratio takes prices of 0 or more"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_errors_of_a_line(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given, said = WRONG[case]
    shown = reasc("ask", "What is 4?", *SURE, *given, code=1)
    assert said in shown.stderr and shown.stderr.count("\n") == 1
    assert not shown.stdout


def test_prices_are_a_number_or_four() -> None:
    data = json.loads(reasc("ask", "?", *SURE, *DEAD, "--price-ratio", "1,2,10,20", "--json").stdout)
    assert data["models"]["small"]["cost"] == pytest.approx((3 * 20 * 1 + 3 * 8 * 2) / 1e6)
    shown = reasc("ask", "?", *SURE, *DEAD, "--price-ratio", "1,2", code=2)
    assert "got '1,2'" in shown.stderr


def questions(folder: Path, count: int) -> Path:
    path = folder / "questions.txt"
    path.write_text("".join(f"What is {at}?\n" for at in range(count)), encoding="utf-8")
    return path


@pytest.fixture
def of_the_sure() -> Iterator[Served]:
    """What answers as the scripted model does."""
    with serving(Chat(words=("so", " \\boxed{7}"))) as served:
        yield served


@pytest.mark.full
def test_calibrating_both_says_what_is_promised_and_the_file_can_be_used(large: Served, tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    said = ("--model-class", "characterization.guesser.Guesser", "--seed", 1)
    reasc("calibrate", questions(tmp_path, 12), "--out", out, "--within", 0.5, *said, *at(large))
    known = load_calibration(out).escalation
    assert known is not None and known.rows == 12
    many = reasc("calibrate", questions(tmp_path, 40), "--out", out, "--within", 0.5, *said, *at(large))
    known = load_calibration(out).escalation
    assert known is not None and known.rows == 40, "those asked before are kept, and not asked again"
    assert len([one for one in large.requests if one["messages"][-1]["content"] == "What is 3?"]) <= 2
    assert known.rule is not None
    assert "3 equal votes" in many.stdout and "in use" in many.stdout and "at most" in many.stdout
    assert f"Next: reasc ask --calibration {out} --escalate-to" in " ".join(many.stdout.split())
    assert many.stdout.startswith("Expect ") and f"wrote {out}" in many.stderr
    for shown in (many, reasc("inspect", out), reasc("inspect", out.with_suffix(".rows.sqlite"))):
        assert all(len(line) <= 80 for line in shown.stdout.splitlines() if not line.startswith("Next: reasc"))
        assert "\n 3 equal votes  " in shown.stdout and "40 questions" in shown.stdout
    asked = reasc("ask", "What is 3?", "--calibration", out, *GUESSER, "--seed", 1, *at(large))
    assert "promises nothing" not in asked.stderr


@pytest.mark.full
def test_where_nothing_may_stand_it_says_what_may_help(tmp_path: Path) -> None:
    with serving(Chat(words=("so", " \\boxed{99}"))) as other:
        out = tmp_path / "c.json"
        shown = reasc("calibrate", questions(tmp_path, 24), "--out", out, *SURE, *at(other))
    assert shown.stdout.startswith("Nothing is saved") and "in use" not in shown.stdout
    assert "escalations" in json.loads(reasc("inspect", out.with_suffix(".rows.sqlite"), "--json").stdout)


@pytest.mark.full
def test_ctrl_c_keeps_what_was_paid_for(large: Served, tmp_path: Path) -> None:
    path, out, rows = questions(tmp_path, 24), tmp_path / "c.json", tmp_path / "c.rows.sqlite"

    def asked() -> int:
        try:
            return sum(one.rows for one in ObservationStore.open(rows).escalations())
        except CalibrationFileError:
            return 0

    command = ("calibrate", path, "--concurrency", 1, "--out", out, *SURE, *at(large), "--model-kwargs")
    said = interrupted(*command, "seconds=0.05", begun=lambda: asked() >= 2)
    assert f"is in {rows}" in " ".join(said.split()) and not out.exists()
    before = asked()
    assert 2 <= before < 24
    reasc(*command, "seconds=0")
    told = [one["messages"][-1]["content"] for one in large.requests]
    in_flight = 1  # when it was interrupted, and asked again
    assert asked() == 24 and sum(one.startswith("What is") for one in told) <= (24 + in_flight) * 2
    assert told.count("What is 0?") <= 2, "once, and once more where the answers differ"


def test_a_store_of_both_models_in_words(tmp_path: Path) -> None:
    path, known = tmp_path / "o.sqlite", LearnedEscalation(within=0.05)
    for number in range(120):
        differs = number % 60 == 7
        small = (1, 1, 1) if differs else (0, 0, 0)
        known = known.after(Shadowed(small, (0, 0) if differs else (0,), costs=(1.0, 30.0)))
    store = ObservationStore.create(path)
    store.describe(Fingerprint(model="tiny"), {})
    store.set_escalation("kind", known)
    store.close()
    lines = reasc("inspect", path).stdout.splitlines()
    assert (
        lines[0].startswith("Nothing is saved")
        and lines[-1] == "Model        tiny"
        and all(len(line) <= 80 for line in lines)
    )
    text = " ".join(" ".join(lines).split())
    assert "3.3%" in text
    assert "3 equal votes 120 2 " in text and "from 120 questions" in text
    assert "Seen" not in text, "there are no rows of other kinds"
