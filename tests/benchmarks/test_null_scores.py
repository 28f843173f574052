"""A short run of ``python -m benchmarks.null_scores``."""

import pytest

from benchmarks import null_scores


@pytest.mark.full
def test_a_line_for_each_budget_and_number_of_questions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(null_scores, "FRESH", 40)
    null_scores.main(["--pools", "2", "--budgets", "8", "--sizes", "16", "32", "--signal", "strong"])
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert "strong" in head and [line.split()[:2] for line in lines] == [["8", "16"], ["8", "32"]]
    assert all(0 < float(line.split()[2]) < 2 for line in lines)
