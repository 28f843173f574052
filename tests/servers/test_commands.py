"""The commands on the real llama-server: what `reasc` does with a GGUF it does with a server's model."""

import json
from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_lab.pools.tokens import pool_tokens
from langchain_reasc_llama_cpp import embedded_model_path

from langchain_reasc.calibration import load_calibration

from .conftest import KEY
from .llama_server import LlamaServer

CALIBRATION, TEST = (embedded_model_path().with_name(f"{name}.jsonl") for name in ("calibration", "test"))
QUESTION = "Kira has 7 roses. Kira wants to have 12 roses. How many more roses does Kira need?"


def on(server: LlamaServer) -> tuple[str, ...]:
    return ("--url", server.url, "--model", server.name, "--temperature", "1", "--answer", "boxed")


@pytest.mark.slow  # a whole calibration over a server
def test_calibrate_then_ask(real_server: LlamaServer, tmp_path: Path) -> None:
    made = tmp_path / "calibration.json"
    shown = reasc("calibrate", CALIBRATION, *on(real_server), "--limit", 48, "--out", made)
    assert "48 questions" in shown.stdout
    assert load_calibration(made).fingerprint.model == real_server.name
    asked = reasc("ask", QUESTION, *on(real_server), "--calibration", made, "--seed", 1, "--json")
    account = json.loads(asked.stdout)
    assert account["answer"] == "5" and account["without_confidence"] == 0 and account["stage"] in (1, 2)
    refused = reasc("ask", QUESTION, "--calibration", made, "--answer", "boxed", code=1)
    assert f"'{real_server.name}'" in refused.stderr, "the GGUF in this process goes by another name"


def test_a_question_that_the_server_finds_too_long_is_left_out(real_server: LlamaServer, tmp_path: Path) -> None:
    data, pool = tmp_path / "q.csv", tmp_path / "pool.sqlite"
    data.write_text(f"question,answer\n{'rose ' * 20_000},1\n{QUESTION},5\n", encoding="utf-8")
    said = reasc("record", data, *on(real_server), "--samples", "2", "--out", pool).stderr
    assert "('rose rose" in said and "too long" in said
    assert "1 of 2 questions" in said
    assert [question.input for question in read_pool(pool).questions] == [QUESTION]


def test_a_signal_the_server_cannot_give_is_refused_after_the_first_question(
    real_server: LlamaServer, tmp_path: Path
) -> None:
    arguments = ("--signal", "self_certainty", "--concurrency", "1", "--limit", "24", "--out", tmp_path / "c.json")
    refused = reasc("calibrate", CALIBRATION, *on(real_server), *arguments, code=1)
    assert "self_certainty/bottom_group/W=128" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--url", "http://127.0.0.1:9", "--model", "tiny"), "http://127.0.0.1:9/v1"),
        (("--url", "http://127.0.0.1:9"), "`reasc probe http://127.0.0.1:9/v1`"),
        (("--url", "http://127.0.0.1:9", "--model", "tiny", "--key-variable", "NO_SUCH"), "NO_SUCH is not set"),
        (("--key-variable", "NO_SUCH"), "--key-variable"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: tuple[str, ...], says: str) -> None:
    refused = reasc("ask", QUESTION, *arguments, code=1)
    assert refused.stderr.startswith("error: ") and says in refused.stderr


def test_chat_openai_by_its_class(real_server: LlamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("A_KEY", KEY)
    pool = tmp_path / "pool.sqlite"
    options = ("--model", real_server.name, "--model-kwargs", f"base_url={real_server.url}", "--key-variable", "A_KEY")
    sampling = ("--temperature", "1", "--max-tokens", "256", "--samples", "2", "--limit", "2", "--answer", "boxed")
    command = ("record", TEST, "--out", pool, "--model-class", "langchain_openai.ChatOpenAI", *options, *sampling)
    before = real_server.generated()
    told = reasc(*command).stderr
    recorded = read_pool(pool)
    tokens = pool_tokens(recorded)
    assert tokens.responses == 4 and not tokens.without_usage and tokens.prompt > 4 * 30
    assert tokens.completion == real_server.generated() - before
    assert f"Responses  {tokens.completion:,} tokens" in told
    assert recorded.signals is not None and "top_k" in recorded.signals.names
    assert KEY not in told and KEY.encode() not in pool.read_bytes()
