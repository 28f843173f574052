"""The quickstart is short, and does what it says against a real server with the shipped model."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from servers.llama_server import llama_server

from .check_snippets import ROOT, snippets

PAGE: Final = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
MODEL: Final = ROOT / "backends" / "langchain_reasc_llama_cpp" / "embedded" / "word_problems.gguf"


def test_it_has_fewer_than_200_words() -> None:
    assert len(PAGE.split()) < 200


def printed(text: str) -> tuple[str, dict[str, float]]:
    """The answer in a printed response, and the votes printed after it."""
    matched = re.search(r"\\boxed\{(\d+)\}\. (\{.*\})$", text, re.MULTILINE)
    assert matched, text
    return matched[1], ast.literal_eval(matched[2])


@pytest.mark.full
def test_its_code_prints_what_it_shows(tmp_path: Path) -> None:
    [(_, code)] = snippets(PAGE)
    with llama_server(MODEL) as server:
        env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    for text in (PAGE, done.stdout):
        answer, votes = printed(text)
        assert votes[answer] == max(votes.values()) >= 3 and sum(votes.values()) <= 16
