"""Studies that many tests read, and none changes; what they computed is kept."""

import pytest
from langchain_reasc_lab.report import Study

from lab.report.studies import pool, synthetic, weighed


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """60 questions with recorded scores, in 2 shuffles, of which 16 calibrate."""
    return synthetic(tmp_path_factory.mktemp("studied") / "p.sqlite", 60)


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, ...]:
    """Two pools of 40 questions with token signals, of which 24 calibrate, in one shuffle."""
    folder = tmp_path_factory.mktemp("two")
    return tuple(weighed(pool(folder, name, 40, seed=at), name) for at, name in enumerate(("a", "b <&> c")))
