"""Names that are imported when they are first asked for."""

import subprocess
import sys

import pytest

import langchain_reasc


@pytest.mark.full
def test_agents_are_not_imported_with_the_rest() -> None:
    code = "import sys, langchain_reasc; sys.exit(any('langchain_reasc.agents' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=600).returncode == 0


def test_lazy_names_are_listed_and_others_are_not_there() -> None:
    assert "ChatReASC" in dir(langchain_reasc) and "ChatReASC" in langchain_reasc.__all__
    assert langchain_reasc.ChatReASC is langchain_reasc.ChatReASC
    with pytest.raises(AttributeError, match="no attribute 'ReASCChat'"):
        getattr(langchain_reasc, "ReASCChat")  # noqa: B009
    assert not hasattr(langchain_reasc, "__wrapped__")
