"""A study that many tests read, and none changes."""

import pytest
from langchain_reasc_lab.report import Study

from lab.report.studies import synthetic


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """60 questions with recorded scores, in 2 shuffles, of which 16 calibrate; what it computed is kept."""
    return synthetic(tmp_path_factory.mktemp("studied") / "p.jsonl", 60)
