"""The notebooks run and print what they show, and the recipes run, on the shipped model."""

from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path

from .check_snippets import ROOT, snippets
from .notebooks import NOTEBOOKS, printed, run

RECIPES: Final = dict(snippets((ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")))
SLOW: Final = {"your_data"}  # half a minute of four commands


@pytest.mark.full
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in SLOW), id=path.stem) for path in NOTEBOOKS]
)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    """Run ``python tests/documentation/notebooks.py`` where it does not."""
    assert printed(run(path)) == printed(nbformat.read(path, as_version=4))


@pytest.mark.full
@pytest.mark.parametrize("line", RECIPES)
def test_a_recipe_runs(
    line: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shipped(**_: Any) -> ChatLlamaCpp:
        return ChatLlamaCpp(seed=1, max_tokens=200)

    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("my.gguf").symlink_to(embedded_model_path())
    monkeypatch.setattr("langchain_openai.ChatOpenAI", shipped)
    monkeypatch.setattr("langchain_openai.OpenAIEmbeddings", lambda: DeterministicFakeEmbedding(size=16))
    exec(RECIPES[line], {})
    assert capsys.readouterr().out
