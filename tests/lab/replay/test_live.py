"""A replay decides as the runnable does by default, on the same responses."""

from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import PoolScores, read_pool
from langchain_reasc_lab.replay import (
    AGREEMENT,
    CALIBRATED,
    HORIZON,
    Arrangement,
    MethodSettings,
    RecordedPool,
    replay,
    splits,
)
from langchain_reasc_lab.replay.methods import counting, method_by_agreement
from runnable.conftest import AsyncRunner, Runner
from runnable.fakes import Reply, Scripted, calibration

from lab.pools.synthetic import question, response, write_lines
from langchain_reasc import ASC, ReASCRunnable, decide
from langchain_reasc.calibration import RuleBlock
from langchain_reasc.method import rule_in_use
from langchain_reasc.method.agreement import Component, Prior

NO_ANSWER = "-"
PLURALITY = "aabcdaefgahiajkl"  # four or five of sixteen
ASKED = {
    "a plurality": [PLURALITY, "abcdefghijklmnop", "aabbccddeeffgghh", "abcabdabeabfabga"],
    "none answers": [NO_ANSWER * 16],
    "one answers late": [NO_ANSWER * 3 + "a" * 13, NO_ANSWER * 4 + "a" * 12, "--a-------------"],
    "more have none": ["a---------------", "ab-c-d-e-f-g-h-i", "a-a-a-a-a-a-a-a-", "-a--a-a-aa-aaaaa"],
    "mostly alike": ["aaaaaaaaaaaaaaaa", "aabaaaaaaaaaaaaa", "-a-aaaaaaaaaaaaa"],
}


@pytest.fixture(params=[Runner, AsyncRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Any:
    return request.param()


class Recorded:
    """The same responses, for a replay and for a model that gives them live; none has a score."""

    def __init__(self, path: Path, questions: list[str]) -> None:
        named = {f"q{at}": letters for at, letters in enumerate(questions)}
        lines = [
            question(name, *(response(None if one == NO_ANSWER else one) for one in letters), reference="a")
            for name, letters in named.items()
        ]
        self.pool = read_pool(write_lines(path / "p.sqlite", *lines))
        self.names = list(named)

        def says(name: str, index: int) -> Reply:
            letter = named[name][index]
            return Reply("I cannot say" if letter == NO_ANSWER else f"\\boxed{{{letter}}}")

        self.model = Scripted(script=says)

    @property
    def arrangement(self) -> Arrangement:
        [split] = splits(self.pool, 0, shuffles=0, seed=0)
        return Arrangement(RecordedPool(self.pool, PoolScores(self.pool)), split, split.tested, 16)

    def live(self, runner: Any, **options: Any) -> list[Any]:
        asked = ReASCRunnable(model=self.model, answer="boxed", concurrency=1, **options)
        decisions = []
        for name in self.names:
            decisions.append(runner.solve(asked, name).decision)
            if asked.calibrator:
                assert asked.calibrator.wait(20)  # for what is learned
        return decisions


def of(decisions: list[Any]) -> list[Any]:
    return [(one.answer, one.reason, one.samples, one.evidence) for one in decisions]


@pytest.mark.parametrize("row", [HORIZON, CALIBRATED])
@pytest.mark.parametrize("questions", ASKED.values(), ids=ASKED)
def test_live_decisions_are_the_replayed_ones(runner: Any, tmp_path: Path, row: str, questions: list[str]) -> None:
    recorded, known = Recorded(tmp_path, questions), None
    methods = {one.name: one for one in counting(MethodSettings())}
    if row == CALIBRATED:
        block = RuleBlock.agreement(Prior((Component(0.0, 0.3), Component(0.6, 3.0)), (0.6, 0.4)), 0.95)
        nothing = dict.fromkeys(("signal", "score", "window", "mean", "std"))
        known = calibration(method="consensus", rule=block, **nothing)  # type: ignore[arg-type]
        methods[row] = method_by_agreement(known, "auto", MethodSettings())
    replayed = recorded.arrangement.decisions(methods[row])
    options = {"calibration": known} if known else {}
    assert of(replayed) == of(recorded.live(runner, **options))


def test_what_learns_decides_as_live_where_nothing_answers(runner: Any, tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, [line for line in [*ASKED["mostly alike"], NO_ANSWER * 16, PLURALITY] * 5])
    streamed = recorded.arrangement.stream(()).run()
    assert streamed.calibration is not None
    live = recorded.live(runner, calibration="online", on_missing_confidence="count")
    assert of(streamed.decisions) == of(live)


def test_the_rows_of_papers_spend_their_budget_where_nothing_answers(tmp_path: Path) -> None:
    run = replay(Recorded(tmp_path, ASKED["none answers"] * 3).pool)
    samples = {name: float(held.column("samples").mean()) for (name, _), held in run.outcomes.items()}
    assert samples == {"pass@1": 1, "SC@16": 16, "ESC (w=4)": 16, "ASC": 16, HORIZON: 4, AGREEMENT: 4}


@pytest.mark.parametrize(
    ("ending", "decided_after"),
    [
        ({}, None),
        ({"finish_reason": "stop"}, None),
        ({"finish_reason": "length"}, 7),
        ({"finish_reason": "content_filter"}, 7),
        ({"finish_reason": "tool_calls"}, 7),  # which were refused
        ({"cut_off": True}, 7),
    ],
    ids=str,
)
def test_recorded_responses_without_an_answer_compete_if_they_are_complete(
    tmp_path: Path, ending: dict[str, Any], decided_after: int | None
) -> None:
    line = question("q", *[response("7"), response(None, **ending)] * 4)
    pool = read_pool(write_lines(tmp_path / "p.sqlite", line))
    [responses] = PoolScores(pool).responses(None)
    rule = rule_in_use(ASC(), 16)
    decided = [number for number in range(1, 9) if decide(rule, responses[:number]).reason == "evidence"]
    assert next(iter(decided), None) == decided_after
