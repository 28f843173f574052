"""Names that are imported when they are first asked for, and what is said where their package is too old."""

import subprocess
import sys

import pytest

import langchain_reasc

ABSENT = """
import sys
sys.modules["langchain_core.decisions"] = None
from importlib.metadata import version
import langchain_reasc
assert not [module for module in sys.modules if module.startswith("langchain_reasc.agents")]
from langchain_reasc import ReASCDecisionModel
try:
    ReASCDecisionModel(llm=None)
except ImportError as error:
    assert isinstance(error, langchain_reasc.ReASCError) and error.name == "langchain_core.decisions"
    assert version("langchain-core") in str(error)
    print(error)
"""


def test_an_older_langchain_core_is_named_when_a_decision_model_is_made_and_not_before() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "ReASCDecisionModel needs langchain_core.decisions" in done.stdout
    assert "pip install 'langchain-core>=1.8'" in done.stdout


def test_lazy_names_are_listed_and_others_are_not_there() -> None:
    assert "ReASCDecisionModel" in dir(langchain_reasc) and "ReASCDecisionModel" in langchain_reasc.__all__
    assert langchain_reasc.ReASCDecisionModel is langchain_reasc.ReASCDecisionModel
    with pytest.raises(AttributeError, match="no attribute 'ReASCDecision'"):
        getattr(langchain_reasc, "ReASCDecision")  # noqa: B009
    assert not hasattr(langchain_reasc, "__wrapped__")
