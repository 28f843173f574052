"""The README's first lines, asked questions of one's own: a word, a label and a number."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .check_snippets import ROOT, snippets
from .check_wheel import served_model

_QUESTIONS: Final = {
    "word": (0, "What is the capital of France? Answer with one word.", {"Paris"}),
    "label": (1, "Which city is the capital of France? Answer with one word.", {"Paris"}),
    "number": (0, "How many legs does a dog have? Answer with one number.", {"4", "four", "4 legs", "four legs"}),
}
"""What is asked -> the block of the README, the question, and the answers that the model may give."""
_SAMPLING: Final = ("max_tokens=24", "temperature=0.3", "n_ctx=1024")


@pytest.fixture(scope="module")
def address(smollm2: Path) -> Iterator[str]:
    """A server process with OpenAI's API and SmolLM2, which passes texts through without votes."""
    sampling = [word for option in _SAMPLING for word in ("--model-kwargs", option)]
    with served_model(Path(sys.executable).parent, "--model", str(smollm2), *sampling) as url:
        yield url


def asked(name: str) -> tuple[str, set[str]]:
    """Return the README's lines with a question of one's own, and the answers that are expected."""
    block, question, expected = _QUESTIONS[name]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = [code for _, code in snippets(readme)][block]
    code, count = re.subn(r'invoke\(\s*"[^"]*"\s*\)', f"invoke({question!r})", code)
    assert count == 1
    return code.replace('["spam", "ham"]', '["Paris", "London"]'), expected


def check(code: str, expected: set[str]) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    account = names["message"].response_metadata["reasc"]
    assert account["answer"] in expected, account
    assert 1 < account["samples"] <= 16


@pytest.mark.full
@pytest.mark.parametrize("name", _QUESTIONS)
def test_they_work_through_a_server(name: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OPENAI_BASE_URL", address)
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "none")
    check(*asked(name))


@pytest.mark.full
@pytest.mark.parametrize("name", _QUESTIONS)
def test_they_work_with_a_model_in_this_process(name: str, smollm2: Path) -> None:
    code, expected = asked(name)
    arguments = ", ".join([f"model_path={str(smollm2)!r}", *_SAMPLING])
    code = code.replace("from langchain_openai import ChatOpenAI", "from langchain_reasc_llama_cpp import ChatLlamaCpp")
    check(code.replace('ChatOpenAI(model="gpt-4o-mini")', f"ChatLlamaCpp({arguments})"), expected)
