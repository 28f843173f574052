import asyncio

import pytest

pytest.importorskip("langchain_reasc_server")
from benchmarks.open_loop import upstream
from benchmarks.serve_latency import BARE, WHOLE, Side, added, measure, measure_votes, reasc
from benchmarks.serve_load import run


@pytest.mark.slow  # starts two processes, and asks them for some seconds
def test_what_the_server_adds_is_told_for_each_kind_of_request() -> None:
    with upstream() as bare, reasc(bare) as ours:
        found = measure({BARE: Side(bare), "ours": ours}, seconds=0.5, rounds=2, seed=0)
        with upstream(streams=False) as not_streaming, reasc(not_streaming) as whole:
            sides = {BARE: Side(bare), "ours": ours, WHOLE: whole}
            votes = measure_votes(sides, seconds=1, rounds=1)
    assert [name for _, name in votes] == [*sides] * 4
    assert all(rate > 0 for rate, _ in votes.values())
    assert all(processor > 0 for (_, name), (_, processor) in votes.items() if name != BARE)
    assert list(found) == ["one response, whole", "one response, streamed", "a vote of 2, whole"]
    for measured in found.values():
        (bare_key, bare_times), (our_key, our_times) = measured.items()
        assert (bare_key[0], our_key[0]) == (BARE, "ours") and bare_key[1] == our_key[1] < our_times.saturation
        assert not sum(turn.failed for turn in our_times.rounds + bare_times.rounds)
        middle, low, high = added(our_times, bare_times, "end", 0.5)
        assert 0 < low <= middle <= high


@pytest.mark.slow  # a load test
@pytest.mark.parametrize("workers", [1, 2])
def test_every_request_is_answered_once_when_a_server_dies_and_comes_back(workers: int) -> None:
    report = asyncio.run(run(requests=60, servers=3, workers=workers))
    assert sum(report.answers.values()) == report.at_once == 60
    broken = [kind for kind in report.answers if kind[1] != "200"]  # in the middle of a stream, at most
    assert set(broken) <= {("passed through, streamed", "200 with an error")}
    assert report.is_billed_right and report.sent["responses"] > 60


@pytest.mark.slow  # a load test
def test_requests_of_all_kinds_are_answered_as_they_should_be() -> None:
    report = asyncio.run(run(requests=400, concurrency=32))
    assert report.at_once == 32 and len(report.memory) == 20
    expected = {"refused by the servers": "400", "wrong": "400"}
    assert all(outcome in (expected.get(kind, "200"), "200 with an error") for kind, outcome in report.answers)
    assert report.slope()[1] < report.slope()[0] < report.slope()[2]
