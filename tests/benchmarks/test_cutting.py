"""``python -m benchmarks.cutting``: what is saved where samples in flight are cut off."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab.pools.synthetic import write_pool

from benchmarks.cutting import Spent, main, spent
from langchain_reasc.method import Decision, FiniteHorizon, Response, StoppingRule, rule_in_use


@dataclass(frozen=True)
class Surprised(StoppingRule):
    """Stop at the answer "stop", which nobody foresees."""

    name = "surprised"

    def __call__(self, responses: Sequence[Response]) -> Decision:
        votes = self.tally(responses)
        return Decision(responses[-1].answer == "stop", votes.answer, None, len(responses), votes.evidence, 0.0)


def test_what_runs_at_an_unforeseen_decision_is_cut_off_there() -> None:
    responses = [Response(answer) for answer in ("a", "stop", "b", "b", "b")]
    # Four are launched. The second is decided on when the first has ended.
    assert spent(Surprised(), responses, [10, 4, 30, 5, 7]) == Spent(
        once=10, cut=10 + 4 + 10 + 5, whole=10 + 4 + 30 + 5
    )


@pytest.mark.parametrize("answers", ["aaaaaaaa", "abababab", "abcabcab", "abbbbbbb"])
def test_no_sample_runs_at_a_decision_that_waves_foresee(answers: str) -> None:
    rule = rule_in_use(FiniteHorizon(budget=8), 8)
    row = spent(rule, list(map(Response, answers)), [10, 50, 20, 90, 40, 60, 30, 80])
    assert row.cut == row.whole >= row.once == 10


@pytest.mark.full
def test_each_rule_has_a_line_on_each_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pool(tmp_path / "one.sqlite", questions=40, samples=8)
    main([str(tmp_path), "--shuffles", "1"])
    said, head, *lines = capsys.readouterr().out.splitlines()
    assert said == "1 shuffles (seed 0)"
    assert head.split()[-2:] == ["saved,", "%"]
    assert [line.split()[:2] for line in lines] == [["one", "default"], ["one", "online"]]
    rows = [list(map(float, line.split()[2:])) for line in lines]
    assert all(1 < cut <= whole for _, cut, whole, _ in rows)
    assert rows[0][-1] == 0 <= rows[1][-1]
