"""What goes to workers on other machines and comes back survives the way, and what is refused before one starts."""

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import DrawnQuestion, PendingQuestion, QuestionSampler, record_pool
from langchain_reasc_lab.pools.ray_workers import RayWorkers

from lab.pools.synthetic import Guesser, labelled, write_lines
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import MissingExtraError

QUESTION = LabelledQuestion("q0", "Ada has 3 pens and 4 cups. How many things has Ada?", "7", ("seven",))


def again(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


def test_what_is_asked_of_a_local_model() -> None:
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    with backend.ChatLlamaCpp(seed=7, max_tokens=24, n_parallel=2) as model:
        asking = QuestionSampler(model, Template().after("Be brief."), 2, "boxed")
        here = asking(PendingQuestion(QUESTION))
        copy = again(asking)
        with copy.model:
            there = copy(PendingQuestion(QUESTION))
    assert copy.model is not model and (copy.prompt, copy.samples, copy.answer) == (asking.prompt, 2, "boxed")
    assert isinstance(here, DrawnQuestion) and isinstance(there, DrawnQuestion)
    assert [one.message.text for one in there.responses] == [one.message.text for one in here.responses]


def test_what_is_asked_of_servers() -> None:
    backend = pytest.importorskip("langchain_reasc_openai")
    retry = backend.RetryPolicy(attempts=2, first_wait=0.1)
    model = backend.ChatOpenAICompatible(
        base_url=["http://a:1", "http://b:2"], model="m", preset="vllm", top_k=3, seed=5, retry=retry, api_key="sk-mine"
    )
    copy = again(QuestionSampler(model, Template(), 4)).model
    names = ("base_urls", "model_name", "preset", "top_k", "seed", "retry", "openai_api_key")
    assert [getattr(copy, name) for name in names] == [getattr(model, name) for name in names]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "q.jsonl", {"question": "How much is 2 + 2?", "answer": 4})


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray .*langchain-reasc\[ray\]"):
        record_pool(Guesser(), labelled(1), tmp_path / "p.sqlite", samples=1, workers=RayWorkers())
    refused = reasc("record", data, "--out", tmp_path / "c.sqlite", "--ray", "local", code=1)
    assert "langchain-reasc[ray]" in refused.stderr and not (tmp_path / "c.sqlite").exists()
    refused = reasc("record", data, "--out", tmp_path / "c.sqlite", "--ray-workers", "2", code=1)
    assert "--ray-workers goes with --ray" in refused.stderr
