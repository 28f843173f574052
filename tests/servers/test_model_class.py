"""Recording from the real llama-server through LangChain's own client, named by its class."""

from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_llama_cpp import embedded_model_path

from langchain_reasc.evaluation import read_pool
from langchain_reasc.pools.summary import pool_bill

from .conftest import KEY
from .llama_server import LlamaServer

TEST = embedded_model_path().with_name("test.jsonl")


def test_chat_openai_by_its_class(real_server: LlamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("A_KEY", KEY)
    prices, pool = tmp_path / "prices.toml", tmp_path / "pool.sqlite"
    prices.write_text(f'currency = "EUR"\n[models."{real_server.name}"]\ninput = 1_000_000\noutput = 1_000_000\n')
    options = ("--model", real_server.name, "--model-kwargs", f"base_url={real_server.url}", "--key-variable", "A_KEY")
    sampling = ("--temperature", "1", "--max-tokens", "256", "--samples", "3", "--limit", "4", "--answer", "boxed")
    command = ("record", TEST, "--out", pool, "--model-class", "langchain_openai.ChatOpenAI", *options, *sampling)
    expected = reasc(*command, "--prices", prices, "--dry-run").stdout
    assert (
        "Responses  at most 3,072 tokens, 256 each as the model is set" in expected and "Cost       at mo" in expected
    )
    before = real_server.generated()
    told = reasc(*command, "--prices", prices).stderr
    recorded = read_pool(pool)
    bill = pool_bill(recorded)
    assert bill.responses == 12 and not bill.without_usage and bill.prompt > 12 * 30
    assert bill.completion == real_server.generated() - before
    assert f"Responses  {bill.completion:,} tokens" in told and f"Cost       {bill.tokens:,}.00 EUR" in told
    assert recorded.signals is not None and "top_k" in recorded.signals.names
    assert KEY not in told and KEY.encode() not in pool.read_bytes()
