"""Names that are imported when they are first asked for, and what is said where their package is too old."""

import importlib
import subprocess
import sys
from importlib.metadata import version

import pytest

import langchain_reasc
from langchain_reasc import ReASCError


def test_an_older_langchain_core_is_named_when_a_decision_model_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("langchain_reasc.agents.decision_model")
    monkeypatch.setitem(sys.modules, "langchain_core.decisions", None)
    monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setattr(module.__name__, module)  # to have it back afterwards
    module = importlib.import_module(module.__name__)
    with pytest.raises(ImportError, match=r"ReASCDecisionModel needs langchain_core\.decisions") as raised:
        module.ReASCDecisionModel(llm=None)
    assert isinstance(raised.value, ReASCError) and raised.value.name == "langchain_core.decisions"
    assert version("langchain-core") in str(raised.value)
    assert "pip install 'langchain-core>=1.8'" in str(raised.value)


@pytest.mark.full
def test_agents_are_not_imported_with_the_rest() -> None:
    code = "import sys, langchain_reasc; sys.exit(any('langchain_reasc.agents' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=600).returncode == 0


def test_lazy_names_are_listed_and_others_are_not_there() -> None:
    assert "ReASCDecisionModel" in dir(langchain_reasc) and "ReASCDecisionModel" in langchain_reasc.__all__
    assert langchain_reasc.ReASCDecisionModel is langchain_reasc.ReASCDecisionModel
    with pytest.raises(AttributeError, match="no attribute 'ReASCDecision'"):
        getattr(langchain_reasc, "ReASCDecision")  # noqa: B009
    assert not hasattr(langchain_reasc, "__wrapped__")
