"""Each example of agents runs as it stands: votes over calls, structured output, a budget, and a run that waits."""

import ast
import builtins
import importlib
import re
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from backends.openai.fake_server import serving, vllm
from langchain_core.messages import AIMessage
from test_examples import EXAMPLES, check_one_line, run, run_here, shown

pytest.importorskip("langchain.agents")
SCRIPTED = ["agent_with_tools.py", "agent_structured_output.py", "agent_middleware.py"]
NEEDS = {
    **dict.fromkeys([*SCRIPTED, "agent_escalation.py"], ("langchain.agents", 'pip install "langchain-reasc[agents]"')),
    "agent_interrupt.py": ("langgraph.checkpoint.sqlite", "langgraph-checkpoint-sqlite"),
    "fastapi_stream.py": ("fastapi", "pip install fastapi uvicorn"),
}


@pytest.fixture(autouse=True)
def examples_import_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def test_tools_are_called_as_the_votes_say_and_every_sample_is_billed_once() -> None:
    told = shown(run_here("agent_with_tools.py"))
    assert "6 of 6 samples" in told
    assert re.search(r"1\.0 .*42.*\n +5\.0 .*14", told), "what was voted"
    assert "14 euros of order 1042 were paid back" in told and "42 euros of" not in told
    [(asked, said)] = re.findall(r"scripted: (\d+) tokens in, (\d+) out", told)
    example, scripted = importlib.import_module("agent_with_tools"), importlib.import_module("scripted_model")
    model = scripted.ScriptedModel(script=example.script)
    plain = example.create_agent(model, tools=[example.refund], system_prompt="You settle complaints.")
    messages = plain.invoke({"messages": [("human", example.QUESTION)]})["messages"]
    assert "42 euros of order 1042" in messages[-1].text, "asked once, it pays back too much"
    bills = [message.usage_metadata for message in messages if isinstance(message, AIMessage)]
    once = sum(bill["output_tokens"] for bill in bills if bill)
    assert once * 4 < int(said) < once * 10 and int(asked) > 300


def test_structured_output_is_decided_field_by_field() -> None:
    told = shown(run_here("agent_structured_output.py"))
    assert told.endswith("Invoice(supplier='Lamps & Sons', euros=103.5, due=datetime.date(2026, 6, 17))\n")
    assert "6 of 6 samples" in told
    example = importlib.import_module("agent_structured_output")
    objects = [message.tool_calls[0]["args"] for message in example.script([])]
    assert objects.count(objects[-1]) == 4 and len({repr(one) for one in objects}) == 4


def test_the_middleware_votes_on_what_cannot_be_taken_back() -> None:
    told = shown(run_here("agent_middleware.py"))
    decided = re.findall(r"decided after (\d+) of \d+ samples: (\w+)", told)
    assert decided == [("1", "alone"), ("6", "agreement"), ("1", "alone")]
    assert "Booked: Rosa's, 2026-05-01" in told and "tokens of 20000" in told


def test_a_budget_ends_the_votes(caplog: pytest.LogCaptureFixture) -> None:
    told = shown(run_here("agent_middleware.py", "--max-run-tokens", "50"))
    decisions = re.findall(r"decided after (\d+) of \d+ samples: (\w+)", told)
    assert decisions == [("1", "alone"), ("1", "budget"), ("1", "alone")]
    assert "Booked: Rosa's, 2026-05-08" in told, "asked plainly, it is mistaken"
    assert "budget of this run" in caplog.text


@pytest.mark.full
def test_a_run_waits_for_a_person_and_goes_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = run_here("agent_interrupt.py", "ask")
    assert asked.returncode == 0, asked.stderr
    assert "the run waits for a person" in asked.stdout and "by plurality" in asked.stdout
    answered = run("agent_interrupt.py", "answer", "1862", cwd=tmp_path)
    assert answered.returncode == 0, answered.stderr
    assert "1862, says a person." in answered.stdout
    assert answered.stdout.splitlines()[-1] == asked.stdout.splitlines()[-1], "the evidence was kept"
    with sqlite3.connect(tmp_path / "waiting.sqlite") as database:
        assert database.execute("select count(*) from checkpoints").fetchone()[0] > 2


def test_what_the_model_is_sure_of_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    easy = "Lena starts with 438 roses. Lena wants to have 594 roses. How many more roses does Lena need?"
    asked = run_here("agent_interrupt.py", "ask", easy)
    assert asked.returncode == 0 and "156, says the model." in asked.stdout
    again = run_here("agent_interrupt.py", "answer", "156")
    assert again.returncode == 1
    assert again.stderr == "error: no question of the thread 'demo' waits for a person\n"


def test_a_thread_has_one_question_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_here("agent_interrupt.py", "answer", "1").stderr.startswith("error: there is no waiting.sqlite")
    assert not (tmp_path / "waiting.sqlite").exists(), "and none is made"
    assert "waits for a person" in run_here("agent_interrupt.py", "ask").stdout
    check_one_line(run_here("agent_interrupt.py", "ask"), "a question of the thread 'demo' waits")


def test_a_database_that_is_none_is_one_line(tmp_path: Path) -> None:
    place = tmp_path / "here"
    place.write_text("no database at all, but a text that is long enough to be one" * 20)
    check_one_line(run_here("agent_interrupt.py", "--database", str(place), "ask"))


def test_it_asks_a_server_with_its_tools() -> None:
    with serving(vllm(models=("tiny",))) as server:
        told = shown(run_here("agent_middleware.py", "--model", "tiny", "--base-url", f"{server.url}/v1"))
    assert "So it is" in told and "1 of 1 samples" in told
    [asked] = server.requests
    assert asked["model"] == "tiny" and asked["tools"]


@pytest.mark.full
def test_an_absent_server_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    check_one_line(run_here("agent_middleware.py", "--model", "any", "--base-url", f"http://127.0.0.1:{port}/v1"))


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_package_is_one_line_that_names_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, told = NEEDS[name]
    imported = builtins.__import__

    def without(wanted: str, *rest: Any, **more: Any) -> Any:
        if wanted.startswith(package):
            raise ModuleNotFoundError(f"No module named {wanted!r}", name=wanted)
        return imported(wanted, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    check_one_line(run_here(name, "--help"), told)


@pytest.mark.parametrize("name", NEEDS)
def test_help_teaches_and_says_what_is_needed(name: str) -> None:
    done = run_here(name, "--help")
    assert done.returncode == 0 and f"python examples/{name}" in done.stdout
    said = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert said is not None and "pip install" in said
